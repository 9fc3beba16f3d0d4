"""The files of a new plugin: from templates, and for Python the manifests from the new source itself.

Owns the names that a plugin may have, and what is filled into a template:

    @@name@@                        a value
    @@if tool@@ … @@end@@           only for plugins with a tool; also around whole lines

Refuses to know who asked for what, and how the result is shown.
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
"""Of every template, so that nothing takes them for programs of ours."""

LANGUAGES = ("python", "javascript", "shell")
CONTRACTS = ("rune", "nexo", "kaged", "ainb", "vai", "mcp")

MAX_DESCRIPTION = 200
"""Characters, the fewest that any contract allows."""

LONGEST = {"rune": 64, "nexo": 26, "kaged": 64, "ainb": 64, "vai": 64, "mcp": 64}
"""Characters of a name. nexo's ids have 32, and so have those of tools, which begin with it: `weather_hello`."""

TAKEN = {"ainb": ("bin", "schemas", "plugin.py", "plugin.sh", "plugin.mjs")}
"""Names that other files of a plugin have; under ainb its program has its own."""

MAIN = {"python": "plugin.py", "javascript": "plugin.mjs", "shell": "plugin.sh"}
PROGRAMS = {"python": "python3", "javascript": "node", "shell": "sh"}
TESTS = {"python": "python -m pytest", "javascript": "node --test test.mjs", "shell": "sh test.sh"}

PLACES = {"gitignore": ".gitignore", "mcp.json": ".mcp.json", "plugin.yml": ".github/workflows/plugin.yml"}
"""Where files go that would mean something to the tools of this repository if they had their own names here."""

INSIDE = {"vai": ".structured_output", "mcp": ".structuredContent"}
"""Where the value of a tool is in what a call gives back."""

APPROVAL = {"mcp": "--grant-all"}
"""What a call says where a plugin asks for nothing, but is looked at by a person before it is used."""

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_LINES = re.compile(r"^@@if (\w+)@@\n(.*?)^@@end@@\n", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"@@if (\w+)@@(.*?)@@end@@")
_VALUE = re.compile(r"@@(\w+)@@")


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants."""

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
        """The file to begin with."""
        return self.name if self.contracts == ("ainb",) and self.language != "python" else MAIN[self.language]

    @property
    def tool(self) -> str:
        """What its tool is called by the contract that it is tried with."""
        return f"{nexo_id(self.name)}_hello" if self.contracts[0] == "nexo" else "hello"


def name_problem(name: str, contracts: tuple[str, ...]) -> str | None:
    """Why a plugin of these contracts cannot have this name; None when it can."""
    if not _NAME.fullmatch(name):
        return "a name has lower-case letters, digits, '-' and '_', a letter first"
    for contract in contracts:
        if len(name) > LONGEST[contract]:
            return f"a name has at most {LONGEST[contract]} characters for {contract}"
        if name in TAKEN.get(contract, ()):
            return f"the program of {contract} has the plugin's name, and another file here is called {name!r}"
    return None


def suggestion(name: str, contracts: tuple[str, ...]) -> str:
    """A name like that one, that can be had."""
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    spelt = re.sub(r"[^a-z0-9_]+", "-", letters.lower()).strip("-_")
    spelt = spelt if spelt[:1].isalpha() else f"my-{spelt}".rstrip("-")
    shortest = min((LONGEST[contract] for contract in contracts), default=64)
    spelt = spelt[:shortest].rstrip("-_")
    return spelt if name_problem(spelt, contracts) is None else f"my-{spelt}"[:shortest]


def names_in(name: str, contracts: tuple[str, ...]) -> dict[str, str]:
    """What the plugin is called by each contract that calls it something else."""
    spelt = {"nexo": nexo_id(name), "kaged": kaged_name(name), "ainb": ainb_name(name), "vai": package_id(name)}
    return {contract: spelt[contract] for contract in contracts if spelt.get(contract, name) != name}


def create(wish: Wish) -> list[str]:
    """Write the plugin's folder, all of it or nothing; the paths in it. Raises OSError, and `Unusable`."""
    wish.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{wish.name}-", dir=wish.parent) as place:
        folder = Path(place) / wish.name
        files = dict(_texts(wish))
        for path, text in files.items():
            _write(folder / path, text)
        paths = [*files, *(_manifests(folder, wish) if wish.language == "python" else ())]
        paths.sort(key=lambda path: path != wish.main)
        if wish.folder.is_dir() and not wish.folder.is_symlink():
            wish.folder.rmdir()  # raises when something is in it
        os.rename(folder, wish.folder)
    return paths


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    if text.startswith("#!"):
        file.chmod(0o755)


