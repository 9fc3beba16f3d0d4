"""Logs, tokens and checkpoints that need no other service: in memory, bounded, or as JSON lines.

All are public implementations of the ports in `ports`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from plugbay.host.ports import CallRecord, InvocationRecord, ResumeState

KEPT = 1_000
"""Calls, invocations and resume states that a memory log keeps; the oldest are dropped first."""


class MemoryCallLog:
    """The last calls, newest last."""

    def __init__(self, kept: int = KEPT) -> None:
        self.records: deque[CallRecord] = deque(maxlen=kept)

    def finished(self, record: CallRecord) -> None:
        self.records.append(record)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class JsonLinesCallLog:
    """One JSON object per call, appended to a file. A failed write is counted in `lost`, never raised."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def finished(self, record: CallRecord) -> None:
        try:
            line = msgspec.json.encode(record.to_json()) + b"\n"
            with open(self.path, "ab", buffering=0, opener=_private) as file:
                file.write(line)
        except (OSError, ValueError):
            self.lost += 1


MAX_TOKENS = 10_000
"""Valid tokens at the same time; more means that tokens are not revoked."""

TOKEN_PREFIX = "vai_dlg_"
TOKEN_BYTES = 32

V = TypeVar("V")


class MemoryInvocationLog:
    """The last invocations, in the order they began. `records` holds their latest state."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._records: OrderedDict[str, InvocationRecord] = OrderedDict()

    async def opened(self, record: InvocationRecord) -> None:
        _remember(self._records, record.invocation_id, record, self._kept)

    async def closed(self, record: InvocationRecord) -> None:
        if record.invocation_id in self._records:
            self._records[record.invocation_id] = record

    @property
    def records(self) -> list[InvocationRecord]:
        return list(self._records.values())


class MemoryTokens:
    """The claims of each token, by its SHA-256: the tokens themselves are not kept."""

    def __init__(self, kept: int = MAX_TOKENS) -> None:
        self._kept = kept
        self._claims: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._claims)

    async def issue(self, claims: Mapping[str, Any]) -> str:
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        _remember(self._claims, _digest(token), dict(claims), self._kept)
        return token

    async def revoke(self, token: str) -> None:
        self._claims.pop(_digest(token), None)

    def claims(self, token: str) -> dict[str, Any] | None:
        """The claims of this token; None when it was never issued, or was revoked."""
        return self._claims.get(_digest(token))


class MemoryCheckpoints:
    """The resume states of the last executions."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._states: OrderedDict[str, ResumeState] = OrderedDict()

    async def save(self, execution_id: str, state: ResumeState) -> None:
        _remember(self._states, execution_id, state, self._kept)

    async def load(self, execution_id: str) -> ResumeState | None:
        return self._states.get(execution_id)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _remember(memory: OrderedDict[Any, V], key: Any, value: V, kept: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > kept:
        memory.popitem(last=False)
