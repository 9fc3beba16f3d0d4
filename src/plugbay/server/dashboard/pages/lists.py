"""Lists of records: one shape of page for all of them, kept fresh while it is open.

    RUNS = RecordList("Runs", "answers of models, newest first", "/runs", RUN_COLUMNS, run_row, EMPTY, load)
    show_runs, follow_runs = endpoints_of(RUNS)

The first page of a list is live; older pages stand still.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from plugbay.server.api.models import parse_page
from plugbay.server.api.sse import event_stream
from plugbay.server.dashboard.authentication import ANY_PERSON, Endpoint, Visit, require_session
from plugbay.server.dashboard.live import TableFeed, check_stream_limit
from plugbay.server.dashboard.live import follow as follow_feed
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, Table, query_of, table_of
from plugbay.server.domain.gateway import Gateway
from plugbay.store.pages import Page, Part

Loaded = tuple[Part[Any], Sequence[Filter]]
"""One page of records, and the filters that chose them."""

Load = Callable[[Visit, Page], Awaitable[Loaded]]


class RecordList(NamedTuple):
    """A list of records: what its page shows, and where they come from."""

    title: str
    summary: str
    path: str
    columns: tuple[str, ...]
    row: Callable[[Any], tuple[Cell, ...]]
    empty: NextStep
    load: Load


def endpoints_of(listed: RecordList) -> tuple[Endpoint, Endpoint]:
    """The page of a list, and its stream."""

    async def show(visit: Visit) -> Response:
        return await show_list(visit, listed)

    async def follow(visit: Visit) -> Response:
        return await follow_list(visit, listed)

    return require_session(ANY_PERSON)(show), require_session(ANY_PERSON, live=True)(follow)


async def show_list(visit: Visit, listed: RecordList) -> Response:
    """The page that the query asks for."""
    table = await _table(visit, listed, visit.query("cursor"))
    asked = query_of({each.name: each.value for each in table.filters})
    live = "" if table.newest else f"/live{listed.path}?{asked}".rstrip("?")
    return visit.page("records.html", title=listed.title, summary=listed.summary, table=table, live=live)


async def follow_list(visit: Visit, listed: RecordList) -> Response:
    """Changes of the first page, as the query filters it; raises as the page itself would."""
    check_stream_limit(visit.dashboard)
    feed = TableFeed(visit.gateway.clock, await _table(visit, listed), lambda: _table(visit, listed))
    return event_stream(visit.request, follow_feed(visit, feed))


async def _table(visit: Visit, listed: RecordList, cursor: str = "") -> Table:
    part, filters = await listed.load(visit, parse_page(SHOWN, cursor or None))
    return table_of(
        listed.title,
        listed.path,
        listed.columns,
        part,
        listed.row,
        filters=filters,
        empty=listed.empty,
        cursor=cursor,
    )


def load_by_org(area: Callable[[Gateway], Any], statuses: tuple[str, ...] = ()) -> Load:
    """Loads records of an area by part of an id, by org for those who see all, and by status if they have one."""

    async def load(visit: Visit, page: Page) -> Loaded:
        search, org, status = (visit.query(name) for name in ("search", "org", "status"))
        filters = [Filter("search", "Search", search, hint="part of an id"), *org_filter(visit)]
        asked: dict[str, str | None] = {"org_id": org or None} if visit.principal.org_id is None else {}
        if statuses:
            filters.append(Filter("status", "Status", status, statuses))
            asked["status"] = status or None
        return await area(visit.gateway).page(visit.principal, page, search=search, **asked), filters

    return load


def org_filter(visit: Visit) -> list[Filter]:
    """The filter by org, for those who see more than one."""
    return [Filter("org", "Org", visit.query("org"), hint="id", scope=True)] if visit.principal.org_id is None else []
