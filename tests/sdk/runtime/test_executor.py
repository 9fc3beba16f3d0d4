"""Where a task is done, what comes of it, and how much is being done; real threads, and the loop of async handlers."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
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
from plugbay.sdk.runtime import executor as executor_module
from plugbay.sdk.runtime.connection import Connection
from plugbay.sdk.runtime.dispatch import KEYS, MOUSE, REST, Task
from plugbay.sdk.runtime.executor import (
    MAX_IN_A_ROW,
    Executor,
    InFlight,
    QueuedJob,
    SerialQueue,
    Workers,
)
from plugbay.sdk.types.handlers import QUICK_SECONDS, Handler
from plugbay.wire.strict_json import stdlib_codec
from tests.sdk.processes import running
from tests.support.patience import PATIENCE, until_blocking
from tests.support.requirements import requirement


class Outcomes:
    """The outcomes of tasks, and the threads they ran on."""

    def __init__(self) -> None:
        self._all: SimpleQueue[tuple[Any, Failure | None, int]] = SimpleQueue()

    def done(self, task: Task, value: Any, failure: Failure | None) -> None:
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
def connection() -> Iterator[Connection]:
    machine = NexoMachine(Role.PLUGIN, stdlib_codec(), identity=Identity({"plugin": {"id": "p"}}, "1"))
    nothing = os.open(os.devnull, os.O_RDWR)
    yield Connection(machine, Wire(nothing, nothing))
    os.close(nothing)


@pytest.fixture
def executor(connection: Connection) -> Iterator[Executor]:
    executor = Executor(connection, "p", busy=Code.OVERLOADED)
    yield executor
    executor.stop()


async def later() -> str:
    return "later"


def fails() -> None:
    raise ToolError("not this one")


def test_a_task_runs_on_another_thread_and_so_does_its_callback(executor: Executor) -> None:
    outcomes = Outcomes()
    assert executor.start(Task(Handler(lambda: "now")), outcomes.done)
    assert outcomes.next() == ("now", None)
    assert executor.start(Task(Handler(later)), outcomes.done)
    assert outcomes.next() == ("later", None)
    assert executor.start(Task(Handler(get_ident)), outcomes.done)
    assert outcomes.thread() != get_ident()
    assert executor.in_flight.wait(PATIENCE) == 0


def test_a_task_can_run_inline(executor: Executor) -> None:
    outcomes = Outcomes()
    executor.run_inline(Task(Handler(get_ident)), outcomes.done)
    assert outcomes.next() == (get_ident(), None)
    executor.run_inline(Task(Handler(fails)), outcomes.done)
    value, failure = outcomes.next()
    assert (value, failure and failure.message) == (None, "not this one")


def test_what_a_plain_function_returns_to_be_awaited_goes_on_elsewhere(executor: Executor) -> None:
    outcomes = Outcomes()
    executor.run_inline(Task(Handler(lambda: later())), outcomes.done)
    assert outcomes.next() == ("later", None)
    assert executor.in_flight.wait(PATIENCE) == 0


def test_a_handler_counts_as_quick_after_its_first_quick_run(executor: Executor) -> None:
    held, handler = Event(), Handler(lambda: held.wait())
    task = Task(handler)
    assert not executor.is_quick(task)
    held.set()
    while not executor.is_quick(task):  # this process may have been given little time
        executor.run_inline(task, Outcomes().done)
    assert handler.pace < QUICK_SECONDS


def test_a_handler_that_hung_is_not_quick_for_a_while(executor: Executor) -> None:
    held, outcomes = Event(), Outcomes()
    handler = Handler(lambda: held.wait(QUICK_SECONDS * 20))
    handler.pace = 0.0
    task = Task(handler)
    assert executor.is_quick(task)
    executor.run_inline(task, outcomes.done)
    assert outcomes.next() == (False, None)
    assert not executor.is_quick(task)


def test_while_something_is_done_here_nothing_else_is_thought_quick(executor: Executor) -> None:
    other = Task(Handler(lambda: None))
    other.handler.pace = 0.0
    outcomes = Outcomes()
    assert executor.is_quick(other)
    executor.run_inline(Task(Handler(lambda: executor.is_quick(other))), outcomes.done)
    assert outcomes.next() == (False, None)
    assert executor.is_quick(other)


def test_a_handler_in_the_serial_queue_is_never_quick_and_a_concurrent_one_may_be(connection: Connection) -> None:
    executor, handler = Executor(connection, "p", serial=SerialQueue()), Handler(lambda: None)
    handler.pace = 0.0
    assert not executor.is_quick(Task(handler))
    assert executor.is_quick(Task(handler, concurrent=True))


def test_what_is_done_alone_is_waited_for_but_not_for_ever(executor: Executor) -> None:
    held = Event()
    assert executor.run_alone(Task(Handler(lambda: None)), 60) is None
    assert executor.run_alone(Task(Handler(later)), 60) is None
    failure = executor.run_alone(Task(Handler(lambda: held.wait()), label="on_shutdown"), 0)
    assert failure is not None
    assert (failure.code, failure.message) == (Code.TIMEOUT, "on_shutdown did not finish in time")
    assert executor.in_flight.wait(0) == 1
    held.set()
    assert executor.in_flight.wait(PATIENCE) == 0


def test_a_refusal_is_worth_another_try(executor: Executor) -> None:
    refusal = executor.refusal()
    assert (refusal.code, refusal.retryable, refusal.retry_after_ms) == (Code.OVERLOADED, True, 1_000)


def test_jobs_run_on_other_threads_at_the_same_time_up_to_a_limit_and_then_wait_and_then_are_refused() -> None:
    pool, held, running = Workers(size=2, waiting=1), Event(), SimpleQueue[int]()

    def job() -> None:
        running.put(get_ident())
        held.wait()

    assert pool.submit(job)
    assert pool.submit(job)
    threads = {running.get(), running.get()}
    assert len(threads) == 2
    assert get_ident() not in threads
    assert pool.submit(job)
    assert not pool.submit(job)
    assert running.empty()
    held.set()
    assert running.get() in threads


def test_a_thread_is_used_again() -> None:
    pool, ran = Workers(size=8), SimpleQueue[int]()
    assert pool.submit(lambda: ran.put(get_ident()))
    first = ran.get()
    while pool._open:  # the job is over, its thread may not know yet
        pass
    assert pool.submit(lambda: ran.put(get_ident()))
    assert ran.get() == first


def test_a_system_without_threads_refuses_and_one_with_a_few_makes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    def wait() -> None:
        held.wait()
        ran.put("first")

    pool, held, ran = Workers(), Event(), SimpleQueue[str]()
    assert pool.submit(wait)
    monkeypatch.setattr(executor_module, "start_new_thread", no_thread)
    assert not Workers().submit(lambda: None)
    assert pool.submit(lambda: ran.put("second"))
    held.set()
    assert [ran.get(), ran.get()] == ["first", "second"]


def test_waiting_for_nothing_ends_when_the_last_thing_does() -> None:
    in_flight, pool = InFlight(), Workers()
    assert in_flight.wait(0) == 0
    in_flight.begin()
    in_flight.begin()
    assert in_flight.wait(0) == 2
    pool.submit(in_flight.end)
    pool.submit(in_flight.end)
    assert in_flight.wait(PATIENCE) == 0


def test_a_pool_that_is_stopped_ends_its_threads_after_their_jobs() -> None:
    pool, held, ran = Workers(size=2), Event(), SimpleQueue[int]()

    def job() -> None:
        held.wait()
        ran.put(get_ident())

    assert pool.submit(job) and pool.submit(job)
    pool.stop()
    held.set()
    threads = {ran.get(), ran.get()}
    until_blocking(lambda: threads.isdisjoint(sys._current_frames()))


class Stage:
    """SerialQueue that note their names, behind one that waits until everything is queued."""

    def __init__(self, under_test: SerialQueue) -> None:
        self.serial = under_test
        self.done: SimpleQueue[str] = SimpleQueue()
        self.dropped: list[str] = []
        self._curtain = threading.Event()
        begun = threading.Event()

        def hold() -> None:
            begun.set()
            self._curtain.wait(PATIENCE)

        assert self.serial.submit(QueuedJob(hold))
        begun.wait(PATIENCE)

    def add(self, name: str, lane: int = REST, *, may_drop: bool = True, weight: int = 0) -> bool:
        drop: Callable[[], None] | None = (lambda: self.dropped.append(name)) if may_drop else None
        return self.serial.submit(QueuedJob(lambda: self.done.put(name), drop, weight), lane)

    def played(self, count: int) -> list[str]:
        self._curtain.set()
        return [self.done.get(timeout=PATIENCE) for _ in range(count)]


@requirement("ainb:sdk-keys-first")
def test_keys_overtake_the_mouse_and_both_overtake_the_rest_each_in_its_order() -> None:
    stage = Stage(SerialQueue())
    for name, lane in (("e1", REST), ("m1", MOUSE), ("k1", KEYS), ("e2", REST), ("k2", KEYS), ("m2", MOUSE)):
        assert stage.add(name, lane)
    assert stage.played(6) == ["k1", "k2", "m1", "m2", "e1", "e2"]


@requirement("ainb:sdk-keys-first")
def test_a_key_that_is_held_down_does_not_keep_everything_else_waiting_for_ever() -> None:
    stage = Stage(SerialQueue(urgent=1000))
    stage.add("picture")
    stage.add("next picture")
    for _ in range(3 * MAX_IN_A_ROW):
        stage.add("key", KEYS)
    played = stage.played(3 * MAX_IN_A_ROW + 2)
    assert [at for at, name in enumerate(played) if name != "key"] == [MAX_IN_A_ROW, 2 * MAX_IN_A_ROW + 1]


@requirement("ainb:sdk-bounded")
@pytest.mark.parametrize("lane", [KEYS, MOUSE])
def test_of_too_many_keys_the_oldest_give_way(lane: int) -> None:
    stage = Stage(SerialQueue(urgent=2))
    for name in ("1", "2", "3", "4"):
        assert stage.add(name, lane)
    assert stage.add("other")
    assert stage.dropped == ["1", "2"]
    assert stage.played(3) == ["3", "4", "other"]


@requirement("ainb:sdk-bounded")
def test_the_oldest_notification_gives_way_to_a_request() -> None:
    stage = Stage(SerialQueue(waiting=2))
    assert stage.add("call 1", may_drop=False)
    assert stage.add("event 1")
    assert stage.add("event 2")
    assert stage.dropped == ["event 1"]
    assert stage.add("call 2", may_drop=False)
    assert stage.dropped == ["event 1", "event 2"]
    assert not stage.add("call 3", may_drop=False), "there is nothing left that could give way"
    assert stage.add("event 3"), "it gave way itself, and said so"
    assert stage.dropped[-1] == "event 3"
    assert stage.played(2) == ["call 1", "call 2"]


@requirement("ainb:sdk-bounded")
def test_bytes_that_wait_are_bounded_too_but_one_thing_may_always_wait() -> None:
    stage = Stage(SerialQueue(waiting_bytes=10))
    assert stage.add("huge", weight=100)
    assert stage.add("first", weight=6)
    assert stage.add("second", weight=4)
    assert stage.add("third", weight=1)
    assert stage.dropped == ["huge", "first"]
    assert stage.played(2) == ["second", "third"]


def test_room_is_given_back_by_what_was_done() -> None:
    under_test = SerialQueue(waiting=1, waiting_bytes=1)
    for number in range(5):
        stage = Stage(under_test)
        assert stage.add(str(number), may_drop=False, weight=1)
        assert stage.played(1) == [str(number)]


def test_a_system_without_threads_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(executor_module, "start_new_thread", refuse)
    assert not SerialQueue().submit(QueuedJob(lambda: None))


def test_turns_that_are_stopped_end_their_thread() -> None:
    ran = SimpleQueue[int]()
    under_test = SerialQueue()
    assert under_test.submit(QueuedJob(lambda: ran.put(get_ident())))
    thread = ran.get(timeout=PATIENCE)
    under_test.stop()
    until_blocking(lambda: thread not in sys._current_frames())
