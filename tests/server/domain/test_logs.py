"""The log of an operator's plugin on a node: for commands, and on the pages of the dashboard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.host.admin.logs import LogLine
from plugbay.server.api.sse import Event
from plugbay.server.dashboard.live import LogTail
from plugbay.server.dashboard.views.logs import LogFilter
from plugbay.server.domain.gateway import Gateway
from tests.server.domain.test_placed_plugins import settings, shelf_with_ledger
from tests.support.dashboards import text_of, visitor_of
from tests.support.loops import Run
from tests.support.nodes import PASSWORD
from tests.support.patience import pauses
from tests.support.placing import answered
from tests.support.requirements import requirement


@requirement("host:nodes-seen")
def test_the_log_of_a_plugin_has_the_lines_of_its_node(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELL_PASSWORD", PASSWORD)
    with shelf_with_ledger(tmp_path) as (made, shelf):

        async def main() -> None:
            async with shelf.gateway(sqlite_url, settings()) as gateway, made.node("n1", log_dir=tmp_path / "logs"):
                await answered(gateway, "ledger/who", {})
                assert [(line.node, line.source) for line in await asked(gateway)] == [("n1", "stderr")]
                async with visitor_of(gateway) as visitor:
                    assert "stderr n1 " in text_of(await visitor.get("/logs?plugin=ledger"))
                    assert "stderr n1 " in text_of(await visitor.get("/plugins/ledger"))
                tail = LogTail(gateway, "ledger", LogFilter("asked"))
                async with tail.listening():
                    (filled,) = await shown(tail)
                    assert filled.data["fill"] and filled.data["html"].count("asked for my name") == 1
                    await answered(gateway, "ledger/who", {})
                    (fresh,) = await shown(tail)
                    assert "stderr n1" in fresh.data["html"] and fresh.data["html"].count("asked for my name") == 1

        run(main)


async def asked(gateway: Gateway) -> list[LogLine]:
    """The lines that the tool has written, which are read beside its answer."""
    for pause in pauses():
        past = await gateway.host_logs.of("ledger").tail(10)
        if lines := [line for line in past.lines if line.text.endswith("asked for my name")]:
            return lines
        await asyncio.sleep(pause)
    raise AssertionError


async def shown(tail: LogTail) -> list[Event]:
    """What is next sent to a page."""
    for pause in pauses():
        if events := tail.new_events():
            return events
        await asyncio.sleep(pause)
    raise AssertionError
