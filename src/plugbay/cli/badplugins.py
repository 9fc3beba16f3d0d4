"""`plugbay badplugins list|show|run|write`: plugins that misbehave on purpose, for testing any host with them.

`plugbay.conformance.bad_plugins` has the plugins, and the reactions that a host must show.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli.exit_codes import Exit, refusal
from plugbay.cli.help import HelpCommand, HelpGroup
from plugbay.cli.options import AsJson
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.conformance.bad_plugins.descriptions import BadPlugin

EXAMPLES = """\
Examples
plugbay badplugins list
plugbay badplugins list nexo
plugbay badplugins show nexo/initialize_never"""

badplugins = typer.Typer(
    name="badplugins",
    help="Test a host with plugins that misbehave on purpose.",
    cls=HelpGroup,
    epilog=EXAMPLES,
    no_args_is_help=True,
)

RUN_EXAMPLES = """\
Examples
my-host --plugin "plugbay badplugins run nexo/initialize_never\""""

WRITE_EXAMPLES = """\
Examples
plugbay badplugins write nexo/initialize_never plugins/
plugbay badplugins write kaged plugins/"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="CONTRACT/NAME, as list shows it.")]

MAX_LISTED = 5
"""Similar names in the hint for an unknown one."""


@badplugins.command(name="list", cls=HelpCommand, epilog=EXAMPLES)
def list_(
    contract: Annotated[
        str | None,
        typer.Argument(metavar="CONTRACT", help="List all bad plugins of this contract.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the bad plugins of each contract, or list those of one contract."""
    from plugbay.conformance.bad_plugins.descriptions import CONTRACTS, load_bad_plugins

    _check(contract)
    chosen = {name: load_bad_plugins(name) for name in CONTRACTS if contract in (None, name)}
    if as_json:
        keys = ("name", "contract", "about", "does")
        rows = [each.to_json() for several in chosen.values() for each in several]
        output.print_json([{key: row[key] for key in keys} for row in rows])
    elif contract is None:
        _summary(chosen)
    else:
        _listing(chosen[contract])


def _summary(chosen: dict[str, list[BadPlugin]]) -> None:
    page = output.out()
    for contract, several in chosen.items():
        subjects = dict.fromkeys(each.entry.row for each in several)
        page.field(contract, f"{len(several):3} plugins", (f"  about {len(subjects)} subjects", output.DIM))
    page.blank()
    page.line("list CONTRACT lists the plugins, show NAME shows the reaction that a host must show", indent=2)


def _listing(several: list[BadPlugin]) -> None:
    page = output.out()
    width = max(len(each.name) for each in several) + 2
    for subject in dict.fromkeys(each.entry.row for each in several):
        page.blank()
        page.line((subject, output.DIM))
        for each in several:
            if each.entry.row == subject:
                page.field(each.name, each.entry.what, width=width, label_style=output.NAME)


@badplugins.command(cls=HelpCommand, epilog=EXAMPLES)
def show(name: Name, as_json: AsJson = False) -> None:
    """Show the fault of a bad plugin. Also shows its trigger, and the duties of a host."""
    found = _named(name)
    if as_json:
        output.print_json(found.to_json())
        return
    page = output.out()
    page.line((found.name, output.NAME), (f"  {found.entry.row}", output.DIM))
    rows = [("does", [found.entry.what]), ("ask", found.asked()), ("must", found.duties()), ("run", _ways(found))]
    for label, lines in rows:
        for line in lines:
            page.field(label, line)
            label = ""


def _ways(found: BadPlugin) -> list[str]:
    run = [] if found.command() is None else [f"plugbay badplugins run {found.name}"]
    return [*run, f"plugbay badplugins write {found.name} DIR, for a host that loads folders with a manifest"]


@badplugins.command(cls=HelpCommand, epilog=RUN_EXAMPLES)
def run(name: Name) -> None:
    """Run a bad plugin on stdin and stdout. For the configuration of a host under test."""
    found = _named(name)
    command = found.command()
    if command is None:
        text = f"{found.name} has an invalid manifest and no program to run"
        raise refusal(text, f"plugbay badplugins write {found.name} DIR writes its folder", Exit.NOT_FOUND)
    argv, variables = command
    os.execve(argv[0], argv, {**os.environ, **variables})


@badplugins.command(cls=HelpCommand, epilog=WRITE_EXAMPLES)
def write(
    name: Annotated[str, typer.Argument(metavar="NAME", help="CONTRACT/NAME, or a CONTRACT for all of its plugins.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write into.")],
    as_json: AsJson = False,
) -> None:
    """Write bad plugins as folders with a manifest. For a host that loads folders."""
    from plugbay.conformance.bad_plugins.catalogue import FOLDER, prepare
    from plugbay.conformance.bad_plugins.descriptions import load_bad_plugins

    several = load_bad_plugins(_check(name)) if "/" not in name else [_named(name)]
    taken = [each for each in several if (folder / each.entry.name).exists()]
    if taken:
        raise refusal(f"{folder / taken[0].entry.name} exists already", "name another DIR, or remove it")
    written = {each.name: str(prepare(each.entry, folder, FOLDER / each.contract)) for each in several}
    if as_json:
        output.print_json(written)
    else:
        output.out().line(f"{output.count(len(written), 'plugin')} in {folder}", (_first(written), output.DIM))


def _first(written: dict[str, str]) -> str:
    return f"  {next(iter(written.values()))}{', …' if len(written) > 1 else ''}"


def _check(contract: str | None) -> str:
    from plugbay.conformance.bad_plugins.descriptions import CONTRACTS

    if contract is not None and contract not in CONTRACTS:
        known = ", ".join(CONTRACTS)
        raise typer.BadParameter(f"there is no contract {contract!r}; there are {known}", param_hint="CONTRACT")
    return contract or ""


def _named(name: str) -> BadPlugin:
    """The bad plugin of this name; raises `Refusal`."""
    from plugbay.conformance.bad_plugins.descriptions import CONTRACTS, load_bad_plugins

    contract, _, rest = name.partition("/")
    several = [each for known in CONTRACTS if known == contract for each in load_bad_plugins(known)]
    for each in several:
        if each.entry.name == rest:
            return each
    raise refusal(f"there is no bad plugin {name!r}", _near(rest, several), Exit.NOT_FOUND)


def _near(rest: str, several: list[BadPlugin]) -> str:
    from difflib import get_close_matches

    names = {each.entry.name: each.name for each in several}
    near = ", ".join(names[close] for close in get_close_matches(rest, names, MAX_LISTED))
    return f"did you mean {near}?" if near else "plugbay badplugins list CONTRACT lists the names"
