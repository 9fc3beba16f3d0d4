"""The programs that a command runs: behind `env`, runners of packages, `#!` lines and `exec`.

The sandbox shows these programs, and `plugbay doctor` checks them. A word that cannot be read for certain names no
program: the argument of an option must never be taken for a program, because a program is shown to the plugin.

The argument of `env` in a script's first line is read as `env` does: all of it is one word, unless `-S` splits it;
options and their arguments come first, then variables, then the command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from plugbay.process.diagnose import Kind, facts, shebang

LINKS = 40
"""As many links in a row as the kernel follows."""
MAX_WRAPPERS = 8
"""Wrappers around one program that are looked through."""
SHELLS = frozenset("sh bash dash ash ksh zsh".split())
SCRIPT_BYTES = 4096
ALTERNATIVES = "/etc/alternatives"
"""Debian's links from the name of a program to the installed one, such as awk to mawk."""
_EXEC = re.compile(r"exec[ \t]+([A-Za-z0-9_./+-]+)(?:[ \t]|$)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command and the programs behind it."""

    programs: tuple[str, ...]
    """The program of the command, and each that the one before it runs."""
    missing: str = ""
    """The program that the last of them is to run, and that is not found."""
    runner: str = ""
    """The runner of packages that the command uses, by its name."""
    package: str = ""
    """The package that the runner downloads; empty: the program is installed."""

    @property
    def program(self) -> str:
        """The program that is executed in the end, as far as that is known."""
        return self.programs[-1]


def unwrap(argv: Sequence[str], search_path: str, folder: Path) -> Command:
    """See through the wrappers of a command that is started in `folder`."""
    words, found, missing = tuple(argv), [argv[0]], ""
    while True:
        using = _find_package(words)
        if using is not None:
            return _run_package(Command(tuple(found), missing, os.path.basename(words[0])), using, folder)
        is_env = os.path.basename(words[0]) == "env" and not missing and len(found) <= MAX_WRAPPERS
        following = _after_env(words[1:]) if is_env else ()
        if not following:
            return Command(tuple(found), missing)
        words, path = following, find_program(following[0], search_path)
        if path:
            found.append(path)
        elif "/" not in words[0] or os.path.isabs(words[0]):  # a relative path: `env` may change the folder
            missing = words[0]


def _run_package(command: Command, using: Using, folder: Path) -> Command:
    """The command of a runner, with the program of the package if that is installed."""
    program = _installed_program(using, folder) if RUNNERS[command.runner].is_local else ""
    if not program:
        return replace(command, package=using.package)
    if command.missing or not _runs(program):
        return replace(command, missing=command.missing or program)
    return replace(command, programs=(*command.programs, program))


def list_programs(argv: Sequence[str], search_path: str, folder: Path) -> Iterator[str]:
    """Every program that a command needs: wrappers, interpreters, and the program that a script becomes by `exec`."""
    for program in unwrap(argv, search_path, folder).programs:
        needed = [program, *_interpreters(program, search_path)]
        yield from needed
        if any(os.path.basename(path) in SHELLS for path in needed[1:]):
            executed = find_program(executed_name(program), search_path)
            yield from (executed, *_interpreters(executed, search_path)) if executed else ()


def _interpreters(program: str, search_path: str) -> list[str]:
    """The interpreter in the first line of a script, and the one that `env` finds for it."""
    interpreter, argument = shebang(facts(program).head) or ("", "")
    found = [interpreter] if os.path.isabs(interpreter) and _runs(interpreter) else []  # shows no other file
    by_env = find_program(env_command(argument), search_path) if os.path.basename(interpreter) == "env" else ""
    return [*found, by_env] if by_env else found


def find_program(name: str, search_path: str) -> str:
    """The absolute path of a program; empty if there is none."""
    paths = [name] if "/" in name else [os.path.join(folder, name) for folder in search_path.split(os.pathsep)]
    return next((path for path in paths if name and os.path.isabs(path) and _runs(path)), "")


def _runs(path: str) -> bool:
    seen = facts(path)
    return seen.kind is Kind.FILE and seen.executable


def follow_links(path: str) -> Iterator[str]:
    """The path, and the target of each link on the way."""
    for _ in range(LINKS):
        yield path
        if not os.path.islink(path):
            return
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def alternative(program: str) -> str:
    """The program that a name of Debian's alternatives stands for; empty if this is no such name."""
    hops = (path for path in follow_links(program) if os.path.dirname(path) == ALTERNATIVES)
    return next(map(os.path.realpath, hops), "")


def executed_name(script: str) -> str:
    """The program that a shell script becomes with its first command; empty if that command is not a plain `exec`."""
    try:
        with open(script, encoding="utf-8", errors="replace") as file:
            lines = [line.strip() for line in file.read(SCRIPT_BYTES).splitlines()]
    except OSError:
        return ""
    first = next((line for line in lines if line and not line.startswith("#")), "")
    found = _EXEC.match(first)
    return found[1] if found else ""


# Runners of packages.


class Runner(NamedTuple):
    """A program that runs a package, and downloads it first if it has to."""

    follows: tuple[str, ...] = ()
    """The words that must follow its name."""
    package: tuple[str, ...] = ("-p", "--package")
    """Options whose argument is the package."""
    others: tuple[str, ...] = ()
    """Options with another argument. With any of these, a URL after an option is its argument and no package."""
    install: str = "npm install"
    """The command that installs a package."""
    is_local: bool = False
    """It runs a package of the nearest `node_modules`, if that is installed there."""


_PYTHON = ("-p", "--python", "--with")

RUNNERS = {
    "npx": Runner(is_local=True),
    "npm": Runner(("exec",), is_local=True),
    "bunx": Runner(),
    "pnpm": Runner(("dlx",), ("--package",)),
    "yarn": Runner(("dlx",)),
    "uvx": Runner((), ("--from",), _PYTHON, "uv tool install"),
    "uv": Runner(("tool", "run"), ("--from",), _PYTHON, "uv tool install"),
    "pipx": Runner(("run",), ("--spec",), ("--python", "-i", "--pip-args"), "pipx install"),
}

_RANGE = re.compile(r"[0-9v^~<>=*]")
"""How a version or a range of versions begins. Any other is a tag, which npm looks up each time."""


class Using(NamedTuple):
    """The package that a runner runs, and the program of that package; empty: the package has only one."""

    package: str
    program: str


def install_command(runner: str, package: str) -> str:
    """The command that installs the package that this runner would download."""
    return f"{RUNNERS[runner].install} {package}"


def _find_package(words: Sequence[str]) -> Using | None:
    """The package that a command runs; None if the command is not a runner of packages, or names none."""
    runner = RUNNERS.get(os.path.basename(words[0]))
    if runner is None or tuple(words[1 : 1 + len(runner.follows)]) != runner.follows:
        return None
    package, rest = "", list(words[1 + len(runner.follows) :])
    while rest and rest[0].startswith("-"):
        name, given, value = rest.pop(0).partition("=")
        has_url = bool(runner.others and rest) and "://" in rest[0]
        if (name in (*runner.package, *runner.others) or has_url) and not given:
            value = rest.pop(0) if rest else ""
        if name in runner.package:
            package = package or value
    program = rest[0] if rest else ""
    if package:
        return Using(package, program)
    return Using(program, "") if program else None


def _installed_program(using: Using, folder: Path) -> str:
    """The path of the program of a package in the nearest `node_modules`; empty if npm would download the package."""
    name, _, version = using.package[1:].partition("@")
    name = using.package[:1] + name
    if version and not _RANGE.match(version):
        return ""
    for place in (folder, *folder.parents):
        modules = place / "node_modules"
        program = using.program or (name if (modules / ".bin" / name).exists() else _only_program(modules, name))
        if (modules / name).exists() or (modules / ".bin" / name).exists():
            return str(modules / ".bin" / program)
    return ""


def _only_program(modules: Path, package: str) -> str:
    """The name of the program that a package is run by: its only one, or the one with its name."""
    inside = f"{os.path.realpath(modules / package)}/"
    try:
        entries = sorted(os.listdir(modules / ".bin"))
    except OSError:
        entries = []
    names = [name for name in entries if os.path.realpath(modules / ".bin" / name).startswith(inside)]
    return names[0] if len(names) == 1 else package.rpartition("/")[2]


# env.

BARE = frozenset("i0v")
"""Options of one letter without an argument."""
WITH_ARGUMENT = frozenset("uCa")
LONG = frozenset("--ignore-environment --null --debug --block-signal --default-signal --ignore-signal".split())
"""Of the last three an argument, if there is one, follows `=`."""
LONG_WITH_ARGUMENT = {"--unset": "u", "--chdir": "C", "--argv0": "a", "--split-string": "S"}
UNCERTAIN = frozenset("\"'\\$#")
"""Characters with a meaning in `-S`: quotes, escapes, variables, comments."""
_BLANKS = re.compile(r"[ \t\n\v\f\r]+")
"""Where `-S` splits. Not every blank of Unicode: a word of `env` must be one here."""


def env_command(argument: str) -> str:
    """The name or path of the program; empty where there is none, or where it is not looked for in the usual PATH."""
    return next(iter(_after_env([argument] if "\0" not in argument else ())), "")


def _after_env(words: Sequence[str]) -> tuple[str, ...]:
    """The command in the arguments of `env`; empty if there is none, or its program is uncertain."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        following = _after_long(word, rest) if word.startswith("--") else _after_short(word[1:] or "i", rest)
        if following is None:
            return ()
        rest = following
    while rest and "=" in rest[0]:
        if rest.pop(0).startswith("PATH="):
            return ()
    return tuple(rest) if rest and rest[0] else ()


def _after_long(word: str, rest: list[str]) -> list[str] | None:
    """The words after a long option; None: uncertain."""
    name, given, value = word.partition("=")
    letter = LONG_WITH_ARGUMENT.get(name)
    if letter is None:
        return rest if name in LONG and name != "--ignore-environment" else None
    if not given:
        if not rest:
            return None
        value, rest = rest[0], rest[1:]
    return _after_argument(letter, value, rest)


def _after_short(letters: str, rest: list[str]) -> list[str] | None:
    """The same after a word of one-letter options. The rest of the word may be the argument of its last option."""
    for at, letter in enumerate(letters):
        if letter in BARE and letter != "i":
            continue
        if letter not in WITH_ARGUMENT and letter != "S":
            return None  # also -i: without PATH only the system's own folders are searched, which every plugin sees
        value = letters[at + 1 :]
        if not value:
            if not rest:
                return None
            value, rest = rest[0], rest[1:]
        return _after_argument(letter, value, rest)
    return rest


def _after_argument(letter: str, value: str, rest: list[str]) -> list[str] | None:
    if letter == "S":
        return None if UNCERTAIN & set(value) else [*filter(None, _BLANKS.split(value)), *rest]
    return None if letter == "u" and value == "PATH" else rest
