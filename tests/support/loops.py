"""Coroutines of tests run on asyncio's loop, and once more on uvloop's.

What differs between the two is shown in `link` and `process`, where both belong to `make test`; elsewhere the second
belongs to `make test-all`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from tests.support.patience import PATIENCE
from tests.support.tiers import first_alone

Main = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def run_on(name: str) -> Run:
    """A function that runs a coroutine function on a fresh loop of this kind, within a bound."""

    def run(main: Main) -> None:
        with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
            runner.run(asyncio.wait_for(main(), 2 * PATIENCE))

    return run


@pytest.fixture(params=first_alone(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)
