"""Background work goes on whatever happens to it."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.server.domain.tasks import Tasks
from tests.support.loops import Run
from tests.support.patience import until


def test_work_that_crashes_is_started_again_and_counted(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        starts: list[int] = []

        async def work() -> None:
            starts.append(1)
            if len(starts) < 3:
                raise LookupError("a bug")
            await asyncio.Event().wait()

        tasks = Tasks(first_pause=0.001)
        tasks.start("work", work)
        await until(lambda: len(starts) == 3)
        assert tasks.crashes["work"] == 2 and tasks.names == ("work",)
        await tasks.stop()
        assert not tasks.names

    run(main)
    assert "background work work crashed" in caplog.text


def test_work_that_returns_is_done_and_a_name_is_taken_once(run: Run) -> None:
    async def main() -> None:
        async def work() -> None:
            return None

        tasks = Tasks()
        tasks.start("work", work)
        with pytest.raises(ValueError, match="already running"):
            tasks.start("work", work)
        await until(lambda: tasks.names == ())
        await tasks.stop()

    run(main)


def test_stop_waits_until_work_has_cleared_up_the_last_one_first(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []

        def work(name: str) -> object:
            async def run_until_cancelled() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    ended.append(name)

            return run_until_cancelled

        tasks = Tasks()
        for name in ("first", "last"):
            tasks.start(name, work(name))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await tasks.stop()
        assert ended == ["last", "first"]

    run(main)
