"""`plugbay new NAME`: create a plugin that passes `plugbay conform`, from the templates in `templates/`.

Template syntax:

    @@name@@                        a value
    @@if tool@@ … @@end@@           only for plugins with a tool; also around whole lines

The manifests of a Python plugin are generated from its new source. `main` loads this module always, so the SDK is
imported inside functions.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from plugbay.cli.exit_codes import for_signal, refusal
from plugbay.cli.render import output

ALL = "all"
DEFAULT_CONTRACT = "rune"
DEFAULT_LANGUAGE = "python"

ABOUT = {
    "rune": "tools, one process per call; the smallest contract",
    "nexo": "tools, channels, models, hooks; a resident process",
    "kaged": "tools, session hooks, storage, settings; a resident process",
    "ainb": "screens and command lines in a terminal",
    "vai": "tools, hooks, compactors, harnesses; signed packages",
    "mcp": "tools for any client of the Model Context Protocol",
}
"""The purpose of each contract."""

Contracts = Annotated[
    list[str] | None,
    typer.Option("--contract", metavar="C", help="rune (default), nexo, kaged, ainb, vai, mcp or all; repeatable."),
]
Language = Annotated[str | None, typer.Option(metavar="L", help="python (default), javascript or shell.")]
Parent = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The parent of the new folder; this directory by default.")
]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the plugin and of its folder.")],
    contract: Contracts = None,
    lang: Language = None,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The purpose of the plugin, in one line.")
    ] = None,
    parent: Parent = Path(),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask no questions; use the defaults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout; ask no questions.")] = False,
) -> None:
    """Create a plugin: program, manifest, README, test and CI file.

    On a terminal, asks for options that are not given. A Python plugin can speak several contracts. The new plugin
    passes plugbay conform.
    """

    asks = not (yes or as_json) and sys.stdin.isatty() and sys.stderr.isatty()
    _check_name(name, ())
    _check_folder(parent / name)
    contracts = _parse_contracts(contract) if contract else _ask_or_default(asks, _ask_contracts, (DEFAULT_CONTRACT,))
    _check_name(name, contracts)
    language = (
        _parse_language(lang, contracts) if lang else _ask_or_default(asks, _ask_language(contracts), DEFAULT_LANGUAGE)
    )
    default = f"The {name} plugin."
    text = (
        _ask_or_default(asks, _ask_description(default), default)
        if description is None
        else _parse_description(description)
    )
    plugin = NewPlugin(name, language, contracts, text, parent)
    files = create(plugin)
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

    problem = name_problem(name, contracts)
    if problem is None:
        return
    head, slash, last = name.rpartition("/")
    where = f" --dir {shlex.quote(head or '/')}" if slash and last else ""
    instead = f"plugbay new {suggest_name(last or head, contracts)}{where}"
    raise typer.BadParameter(f"{name!r} cannot be a plugin's name: {problem}. Try: {instead}", param_hint="NAME")


def _check_folder(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise refusal(f"{folder} exists and is not a folder", "choose another name, or another --dir")
    if folder.is_dir() and any(folder.iterdir()):
        raise refusal(f"the folder {folder} is not empty", "choose another name, or another --dir")


def _parse_contracts(names: list[str]) -> tuple[str, ...]:

    words = [word for name in names for word in name.replace(",", " ").split()]
    unknown = [word for word in words if word not in (*CONTRACTS, ALL)]
    if unknown or not words:
        known = ", ".join(CONTRACTS)
        text = f"{' '.join(unknown) or 'an empty name'} is not a contract; there are {known}, and {ALL}"
        raise typer.BadParameter(text, param_hint="--contract")
    return CONTRACTS if ALL in words else tuple(name for name in CONTRACTS if name in words)


def _parse_language(name: str, contracts: tuple[str, ...]) -> str:

    short = {"py": "python", "js": "javascript", "sh": "shell"}
    language = short.get(name.strip().lower(), name.strip().lower())
    if language not in LANGUAGES:
        text = f"there are no templates for {name!r}; there are templates for {', '.join(LANGUAGES)}"
        raise typer.BadParameter(text, param_hint="--lang")
    if language != DEFAULT_LANGUAGE and len(contracts) > 1:
        raise typer.BadParameter(
            f"a {language} plugin speaks one contract, not {' and '.join(contracts)}; "
            f"choose one of them, or {DEFAULT_LANGUAGE}",
            param_hint="--lang",
        )
    return language


def _parse_description(text: str) -> str:

    line = text.strip()
    if not line or not line.isprintable() or len(line) > MAX_DESCRIPTION:
        problem = f"a description is one line of at most {MAX_DESCRIPTION} characters"
        raise typer.BadParameter(problem, param_hint="--description")
    return line


# Prompts.


def _ask_or_default(asks: bool, ask: Callable[[], Any], otherwise: Any) -> Any:
    return ask() if asks else otherwise


def _ask(question: str, default: str, check: Callable[[str], Any]) -> Any:
    """Prompt until the answer is valid."""
    while True:
        try:
            answer = typer.prompt(question, default=default, err=True)
        except typer.Abort:
            output.err().blank()
            output.note("nothing was created")
            raise typer.Exit(for_signal(signal.SIGINT)) from None
        try:
            return check(answer)
        except typer.BadParameter as error:
            output.err().line((f"  {error.message}", output.WARN_STYLE))


def _ask_contracts() -> tuple[str, ...]:
    page = output.err()
    page.line(("Contracts: one, several, or all", output.NAME))
    for contract, about in ABOUT.items():
        page.field(contract, (about, output.DIM))
    answer: tuple[str, ...] = _ask("Contracts", DEFAULT_CONTRACT, lambda text: _parse_contracts([text]))
    return answer


def _ask_language(contracts: tuple[str, ...]) -> Callable[[], str]:
    if len(contracts) > 1:  # only the Python SDK serves several contracts
        return lambda: DEFAULT_LANGUAGE
    return lambda: str(
        _ask("Language: python, javascript or shell", DEFAULT_LANGUAGE, lambda text: _parse_language(text, contracts))
    )


def _ask_description(default: str) -> Callable[[], str]:
    return lambda: str(_ask("Purpose, in one line", default, _parse_description))


# Output.

FILE_NOTES = {
    "README.md": "first steps",
    "json.awk": "parses JSON",
    ".gitignore": "",
    ".github/workflows/plugin.yml": "runs test and conform on each push",
}


def _show(plugin: NewPlugin, files: list[str]) -> None:

    page = output.out()
    page.line((f"{output.OK} ", output.GOOD_STYLE), (str(plugin.folder), output.NAME), (_summary(plugin), output.DIM))
    width = max(map(len, files)) + 2
    for file in files:
        page.field(file, (_about(plugin, file), output.DIM), width=width, label_style="")
    for contract, spelt in contract_names(plugin.name, plugin.contracts).items():
        page.line((f"its name in {contract} is {spelt}", output.DIM), indent=2)
    page.blank()
    page.line(("Next", output.NAME))
    for command in (f"cd {shlex.quote(str(plugin.folder))}", *first_steps(plugin), TESTS[plugin.language]):
        page.line((command, output.CODE), indent=2)
    if plugin.language == DEFAULT_LANGUAGE:
        page.line(
            ("plugbay manifest .", output.CODE), ("  after each change of its declarations", output.DIM), indent=2
        )


def _summary(plugin: NewPlugin) -> str:
    return f"{output.DOT}{plugin.language}{output.DOT}{', '.join(plugin.contracts)}"


def _about(plugin: NewPlugin, file: str) -> str:
    from plugbay.contracts.registry import contract_of

    known = contract_of(file)
    if known is not None:
        return f"the manifest for {known.name} hosts"
    if file.startswith("test"):
        return "the test"
    return "the plugin: start here" if file == plugin.main else FILE_NOTES.get(file, "")


# Files.

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".txt"
"""Suffix of every template, so that tools do not treat them as source files."""

LANGUAGES = ("python", "javascript", "shell")
CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

MAX_DESCRIPTION = 200
"""Characters; the smallest limit of all contracts."""

MAX_NAME_LENGTH = {"rune": 64, "nexo": 26, "kaged": 64, "ainb": 64, "vai": 64, "mcp": 64}
"""Characters. nexo allows 32 for ids and for tool names, and a tool name begins with the id: `weather_hello`."""

RESERVED_NAMES = {"ainb": ("bin", "schemas", "plugin.py", "plugin.sh", "plugin.mjs")}
"""Names of other files of a plugin; the program of an ainb plugin is named after the plugin."""

MAIN = {"python": "plugin.py", "javascript": "plugin.mjs", "shell": "plugin.sh"}
PROGRAMS = {"python": "python3", "javascript": "node", "shell": "sh"}
TESTS = {"python": "python -m pytest", "javascript": "node --test test.mjs", "shell": "sh test.sh"}

TARGET_PATHS = {"gitignore": ".gitignore", "mcp.json": ".mcp.json", "plugin.yml": ".github/workflows/plugin.yml"}
"""Target paths of templates that tools of this repository would pick up under their real names."""

RESULT_PATH = {"vai": ".structured_output", "mcp": ".structuredContent"}
"""Path of a tool's value in the result of a call."""

