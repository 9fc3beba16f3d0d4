"""`plugbay keygen`, `sign`, `verify`: who vouches for a package. `sign` is also installed as `vai-plugin-sign`.

Owns the commands' words and their JSON. Keys and signatures are `packages`' business; whose keys count is told with
`plugbay trust`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import output
from plugbay.cli.package_view import AsJson, TrustFile, now, told, trust_in

if TYPE_CHECKING:
    from plugbay.packages.package import Package

Target = Annotated[Path, typer.Argument(metavar="PACKAGE", help="A package, or a plugin's folder.")]

SIGN_EXAMPLES = """\
Examples
plugbay sign example.weather-1.0.0.tar.gz --key acme.key
vai-plugin-sign dist/devkit --key acme.key"""


def keygen(
    name: Annotated[Path, typer.Argument(metavar="NAME", help="NAME.key and NAME.pub are written.")],
    as_json: AsJson = False,
) -> None:
    """Make a pair of keys: one to sign with, for nobody else's eyes, and one to give away."""
    from plugbay.packages import keys

    private, public = name.with_name(f"{name.name}.key"), name.with_name(f"{name.name}.pub")
    with told(as_json):
        key_id = keys.key_id(keys.make(private, public))
    if as_json:
        output.print_json({"key_id": key_id, "private": str(private), "public": str(public)})
        return
    page = output.out()
    page.line("key ", (key_id, output.NAME))
    page.field("private", str(private), ("  sign with it; keep it to yourself", output.DIM))
    page.field("public", str(public), ("  for whoever installs your plugins", output.DIM))


def sign(
    target: Target,
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key, as plugbay keygen makes it.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the signature.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a package: the name and hash of every file, the plugin's id and its version.

    The signature of an archive is written beside it, and the archive stays as it is; the signature of a folder is
    marketplace.signature.json in it, for the files that plugbay pack would take.
    """
    from plugbay.packages import signature as signatures
    from plugbay.packages.archive import signature_path
    from plugbay.packages.keys import load_private
    from plugbay.packages.package import SIGNATURE_NAME

    with told(as_json):
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
    """Check that a package is complete, unchanged, and signed by a key that may sign it.

    Exits with 6 when it is not. Of a folder every file counts: what was not signed has no business in it.
    """
    from plugbay.packages.installer import verify as check

    with told(as_json):
        package, data = _open(target, to_pack=False)
        signature, key = check(package, data, trust_in(trust), now())
    if as_json:
        facts = {"id": package.id, "version": package.version, "key_id": key.key_id, "publisher": key.publisher}
        output.print_json({"status": "verified", **facts, "signed_at": signature.signed_at})
        return
    words = f" {package.version} is signed by {key.publisher}, key {key.key_id}, {signature.signed_at}"
    output.out().line((output.OK, output.GOOD_STYLE), " ", (package.id, output.NAME), words)


def _open(target: Path, *, to_pack: bool) -> tuple[Package, bytes | None]:
    """The package and the signature that came with it. An archive is looked at in a folder that is gone afterwards."""
    from plugbay.packages.installer import signature_of
    from plugbay.packages.package import open_archive, read_folder, read_signature

    if target.is_dir():
        return read_folder(target, to_pack=to_pack), read_signature(target)
    with tempfile.TemporaryDirectory(prefix="plugbay-") as scratch:
        opened = open_archive(target, Path(scratch))
        return opened.package, signature_of(target, opened)
