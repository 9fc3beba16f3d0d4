"""What invocations leave behind, for hosts that need no other service: records, tokens, checkpoints, each bounded.

All three are public doubles of their ports.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

from plugbay.host.ports import InvocationRecord, Journey

KEPT = 1_000
"""Invocations remembered, and journeys; older ones are forgotten first."""

MAX_TOKENS = 10_000
"""Tokens that stand at the same time; more would mean that nobody revokes them."""

TOKEN_PREFIX = "vai_dlg_"
TOKEN_BYTES = 32

V = TypeVar("V")


class MemoryInvocationLog:
    """The last invocations, in the order they began. `records` has them as they are known now."""

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
    """What each token stands for, by its SHA-256: who reads this memory learns no token."""

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
        """What this token stands for; None when it was never issued, or stands for nothing any more."""
        return self._claims.get(_digest(token))


class MemoryCheckpoints:
    """How far the last executions have come."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._journeys: OrderedDict[str, Journey] = OrderedDict()

    async def save(self, execution_id: str, journey: Journey) -> None:
        _remember(self._journeys, execution_id, journey, self._kept)

    async def load(self, execution_id: str) -> Journey | None:
        return self._journeys.get(execution_id)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _remember(memory: OrderedDict[Any, V], key: Any, value: V, kept: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > kept:
        memory.popitem(last=False)
