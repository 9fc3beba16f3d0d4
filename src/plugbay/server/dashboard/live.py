"""Live updates of a page: HTML fragments over Server-Sent Events, made by the templates of the page itself.

A feed returns what the page shows now; differences to the last state are sent as `put`, `order`, `add` or `end`, the
four events that our script understands. A stream ends with its session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from typing import Any, Protocol

import msgspec

from plugbay.host.admin.logs import MAX_TAIL, LogLine
from plugbay.host.recording.taps import TapStream
from plugbay.model.errors import CallFailed
from plugbay.server.api.sse import Event
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import Dashboard, Visit, cookie_name
from plugbay.server.dashboard.loader import exports_of
from plugbay.server.dashboard.tables import Table
from plugbay.server.dashboard.tries import Try
from plugbay.server.dashboard.views.calls import CallRow, call_row, try_view
from plugbay.server.dashboard.views.events import concerns, event_row, lifecycle_rows
from plugbay.server.dashboard.views.logs import LogFilter, LogRow, log_row
from plugbay.server.dashboard.views.nodes import ClusterHealth, gateways_table, nodes_table, summary_of
from plugbay.server.dashboard.views.overview import Welcome, health_of, largest_of, problems_of, table_of
from plugbay.server.dashboard.views.plugins import (
    ListFilter,
    capabilities_of,
    export_rows,
    list_page,
    overview_of,
    rows_of,
)
from plugbay.server.dashboard.views.screens import ScreenView
from plugbay.server.dashboard.views.wire import WireReader
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, unavailable
from plugbay.server.domain.gateway import Gateway
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page

POLL_SECONDS = 0.4
"""Seconds between polls: short enough to look immediate."""

SNAPSHOT_AGE = 0.2
"""Seconds for which streams share a snapshot: one of a hundred plugins takes ten milliseconds."""

TOKEN_CHECK_SECONDS = 5.0
"""Seconds between checks of the token of a stream."""

MAX_STREAMS = 64
"""Open streams; a hidden page closes its stream."""

MOST_LINES = 500
"""Log lines or events kept on a page."""

MAX_APPENDED = 100
"""Lines sent at once; of more, only the last ones and the number skipped."""

LIST_SECONDS = 1.0
LIST_REST = 20.0
"""Seconds between two looks at a list of the control plane, and the least rest as a multiple of what a look took: a
search in a million records must not become the work of the database."""

SHOWN_LINES = 200
"""Past lines that a page shows first."""

SHOWN_CALLS, SHOWN_OF_PLUGIN, SHOWN_FAILURES = 50, 10, 8
"""Calls on their own page, on the page of a plugin, and failed ones on the overview."""

SCREEN_PAUSE = 0.1
"""Seconds between polls of a screen, which answers to keys."""

SCREEN_RETRY = 5.0
"""Seconds before a screen that failed is drawn again, unless there is input."""

SETTLE_POLLS = 4
"""Database polls after the last counted call: its record is written within a second."""


class Region(msgspec.Struct, frozen=True):
    """A part of a page: template and view."""

    template: str
    view: Any

    def html(self, now: float, **values: Any) -> str:
        return rendering.fragment(self.template, view=self.view, now=now, **values)


Regions = dict[str, Region]
"""Regions by element id, in page order."""


class Feed(Protocol):
    """The content of a page."""

    rows: str
    """The element whose children are regions; empty if there is none."""

    async def regions(self) -> Regions: ...
    def new_events(self) -> list[Event]: ...


def changes(rows: str, before: Regions, after: Regions, now: float, form_key: str) -> list[Event]:
    """The events that turn a page showing `before` into one showing `after`."""
    events = [
        Event({"id": id, "into": rows, "html": region.html(now, form_key=form_key)}, "put")
        for id, region in after.items()
        if before.get(id) != region
    ]
    if rows and list(before) != list(after):
        events.append(Event({"into": rows, "ids": list(after)}, "order"))
    return events


async def follow(visit: Visit, feed: Feed, pause: float | None = None) -> AsyncGenerator[Event, None]:
    """Changes of a page until its session ends, looked for every `pause` seconds."""
    shown, watch = Regions(), _SessionWatch(visit, pause)
    with watch.count_stream():
        while await watch.wait_for_poll():
            fresh = await feed.regions()
            for event in (*changes(feed.rows, shown, fresh, visit.now, visit.session.form_key), *feed.new_events()):
                yield event
            shown = fresh
    yield Event({}, "end")


def check_stream_limit(dashboard: Dashboard) -> None:
    """Raises when too many streams are open."""
    if dashboard.streams >= MAX_STREAMS:
        text = f"{MAX_STREAMS} live pages are already open"
        raise unavailable("quota.too_many_watchers", text, retry_after=POLL_SECONDS)


class _SessionWatch:
    """Decides how long a stream continues: until its session or its token ends."""

    def __init__(self, visit: Visit, pause: float | None = None) -> None:
        self._visit = visit
        self._pause = pause
        self._cookie = visit.request.cookies.get(cookie_name(visit.request), "")
        self._check_at = visit.gateway.clock.monotonic() + TOKEN_CHECK_SECONDS
        self._looks = 0

    @contextmanager
    def count_stream(self) -> Iterator[None]:
        self._visit.dashboard.streams += 1
        try:
            yield
        finally:
            self._visit.dashboard.streams -= 1

    async def wait_for_poll(self) -> bool:
        """Wait for the next poll; False if the stream must end."""
        if self._looks:
            await asyncio.sleep(POLL_SECONDS if self._pause is None else self._pause)
        self._looks += 1
        await self._visit.dashboard.sessions.fetch(self._cookie)
        if self._visit.dashboard.sessions.find(self._cookie) is not self._visit.session:
            return False
        now = self._visit.gateway.clock.monotonic()
        if now < self._check_at:
            return True
        self._check_at = now + TOKEN_CHECK_SECONDS
        return await self._is_good()

    async def _is_good(self) -> bool:
        try:
            return await self._visit.gateway.keys.principal_of(self._visit.session.token) == self._visit.principal
        except GatewayError:
            return False


# Feeds.


class OverviewFeed:
    """The overview: health, problems, charts, newest failures."""

    rows = "problems"

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard
        self._failures = RecentCalls(dashboard.gateway, SHOWN_FAILURES, failed=True)

    async def regions(self) -> Regions:
        gateway, history = self._dashboard.gateway, await self._dashboard.history.load()
        plugins = self._dashboard.loader.plugins(SNAPSHOT_AGE)
        broken = sum(bool(item.errors) for item in gateway.host.problems)
        problems = problems_of(plugins)
        return {
            "health": Region("parts/health.html", health_of(plugins, broken, dict(history.checks), history.minutes)),
            "welcome": Region("parts/welcome.html", None if plugins else Welcome(gateway.settings.folders[:1])),
            **{each.key: Region("parts/problem.html", each) for each in problems.shown},
            "more-problems": Region("parts/more_problems.html", problems.more),
            **{chart.key: Region("parts/chart.html", chart) for chart in history.charts},
            "history": Region("parts/history.html", table_of(history.charts)),
            "calls": Region("parts/calls.html", (await self._failures.load(), True)),
            "largest": Region("parts/largest.html", largest_of(gateway.resources.plugins)),
        }

    def new_events(self) -> list[Event]:
        return []


class PluginsFeed:
    """The list of plugins."""

    rows = "plugins"

    def __init__(self, dashboard: Dashboard, wanted: ListFilter | None = None) -> None:
        self._dashboard = dashboard
        self._wanted = wanted or ListFilter()

    async def regions(self) -> Regions:
        found = list_page(rows_of(self._dashboard.loader.plugins(SNAPSHOT_AGE)), self._wanted)
        cluster = self._dashboard.gateway.cluster
        rows = {row.key: Region("parts/row.html", row) for row in found.rows}
        on_nodes = {"on-nodes": Region("parts/on_nodes.html", cluster.running())} if cluster.exists else {}
        return {"summary": Region("parts/summary.html", found.summary), **rows, **on_nodes}

    def new_events(self) -> list[Event]:
        return []


class RecentCalls:
    """The newest calls; queries the database only after new calls."""

    rows = ""

    def __init__(
        self,
        gateway: Gateway,
        most: int = SHOWN_CALLS,
        plugin: str | None = None,
        status: str | None = None,
        *,
        failed: bool = False,
    ) -> None:
        self._gateway = gateway
        self._most = most
        self._plugin = plugin
        self._status = status
        self._failed = failed
        self._counted = -1.0
        self._looks = 0
        self._found: tuple[CallRow, ...] = ()

    async def load(self) -> tuple[CallRow, ...]:
        counted = sum(self._gateway.meters.counters.get("calls", {}).values())
        self._looks = SETTLE_POLLS if counted != self._counted else self._looks
        self._counted = counted
        if self._looks:
            self._looks -= 1
            part = await self._gateway.calls.page(
                Page(self._most), plugin=self._plugin, status=self._status, failed=self._failed
            )
            self._found = tuple(map(call_row, part.items))
        return self._found

    async def regions(self) -> Regions:
        return {"calls": Region("parts/calls.html", (await self.load(), True))}

    def new_events(self) -> list[Event]:
        return []


class TableFeed:
    """The first page of a list. A list that takes long is loaded less often; one that cannot be loaded stays."""

    rows = ""

    def __init__(self, clock: Clock, table: Table, load: Callable[[], Awaitable[Table]]) -> None:
        self._clock = clock
        self._table = table
        self._load = load
        self._due = clock.monotonic() + LIST_SECONDS

    async def regions(self) -> Regions:
        began = self._clock.monotonic()
        if began >= self._due:
            with suppress(GatewayError, StoreUnavailable):
                self._table = await self._load()
            ended = self._clock.monotonic()
            self._due = ended + max(LIST_SECONDS, LIST_REST * (ended - began))
        return {"records": Region("parts/records.html", self._table)}

    def new_events(self) -> list[Event]:
        return []


class NodesFeed:
    """The cluster: nodes as they beat, gateways as their leases are."""

    rows = ""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._gateways: Table | None = None
        self._due = 0.0

    async def regions(self) -> Regions:
        status, clock = self._gateway.cluster, self._gateway.clock
        nodes = status.nodes()
        if self._gateways is None or clock.monotonic() >= self._due:
            with suppress(GatewayError, StoreUnavailable):
                self._gateways = gateways_table(await status.gateways())
            self._due = clock.monotonic() + LIST_SECONDS
        found = {
            "cluster": Region("parts/cluster.html", ClusterHealth(summary_of(nodes), status.problem or "")),
            "nodes": Region("parts/nodes.html", nodes_table(nodes, clock.now(), in_cluster=status.exists)),
        }
        if status.exists and self._gateways is not None:
            found["gateways"] = Region("parts/gateways.html", self._gateways)
        return found

    def new_events(self) -> list[Event]:
        return []


class LogTail:
    """New lines of a plugin's log that a filter accepts."""

    rows = ""

    def __init__(
        self, gateway: Gateway, plugin_id: str, wanted: LogFilter | None = None, shown: int = SHOWN_LINES
    ) -> None:
        self._log = gateway.host_logs.of(plugin_id)
        self._wanted = wanted or LogFilter()
        self._shown = shown
        self._past: list[LogRow] | None = None
        """All recent lines, until they are sent: some may have arrived since the page was rendered."""
        self._lines: deque[LogLine] = deque(maxlen=MAX_APPENDED)
        self._skipped = 0

    async def past(self) -> list[LogRow]:
        """The last lines until now."""
        return self._rows((await self._log.tail(MAX_TAIL)).lines)

    def _rows(self, lines: list[LogLine]) -> list[LogRow]:
        return [log_row(line) for line in lines if self._wanted.accepts(line)][-self._shown :]

    async def regions(self) -> Regions:
        return {}

    def new_events(self) -> list[Event]:
        """All recent lines at first, then new ones."""
        if self._past is not None:
            past, self._past = self._past, None
            return [append_event("log", "parts/lines.html", past, fill=True)]
        lines = [log_row(self._lines.popleft()) for _ in range(len(self._lines))]
        skipped, self._skipped = self._skipped, 0
        return [append_event("log", "parts/lines.html", lines, skipped=skipped)] if lines else []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Collect log lines within this context."""
        collecting = asyncio.ensure_future(self._collect())
        try:
            yield
        finally:
            collecting.cancel()
            await asyncio.wait({collecting})

    async def _collect(self) -> None:
        past = await self._log.tail(MAX_TAIL)
        self._past = self._rows(past.lines)
        async with aclosing(self._log.follow(past)) as lines:
            async for line in lines:
                if self._wanted.accepts(line):
                    self._skipped += len(self._lines) == MAX_APPENDED
                    self._lines.append(line)


class PluginFeed:
    """One plugin: state, capabilities, exports, calls, history, log."""

    rows = ""

    def __init__(self, dashboard: Dashboard, plugin_id: str) -> None:
        self._dashboard = dashboard
        self._plugin_id = plugin_id
        self._calls = RecentCalls(dashboard.gateway, SHOWN_OF_PLUGIN, plugin_id)
        self._log = LogTail(dashboard.gateway, plugin_id)
        self.new_events = self._log.new_events
        self.listening = self._log.listening

    async def regions(self) -> Regions:
        gateway, plugin = self._dashboard.gateway, self._dashboard.loader.plugin(self._plugin_id, SNAPSHOT_AGE)
        history = lifecycle_rows(gateway.host_events.histories.get(self._plugin_id, ()))
        used = gateway.resources.plugins.get(self._plugin_id)
        return {
            "overview": Region("parts/overview.html", overview_of(plugin, used)),
            "capabilities": Region("parts/capabilities.html", (self._plugin_id, capabilities_of(plugin))),
            "exports": Region("parts/exports.html", export_rows(exports_of(gateway, self._plugin_id))),
            "calls": Region("parts/calls.html", (await self._calls.load(), False)),
            "lifecycle": Region("parts/lifecycle.html", history),
        }


class ListeningFeed(Feed, Protocol):
    """A feed that collects while its page is open."""

    def listening(self) -> AbstractAsyncContextManager[None]: ...


async def follow_while_listening(visit: Visit, feed: ListeningFeed) -> AsyncIterator[Event]:
    """Changes of a page whose feed collects meanwhile."""
    async with feed.listening(), aclosing(follow(visit, feed)) as changes:
        async for event in changes:
            yield event


class WireFeed:
    """The frames of a plugin as they pass; the plugin is tapped while the page is open."""

    rows = ""

    def __init__(self, gateway: Gateway, plugin_id: str) -> None:
        self._gateway = gateway
        self._plugin_id = plugin_id
        self._reader = WireReader(gateway.host.specs[plugin_id].contract)
        self._stream: TapStream | None = None
        self._dropped = 0

    async def regions(self) -> Regions:
        return {}

    def new_events(self) -> list[Event]:
        if self._stream is None:
            return []
        items, dropped = self._stream.rest(), self._stream.dropped
        rows = self._reader.rows(items)[-MAX_APPENDED:]
        skipped, self._dropped = dropped - self._dropped + len(items) - len(rows), dropped
        return [append_event("frames", "parts/frames.html", rows, skipped=skipped)] if rows else []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Tap the plugin within this context."""
        with self._gateway.host.tap(self._plugin_id) as self._stream:
            yield


