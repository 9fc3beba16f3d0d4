"""What keeps a page fresh: what changed is told, and nothing else, for as long as the session lasts."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from plugbay.server.api.sse import Event
from plugbay.server.dashboard import live
from plugbay.server.dashboard.authentication import Dashboard, Visit
from plugbay.server.dashboard.live import (
    LIST_REST,
    LIST_SECONDS,
    MAX_APPENDED,
    MAX_STREAMS,
    EventsFeed,
    PluginFeed,
    PluginsFeed,
    RecentCalls,
    Region,
    Regions,
    TableFeed,
    changes,
    follow,
)
from plugbay.server.dashboard.tables import NextStep, Table
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.errors import GatewayError, unavailable
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.pages import Page
from tests.cli.conftest import wait_until
from tests.server.test_server import Served, served
from tests.support.clocks import TurnedClock
from tests.support.dashboards import hosting_at, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.tiers import exhaustive


def told(events: list[Event]) -> list[tuple[str | None, Any]]:
    return [(event.event, event.data) for event in events]


def summary(text: str) -> Region:
    return Region("parts/summary.html", text)


def test_only_differences_are_sent() -> None:
    before = {"summary": summary("1 plugin"), "a": summary("a")}
    after = {"summary": summary("2 plugins"), "a": summary("a"), "b": summary("<b>")}
    html = '<p id="summary" class="summary" aria-live="polite">%s</p>'
    assert told(changes("rows", before, after, 0.0, "key")) == [
        ("put", {"id": "summary", "into": "rows", "html": html % "2 plugins"}),
        ("put", {"id": "b", "into": "rows", "html": html % "&lt;b&gt;"}),
        ("order", {"into": "rows", "ids": ["summary", "a", "b"]}),
    ]
    assert changes("rows", after, dict(after), 9.0, "key") == []
    assert told(changes("rows", after, before, 0.0, "key"))[-1] == ("order", {"into": "rows", "ids": ["summary", "a"]})
    assert changes("", {"a": summary("a")}, {}, 0.0, "key") == []


def visit_of(
    dashboard: Dashboard, token: str, principal: Principal, query: str = "", app: FastAPI | None = None
) -> Visit:
    cookie, session = dashboard.sessions.begin(token)
    headers = [(b"host", b"127.0.0.1:80"), (b"cookie", f"plugbay_80={cookie}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "scheme": "http"}
    return Visit(Request({**scope, "query_string": query.encode(), "app": app}), dashboard, session, principal, {})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.01)


async def until_told(events: AsyncIterator[Event], words: str) -> Event:
    """The first event that has these words in it."""
    async for event in events:
        if words in json.dumps(event.data, ensure_ascii=False):
            return event
    raise AssertionError(f"{words!r} was never told")


def test_the_whole_list_is_sent_first_and_then_its_changes(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")
    write_plugin(tmp_path / "plugins", "q")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "q") as gateway:
            dashboard = Dashboard(gateway)
            visit = visit_of(dashboard, operator_token(tmp_path)[0], OPERATOR)
            events = follow(visit, PluginsFeed(dashboard))
            first = [(await anext(events)).event for _ in range(4)]
            assert first == ["put", "put", "put", "order"] and dashboard.streams == 1
            await gateway.operator_plugins.operate(OPERATOR, "p", "stop")
            row = await until_told(events, "stopped</span>")
            assert row.data["into"] == "plugins" and row.data["html"].startswith('<tr id="plugin-')
            await gateway.host.attempt("q/t", {})
            assert ">1</td>" in (await until_told(events, ">1</td>")).data["html"]
            dashboard.sessions.end(visit.request.cookies["plugbay_80"])
            rest = [event.event async for event in events]
            assert rest[-1] == "end" and dashboard.streams == 0

    run(main)


def test_a_list_that_takes_long_is_loaded_less_often(run: Run) -> None:
    async def main() -> None:
        clock, loads, takes = TurnedClock(), 0, 0.0

        async def load() -> Table:
            nonlocal loads
            loads += 1
            clock.turn(takes)
            if loads == 4:
                raise unavailable("store.unavailable", "it is not there now")
            return table

        table = Table("Runs", "/runs", (), (), (), NextStep("No runs yet", ""))
        feed = TableFeed(clock, table, load)

        async def looks(*pauses: float) -> list[int]:
            found = []
            for pause in pauses:
                clock.turn(pause)
                assert (await feed.regions())["records"].view == table
                found.append(loads)
            return found

        assert await looks(0, 0.4, 0.4, 0.4, 0.4) == [0, 0, 0, 1, 1], "once a second"
        takes = 3.0
        pauses = (LIST_SECONDS, LIST_SECONDS, 3 * LIST_REST - LIST_SECONDS - 0.1, 0.2, 3 * LIST_REST)
        assert await looks(*pauses) == [2, 2, 2, 3, 4], "seldom, and a list that cannot be loaded stays"

    run(main)


def test_the_stream_of_a_plugin_has_its_state_calls_and_log(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SETTLE_POLLS", 1_000)  # as long as four looks of the usual pace take, and longer
    write_plugin(tmp_path / "plugins", "p", script="echo 'hello <b>' >&2\nexit 3\n", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            gateway.host.journal.note("p", "noise", "from before")
            dashboard = Dashboard(gateway)
            visit = visit_of(dashboard, operator_token(tmp_path)[0], OPERATOR)
            feed = PluginFeed(dashboard, "p")
            async with feed.listening():
                events = follow(visit, feed)
                filled = await until_told(events, "from before")
                assert (filled.event, filled.data["fill"]) == ("add", True)
                await gateway.operator_plugins.grant(OPERATOR, "p", ["tool.execute"])
                granted = await until_told(events, "Revoke")
                assert visit.session.form_key in granted.data["html"], "its forms work"
                await gateway.host.attempt("p/t", {})
                found = {"log": "", "calls": ""}
                while "hello &lt;b&gt;" not in found["log"] or "crashed" not in found["calls"]:
                    data = (await anext(events)).data
                    found[data.get("id", data["into"])] = data["html"]
                assert ">1</dd>" in found["overview"]

    run(main)


def test_of_many_events_the_last_are_sent_with_the_number_skipped(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            feed = EventsFeed(gateway, "shop.>", "")
            assert feed.new_events() == [] and await feed.regions() == Regions()
            await until(lambda: gateway.host._backends.services.bus._made > 0)
            for number in range(MAX_APPENDED + 7):
                gateway.host.publish("shop.sold", {"n": number})
            await until(lambda: len(gateway.host_events.recent()) == MAX_APPENDED + 7)
            (event,) = feed.new_events()
            assert event.data["html"].count("shop.sold") == MAX_APPENDED and "… 7 not shown" in event.data["html"]
            assert event.id == gateway.host_events.recent()[-1].id
            assert feed.new_events() == [], "each is told once"

    run(main)


def test_the_database_is_asked_only_when_there_are_more_calls(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    async def main() -> None:
        nonlocal asked
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            plain = gateway.calls.page

            async def page(*arguments: Any, **more: Any) -> Any:
                nonlocal asked
                asked += 1
                return await plain(*arguments, **more)

            monkeypatch.setattr(gateway.calls, "page", page)
            recent = RecentCalls(gateway)
            for _ in range(20):
                assert await recent.load() == ()
            assert asked == live.SETTLE_POLLS
            await gateway.host.attempt("nobody/t")
            await gateway.calls.flush()
            assert len(await recent.load()) == 1 and asked == live.SETTLE_POLLS + 1

    run(main)


def test_a_stream_ends_with_the_key_behind_it(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TOKEN_CHECK_SECONDS", 0.02)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            key = await make_key(gateway, "org_1", "viewer")
            principal = await gateway.authenticate(key)
            visit = visit_of(Dashboard(gateway), key, principal)
            events = follow(visit, PluginsFeed(visit.dashboard))
            assert [(await anext(events)).event for _ in range(2)] == ["put", "order"]
            more = asyncio.ensure_future(anext(events))
            (found,) = (await gateway.keys.page(OPERATOR, Page())).items
            await gateway.keys.revoke(OPERATOR, found.id)
            assert (await more).event == "end"

    run(main)


def test_only_so_many_pages_are_kept_fresh(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            visitor.app.state.closing.set()  # streams end at once
            assert (await visitor.get("/live/plugins")).status_code == 200
            visitor.dashboard.streams = MAX_STREAMS
            for path in ("/live/plugins", "/live/calls", "/live/events"):
                assert (await visitor.get(path)).status_code == 503
            with pytest.raises(GatewayError):
                live.check_stream_limit(visitor.dashboard)

    run(main)


@exhaustive
def test_a_real_server_tells_a_real_browser(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    with served(tmp_path, "plugins") as server, server.client() as client:
        link = client.post("/api/v1/dashboard-links").json()["url"]
        del client.headers["authorization"]
        assert client.get(link).status_code == 303
        (key,) = set(re.findall(r'name="form_key" value="([^"]+)"', client.get("/").text))
        with client.stream("GET", "/live/plugins") as stream:
            lines = stream.iter_lines()
            assert any("idle" in line for line in lines)
            done = client.post("/plugins/p:stop", data={"form_key": key}, headers={"origin": server.facts["url"]})
            assert done.status_code == 303
            assert any("stopped" in line for line in lines)
            out = client.post("/logout", data={"form_key": key}, headers={"origin": server.facts["url"]})
            assert out.status_code == 303
            assert any(line == "event: end" for line in lines)
        assert server.end() == 0


class Watchers:
    """Pages of one browser, each with a connection of its own."""

    def __init__(self, server: Served) -> None:
        with server.client() as client:
            link = client.post("/api/v1/dashboard-links").json()["url"]
            del client.headers["authorization"]
            assert client.get(link).status_code == 303
            cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        host, _, port = server.facts["url"].removeprefix("http://").rpartition(":")
        self._address = (host, int(port))
        self._rest = f" HTTP/1.1\r\nhost: {host}:{port}\r\ncookie: {cookies}\r\n\r\n"

    def ask(self, path: str) -> socket.socket:
        connection = socket.create_connection(self._address, timeout=PATIENCE)
        connection.sendall(f"GET {path}{self._rest}".encode())
        return connection

    def open(self, path: str) -> tuple[int, socket.socket]:
        """The status of a stream, which has told something if it is one."""
        connection = self.ask(path)
        said = b""
        while b"\r\n\r\n" not in said or (b" 200 " in said[:20] and b"data: " not in said):
            piece = connection.recv(1 << 16)
            assert piece, said
            said += piece
        return int(said.split()[1]), connection

    def works(self, path: str) -> bool:
        status, connection = self.open(path)
        connection.close()
        return status == 200


def test_a_page_that_is_closed_gives_back_its_place_however_it_is_closed(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "p")
    paths = ("/live/plugins", "/live/plugins/p", "/live/calls")
    with served(tmp_path, "plugins") as server:
        watchers = Watchers(server)
        for number in range(MAX_STREAMS + len(paths)):
            path = paths[number % len(paths)]
            status, connection = watchers.open(path)
            assert status == 200, f"{number} pages were opened and closed before"
            connection.close()
            with watchers.ask(path) as aborted:  # as soon as it has asked, and with a reset
                aborted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        kept: list[socket.socket] = []

        def is_full() -> bool:
            """Whether another page is refused; the last ones that were closed may still have their places."""
            status, connection = watchers.open("/live/plugins")
            kept.append(connection)
            return status == 503 and len(kept) > MAX_STREAMS

        wait_until(is_full, "the limit, which is still there")
        for connection in kept:
            connection.close()
        wait_until(lambda: watchers.works("/live/plugins"), "a place for the next page")
        assert server.end() == 0
