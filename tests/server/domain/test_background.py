"""Background work: restarted when it crashes, cancelled by its id, recorded when it ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from plugbay.server.domain import background as tasks
from plugbay.server.domain.background import INTERNAL, SHUTDOWN, USER, BackgroundJobs, Poller, Tasks, retry_until_stored
from plugbay.store.failures import StoreUnavailable
from plugbay.store.leases import LeaseLost
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


def test_work_without_its_database_is_started_again_and_is_no_bug(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        starts: list[int] = []

        async def work() -> None:
            starts.append(1)
            if len(starts) < 3:
                raise StoreUnavailable("no connection to it")
            await asyncio.Event().wait()

        tasks = Tasks(first_pause=0.001)
        tasks.start("work", work)
        await until(lambda: len(starts) == 3)
        assert not tasks.crashes and tasks.names == ("work",)
        await tasks.stop()

    run(main)
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "background work work waits for the database" in caplog.text and "Traceback" not in caplog.text


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


def test_work_is_finished_with_its_own_end(run: Run) -> None:
    async def story() -> None:
        jobs, ends = BackgroundJobs[str](lambda reason: reason), list[str]()

        async def drive() -> str:
            return "done"

        async def finish(end: str) -> None:
            ends.append(end)

        jobs.launch("a", drive, finish)
        await until(lambda: not jobs.running)
        assert ends == ["done"]

    run(story)


def test_a_client_that_has_seen_an_end_can_wait_until_it_is_recorded(run: Run) -> None:
    async def story() -> None:
        jobs = BackgroundJobs[str](lambda reason: reason)
        over, written, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def drive() -> str:
            await over.wait()
            return "done"

        async def finish(end: str) -> None:
            written.set()
            await closed.wait()

        jobs.launch("a", drive, finish)
        await jobs.wait_closed("a")
        assert jobs.running == {"a"}, "nobody waits for what is being done"
        over.set()
        await written.wait()
        waiting = asyncio.create_task(jobs.wait_closed("a"))
        await asyncio.sleep(0)
        assert not waiting.done()
        closed.set()
        await waiting
        assert not jobs.running
        await jobs.wait_closed("a")

    run(story)


@pytest.mark.parametrize("reason", [USER, SHUTDOWN])
def test_work_that_is_cut_off_is_finished_with_the_reason(run: Run, reason: str) -> None:
    async def story() -> None:
        jobs, ends = BackgroundJobs[str](lambda why: why), list[str]()

        async def drive() -> str:
            await asyncio.Event().wait()
            return "never"

        async def finish(end: str) -> None:
            ends.append(end)

        jobs.launch("a", drive, finish)
        jobs.launch("a", drive, finish)
        jobs.cancel("b")
        if reason == USER:
            jobs.cancel("a")
        await jobs.stop()
        assert ends == [reason], "launched twice, it runs once"
        jobs.launch("late", drive, finish)
        await jobs.stop()
        assert ends == [reason, SHUTDOWN]

    run(story)


def test_a_bug_is_logged_and_is_an_end_too(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        jobs, ends = BackgroundJobs[str](lambda why: why), list[str]()

        async def drive() -> str:
            raise KeyError("a bug")

        async def finish(end: str) -> None:
            ends.append(end)
            raise KeyError("another")

        jobs.launch("a", drive, finish)
        await until(lambda: not jobs.running)
        assert ends == [INTERNAL, INTERNAL]

    with caplog.at_level(logging.ERROR):
        run(story)
    assert [record.message for record in caplog.records] == [
        "a: a bug in plugbay",
        "a: its end cannot be recorded; it is recorded as an internal error",
        "a could not be closed; the next start closes it",
    ]


def test_work_whose_lease_is_lost_is_left_to_the_next_holder(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        jobs, ends = BackgroundJobs[str](lambda why: why), list[str]()

        async def drive() -> str:
            raise LeaseLost("gateway/gw_1")

        async def finish(end: str) -> None:
            ends.append(end)
            raise LeaseLost("gateway/gw_1")

        jobs.launch("a", drive, finish)
        await until(lambda: not jobs.running)
        assert ends == [INTERNAL]

    with caplog.at_level(logging.WARNING):
        run(story)
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.message.endswith("has another holder; another gateway closes it")


def test_an_end_that_cannot_be_written_is_an_end_all_the_same(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        jobs, ends = BackgroundJobs[str](lambda why: why), list[str]()

        async def drive() -> str:
            return "what no database takes"

        async def finish(end: str) -> None:
            if end != INTERNAL:
                raise ValueError(end)
            ends.append(end)

        jobs.launch("a", drive, finish)
        await until(lambda: not jobs.running)
        assert ends == [INTERNAL]

    with caplog.at_level(logging.ERROR):
        run(story)
    assert [record.message for record in caplog.records] == [
        "a: its end cannot be recorded; it is recorded as an internal error"
    ]


def test_a_stop_does_not_wait_for_ever_for_a_database_that_is_away(run: Run) -> None:
    async def story() -> None:
        jobs, tries = BackgroundJobs[str](lambda why: why, stop_timeout=0.0), list[str]()

        async def drive() -> str:
            return "done"

        async def finish(end: str) -> None:
            tries.append(end)
            raise StoreUnavailable("away")

        jobs.launch("a", drive, finish)
        await until(lambda: bool(tries))
        await jobs.stop()
        assert not jobs.running

    run(story)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PAUSES", (0.0,))


def test_a_step_is_tried_until_the_database_is_back(run: Run) -> None:
    async def story() -> None:
        tries = []

        async def step() -> str:
            tries.append(1)
            if len(tries) < 4:
                raise StoreUnavailable("locked")
            return "done"

        assert await retry_until_stored(step) == "done"
        assert len(tries) == 4

    run(story)


def test_other_errors_are_not_tried_again(run: Run) -> None:
    async def story() -> None:
        async def step() -> None:
            raise KeyError("a bug")

        with pytest.raises(KeyError):
            await retry_until_stored(step)

    run(story)


def test_a_step_that_has_begun_comes_to_its_end_though_its_task_is_cancelled(run: Run) -> None:
    async def story() -> None:
        go_on, written = asyncio.Event(), []

        async def step() -> None:
            await go_on.wait()
            written.append("it")

        task = asyncio.create_task(retry_until_stored(step))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == ["it"]

    run(story)


def test_a_cancelled_step_that_has_started_runs_to_its_end(run: Run) -> None:
    async def story() -> None:
        go_on, written = asyncio.Event(), []

        async def step() -> None:
            await go_on.wait()
            written.append("it")

        task = asyncio.create_task(retry_until_stored(step))
        for _ in range(3):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == ["it"]

    run(story)


def test_a_poller_polls_after_the_returned_wait_and_when_it_is_woken(run: Run) -> None:
    async def story() -> None:
        waits: list[float | None] = [0.0, None, 3600.0, None]
        polls: list[int] = []

        async def poll() -> float | None:
            polls.append(len(polls))
            if len(polls) == 3:
                poller.wake()  # during a poll: another follows at once
            return waits[len(polls) - 1]

        poller = Poller(poll, first=None)
        task = asyncio.create_task(poller.run())
        await asyncio.sleep(0.01)
        assert polls == []
        poller.wake()
        await until(lambda: len(polls) == 2)
        poller.wake()
        await until(lambda: len(polls) == 4)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled() and len(polls) == 4

    run(story)