class TryFeed:
    """A call from the dashboard: its state, its answer, and pieces as they arrive."""

    rows = ""

    def __init__(self, made: Try) -> None:
        self._made = made
        self._shown = -1

    async def regions(self) -> Regions:
        return {"try": Region("parts/try.html", try_view(self._made))}

    def new_events(self) -> list[Event]:
        made, first = self._made, self._shown < 0
        fresh = made.received - max(0, self._shown)
        if not fresh and not first:
            return []
        self._shown = made.received
        rows = list(made.pieces)[-min(fresh, MOST_LINES) :] if fresh else []
        return [append_event("pieces", "parts/pieces.html", rows, skipped=fresh - len(rows), fill=first)]


class ScreenFeed:
    """A screen of a plugin: drawn again when its plugin, a key or an event may have changed it."""

    rows = ""

    def __init__(self, gateway: Gateway, name: str, size: tuple[int, int]) -> None:
        self._gateway = gateway
        self._name = name
        self._size = size
        self._revision = -1
        self._retry_at = 0.0
        self._view = ScreenView(name, None)

    async def regions(self) -> Regions:
        screens, now = self._gateway.host.screens, self._gateway.clock.monotonic()
        changed = screens.revision(self._name) != self._revision
        is_old = self._view.frame is None or screens.dirty(self._name)
        if changed or (is_old and now >= self._retry_at):
            await self.draw()
        return {"screen": Region("parts/screen.html", self._view)}

    async def draw(self, *, settle: bool = False) -> ScreenView:
        """Draw the screen now, once or until it settles; after a failure the last frame is gone."""
        screens = self._gateway.host.screens
        self._revision = screens.revision(self._name)
        try:
            frame = await screens.draw(self._name, *self._size, settle=settle)
            self._view = ScreenView(self._name, frame)
        except CallFailed as error:
            self._view = ScreenView(self._name, None, error.failure.message)
            self._retry_at = self._gateway.clock.monotonic() + SCREEN_RETRY
        return self._view

    def new_events(self) -> list[Event]:
        return []


