"""Where a duty is done, what comes of it, and how much is being done; real threads, and the loop of async handlers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event, get_ident
from typing import Any

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.nexo.messages import Identity
from plugbay.model.errors import Code, Failure
from plugbay.sdk.errors import ToolError
from plugbay.sdk.io.stdio import Wire
from plugbay.sdk.runtime.connection import Exchange
from plugbay.sdk.runtime.dispatch import Duty
from plugbay.sdk.runtime.executor import Crew
from plugbay.sdk.runtime.turns import Turns
from plugbay.sdk.types.handlers import QUICK_SECONDS, Handler
from plugbay.wire.strict_json import stdlib_codec
from tests.sdk.processes import running


class Outcomes:
    """What came of duties, and on which threads."""

    def __init__(self) -> None:
        self._all: SimpleQueue[tuple[Any, Failure | None, int]] = SimpleQueue()

    def done(self, duty: Duty, value: Any, failure: Failure | None) -> None:
        self._all.put((value, failure, get_ident()))

    def next(self) -> tuple[Any, Failure | None]:
        value, failure, _ = self._all.get()
        return value, failure

    def thread(self) -> int:
        return self._all.get()[2]


FORKS = """
import warnings
warnings.simplefilter("ignore")  # from 3.12 on: that a process with threads forks

plugin = Plugin("p")
original = os.getpid()

def forked(code):
    copy = os.fork()
    if copy == 0 and code is not None:
        sys.exit(code)
    return 0 if copy == 0 else os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])

def tell(status):
    if os.getpid() == original:
        print("copy", status)

@plugin.tool()
def plain(code: int | None):
    return forked(code)

@plugin.tool()
async def later(code: int | None):
    return forked(code)

@plugin.tool()
async def in_a_task():
    import asyncio
    async def task():
        return forked(3)
    return await asyncio.create_task(task())

@plugin.on_event("plain.>")
def heard(event):
    tell(forked(event.payload))

@plugin.on_event("later.>")
async def heard_later(event):
    tell(forked(event.payload))
"""


def test_a_copy_that_a_handler_makes_ends_as_it_says_and_nothing_else_of_it_is_heard(tmp_path: Path) -> None:
    with running(tmp_path, FORKS) as plugin:
        for name in ("plain", "later"):
            assert plugin.tool(name, {"code": 3}) == 3
            assert plugin.tool(name, {"code": 0}) == 0
            assert plugin.tool(name, {"code": None}) == 1  # it came back, and has nobody to answer
        assert plugin.tool("in_a_task") == 3
        for topic, payload in (("plain.a", 3), ("plain.a", None), ("later.a", 3), ("later.a", None)):
            plugin.event(topic, payload)
            assert plugin.stderr_line() == f"copy {1 if payload is None else payload}\n"
        plugin.close()
        assert (plugin.status(), plugin.errors()) == (0, "")


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    machine = NexoMachine(Role.PLUGIN, stdlib_codec(), identity=Identity({"plugin": {"id": "p"}}, "1"))
    nothing = os.open(os.devnull, os.O_RDWR)
    yield Exchange(machine, Wire(nothing, nothing))
    os.close(nothing)


@pytest.fixture
def crew(exchange: Exchange) -> Iterator[Crew]:
    crew = Crew(exchange, "p", busy=Code.OVERLOADED)
    yield crew
    crew.stop()


async def later() -> str:
    return "later"


def fails() -> None:
    raise ToolError("not this one")


def test_a_duty_is_done_on_another_thread_and_its_outcome_told_there(crew: Crew) -> None:
    outcomes = Outcomes()
    assert crew.start(Duty(Handler(lambda: "now")), outcomes.done)
    assert outcomes.next() == ("now", None)
    assert crew.start(Duty(Handler(later)), outcomes.done)
    assert outcomes.next() == ("later", None)
    assert crew.start(Duty(Handler(get_ident)), outcomes.done)
    assert outcomes.thread() != get_ident()
    assert crew.tally.wait(60) == 0


def test_a_duty_is_done_here_when_that_is_wanted(crew: Crew) -> None:
    outcomes = Outcomes()
    crew.do(Duty(Handler(get_ident)), outcomes.done)
    assert outcomes.next() == (get_ident(), None)
    crew.do(Duty(Handler(fails)), outcomes.done)
    value, failure = outcomes.next()
    assert (value, failure and failure.message) == (None, "not this one")


def test_what_a_plain_function_returns_to_be_awaited_goes_on_elsewhere(crew: Crew) -> None:
    outcomes = Outcomes()
    crew.do(Duty(Handler(lambda: later())), outcomes.done)
    assert outcomes.next() == ("later", None)
    assert crew.tally.wait(60) == 0


def test_a_handler_is_quick_when_it_was_and_nobody_knows_at_first(crew: Crew) -> None:
    held, handler = Event(), Handler(lambda: held.wait())
    duty = Duty(handler)
    assert not crew.is_quick(duty)
    held.set()
    while not crew.is_quick(duty):  # this process may have been given little time
        crew.do(duty, Outcomes().done)
    assert handler.pace < QUICK_SECONDS


def test_a_handler_that_hung_is_not_quick_for_a_while(crew: Crew) -> None:
    held, outcomes = Event(), Outcomes()
    handler = Handler(lambda: held.wait(QUICK_SECONDS * 20))
    handler.pace = 0.0
    duty = Duty(handler)
    assert crew.is_quick(duty)
    crew.do(duty, outcomes.done)
    assert outcomes.next() == (False, None)
    assert not crew.is_quick(duty)


def test_while_something_is_done_here_nothing_else_is_thought_quick(crew: Crew) -> None:
    other = Duty(Handler(lambda: None))
    other.handler.pace = 0.0
    outcomes = Outcomes()
    assert crew.is_quick(other)
    crew.do(Duty(Handler(lambda: crew.is_quick(other))), outcomes.done)
    assert outcomes.next() == (False, None)
    assert crew.is_quick(other)


def test_who_takes_turns_is_never_quick_and_who_does_not_may_be(exchange: Exchange) -> None:
    crew, handler = Crew(exchange, "p", turns=Turns()), Handler(lambda: None)
    handler.pace = 0.0
    assert not crew.is_quick(Duty(handler))
    assert crew.is_quick(Duty(handler, concurrent=True))


def test_what_is_done_alone_is_waited_for_but_not_for_ever(crew: Crew) -> None:
    held = Event()
    assert crew.do_alone(Duty(Handler(lambda: None)), 60) is None
    assert crew.do_alone(Duty(Handler(later)), 60) is None
    failure = crew.do_alone(Duty(Handler(lambda: held.wait()), label="on_shutdown"), 0)
    assert failure is not None
    assert (failure.code, failure.message) == (Code.TIMEOUT, "on_shutdown did not finish in time")
    assert crew.tally.wait(0) == 1
    held.set()
    assert crew.tally.wait(60) == 0


def test_a_refusal_is_worth_another_try(crew: Crew) -> None:
    refusal = crew.refusal()
    assert (refusal.code, refusal.retryable, refusal.retry_after_ms) == (Code.OVERLOADED, True, 1_000)