NEEDS_GRANT = {"mcp": ("python", "javascript", "shell"), "kaged": ("shell",), "ainb": ("shell",)}
"""By contract, the languages whose plugins need a grant for their first call: tools of MCP are approved, and a shell
script runs other programs."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_LINES = re.compile(r"^@@if (\w+)@@\n(.*?)^@@end@@\n", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"@@if (\w+)@@(.*?)@@end@@")
_VALUE = re.compile(r"@@(\w+)@@")


@dataclass(frozen=True, slots=True)
class NewPlugin:
    """The options of a new plugin."""

    name: str
    language: str
    contracts: tuple[str, ...]
    description: str
    parent: Path

    @property
    def folder(self) -> Path:
        return self.parent / self.name

    @property
    def has_tool(self) -> bool:
        return any(contract != "ainb" for contract in self.contracts)

    @property
    def has_screen(self) -> bool:
        return "ainb" in self.contracts

    @property
    def main(self) -> str:
        """The main source file."""
        return self.name if self.contracts == ("ainb",) and self.language != "python" else MAIN[self.language]

    @property
    def tool(self) -> str:
        """The name of its tool in the first contract."""
        from plugbay.sdk.contracts.nexo import nexo_id

        return f"{nexo_id(self.name)}_hello" if self.contracts[0] == "nexo" else "hello"


def name_problem(name: str, contracts: tuple[str, ...]) -> str | None:
    """Why a plugin of these contracts cannot have this name; None when it can."""
    if not _NAME.fullmatch(name):
        return "a name has lower-case letters, digits, '-' and '_', and begins with a letter"
    for contract in contracts:
        if len(name) > MAX_NAME_LENGTH[contract]:
            return f"a name has at most {MAX_NAME_LENGTH[contract]} characters for {contract}"
        if name in RESERVED_NAMES.get(contract, ()):
            return f"{contract} names the program after the plugin, and another file has the name {name!r}"
    return None


def suggest_name(name: str, contracts: tuple[str, ...]) -> str:
    """A valid name similar to this one."""
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    spelt = re.sub(r"[^a-z0-9_]+", "-", letters.lower()).strip("-_")
    spelt = spelt if spelt[:1].isalpha() else f"my-{spelt}".rstrip("-")
    shortest = min((MAX_NAME_LENGTH[contract] for contract in contracts), default=64)
    spelt = spelt[:shortest].rstrip("-_")
    return spelt if name_problem(spelt, contracts) is None else f"my-{spelt}"[:shortest]


def contract_names(name: str, contracts: tuple[str, ...]) -> dict[str, str]:
    """The plugin's name in each contract where it differs."""
    from plugbay.sdk.contracts.ainb import ainb_name
    from plugbay.sdk.contracts.nexo import nexo_id
    from plugbay.sdk.contracts.vai import package_id
    from plugbay.sdk.io.detect import kaged_name

    spelt = {"nexo": nexo_id(name), "kaged": kaged_name(name), "ainb": ainb_name(name), "vai": package_id(name)}
    return {contract: spelt[contract] for contract in contracts if spelt.get(contract, name) != name}


