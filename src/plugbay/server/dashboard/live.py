"""What keeps a page fresh while somebody looks at it: pieces of HTML, made by the templates that made the page.

A feed says what a page shows now; whatever differs from what was shown last is told. Owns the four words our script
understands (`put`, `order`, `add`, `end`), how often is looked, and that a stream ends with its session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from plugbay.server.api.sse import Event
from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.authentication import Dashboard, Visit, cookie_name
from plugbay.server.dashboard.loader import exports_of
from plugbay.server.dashboard.views import (
    CallRow,
    call_row,
    event_row,
    log_row,
    offers_of,
    rows_of,
    standing_of,
    summary,
    wishes_of,
)
from plugbay.server.domain.errors import GatewayError, unavailable
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.operator_plugins import LogLine
from plugbay.store.pages import Page

LOOK_EVERY = 0.4
"""Seconds: what a person takes for at once."""

SHARED = 0.2
"""Seconds for which a look serves all streams: one at a hundred plugins takes ten milliseconds."""

CHECK_EVERY = 5.0
"""Seconds after which a stream asks again whether its token is still good."""

MAX_STREAMS = 64
"""Pages that are kept fresh at a time; a page that is not looked at lets go of its stream."""

MOST_LINES = 500
"""Lines of a log or events that stay on a page."""

AT_ONCE = 100
"""Of these that are told at a time; of a flood the last ones, and how many are not shown."""

SHOWN_LINES = 200
"""Lines of the past that a page begins with."""

SHOWN_CALLS, SHOWN_OF_PLUGIN = 50, 10
"""Calls on a page of their own, and beside everything else of a plugin."""

SETTLES = 4
"""Looks at the records of calls after the last one was counted: it is written down within a second."""


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of a page: which template writes it, and what."""

    template: str
    view: Any

    def html(self, now: float, **values: Any) -> str:
        return rendering.fragment(self.template, view=self.view, now=now, **values)


Regions = dict[str, Region]
"""By the id of an element, in the order of the page."""


class Feed(Protocol):
    """What a page shows."""

    rows: str
    """The element whose children come and go with their regions; empty where none do."""

    async def regions(self) -> Regions: ...
    def added(self) -> list[Event]: ...


def changes(rows: str, before: Regions, after: Regions, now: float, form_key: str) -> list[Event]:
    """What our script has to do so that a page that shows `before` shows `after`."""
    events = [
        Event({"id": id, "into": rows, "html": region.html(now, form_key=form_key)}, "put")
        for id, region in after.items()
        if before.get(id) != region
    ]
    if rows and list(before) != list(after):
        events.append(Event({"into": rows, "ids": list(after)}, "order"))
    return events


async def follow(visit: Visit, feed: Feed) -> AsyncGenerator[Event, None]:
    """Everything that changes on a page, for as long as its session lasts."""
    shown, watch = Regions(), _Watch(visit)
    with watch.counted():
        while await watch.goes_on():
            fresh = await feed.regions()
            for event in (*changes(feed.rows, shown, fresh, visit.now, visit.session.form_key), *feed.added()):
                yield event
            shown = fresh
    yield Event({}, "end")


def admit(dashboard: Dashboard) -> None:
    """Raises when too many pages are kept fresh already."""
    if dashboard.streams >= MAX_STREAMS:
        text = f"{MAX_STREAMS} pages are kept fresh already"
        raise unavailable("quota.too_many_watchers", text, retry_after=LOOK_EVERY)


