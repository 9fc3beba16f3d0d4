"""`OperatorPlugins`: operations on the plugins in the operator's folders; `HostEvents` and `CallHistory`: their events
and calls.

Checks and audits each operation. A grant is written to plugbay.toml before it takes effect.

A call never waits for the database: it is counted at once, and records are written in batches. When the database cannot
keep up, the oldest waiting records are dropped and counted. `CallHistory.flush` at stop writes the rest.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import msgspec

from plugbay.host.admin import operating
from plugbay.host.admin.operating import Inspection
from plugbay.host.config.editing import set_grants
from plugbay.host.events.bus import BusEvent
from plugbay.host.host import Host
from plugbay.host.ports import CallRecord
from plugbay.host.status import PluginStatus
from plugbay.host.supervision.resident import SOURCE
from plugbay.model.errors import CallFailed, ConfigInvalid
from plugbay.model.topics import matches
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.background import Poller
from plugbay.server.domain.errors import conflict, not_found, unavailable, unprocessable
from plugbay.server.domain.ids import new_id
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_config import OperatorConfig, finish, not_started
from plugbay.server.domain.principal import Principal
from plugbay.store import calls as call_rows
from plugbay.store.calls import CallMinute, StoredCall
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page, Part

_OPERATIONS: dict[str, Callable[[Host, str], Awaitable[None]]] = {
    "start": operating.start,
    "stop": operating.stop,
    "restart": operating.restart,
    "reload": operating.reload,
}


class OperatorPlugins:
    """Operations on the operator's plugins."""

    def __init__(self, host: Host, database: Database, audit: Audit, config: OperatorConfig) -> None:
        self._host = host
        self._database = database
        self._audit = audit
        self._config = config
        self._looking = asyncio.Lock()
        self._looks: dict[str, Inspection] = {}
        """The last look at each plugin, until it is approved."""

    def plugins(self) -> list[dict[str, Any]]:
        """Every plugin as JSON."""
        return [operating.shape(self._host, status) for status in self._host.plugins()]

    def invalid(self) -> list[dict[str, Any]]:
        """Every plugin whose manifest has errors, as JSON."""
        broken = [item for item in self._host.problems if item.errors]
        return [
            {
                "folder": str(item.root),
                "contract": item.contract,
                "problems": [problem.to_json() for problem in item.problems],
            }
            for item in broken
        ]

    def plugin(self, plugin_id: str) -> dict[str, Any]:
        """One plugin with its exports; raises `not_found`."""
        status = self._status(plugin_id)
        exports = [
            export.to_json() for name, export in self._host.exports().items() if name.rpartition("/")[0] == plugin_id
        ]
        return {**operating.shape(self._host, status), "exports": exports}

    def exports(self) -> list[dict[str, Any]]:
        """Every export by its full name."""
        return [{**export.to_json(), "name": name} for name, export in self._host.exports().items()]

    async def operate(self, caller: Principal, plugin_id: str, operation: str) -> dict[str, Any]:
        """Start, stop, restart or reload a plugin; returns its new state."""
        self._status(plugin_id)
        await finish(plugin_id, _OPERATIONS[operation](self._host, plugin_id))
        await self._record_audit(caller, f"plugin.{operation}", plugin_id)
        return self.plugin(plugin_id)

    async def grant(self, caller: Principal, plugin_id: str, capabilities: Iterable[str]) -> dict[str, Any]:
        """Grant requested capabilities permanently, effective at the next start; returns the plugin."""
        status, wanted = self._status(plugin_id), list(dict.fromkeys(capabilities))
        spec = status.spec
        possible = {name for whole in (*spec.capabilities, *spec.optional_capabilities) for name in _grant_names(whole)}
        unknown = [name for name in wanted if name not in possible]
        if unknown and not spec.requests_at_run_time:
            requested = ", ".join(spec.capabilities) or "nothing"
            text = f"{plugin_id} does not request {', '.join(unknown)}; it requests {requested}"
            raise unprocessable("plugin.not_requested", text, "capabilities", requested=list(spec.capabilities))
        await self._update_grants(caller, "plugin.grant", plugin_id, lambda old: dict.fromkeys([*old, *wanted]), wanted)
        return self.plugin(plugin_id)

    async def revoke(self, caller: Principal, plugin_id: str, capabilities: Iterable[str]) -> dict[str, Any]:
        """Revoke capabilities granted in plugbay.toml; returns the plugin."""
        status, unwanted = self._status(plugin_id), set(capabilities)
        kept = self._host.config.plugin(plugin_id).grants or []
        if not unwanted & set(kept):
            text = f"plugbay.toml grants none of these to {plugin_id}"
            raise unprocessable("plugin.not_granted", text, "capabilities", granted=list(status.granted))
        rest = [name for name in kept if name not in unwanted]
        await self._update_grants(caller, "plugin.revoke", plugin_id, lambda _: rest, sorted(unwanted))
        return self.plugin(plugin_id)

    async def look(self, caller: Principal, plugin_id: str) -> Inspection:
        """Start a plugin once and return the exports to approve; raises `conflict`."""
        if not self._status(plugin_id).needs_approval:
            text = f"{plugin_id} declares its exports in its manifest; they need no approval"
            raise unprocessable("plugin.no_approval", text)
        async with self._looking:
            try:
                seen = self._looks[plugin_id] = await operating.inspect(self._host, plugin_id)
            except CallFailed as error:
                raise not_started(plugin_id, error) from None
        await self._record_audit(caller, "plugin.look", plugin_id, digest=seen.digest)
        return seen

    def last_look(self, plugin_id: str) -> Inspection | None:
        """The last look at a plugin that is not approved yet."""
        return self._looks.get(plugin_id)

    async def approve(self, caller: Principal, plugin_id: str, digest: str) -> dict[str, Any]:
        """Approve the exports of the last look, which must have this digest; returns the plugin."""
        self._status(plugin_id)
        seen = self._looks.get(plugin_id)
        if seen is None or seen.digest != digest:
            text = f"the definitions of {plugin_id} changed since the last look; look again, then approve"
            raise conflict("plugin.not_shown", text)
        async with self._config.changing:
            try:
                await operating.approve(self._host, seen)
            except (ConfigInvalid, OSError) as error:
                raise unavailable("plugin.approval_unwritable", str(error)) from None
            self._looks.pop(plugin_id, None)
            await finish(plugin_id, self._host.reload(plugin_id))
        await self._record_audit(caller, "plugin.approve", plugin_id, digest=digest)
        return self.plugin(plugin_id)

    async def _update_grants(
        self,
        caller: Principal,
        action: str,
        plugin_id: str,
        change: Callable[[list[str]], Iterable[str]],
        names: list[str],
    ) -> None:
        await self._config.edit(lambda document: set_grants(document, plugin_id, change), plugin_id)
        await self._record_audit(caller, action, plugin_id, capabilities=names)

    async def _record_audit(self, caller: Principal, action: str, plugin_id: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", plugin_id, **details)

    def _status(self, plugin_id: str) -> PluginStatus:
        found = next((status for status in self._host.plugins() if status.spec.id == plugin_id), None)
        if found is None:
            raise not_found("plugin", plugin_id)
        return found


def _grant_names(capability: str) -> tuple[str, str]:
    """Names that grant a capability: its full name, or the part before `=` for all of its kind."""
    return capability, capability.partition("=")[0]


KEPT_EVENTS = 2_000
"""Events kept for clients that resume."""

KEPT_LIFECYCLE = 50
"""Lifecycle events kept of each plugin."""

ALL_TOPICS = ">"

LIFECYCLE_TOPICS = "plugin.lifecycle."
"""Prefix of lifecycle topics; plugin id and event name follow."""

EVENT_QUEUE = 4_096
"""Events queued for numbering: a burst within one loop iteration."""


class NumberedEvent(msgspec.Struct, frozen=True):
    """One event with the id to resume after."""

    id: str
    topic: str
    data: dict[str, Any]


class HostEvents:
    """The recent events of one host. An id of another start, or one too old, resumes at the oldest event."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._start = new_id("")
        self._count = 0
        self._kept: deque[tuple[int, NumberedEvent]] = deque(maxlen=KEPT_EVENTS)
        self._arrived = asyncio.Condition()
        self.lifecycle: dict[str, NumberedEvent] = {}
        """The last lifecycle event of each resident plugin."""
        self.histories: dict[str, deque[NumberedEvent]] = {}
        """The last lifecycle events of each resident plugin, oldest first; other events do not displace them."""

    async def run(self) -> None:
        """Number events until cancelled."""
        async with self._host.subscribe(ALL_TOPICS, depth=EVENT_QUEUE) as stream:
            async for event in stream:
                await self._keep(event)

    async def _keep(self, event: BusEvent) -> None:
        self._count += 1
        numbered = NumberedEvent(f"{self._start}-{self._count}", event.topic, event.to_json())
        self._kept.append((self._count, numbered))
        if event.source == SOURCE and event.topic.startswith(LIFECYCLE_TOPICS):
            plugin_id = event.topic.removeprefix(LIFECYCLE_TOPICS).rpartition(".")[0]
            self.lifecycle[plugin_id] = numbered
            self.histories.setdefault(plugin_id, deque(maxlen=KEPT_LIFECYCLE)).append(numbered)
        async with self._arrived:
            self._arrived.notify_all()

    def recent(self, topic: str = ALL_TOPICS, after: str | None = None) -> list[NumberedEvent]:
        """Kept events that match the pattern, oldest first; only those after an id, if given."""
        seen = 0 if after is None else self._number(after)
        return [event for number, event in self._kept if number > seen and matches(topic, event.topic)]

    def follow(self, topic: str = ALL_TOPICS, after: str | None = None) -> AsyncIterator[NumberedEvent]:
        """Matching events after this id, then new ones; without an id, every event from this call on."""
        return self._follow(topic, self._count if after is None else self._number(after))

    async def _follow(self, topic: str, seen: int) -> AsyncIterator[NumberedEvent]:
        while True:
            fresh = [(number, event) for number, event in self._kept if number > seen]
            for number, event in fresh:
                seen = number
                if matches(topic, event.topic):
                    yield event
            if not fresh:
                async with self._arrived:
                    await self._arrived.wait_for(lambda: self._count > seen)  # noqa: B023 - awaited here

    def _number(self, id: str) -> int:
        start, _, number = id.rpartition("-")
        return int(number) if start == self._start and number.isdecimal() else 0


CALLS_KEPT = 100_000
"""Records kept; older ones are deleted."""

MAX_WAITING = 20_000
"""Records waiting to be written: a few seconds at the maximum rate of a host."""

CALL_BATCH = 500
"""Records per commit."""

CALL_PAUSE = 0.2
"""Seconds to collect calls for a batch; a crash loses these records."""

TRIM_EVERY = 5_000
"""New records between two trims."""


class CallHistory:
    """The call log of a host."""

    def __init__(self, database: Database, meters: Meters, kept: int = CALLS_KEPT, pause: float = CALL_PAUSE) -> None:
        self._database = database
        self.meters = meters
        self._kept = kept
        self._pause = pause
        self._waiting: deque[CallRecord] = deque(maxlen=MAX_WAITING)
        self._writing: list[list[CallRecord]] = []
        """Batches being written: several if `flush` is called concurrently."""
        self._writer = Poller(self._write, first=None)
        self._untrimmed = TRIM_EVERY
        self.lost = 0
        """Records dropped because too many waited."""
        self.last_failures: dict[str, CallRecord] = {}
        """The last failed call of each plugin since the start."""

    def finished(self, record: CallRecord) -> None:
        """Count a finished call and queue its record."""
        plugin = record.plugin or "none"
        export = record.export if record.plugin else "none"
        code = record.failure.code if record.failure else "none"
        self.meters.count("calls", plugin=plugin, export=export, status=record.status, code=code)
        self.meters.observe("call_seconds", record.duration_ms / 1000, plugin=plugin, export=export)
        if record.failure is not None and record.plugin:
            self.last_failures[record.plugin] = record
        if len(self._waiting) == MAX_WAITING:
            self.lost += 1
        self._waiting.append(record)
        self._writer.wake()

    async def run(self) -> None:
        """Write records until cancelled."""
        await self._writer.run()

    async def page(
        self,
        page: Page,
        *,
        plugin: str | None = None,
        export: str | None = None,
        status: str | None = None,
        since: float | None = None,
        until: float | None = None,
        failed: bool = False,
    ) -> Part[StoredCall]:
        """Stored records, newest first; with `failed`, only those of calls that failed."""
        names = {"plugin": plugin, "export": export, "status": status}
        async with self._database.reading() as tx:
            return await call_rows.page(tx, page, **names, since=since, until=until, failed=failed)

    async def minutes(self, since: float) -> list[CallMinute]:
        """The stored calls from `since` on, summed up by the minute in which they started."""
        async with self._database.reading() as tx:
            return await call_rows.minutes(tx, since)

    async def get(self, call_id: str) -> StoredCall:
        """One call, stored or still waiting; raises `not_found`."""
        # Before the database: a record leaves memory only after it is stored.
        for record in itertools.chain(*self._writing, self._waiting):
            if record.call_id == call_id:
                return call_rows.shown(record)
        async with self._database.reading() as tx:
            found = await call_rows.get(tx, call_id)
        if found is None:
            raise not_found("call", call_id)
        return found

    async def flush(self) -> None:
        """Write waiting records; raises `StoreUnavailable` and keeps them."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(CALL_BATCH, len(self._waiting)))]
            self._writing.append(batch)
            try:
                async with self._database.transaction() as tx:
                    await call_rows.insert(tx, batch)
            except BaseException:
                self._waiting.extendleft(reversed(batch))
                raise
            finally:
                self._writing.remove(batch)
            self._untrimmed += len(batch)
        if self._untrimmed >= TRIM_EVERY:
            self._untrimmed = 0
            async with self._database.transaction() as tx:
                await call_rows.trim(tx, self._kept)

    async def _write(self) -> float | None:
        await asyncio.sleep(self._pause)
        try:
            await self.flush()
        except StoreUnavailable:
            return 0.0
        return None