def create(plugin: NewPlugin) -> list[str]:
    """Write the plugin's folder atomically; return its paths. Raises OSError and `Unusable`."""
    plugin.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{plugin.name}-", dir=plugin.parent) as place:
        folder = Path(place) / plugin.name
        files = dict(_render_files(plugin))
        for path, text in files.items():
            _write(folder / path, text)
        paths = [*files, *(_manifests(folder, plugin) if plugin.language == "python" else ())]
        paths.sort(key=lambda path: path != plugin.main)
        if plugin.folder.is_dir() and not plugin.folder.is_symlink():
            plugin.folder.rmdir()  # raises if it is not empty
        os.rename(folder, plugin.folder)
    return paths


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    if text.startswith("#!"):
        file.chmod(0o755)


def _manifests(folder: Path, plugin: NewPlugin) -> list[str]:
    """Generate the manifests as `plugbay manifest` does."""
    from plugbay.cli.manifest import command, generated

    declared = generated.read_declarations(folder / MAIN["python"])
    outcomes = command.generate(declared, folder, list(plugin.contracts), write=True)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return [plan.path for outcome in outcomes for plan in outcome.plans]


def _render_files(plugin: NewPlugin) -> Iterator[tuple[str, str]]:
    """Render every template: the program first, files for tools last."""
    plain = plugin.language != "python"
    sources = [TEMPLATES / plugin.language / plugin.contracts[0], TEMPLATES / plugin.language / "all"]
    sources += [TEMPLATES / "contracts" / contract for contract in plugin.contracts]
    values, flags = _values(plugin), _flags(plugin)
    for source in [*(sources if plain else [TEMPLATES / plugin.language]), TEMPLATES / "common"]:
        for file in sorted(source.rglob(f"*{SUFFIX}")):
            path = str(file.relative_to(source)).removesuffix(SUFFIX)
            place = plugin.name if path == "program" else TARGET_PATHS.get(path, path)
            yield place, fill_template(file.read_text("utf-8"), values, flags)


