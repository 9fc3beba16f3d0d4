"""An end is told once to everybody, whenever they ask."""

from __future__ import annotations

import asyncio
from typing import Any

from plugbay.process.ending import Ending
from plugbay.process.status import ExitStatus
from tests.process.helpers import Run
from tests.support.patience import PATIENCE

GONE = ExitStatus(code=3)


def test_who_asked_before_and_who_asks_afterwards_hear_the_same_once(run: Run) -> None:
    async def main() -> None:
        heard: list[tuple[str, ExitStatus]] = []
        ending = Ending(asyncio.get_running_loop(), "x")
        ending.tell(lambda status: heard.append(("before", status)))
        assert ending.status is None
        ending.come(GONE)
        assert heard == [("before", GONE)]
        ending.tell(lambda status: heard.append(("after", status)))
        assert len(heard) == 1
        await asyncio.sleep(0)
        assert heard == [("before", GONE), ("after", GONE)]
        assert await ending.wait(None) == GONE

    run(main())


def test_waiting_ends_with_the_end_or_with_the_time(run: Run) -> None:
    async def main() -> None:
        ending = Ending(asyncio.get_running_loop(), "x")
        assert await ending.wait(0.001) is None
        waiting = asyncio.create_task(ending.wait(PATIENCE))
        cancelled = asyncio.create_task(ending.wait(PATIENCE))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        ending.come(GONE)
        assert await waiting == GONE
        assert cancelled.cancelled()

    run(main())


def test_a_callback_that_fails_is_reported_and_does_not_silence_the_others(run: Run) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        heard: list[ExitStatus] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        ending = Ending(loop, "weather")
        ending.tell(lambda _: 1 / 0)
        ending.tell(heard.append)
        ending.come(GONE)
        assert heard == [GONE]
        assert [context["message"] for context in reported] == ["exit callback of weather failed"]

    run(main())
