"""The command of a child: finds its program and builds its environment from named variables only.

Starts nothing; the caller decides which variables and directories a plugin gets.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plugbay.process import diagnose
from plugbay.process.diagnose import Kind, facts
from plugbay.process.diagnose import LaunchFailed as LaunchFailed
from plugbay.process.diagnose import SandboxUnavailable as SandboxUnavailable
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.policy import Policy

Variables = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything a start needs to know."""

    argv: tuple[str, ...]
    """As `resolve` returns it: element 0 is an absolute path."""
    cwd: Path
    env: dict[str, str] = field(default_factory=dict)
    """The whole environment; only the marks of the warden are added."""
    limits: Rlimits = field(default_factory=Rlimits)
    label: str = ""
    """The plugin's id, for messages and for the name of its log."""
    policy: Policy | None = None
    """How it is confined; None: not at all."""
    verify: Callable[[str | None], None] | None = None
    """Checks the files of the plugin right before the start; raises LaunchFailed. Gets the place to read them if that
    is not their folder: the descriptor that the sandbox shows to the plugin."""


def resolve(command: Sequence[str], root: Path, search_path: str) -> tuple[str, ...]:
    """The argv to run; raises LaunchFailed when its program cannot be one.

    Element 0 with a separator is a path, relative to `root` unless absolute; without one it is looked up in
    the absolute directories of `search_path`. A shell is never involved.
    """
    if not command or not command[0]:
        raise LaunchFailed("the command is empty", "use a program or a script")
    for word in command:
        _check_text(word, f"the argument {word!r}")
    name = command[0]
    # Not normalised: behind a symbolic link, `..` has the meaning of the kernel.
    program = os.fspath((root / name).absolute()) if "/" in name else _look_up(name, root, search_path)
    words = diagnose.unusable(program, facts(program, with_head=False))
    if words is not None:
        raise LaunchFailed(*words, {"command": list(command)})
    return (program, *command[1:])


def host_search_path(environ: Mapping[str, str]) -> str:
    """The host's PATH, its own interpreter's directory first: a plugin's `python3` then has plugbay."""
    path = environ.get("PATH", os.defpath)
    if not sys.executable:
        return path
    return os.pathsep.join((os.path.dirname(sys.executable), path))


def build_env(
    inherit: Iterable[str],
    environ: Mapping[str, str],
    manifest: Variables,
    operator: Variables,
) -> dict[str, str]:
    """The host's variables named in `inherit`, then the manifest's variables, then the operator's."""
    env = {name: environ[name] for name in inherit if name in environ}
    env |= dict(manifest)
    env |= dict(operator)
    for name, value in env.items():
        if not name or "=" in name:
            raise LaunchFailed(f"{name!r} cannot name an environment variable", "a name is not empty and has no '='")
        _check_text(name, f"the environment variable {name!r}")
        _check_text(value, f"the value of the environment variable {name}")
    return env


def _look_up(name: str, root: Path, search_path: str) -> str:
    """The first program of that name, else the first file or link: the message then says why it is not a program."""
    almost = ""
    for directory in search_path.split(os.pathsep):
        # A relative entry would mean the host's current directory: a user who can write there would choose the program.
        if not os.path.isabs(directory):
            continue
        path = os.path.join(directory, name)
        seen = facts(path, with_head=False)
        if seen.kind is Kind.FILE and seen.executable:
            return path
        if (seen.kind is Kind.FILE or seen.target) and not almost:
            almost = path
    if almost:
        return almost
    beside = facts(os.fspath(root / name), with_head=False).kind is Kind.FILE
    raise LaunchFailed(*diagnose.not_found(name, search_path, beside), {"command": [name]})


def _check_text(text: str, what: str) -> None:
    """The operating system takes neither NUL nor text that cannot be encoded."""
    if "\0" in text:
        raise LaunchFailed(f"{what} contains a NUL character")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise LaunchFailed(f"{what} contains a character that cannot be encoded") from None
