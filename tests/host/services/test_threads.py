"""Work on threads that neither the loop nor the exit of the process waits for."""

from __future__ import annotations

import asyncio
import threading

import pytest

from plugbay.host.services.threads import on_thread
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until


def test_the_future_has_the_result_of_the_work(run: Run) -> None:
    def fail() -> None:
        raise KeyError("x")

    async def main() -> None:
        assert await on_thread(lambda: threading.current_thread().name, "somewhere") == "somewhere"
        with pytest.raises(KeyError):
            await on_thread(fail, "elsewhere")

    run(main)


def test_the_future_outlives_its_waiter_and_is_done_with_the_thread(run: Run) -> None:
    async def main() -> None:
        go = threading.Event()
        done = on_thread(lambda: go.wait(PATIENCE), "slow")
        waiting = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(done), 0.01))
        with pytest.raises(TimeoutError):
            await waiting
        assert not done.done()
        go.set()
        await until(done.done)
        assert done.result() is True

    run(main)


def test_a_failure_without_a_waiter_is_not_logged(run: Run) -> None:
    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        done = on_thread(lambda: 1 // 0, "failing")
        await until(done.done)
        del done
        assert reported == []

    run(main)


def test_a_thread_that_outlives_its_loop_is_a_daemon_and_ends_quietly() -> None:
    go = threading.Event()

    async def main() -> None:
        on_thread(lambda: go.wait(PATIENCE), "outliving")

    asyncio.run(main())
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "outliving"]
    assert thread.daemon
    go.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
