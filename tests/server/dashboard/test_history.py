"""The last hour, loaded once for all pages."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.dashboard.history import REFRESH_SECONDS, HistoryLoader
from tests.support.clocks import TurnedClock
from tests.support.dashboards import hosting_at
from tests.support.loops import Run
from tests.support.plugins import write_plugin


def test_pages_share_a_result_until_it_is_old(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", script="exit 3\n")

    async def main() -> None:
        clock = TurnedClock()
        async with hosting_at(sqlite_url, tmp_path, "p", clock=clock) as gateway:
            loader = HistoryLoader(gateway)
            first = await loader.load()
            assert first.minutes == () and dict(first.checks)["database"] == "ok"
            result = await gateway.host.attempt("p/t")
            clock.wall = result.record.started_at
            await gateway.calls.flush()
            assert await loader.load() is first
            clock.steady += REFRESH_SECONDS
            (minute,) = (await loader.load()).minutes
            assert (minute.calls, minute.failures) == (1, 1) and minute.minute == int(clock.wall // 60)

    run(main)
