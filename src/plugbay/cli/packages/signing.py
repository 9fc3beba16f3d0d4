"""`plugbay keygen`, `sign`, `verify` and `trust …`: signatures of packages and the keys that are trusted.

`sign` is also installed as `vai-plugin-sign`. `plugbay.packages` implements keys, signatures and the trust store.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.options import AsJson
from plugbay.cli.packages.common import TrustFile, now, open_trust_store, report_refusals
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.packages.package import Package
    from plugbay.packages.trust import TrustedKey

Target = Annotated[Path, typer.Argument(metavar="PACKAGE", help="A package, or a plugin's folder.")]

SIGN_EXAMPLES = """\
Examples
plugbay sign example.weather-1.0.0.tar.gz --key acme.key
vai-plugin-sign dist/devkit --key acme.key"""


def keygen(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="The files are NAME.key and NAME.pub.")],
    as_json: AsJson = False,
) -> None:
    """Make a key pair for signing packages."""
    from plugbay.packages import keys

    private, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    with report_refusals(as_json):
        key_id = keys.key_id(keys.make(private, public))
    if as_json:
        output.print_json({"key_id": key_id, "private": str(private), "public": str(public)})
        return
    page = output.out()
    page.line("key ", (key_id, output.NAME))
    page.field("private", str(private), ("  signs packages; keep it secret", output.DIM))
    page.field("public", str(public), ("  for the users of your plugins", output.DIM))


def sign(
    target: Target,
    key: Annotated[Path, typer.Option(metavar="FILE", help="A private key of plugbay keygen.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The file for the signature.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a package. Covers name and hash of each file, id and version of the plugin.

    The signature of an archive is a file beside it. The signature of a folder is marketplace.signature.json in it, and
    covers the files that plugbay pack would pack.
    """
    from plugbay.packages import signature as signatures
    from plugbay.packages.archive import signature_path
    from plugbay.packages.keys import load_private
    from plugbay.packages.package import SIGNATURE_NAME

    with report_refusals(as_json):
        private = load_private(key)
        package, _ = _open(target, to_pack=True)
        signature = signatures.sign(package, private, now())
        place = out or (target / SIGNATURE_NAME if target.is_dir() else signature_path(target))
        place.write_bytes(signature.to_bytes())
    if as_json:
        output.print_json(
            {"file": str(place), "id": package.id, "version": package.version, "key_id": signature.key_id}
        )
        return
    output.out().line((package.id, output.NAME), f" {package.version} signed with key {signature.key_id}")
    output.out().field("file", str(place))


def verify(target: Target, trust: TrustFile = None, as_json: AsJson = False) -> None:
    """Verify the contents and the signature of a package.

    Exits with 6 when they are invalid. In a folder, an unsigned file is an error.
    """
    from plugbay.packages.installer import verify as check

    with report_refusals(as_json):
        package, data = _open(target, to_pack=False)
        signature, key = check(package, data, open_trust_store(trust), now())
    if as_json:
        facts = {"id": package.id, "version": package.version, "key_id": key.key_id, "publisher": key.publisher}
        output.print_json({"status": "verified", **facts, "signed_at": signature.signed_at})
        return
    words = f" {package.version} is signed by {key.publisher}, key {key.key_id}, {signature.signed_at}"
    output.out().line((output.OK, output.GOOD_STYLE), " ", (package.id, output.NAME), words)


def _open(target: Path, *, to_pack: bool) -> tuple[Package, bytes | None]:
    """The package and its signature. An archive is unpacked into a temporary folder that is removed again."""
    from plugbay.packages import package as folder
    from plugbay.packages.installer import signature_of
    from plugbay.packages.package import open_archive, read_folder

    if target.is_dir():
        return read_folder(target, to_pack=to_pack), folder.read_signature(target)
    with tempfile.TemporaryDirectory(prefix="plugbay-") as scratch:
        opened = open_archive(target, Path(scratch))
        return opened.package, signature_of(target, opened)


# plugbay trust.

EXAMPLES = """\
Examples
plugbay trust add acme.pub --publisher acme
plugbay trust add notes.pub --publisher notes --package memory-notes --until 2027-12-31
plugbay trust add acme-2027.pub --publisher acme --replace
plugbay trust revoke 0123456789abcdef"""

trust = typer.Typer(
    name="trust", help="Manage the keys that may sign packages.", epilog=EXAMPLES, cls=HelpGroup, no_args_is_help=True
)


def _parse_last_day(day: str | None) -> datetime | None:
    try:
        return None if day is None else datetime.strptime(day, "%Y-%m-%d").replace(hour=23, minute=59, tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"{day!r} is not a day such as 2027-12-31", param_hint="--until") from None


@trust.command(cls=HelpCommand, epilog=EXAMPLES)
def add(
    key: Annotated[Path, typer.Argument(metavar="FILE", help="A public key of plugbay keygen.")],
    publisher: Annotated[str, typer.Option(metavar="NAME", help="The key may sign only NAME/… and NAME.….")],
    package: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="The key may also sign this package; repeatable.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="The last day of the key, like 2027-12-31.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Trust only this key of the publisher.")] = False,
    also: Annotated[bool, typer.Option("--also", help="Keep the publisher's other keys trusted.")] = False,
    trust_file: TrustFile = None,
    as_json: AsJson = False,
) -> None:
    """Trust the key of a publisher.

    First compare the key id with the publisher by another way than the package. If the publisher already has a trusted
    key, --replace or --also is required. A key that is trusted for another publisher requires --replace.
    """
    from plugbay.packages.keys import load_public
    from plugbay.packages.trust import TrustedKey

    if replace and also:
        raise typer.BadParameter("--replace and --also exclude each other", param_hint="--replace")
    last = _parse_last_day(until)
    with report_refusals(as_json):
        public = load_public(key)
        try:
            trusted = TrustedKey(public, publisher, tuple(package or ()), last)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        replaced = open_trust_store(trust_file).add(trusted, "replace" if replace else "keep" if also else "refuse")
    _show([trusted], as_json)
    if replaced and not as_json:
        output.note(f"no longer trusted: {', '.join(key.key_id for key in replaced)}")


@trust.command("list", cls=HelpCommand, epilog=EXAMPLES)
def list_(trust_file: TrustFile = None, as_json: AsJson = False) -> None:
    """List the keys, and the packages that each may sign."""
    with report_refusals(as_json):
        found = open_trust_store(trust_file).keys()
    if as_json:
        output.print_json([key.to_json() for key in found])
    elif found:
        _show(found, as_json=False)
    else:
        output.note("no key is trusted yet; plugbay trust add adds one")


@trust.command(cls=HelpCommand, epilog=EXAMPLES)
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="A key id of plugbay trust list.")],
    trust_file: TrustFile = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key for ever. Installed plugins that it signed stay."""
    with report_refusals(as_json):
        revoked = open_trust_store(trust_file).revoke(key_id)
    _show([revoked], as_json)


def _show(keys: list[TrustedKey], as_json: bool) -> None:
    if as_json:
        output.print_json(keys[0].to_json())
        return
    for key in keys:
        until = f", until {key.not_after:%Y-%m-%d}" if key.not_after else ""
        state = "revoked" if key.revoked else "good" if key.is_good(now()) else "expired"
        also = f" and {', '.join(key.packages)}" if key.packages else ""
        words = f" signs for {key.publisher}{also}{until}"
        output.out().line((key.key_id, output.NAME), words, (f"  {state}", output.DIM))
