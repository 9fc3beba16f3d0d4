"""Tasks end, also those that miss a cancellation."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from plugbay.link import cancellation
from plugbay.link.cancellation import end_tasks
from tests.support.loops import Run


def test_tasks_are_cancelled_and_waited_for(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def work(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                ended.append(name)

        tasks = [asyncio.ensure_future(work(name)) for name in ("a", "b")]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        assert sorted(ended) == ["a", "b"] and all(task.cancelled() for task in tasks)

    run(main)


def test_a_task_that_misses_cancellations_is_cancelled_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "AGAIN_SECONDS", 0.01)

    async def main() -> None:
        async def work() -> None:
            for _ in range(3):
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        await end_tasks([task])
        assert task.done() and not task.cancelled()

    run(main)


def test_a_cancellation_that_comes_with_the_answer_ends_a_loop(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`wait_for` of Python 3.11 returns the answer then, and the loop goes on."""
    monkeypatch.setattr(cancellation, "AGAIN_SECONDS", 0.01)

    async def main() -> None:
        answers: list[asyncio.Future[None]] = []

        async def work() -> None:
            while True:
                answers.append(asyncio.get_running_loop().create_future())
                await asyncio.wait_for(answers[-1], 60)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        answers[-1].set_result(None)
        await asyncio.sleep(0)
        await end_tasks([task])
        assert task.cancelled()

    run(main)


def test_nothing_to_end_is_nothing(run: Run) -> None:
    async def main() -> None:
        await end_tasks([])

    run(main)