def _manifests(folder: Path, wish: Wish) -> list[str]:
    """Written as `plugbay manifest` would."""
    from plugbay.cli import declarations, manifest

    declared = declarations.read(folder / MAIN["python"])
    outcomes = manifest.settle(declared, folder, list(wish.contracts), write=True)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    return [plan.path for outcome in outcomes for plan in outcome.plans]


def _texts(wish: Wish) -> Iterator[tuple[str, str]]:
    """Every file that comes from a template: the program first, what only tools read last."""
    plain = wish.language != "python"
    sources = [TEMPLATES / wish.language / wish.contracts[0], TEMPLATES / wish.language / "all"]
    sources += [TEMPLATES / "contracts" / contract for contract in wish.contracts]
    values, flags = _values(wish), _flags(wish)
    for source in [*(sources if plain else [TEMPLATES / wish.language]), TEMPLATES / "common"]:
        for file in sorted(source.rglob(f"*{SUFFIX}")):
            path = str(file.relative_to(source)).removesuffix(SUFFIX)
            place = wish.name if path == "program" else PLACES.get(path, path)
            yield place, filled(file.read_text("utf-8"), values, flags)


def filled(text: str, values: Mapping[str, str], flags: frozenset[str]) -> str:
    """A template with its values; raises KeyError for one that nobody gave."""
    for pattern in (_LINES, _INLINE):
        text = pattern.sub(lambda match: match[2] if match[1] in flags else "", text)
    return _VALUE.sub(lambda match: values[match[1]], text)


def _flags(wish: Wish) -> frozenset[str]:
    facts = {
        "tool": wish.has_tool,
        "screen": wish.has_screen,
        "approval": wish.contracts[0] in APPROVAL,
        "framed": not {"ainb", "vai"}.isdisjoint(wish.contracts),
        **{language: language == wish.language for language in LANGUAGES},
    }
    return frozenset(name for name, holds in facts.items() if holds)


def _values(wish: Wish) -> dict[str, str]:
    title = wish.name.replace("-", " ").replace("_", " ").title()
    return {
        "name": wish.name,
        "nexo_id": nexo_id(wish.name),
        "kaged_name": kaged_name(wish.name),
        "vai_id": package_id(wish.name),
        "title": title,
        "title_json": _quoted(title),
        "description": wish.description,
        "description_json": _quoted(wish.description),
        "description_doc": wish.description.replace("\\", "\\\\").replace('"""', "'''"),
        "program": PROGRAMS[wish.language],
        "argument": MAIN[wish.language],
        "main": wish.main,
        "tool": wish.tool,
        "inside": INSIDE.get(wish.contracts[0], ""),
        "approval": f" {APPROVAL[wish.contracts[0]]}" if wish.contracts[0] in APPROVAL else "",
        "contracts_words": _words(wish.contracts),
        "manifest_files": ", ".join(f"`{file}`" for file in _manifest_files(wish.contracts)),
        "test_command": TESTS[wish.language],
        "try_it": "\n".join(first_steps(wish)),
    }


def first_steps(wish: Wish) -> list[str]:
    """The commands that show a new plugin at work, in its folder."""
    approval = APPROVAL.get(wish.contracts[0], "")
    call = f"plugbay call . {wish.tool} {shlex.quote(json.dumps({'name': 'Ada'}))} {approval}".rstrip()
    screen = [f"plugbay run --plugins . {wish.name} Ada", "plugbay render ."]
    return [*([call] if wish.has_tool else ()), *(screen if wish.has_screen else ()), "plugbay conform ."]


def _manifest_files(contracts: tuple[str, ...]) -> list[str]:
    from plugbay.contracts.registry import CONTRACTS as KNOWN

    return [KNOWN[contract].manifest_files[0] for contract in contracts]


def _words(items: tuple[str, ...]) -> str:
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def _quoted(text: str) -> str:
    """A string as JSON, TOML, YAML, JavaScript and Python all read it."""
    return json.dumps(text, ensure_ascii=False)
