"""Every test about the event loop runs on asyncio and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Main = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


PATIENCE = 20.0
"""Seconds for what should take a fraction of one: with three tests at a time on two cores it may take many."""


def run_on(name: str) -> Run:
    """A function that runs a coroutine function on a fresh loop of this kind, within a bound."""

    def run(main: Main) -> None:
        with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
            runner.run(asyncio.wait_for(main(), 30))

    return run


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait for a condition, and say so when it never comes."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition never came true"
        await asyncio.sleep(0.002)
