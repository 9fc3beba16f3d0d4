"""Lists of records: the first page is live, filtered as asked, and of the visitor's own org alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugbay.server.app import create_app
from plugbay.server.dashboard import live
from plugbay.server.dashboard.live import MAX_STREAMS
from plugbay.server.dashboard.pages.compactions import COMPACTIONS
from plugbay.server.dashboard.pages.deliveries import DELIVERIES
from plugbay.server.dashboard.pages.harnesses import HARNESSES
from plugbay.server.dashboard.pages.invocations import INVOCATIONS
from plugbay.server.dashboard.pages.lists import follow_list
from plugbay.server.dashboard.pages.runs import RUNS
from plugbay.server.dashboard.pages.sessions import SESSIONS
from plugbay.server.dashboard.routes import ROUTES
from plugbay.server.dashboard.tables import SHOWN
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.connections import EVERY_ORG, ORG
from tests.server.dashboard.test_live import visit_of
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.patience import until

LISTS = (SESSIONS, RUNS, HARNESSES, COMPACTIONS, INVOCATIONS, DELIVERIES)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(live, "LIST_SECONDS", 0.0)
    monkeypatch.setattr(live, "LIST_REST", 0.0)


async def begin(gateway: Gateway, name: str, org: str = "org_1") -> str:
    """A session; returns its id."""
    return (await gateway.sessions.create(OPERATOR, org_id=org, project_id=None, external_session_id=name)).id


@asynccontextmanager
async def watching(gateway: Gateway, token: str, query: str = "") -> AsyncIterator[list[str]]:
    """The fragments of the live list of sessions as they come, in a task of its own as each request has."""
    pieces: list[str] = []

    async def watch() -> None:
        app, principal = create_app(gateway), await gateway.authenticate(token)
        ORG.set(principal.org_id or EVERY_ORG)
        response: Any = await follow_list(visit_of(app.state.dashboard, token, principal, query, app), SESSIONS)
        async for piece in response.body_iterator:
            fields = dict(line.split(": ", 1) for line in piece.decode().splitlines() if line)
            if fields.get("event") == "put":
                pieces.append(json.loads(fields["data"])["html"])

    task = asyncio.ensure_future(watch())
    await until(lambda: bool(pieces) or task.done())
    yield pieces
    task.cancel()
    await asyncio.wait({task})


def test_an_empty_list_names_the_next_step(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for listed in LISTS:
                page = await visitor.get(listed.path)
                assert page.status_code == 200 and " yet" in text_of(page) and "plugbay " in page.text
                assert "Nothing found" in text_of(await visitor.get(f"{listed.path}?search=x"))
                assert (await visitor.get(f"{listed.path}/nobodys")).status_code == 404

    run(main)


def test_each_list_has_a_stream_of_its_own() -> None:
    paths = {route.path for route in ROUTES}
    assert {f"/live{listed.path}" for listed in LISTS} <= paths


def test_the_first_page_is_live_with_its_filters_and_an_older_one_is_not(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            for listed in LISTS:
                assert f'data-live="/live{listed.path}"' in (await visitor.get(listed.path)).text
            for number in range(SHOWN + 1):
                await begin(gateway, f"desk-{number}")
            page = await visitor.get("/sessions?search=desk&org=org_1&other=x")
            assert 'data-live="/live/sessions?search=desk&amp;org=org_1"' in page.text
            older = page.text.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
            page = await visitor.get(older)
            assert "desk-0" in text_of(page) and "data-live" not in page.text

    run(main)


def test_records_appear_while_the_list_is_open(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            key = await make_key(gateway, "org_1", "viewer")
            async with watching(gateway, key) as own, watching(gateway, key, "search=wanted") as found:
                assert "No sessions yet" in own[0] and "Nothing found" in found[0]
                await begin(gateway, "foreign-wanted", "org_2")
                await begin(gateway, "<b>other")
                await begin(gateway, "wanted")
                await until(lambda: ">wanted<" in own[-1] and ">wanted<" in found[-1])
                assert own[-1].startswith('<div id="records">') and "&lt;b&gt;other" in own[-1]
                assert "other" not in found[-1] and 'value="wanted"' in found[-1]
                assert "foreign" not in "".join(own + found)

    run(main)


def test_a_live_list_of_another_org_is_refused_as_its_page_is(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            async with visitor_of(gateway, await make_key(gateway, "org_1", "admin")) as visitor:
                for path in ("/invocations?org=org_2", "/live/invocations?org=org_2"):
                    assert (await visitor.get(path)).status_code == 404

    run(main)


def test_live_lists_are_bounded(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            visitor.dashboard.streams = MAX_STREAMS
            for listed in LISTS:
                refused = await visitor.get(f"/live{listed.path}")
                assert refused.status_code == 503 and "quota.too_many_watchers" in refused.text

    run(main)