class _Watch:
    """How long a stream goes on: its session may end, and so may the token behind it."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._cookie = visit.request.cookies.get(cookie_name(visit.request), "")
        self._check_at = visit.gateway.clock.monotonic() + CHECK_EVERY
        self._looks = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._visit.dashboard.streams += 1
        try:
            yield
        finally:
            self._visit.dashboard.streams -= 1

    async def goes_on(self) -> bool:
        """Wait until it is time for another look; False when there is to be none."""
        if self._looks:
            await asyncio.sleep(LOOK_EVERY)
        self._looks += 1
        if self._visit.dashboard.sessions.find(self._cookie) is not self._visit.session:
            return False
        now = self._visit.gateway.clock.monotonic()
        if now < self._check_at:
            return True
        self._check_at = now + CHECK_EVERY
        return await self._is_good()

    async def _is_good(self) -> bool:
        try:
            return await self._visit.gateway.authenticate(self._visit.session.token) == self._visit.principal
        except GatewayError:
            return False


# What pages show.


class PluginsFeed:
    """The list of plugins."""

    rows = "plugins"

    def __init__(self, dashboard: Dashboard) -> None:
        self._dashboard = dashboard

    async def regions(self) -> Regions:
        rows = rows_of(self._dashboard.looks.plugins(SHARED))
        return {"summary": Region("parts/summary.html", summary(rows))} | {
            row.key: Region("parts/row.html", row) for row in rows
        }

    def added(self) -> list[Event]:
        return []


class RecentCalls:
    """The newest calls of some kind; the database is asked only when there are more."""

    rows = ""

    def __init__(
        self, gateway: Gateway, most: int = SHOWN_CALLS, plugin: str | None = None, status: str | None = None
    ) -> None:
        self._gateway = gateway
        self._most = most
        self._plugin = plugin
        self._status = status
        self._counted = -1.0
        self._looks = 0
        self._found: tuple[CallRow, ...] = ()

    async def found(self) -> tuple[CallRow, ...]:
        counted = sum(self._gateway.meters.counters.get("calls", {}).values())
        self._looks = SETTLES if counted != self._counted else self._looks
        self._counted = counted
        if self._looks:
            self._looks -= 1
            part = await self._gateway.calls.page(Page(self._most), plugin=self._plugin, status=self._status)
            self._found = tuple(map(call_row, part.items))
        return self._found

    async def regions(self) -> Regions:
        return {"calls": Region("parts/calls.html", (await self.found(), True))}

    def added(self) -> list[Event]:
        return []


class PluginFeed:
    """One plugin: how it stands, what it asks for and offers, its calls, its log."""

    rows = ""

    def __init__(self, dashboard: Dashboard, plugin_id: str) -> None:
        self._dashboard = dashboard
        self._plugin_id = plugin_id
        self._calls = RecentCalls(dashboard.gateway, SHOWN_OF_PLUGIN, plugin_id)
        self._lines: deque[LogLine] = deque(maxlen=AT_ONCE)
        self._began = False

    async def regions(self) -> Regions:
        gateway, known = self._dashboard.gateway, self._dashboard.looks.plugin(self._plugin_id, SHARED)
        return {
            "standing": Region("parts/standing.html", standing_of(known)),
            "wishes": Region("parts/wishes.html", (self._plugin_id, wishes_of(known))),
            "offers": Region("parts/offers.html", offers_of(exports_of(gateway, self._plugin_id))),
            "calls": Region("parts/calls.html", (await self._calls.found(), False)),
        }

    def added(self) -> list[Event]:
        """All lines of the past at first: some may have come since the page was made."""
        if not self._began:
            self._began = True
            self._lines.clear()
            past = self._dashboard.gateway.host_logs.tail(self._plugin_id, SHOWN_LINES)
            return [added("log", "parts/lines.html", list(map(log_row, past)), fill=True)]
        lines = [log_row(self._lines.popleft()) for _ in range(len(self._lines))]
        return [added("log", "parts/lines.html", lines)] if lines else []

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Lines of the log are collected for as long as this lasts."""
        collecting = asyncio.ensure_future(self._collect())
        try:
            yield
        finally:
            collecting.cancel()
            await asyncio.wait({collecting})

    async def _collect(self) -> None:
        async for line in self._dashboard.gateway.host_logs.follow(self._plugin_id):
            self._lines.append(line)


class EventsFeed:
    """What the bus carries."""

    rows = ""

    def __init__(self, gateway: Gateway, topic: str, after: str) -> None:
        self._gateway = gateway
        self._topic = topic
        self._after = after

    async def regions(self) -> Regions:
        return {}

    def added(self) -> list[Event]:
        fresh = self._gateway.host_events.recent(self._topic, self._after)
        if not fresh:
            return []
        self._after = fresh[-1].id
        rows = [event_row(event) for event in fresh[-AT_ONCE:]]
        return [added("events", "parts/events.html", rows, skipped=len(fresh) - len(rows), id=self._after)]


def added(
    into: str, template: str, rows: Sequence[Any], *, skipped: int = 0, fill: bool = False, id: str | None = None
) -> Event:
    """Lines that come below those that are there, or with `fill` in their place."""
    html = rendering.fragment(template, rows=rows, skipped=skipped)
    return Event({"into": into, "html": html, "most": MOST_LINES, "fill": fill}, "add", id)
