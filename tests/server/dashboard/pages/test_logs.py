"""The log of a plugin, with search."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plugbay.server.dashboard.live import MAX_APPENDED, LogTail
from plugbay.server.dashboard.views.logs import LogFilter
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.plugins import write_plugin

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def test_lines_are_searched_and_escaped(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            gateway.host.journal.note("p", "noise", "the kettle is cold")
            gateway.host.journal.note("p", "log.info", f"hostile {HOSTILE}")
            whole = await visitor.get("/logs?plugin=p")
            assert "the kettle is cold" in text_of(whole) and "<script>alert" not in whole.text
            assert "\\u202e\\x1b[31m" in whole.text
            found = await visitor.get("/logs?plugin=p&q=Kettle&source=host")
            assert "the kettle is cold" in text_of(found) and "hostile" not in text_of(found)
            assert 'data-live="/live/logs?plugin=p&amp;q=Kettle&amp;source=host"' in found.text
            assert "kettle" not in text_of(await visitor.get("/logs?plugin=p&source=stderr"))
            for path in ("/logs?plugin=nobody", "/live/logs?plugin=nobody", "/logs"):
                assert (await visitor.get(path)).status_code == 404

    run(main)


def test_a_flood_of_lines_is_bounded_and_counted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            tail = LogTail(gateway, "p", LogFilter("wanted"))
            assert tail.new_events() == []
            async with tail.listening():
                file = tmp_path / "logs" / "p.log"
                file.parent.mkdir(exist_ok=True)
                await asyncio.sleep(0)  # it follows from here
                (filled,) = tail.new_events()
                assert filled.data["fill"] and tail.new_events() == []
                lines = [f"2026-01-01T00:00:00Z [1] {'wanted' if at % 2 else 'other'} {at}\n" for at in range(4_000)]
                file.write_text("".join(lines))
                await until(lambda: tail._skipped == 2_000 - MAX_APPENDED)
            (event,) = tail.new_events()
            assert event.data["html"].count("wanted") == MAX_APPENDED and "… 1,900 not shown" in event.data["html"]
            assert "wanted 3999" in event.data["html"] and event.data["most"] == 500

    run(main)
