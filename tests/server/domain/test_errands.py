"""Work that goes on after its request was answered."""

from __future__ import annotations

import asyncio
import logging

import pytest

from plugbay.server.domain.errands import INTERNAL, SHUTDOWN, USER, Errands
from plugbay.store.failures import StoreUnavailable
from tests.support.loops import Run
from tests.support.patience import until


def test_work_is_finished_with_its_own_end(run: Run) -> None:
    async def story() -> None:
        errands, ends = Errands[str](lambda reason: reason), list[str]()

        async def drive() -> str:
            return "done"

        async def finish(end: str) -> None:
            ends.append(end)

        errands.launch("a", drive, finish)
        await until(lambda: not errands.running)
        assert ends == ["done"]

    run(story)


def test_whoever_has_read_an_end_can_wait_until_it_is_closed(run: Run) -> None:
    async def story() -> None:
        errands = Errands[str](lambda reason: reason)
        over, written, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def drive() -> str:
            await over.wait()
            return "done"

        async def finish(end: str) -> None:
            written.set()
            await closed.wait()

        errands.launch("a", drive, finish)
        await errands.closed("a")
        assert errands.running == {"a"}, "nobody waits for what is being done"
        over.set()
        await written.wait()
        waiting = asyncio.create_task(errands.closed("a"))
        await asyncio.sleep(0)
        assert not waiting.done()
        closed.set()
        await waiting
        assert not errands.running
        await errands.closed("a")

    run(story)


@pytest.mark.parametrize("reason", [USER, SHUTDOWN])
def test_work_that_is_cut_off_is_finished_with_the_reason(run: Run, reason: str) -> None:
    async def story() -> None:
        errands, ends = Errands[str](lambda why: why), list[str]()

        async def drive() -> str:
            await asyncio.Event().wait()
            return "never"

        async def finish(end: str) -> None:
            ends.append(end)

        errands.launch("a", drive, finish)
        errands.launch("a", drive, finish)
        errands.cancel("b")
        if reason == USER:
            errands.cancel("a")
        await errands.stop()
        assert ends == [reason], "launched twice, it runs once"
        errands.launch("late", drive, finish)
        await errands.stop()
        assert ends == [reason, SHUTDOWN]

    run(story)


def test_a_bug_is_logged_and_is_an_end_too(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        errands, ends = Errands[str](lambda why: why), list[str]()

        async def drive() -> str:
            raise KeyError("a bug")

        async def finish(end: str) -> None:
            ends.append(end)
            raise KeyError("another")

        errands.launch("a", drive, finish)
        await until(lambda: not errands.running)
        assert ends == [INTERNAL, INTERNAL]

    with caplog.at_level(logging.ERROR):
        run(story)
    assert [record.message for record in caplog.records] == [
        "a: a bug in plugbay",
        "a: its end cannot be written as it is",
        "a could not be closed; it is closed when the gateway starts again",
    ]


def test_an_end_that_cannot_be_written_is_an_end_all_the_same(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        errands, ends = Errands[str](lambda why: why), list[str]()

        async def drive() -> str:
            return "what no database takes"

        async def finish(end: str) -> None:
            if end != INTERNAL:
                raise ValueError(end)
            ends.append(end)

        errands.launch("a", drive, finish)
        await until(lambda: not errands.running)
        assert ends == [INTERNAL]

    with caplog.at_level(logging.ERROR):
        run(story)
    assert [record.message for record in caplog.records] == ["a: its end cannot be written as it is"]


def test_a_stop_does_not_wait_for_ever_for_a_database_that_is_away(run: Run) -> None:
    async def story() -> None:
        errands, tries = Errands[str](lambda why: why, patience=0.0), list[str]()

        async def drive() -> str:
            return "done"

        async def finish(end: str) -> None:
            tries.append(end)
            raise StoreUnavailable("away")

        errands.launch("a", drive, finish)
        await until(lambda: bool(tries))
        await errands.stop()
        assert not errands.running

    run(story)
