"""Writes the files of a new plugin from templates; for Python, generates the manifests from the new source.

Template syntax:

    @@name@@                        a value
    @@if tool@@ … @@end@@           only for plugins with a tool; also around whole lines
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.sdk.contracts.nexo import nexo_id
from plugbay.sdk.contracts.vai import package_id
from plugbay.sdk.io.detect import kaged_name

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

APPROVAL_OPTION = {"mcp": "--grant-all"}
"""Option for a first call of a plugin that needs approval."""

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
        return f"{nexo_id(self.name)}_hello" if self.contracts[0] == "nexo" else "hello"


def name_problem(name: str, contracts: tuple[str, ...]) -> str | None:
    """Why a plugin of these contracts cannot have this name; None when it can."""
    if not _NAME.fullmatch(name):
        return "a name has lower-case letters, digits, '-' and '_', a letter first"
    for contract in contracts:
        if len(name) > MAX_NAME_LENGTH[contract]:
            return f"a name has at most {MAX_NAME_LENGTH[contract]} characters for {contract}"
        if name in RESERVED_NAMES.get(contract, ()):
            return f"the program of {contract} has the plugin's name, and another file here is called {name!r}"
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
    from plugbay.cli import declarations
    from plugbay.cli.manifest import command

    declared = declarations.read(folder / MAIN["python"])
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
        "approval": plugin.contracts[0] in APPROVAL_OPTION,
        "framed": not {"ainb", "vai"}.isdisjoint(plugin.contracts),
        **{language: language == plugin.language for language in LANGUAGES},
    }
    return frozenset(name for name, holds in facts.items() if holds)


def _values(plugin: NewPlugin) -> dict[str, str]:
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
        "approval": f" {APPROVAL_OPTION[plugin.contracts[0]]}" if plugin.contracts[0] in APPROVAL_OPTION else "",
        "contracts_words": _join_words(plugin.contracts),
        "manifest_files": ", ".join(f"`{file}`" for file in _manifest_files(plugin.contracts)),
        "test_command": TESTS[plugin.language],
        "try_it": "\n".join(first_steps(plugin)),
    }


def first_steps(plugin: NewPlugin) -> list[str]:
    """Commands to try the new plugin, in its folder."""
    approval = APPROVAL_OPTION.get(plugin.contracts[0], "")
    call = f"plugbay call . {plugin.tool} {shlex.quote(json.dumps({'name': 'Ada'}))} {approval}".rstrip()
    screen = [f"plugbay run --plugins . {plugin.name} Ada", "plugbay render ."]
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
