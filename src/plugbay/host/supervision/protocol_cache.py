"""`Eras`: in which era of its contract each program is greeted, remembered from one start to the next.

Owns which programs count as the same, and the file `<state>/mcp-eras.json`. It is a memory and no record: without it a
greeting takes one question more. Refuses to know what an era is.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from plugbay.contracts.document import parse_json
from plugbay.contracts.mcp.messages import ERAS, HANDSHAKE
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

FILE_NAME = "mcp-eras.json"

WITH_ERAS = frozenset({"mcp"})
"""Contracts that greet in one of several ways."""

USUAL = HANDSHAKE
"""The era of a program of which nothing is known; it is not worth remembering."""

MAX_REMEMBERED = 512
"""Programs; the one that was learned first gives way."""

MAX_BYTES = 1 << 20
"""Bytes of the file; a program takes about a hundred."""


_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Nobody waits for who may write into a pipe of that name."""


def identity(argv: Sequence[str], cwd: Path) -> str:
    """A name for a program: its command, and the state of every file that the command names."""
    seen = hashlib.sha256()
    for word in argv:
        seen.update(f"{len(word)}:{word};{_state(cwd / word)};".encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _state(path: Path) -> str:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{status.st_size},{status.st_mtime_ns}"


class Eras:
    """What is known of the programs of one host."""

    def __init__(self, state_dir: Path | None = None, named: Mapping[str, str] | None = None) -> None:
        self._path = None if state_dir is None else state_dir / FILE_NAME
        self._named = dict(named or {})
        """By plugin: what the operator says."""
        self._known = {} if self._path is None else _loaded(self._path)
        self._running: dict[str, str] = {}
        """By plugin: the program that was started last."""

    def begin(self, spec: PluginSpec, argv: Sequence[str]) -> str:
        """A program has been started for this plugin: the era to greet it in, empty where its contract has none."""
        if spec.contract not in WITH_ERAS:
            return ""
        self._running[spec.id] = program = identity(argv, Path(spec.cwd or spec.root))
        return self._named.get(spec.id) or self._known.get(program, USUAL)

    def program(self, plugin_id: str) -> str:
        """The identity of the program that was started last for this plugin."""
        return self._running.get(plugin_id, "")

    def learn(self, plugin_id: str, era: str) -> None:
        """The program of this plugin was greeted in this era, well."""
        program = self.program(plugin_id)
        if self._known.get(program, USUAL) == era or not program:
            return
        self._known.pop(program, None)
        if era != USUAL:
            self._known[program] = era
        self._save()

    def forget(self, plugin_id: str) -> None:
        """The program of this plugin did not let itself be greeted in the era that was remembered."""
        if self._known.pop(self.program(plugin_id), None) is not None:
            self._save()

    def _save(self) -> None:
        """A disk that does not take it costs a question at the next start, and nothing else."""
        self._known = dict(list(self._known.items())[-MAX_REMEMBERED:])
        if self._path is None:
            return
        temporary = self._path.with_name(f".{secrets.token_hex(8)}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(self._known, indent=1), "utf-8")
            temporary.replace(self._path)
        except OSError:
            temporary.unlink(missing_ok=True)


def _loaded(path: Path) -> dict[str, str]:
    try:
        with open(os.open(path, _FLAGS), encoding="utf-8") as file:
            document = parse_json(file.read(MAX_BYTES))
    except (OSError, UnicodeDecodeError):
        return {}
    if isinstance(document, Problem) or not isinstance(document.value, dict):
        return {}
    return {program: era for program, era in document.value.items() if era in ERAS}
