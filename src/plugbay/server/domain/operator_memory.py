"""`OperatorMemory`: the memory of agents for the operator. Changes are audited, without the content of entries."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from plugbay.host.host import Host
from plugbay.host.services.memory import MemoryEntry
from plugbay.model.errors import CallFailed, Code
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import GatewayError, invalid, not_found, unavailable
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

T = TypeVar("T")


class OperatorMemory:
    """Fill, search and clear the memory of the host's agents. Methods raise `GatewayError`."""

    def __init__(self, host: Host, database: Database, audit: Audit) -> None:
        self._host = host
        self._database = database
        self._audit = audit

    async def remember(
        self, caller: Principal, agent_id: str, content: str, tags: Sequence[str], memory_type: str | None
    ) -> MemoryEntry:
        """Store an entry for one agent."""
        entry = await _answer(self._host.memory.remember(agent_id, content, tags=tags, memory_type=memory_type))
        await self._record(caller, "memory.add", agent_id, entry=entry.id)
        return entry

    async def recall(self, agent_id: str, query: str, limit: int) -> list[MemoryEntry]:
        """Entries of one agent, best first; the newest for a blank query."""
        return await _answer(self._host.memory.recall(agent_id, query, limit))

    async def forget(self, caller: Principal, agent_id: str, memory_id: str) -> None:
        """Remove one entry; raises `not_found` when this agent has none with that id."""
        if not await _answer(self._host.memory.forget(agent_id, memory_id)):
            raise not_found("memory", memory_id)
        await self._record(caller, "memory.forget", agent_id, entry=memory_id)

    async def clear(self, caller: Principal, agent_id: str) -> int:
        """Remove every entry of one agent; returns their number."""
        removed = await _answer(self._host.memory.clear(agent_id))
        await self._record(caller, "memory.clear", agent_id, removed=removed)
        return removed

    async def _record(self, caller: Principal, action: str, agent_id: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "memory", agent_id, **details)


async def _answer(work: Awaitable[T]) -> T:
    try:
        return await work
    except CallFailed as error:
        raise _refusal(error) from None


def _refusal(error: CallFailed) -> GatewayError:
    failure = error.failure
    if failure.code == Code.INVALID_INPUT:
        return invalid("memory.invalid", failure.message)
    return unavailable("memory.unavailable", failure.message)