def fill_template(text: str, values: Mapping[str, str], flags: frozenset[str]) -> str:
    """Fill a template; raises KeyError for a missing value."""
    for pattern in (_LINES, _INLINE):
        text = pattern.sub(lambda match: match[2] if match[1] in flags else "", text)
    return _VALUE.sub(lambda match: values[match[1]], text)


def _flags(plugin: NewPlugin) -> frozenset[str]:
    facts = {
        "tool": plugin.has_tool,
        "screen": plugin.has_screen,
        "approval": bool(_approval(plugin)),
        "framed": not {"ainb", "vai"}.isdisjoint(plugin.contracts),
        **{language: language == plugin.language for language in LANGUAGES},
    }
    return frozenset(name for name, holds in facts.items() if holds)


def _values(plugin: NewPlugin) -> dict[str, str]:
    from plugbay.sdk.contracts.nexo import nexo_id
    from plugbay.sdk.contracts.vai import package_id
    from plugbay.sdk.io.detect import kaged_name

    title = plugin.name.replace("-", " ").replace("_", " ").title()
    return {
        "name": plugin.name,
        "nexo_id": nexo_id(plugin.name),
        "kaged_name": kaged_name(plugin.name),
        "vai_id": package_id(plugin.name),
        "title": title,
        "title_json": _quote(title),
        "description": plugin.description,
        "description_json": _quote(plugin.description),
        "description_doc": plugin.description.replace("\\", "\\\\").replace('"""', "'''"),
        "program": PROGRAMS[plugin.language],
        "argument": MAIN[plugin.language],
        "main": plugin.main,
        "tool": plugin.tool,
        "inside": RESULT_PATH.get(plugin.contracts[0], ""),
        "approval": _approval(plugin),
        "contracts_words": _join_words(plugin.contracts),
        "manifest_files": ", ".join(f"`{file}`" for file in _manifest_files(plugin.contracts)),
        "test_command": TESTS[plugin.language],
        "try_it": "\n".join(first_steps(plugin)),
    }


def _approval(plugin: NewPlugin) -> str:
    """The option for a first call, with a blank before it; empty for a plugin that needs no grant."""
    return " --grant-all" if plugin.language in NEEDS_GRANT.get(plugin.contracts[0], ()) else ""


def first_steps(plugin: NewPlugin) -> list[str]:
    """Commands to try the new plugin, in its folder."""
    approval = _approval(plugin)
    call = f"plugbay call . {plugin.tool} {shlex.quote(json.dumps({'name': 'Ada'}))}{approval}"
    screen = [f"plugbay run --plugins .{approval} {plugin.name} Ada", f"plugbay render .{approval}"]
    return [*([call] if plugin.has_tool else ()), *(screen if plugin.has_screen else ()), "plugbay conform ."]


def _manifest_files(contracts: tuple[str, ...]) -> list[str]:
    from plugbay.contracts.registry import CONTRACTS as KNOWN

    return [KNOWN[contract].manifest_files[0] for contract in contracts]


def _join_words(items: tuple[str, ...]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def _quote(text: str) -> str:
    """Quote a string in a form that JSON, TOML, YAML, JavaScript and Python share."""
    return json.dumps(text, ensure_ascii=False)
