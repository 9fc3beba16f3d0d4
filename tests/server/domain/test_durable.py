"""Steps that are written down whatever happens to whoever takes them."""

from __future__ import annotations

import asyncio

import pytest

from plugbay.server.domain import durable
from plugbay.store.failures import StoreUnavailable
from tests.support.loops import Run


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "PAUSES", (0.0,))


def test_a_step_is_tried_until_the_database_is_back(run: Run) -> None:
    async def story() -> None:
        tries = []

        async def step() -> str:
            tries.append(1)
            if len(tries) < 4:
                raise StoreUnavailable("locked")
            return "done"

        assert await durable.durably(step) == "done"
        assert len(tries) == 4

    run(story)


def test_other_errors_are_not_tried_again(run: Run) -> None:
    async def story() -> None:
        async def step() -> None:
            raise KeyError("a bug")

        with pytest.raises(KeyError):
            await durable.durably(step)

    run(story)


def test_a_step_that_has_begun_comes_to_its_end_though_its_task_is_cancelled(run: Run) -> None:
    async def story() -> None:
        go_on, written = asyncio.Event(), []

        async def step() -> None:
            await go_on.wait()
            written.append("it")

        task = asyncio.create_task(durable.durably(step))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == ["it"]

    run(story)


def test_nobody_is_impatient_enough_to_leave_a_step_that_has_begun(run: Run) -> None:
    async def story() -> None:
        go_on, written = asyncio.Event(), []

        async def step() -> None:
            await go_on.wait()
            written.append("it")

        task = asyncio.create_task(durable.durably(step))
        for _ in range(3):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert written == ["it"]

    run(story)
