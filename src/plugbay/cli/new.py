"""`plugbay new NAME`: create a plugin that passes `plugbay conform`. `scaffold` writes the files."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli.exit_codes import Exit, for_signal
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.cli.scaffold import NewPlugin

ALL = "all"
DEFAULT_CONTRACT = "rune"
DEFAULT_LANGUAGE = "python"

ABOUT = {
    "rune": "tools, one process per call: the smallest",
    "nexo": "tools, channels, models, hooks; stays running",
    "kaged": "tools, session hooks, storage, settings; stays running",
    "ainb": "screens and command lines in a terminal",
    "vai": "tools, hooks, compactors, harnesses; signed packages",
    "mcp": "tools for any client of the Model Context Protocol",
}
"""The purpose of each contract."""

Contracts = Annotated[
    list[str] | None,
    typer.Option(
        "--contract", metavar="C", help="rune, nexo, kaged, ainb, vai, mcp or all; repeatable. rune if left out."
    ),
]
Language = Annotated[str | None, typer.Option(metavar="L", help="python, javascript or shell; python if left out.")]
Parent = Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to make the folder NAME; here by default.")]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The plugin's name, and its folder's.")],
    contract: Contracts = None,
    lang: Language = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for, in a line.")] = None,
    parent: Parent = Path(),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take the defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout; ask nothing.")] = False,
) -> None:
    """Make a new plugin that passes plugbay conform: program, manifest, README, test and CI file.

    Asks on a terminal what was not said. In Python, one source serves as many contracts as you like.
    """
    from plugbay.cli import declarations, scaffold
    from plugbay.cli.manifest import command as manifest

    asks = not (yes or as_json) and sys.stdin.isatty() and sys.stderr.isatty()
    _check_name(name, ())
    _check_folder(parent / name)
    contracts = _parse_contracts(contract) if contract else _ask_or_default(asks, _ask_contracts, (DEFAULT_CONTRACT,))
    _check_name(name, contracts)
    language = (
        _parse_language(lang, contracts) if lang else _ask_or_default(asks, _ask_language(contracts), DEFAULT_LANGUAGE)
    )
    default = f"The {name} plugin."
    said = (
        _ask_or_default(asks, _ask_description(default), default)
        if description is None
        else _parse_description(description)
    )
    plugin = scaffold.NewPlugin(name, language, contracts, said, parent)
    try:
        files = scaffold.create(plugin)
    except declarations.Unusable as error:
        manifest.explain(error)
        raise typer.Exit(error.status) from None
    if as_json:
        output.print_json(_json(plugin, files))
    else:
        _show(plugin, files)


def _json(plugin: NewPlugin, files: list[str]) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "folder": str(plugin.folder),
        "language": plugin.language,
        "contracts": list(plugin.contracts),
        "files": files,
    }


# Options.


def _check_name(name: str, contracts: tuple[str, ...]) -> None:
    from plugbay.cli.scaffold import name_problem, suggest_name

    problem = name_problem(name, contracts)
    if problem is None:
        return
    head, slash, last = name.rpartition("/")
    where = f" --dir {shlex.quote(head or '/')}" if slash and last else ""
    instead = f"plugbay new {suggest_name(last or head, contracts)}{where}"
    raise typer.BadParameter(f"{name!r} cannot be a plugin's name: {problem}. Try: {instead}", param_hint="NAME")


def _check_folder(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        output.problem(f"{folder} is there already, and no folder", hint="choose another name, or another --dir")
    elif folder.is_dir() and any(folder.iterdir()):
        output.problem(f"the folder {folder} is not empty", hint="choose another name, or another --dir")
    else:
        return
    raise typer.Exit(Exit.FAILURE)


def _parse_contracts(names: list[str]) -> tuple[str, ...]:
    from plugbay.cli.scaffold import CONTRACTS

    words = [word for name in names for word in name.replace(",", " ").split()]
    unknown = [word for word in words if word not in (*CONTRACTS, ALL)]
    if unknown or not words:
        known = ", ".join(CONTRACTS)
        text = f"{' '.join(unknown) or 'nothing'} is no contract; there are {known}, and {ALL}"
        raise typer.BadParameter(text, param_hint="--contract")
    return CONTRACTS if ALL in words else tuple(name for name in CONTRACTS if name in words)


def _parse_language(name: str, contracts: tuple[str, ...]) -> str:
    from plugbay.cli.scaffold import LANGUAGES

    short = {"py": "python", "js": "javascript", "sh": "shell"}
    language = short.get(name.strip().lower(), name.strip().lower())
    if language not in LANGUAGES:
        text = f"there are templates in {', '.join(LANGUAGES)}, none in {name!r}"
        raise typer.BadParameter(text, param_hint="--lang")
    if language != DEFAULT_LANGUAGE and len(contracts) > 1:
        raise typer.BadParameter(
            f"without the SDK a program speaks one contract, not {' and '.join(contracts)}; "
            f"choose one of them, or {DEFAULT_LANGUAGE}",
            param_hint="--lang",
        )
    return language


def _parse_description(text: str) -> str:
    from plugbay.cli.scaffold import MAX_DESCRIPTION

    said = text.strip()
    if not said or not said.isprintable() or len(said) > MAX_DESCRIPTION:
        text = f"a description is one line of at most {MAX_DESCRIPTION} characters"
        raise typer.BadParameter(text, param_hint="--description")
    return said


# Prompts.


def _ask_or_default(asks: bool, ask: Callable[[], Any], otherwise: Any) -> Any:
    return ask() if asks else otherwise


def _ask(question: str, default: str, check: Callable[[str], Any]) -> Any:
    """Prompt until the answer is valid."""
    while True:
        try:
            said = typer.prompt(question, default=default, err=True)
        except typer.Abort:
            output.err().blank()
            output.note("nothing was made")
            raise typer.Exit(for_signal(signal.SIGINT)) from None
        try:
            return check(said)
        except typer.BadParameter as error:
            output.err().line((f"  {error.message}", output.WARN_STYLE))


def _ask_contracts() -> tuple[str, ...]:
    page = output.err()
    page.line(("Which hosts is it for? One contract, several, or all.", output.NAME))
    for contract, about in ABOUT.items():
        page.field(contract, (about, output.DIM))
    answer: tuple[str, ...] = _ask("Contracts", DEFAULT_CONTRACT, lambda said: _parse_contracts([said]))
    return answer


def _ask_language(contracts: tuple[str, ...]) -> Callable[[], str]:
    if len(contracts) > 1:  # only the Python SDK serves several contracts
        return lambda: DEFAULT_LANGUAGE
    return lambda: str(
        _ask("Language: python, javascript or shell", DEFAULT_LANGUAGE, lambda it: _parse_language(it, contracts))
    )


def _ask_description(default: str) -> Callable[[], str]:
    return lambda: str(_ask("What is it for, in a line", default, _parse_description))


# Output.

FILE_NOTES = {
    "README.md": "how to try it",
    "json.awk": "reads JSON",
    ".gitignore": "",
    ".github/workflows/plugin.yml": "runs both on every push",
}


def _show(plugin: NewPlugin, files: list[str]) -> None:
    from plugbay.cli.scaffold import TESTS, contract_names, first_steps

    page = output.out()
    page.line((f"{output.OK} ", output.GOOD_STYLE), (str(plugin.folder), output.NAME), (_summary(plugin), output.DIM))
    width = max(map(len, files)) + 2
    for file in files:
        page.field(file, (_about(plugin, file), output.DIM), width=width, label_style="")
    for contract, spelt in contract_names(plugin.name, plugin.contracts).items():
        page.line((f"{contract} calls it {spelt}", output.DIM), indent=2)
    page.blank()
    page.line(("Next", output.NAME))
    for command in (f"cd {shlex.quote(str(plugin.folder))}", *first_steps(plugin), TESTS[plugin.language]):
        page.line((command, output.CODE), indent=2)
    if plugin.language == DEFAULT_LANGUAGE:
        page.line(
            ("plugbay manifest .", output.CODE), ("  after every change of what it declares", output.DIM), indent=2
        )


def _summary(plugin: NewPlugin) -> str:
    return f"{output.DOT}{plugin.language}{output.DOT}{', '.join(plugin.contracts)}"


def _about(plugin: NewPlugin, file: str) -> str:
    from plugbay.contracts.registry import contract_of

    known = contract_of(file)
    if known is not None:
        return f"what hosts of {known.name} read"
    if file.startswith("test"):
        return "its test"
    return "the plugin: start here" if file == plugin.main else FILE_NOTES.get(file, "")