class EventsFeed:
    """Events of the bus, newest first; of one plugin, if given."""

    rows = ""

    def __init__(self, gateway: Gateway, topic: str, after: str, plugin: str = "") -> None:
        self._gateway = gateway
        self._topic = topic
        self._after = after
        self._plugin = plugin

    async def regions(self) -> Regions:
        return {}

    def new_events(self) -> list[Event]:
        fresh = self._gateway.host_events.recent(self._topic, self._after)
        if not fresh:
            return []
        self._after = fresh[-1].id
        wanted = [event for event in fresh if concerns(event, self._plugin)]
        if not wanted:
            return []
        rows = [event_row(event) for event in reversed(wanted[-MAX_APPENDED:])]
        skipped = len(wanted) - len(rows)
        return [append_event("events", "parts/events.html", rows, skipped=skipped, first=True, id=self._after)]


def append_event(
    into: str,
    template: str,
    rows: Sequence[Any],
    *,
    skipped: int = 0,
    fill: bool = False,
    first: bool = False,
    id: str | None = None,
) -> Event:
    """Add lines at the end, or at the beginning with `first`; `fill` replaces all lines."""
    html = rendering.fragment(template, rows=rows, skipped=skipped)
    return Event({"into": into, "html": html, "most": MOST_LINES, "fill": fill, "first": first}, "add", id)
