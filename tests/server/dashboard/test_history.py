"""The last hour, loaded once for all pages."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.ports import CallRecord
from plugbay.server.dashboard.history import REFRESH_SECONDS, WHOLE_SECONDS, HistoryLoader
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


def test_settled_minutes_are_queried_now_and_then(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    def call(number: int, at: float) -> CallRecord:
        return CallRecord(f"call_{number}", "p", "1", "rune", "t", at, 1.0, None)

    async def main() -> None:
        clock = TurnedClock(60_000.0 * 60)
        async with hosting_at(sqlite_url, tmp_path, clock=clock) as gateway:
            loader, now = HistoryLoader(gateway), clock.now()

            async def loaded(*records: CallRecord, after: float = REFRESH_SECONDS) -> dict[int, int]:
                for record in records:
                    gateway.calls.finished(record)
                await gateway.calls.flush()
                clock.steady += after
                return {each.minute - 60_000: each.calls for each in (await loader.load()).minutes}

            assert await loaded(call(1, now), call(2, now - 600)) == {-10: 1, 0: 1}
            assert await loaded(call(3, now - 60), call(4, now - 600)) == {-10: 1, -1: 1, 0: 1}, "it has settled"
            assert await loaded(after=WHOLE_SECONDS) == {-10: 2, -1: 1, 0: 1}
            clock.wall += 55 * 60
            assert await loaded() == {-1: 1, 0: 1}, "older ones are out"

    run(main)
