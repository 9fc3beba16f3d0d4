"""`ProtocolCache`: remembers which protocol revision ("era") each MCP server was greeted in.

Owns the identity of a program and the file `<state>/mcp-eras.json`. It is only a cache: without it, a greeting takes
one more request.
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
from plugbay.contracts.registry import CONTRACTS
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec

FILE_NAME = "mcp-eras.json"

WITH_ERAS = frozenset(name for name, contract in CONTRACTS.items() if contract.has_eras)
"""Contracts with several eras."""

USUAL = HANDSHAKE
"""The era of an unknown program; it is not stored."""

MAX_REMEMBERED = 512
"""Programs in the cache; the oldest entry is dropped first."""

MAX_BYTES = 1 << 20
"""Bytes of the file; an entry takes about a hundred."""


_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""A pipe of that name must not block the host."""


def identity(argv: Sequence[str], cwd: Path) -> str:
    """The identity of a program: a hash of its command, and of size and time of every file that it names."""
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


class ProtocolCache:
    """The eras of the programs of one host."""

    def __init__(self, state_dir: Path | None = None, declared: Mapping[str, str] | None = None) -> None:
        self._path = None if state_dir is None else state_dir / FILE_NAME
        self.declared: Mapping[str, str] = declared or {}
        """By plugin: the era that plugbay.toml sets."""
        self._known = {} if self._path is None else _load(self._path)
        self._running: dict[str, str] = {}
        """By plugin: the identity of the program that was started last."""

    def era_for(self, spec: PluginSpec, argv: Sequence[str]) -> str:
        """The era to greet a newly started program in; empty if its contract has no eras."""
        if spec.contract not in WITH_ERAS:
            return ""
        words = (*argv, spec.url) if spec.url else argv
        self._running[spec.id] = program = identity(words, Path(spec.cwd or spec.root))
        return self.declared.get(spec.id) or self._known.get(program, USUAL)

    def program(self, plugin_id: str) -> str:
        """The identity of the program that was started last for this plugin."""
        return self._running.get(plugin_id, "")

    def learn(self, plugin_id: str, era: str) -> None:
        """Store the era in which the program of this plugin was greeted successfully."""
        program = self.program(plugin_id)
        if self._known.get(program, USUAL) == era or not program:
            return
        self._known.pop(program, None)
        if era != USUAL:
            self._known[program] = era
        self._save()

    def forget(self, plugin_id: str) -> None:
        """Drop the entry: the program of this plugin could not be greeted in the remembered era."""
        if self._known.pop(self.program(plugin_id), None) is not None:
            self._save()

    def _save(self) -> None:
        """Write the file. A write error is ignored: it costs one request at the next start."""
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


def _load(path: Path) -> dict[str, str]:
    try:
        with open(os.open(path, _FLAGS), encoding="utf-8") as file:
            document = parse_json(file.read(MAX_BYTES))
    except (OSError, UnicodeDecodeError):
        return {}
    if isinstance(document, Problem) or not isinstance(document.value, dict):
        return {}
    return {program: era for program, era in document.value.items() if era in ERAS}
