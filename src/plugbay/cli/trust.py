"""`plugbay trust add|list|revoke`: whose keys may sign what.

Owns the words on the command line; the file and what follows from it are `packages.trust`'s.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import output
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.package_view import AsJson, TrustFile, now, told, trust_in

if TYPE_CHECKING:
    from plugbay.packages.trust import TrustedKey

EXAMPLES = """\
Examples
plugbay trust add acme.pub --publisher acme
plugbay trust add notes.pub --publisher notes --package memory-notes --until 2027-12-31
plugbay trust revoke 0123456789abcdef"""

trust = typer.Typer(
    name="trust", help="Say whose keys may sign which plugins.", epilog=EXAMPLES, cls=HelpGroup, no_args_is_help=True
)


def _end_of(day: str | None) -> datetime | None:
    try:
        return None if day is None else datetime.strptime(day, "%Y-%m-%d").replace(hour=23, minute=59, tzinfo=UTC)
    except ValueError:
        raise typer.BadParameter(f"{day!r} is no day such as 2027-12-31", param_hint="--until") from None


@trust.command(cls=HelpCommand, epilog=EXAMPLES)
def add(
    key: Annotated[Path, typer.Argument(metavar="FILE", help="The public key, as plugbay keygen makes it.")],
    publisher: Annotated[str, typer.Option(metavar="NAME", help="Signs NAME/… and NAME.…, and nothing else.")],
    package: Annotated[list[str] | None, typer.Option(metavar="ID", help="May sign this too; repeatable.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Its last day, as 2027-12-31.")] = None,
    trust_file: TrustFile = None,
    as_json: AsJson = False,
) -> None:
    """Trust a publisher's key.

    Compare its id with what the publisher says, by another way than the package came.
    """
    from plugbay.packages.keys import load_public
    from plugbay.packages.trust import TrustedKey

    last = _end_of(until)
    with told(as_json):
        public = load_public(key)
        try:
            trusted = TrustedKey(public, publisher, tuple(package or ()), last)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
        trust_in(trust_file).add(trusted)
    _show([trusted], as_json)


@trust.command("list", cls=HelpCommand, epilog=EXAMPLES)
def list_(trust_file: TrustFile = None, as_json: AsJson = False) -> None:
    """Show every key, and what it is trusted with."""
    with told(as_json):
        found = trust_in(trust_file).keys()
    if as_json:
        output.print_json([key.to_json() for key in found])
    elif found:
        _show(found, as_json=False)
    else:
        output.note("no key is trusted yet; plugbay trust add begins with one")


@trust.command(cls=HelpCommand, epilog=EXAMPLES)
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="As plugbay trust list shows it.")],
    trust_file: TrustFile = None,
    as_json: AsJson = False,
) -> None:
    """Never believe a key again. What it has signed and is installed stays."""
    with told(as_json):
        revoked = trust_in(trust_file).revoke(key_id)
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
