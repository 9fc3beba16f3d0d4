"""Coroutines on a loop of their own; services to await are told in test_nexo.py, with a real host."""

from __future__ import annotations

import asyncio
import os
from queue import SimpleQueue
from threading import get_ident
from time import monotonic
from typing import Any

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.model.events import CallProgress
from plugbay.model.operations import CompleteChat, RecallMemory
from plugbay.sdk.io.stdio import Wire
from plugbay.sdk.runtime import async_bridge
from plugbay.sdk.runtime.async_bridge import AwaitableClient, Bridge, CancelledBy, Done
from plugbay.sdk.runtime.connection import Connection
from plugbay.sdk.services.cancellation import DEADLINE, Cancellation
from plugbay.wire.strict_json import stdlib_codec
from tests.support.patience import PATIENCE


def test_coroutines_run_together_on_one_other_thread() -> None:
    bridge, seen, gate = Bridge(), SimpleQueue[int](), SimpleQueue[asyncio.Event]()

    async def waits() -> None:
        event = asyncio.Event()
        gate.put(event)
        await event.wait()
        seen.put(get_ident())

    async def frees() -> None:
        gate.get().set()
        seen.put(get_ident())

    assert bridge.submit(waits)
    assert bridge.submit(frees)
    first, second = seen.get(), seen.get()
    assert first == second != get_ident()
    assert bridge.submit(frees)
    gate.put(asyncio.Event())
    assert seen.get() == first


def test_no_more_than_so_many_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_bridge, "MAX_TASKS", 1)
    bridge, started = Bridge(), SimpleQueue[None]()

    async def holds() -> None:
        started.put(None)
        await asyncio.Event().wait()

    assert bridge.submit(holds)
    started.get()
    assert not bridge.submit(holds)


def test_a_system_without_threads_is_asked_again_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge, seen = Bridge(), SimpleQueue[str]()

    def no_thread(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    async def says() -> None:
        seen.put("here")

    with monkeypatch.context() as patched:
        patched.setattr(async_bridge, "start_new_thread", no_thread)
        assert not bridge.submit(says)
    assert bridge.submit(says)
    assert seen.get(timeout=PATIENCE) == "here"


def test_a_loop_survives_every_exception_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    told = SimpleQueue[BaseException]()
    monkeypatch.setattr(async_bridge, "failure_of", told.put)
    bridge, seen, started = Bridge(), SimpleQueue[str](), SimpleQueue[asyncio.Task[None]]()

    async def exits() -> None:
        raise SystemExit("enough")

    async def starts() -> None:
        started.put(asyncio.get_running_loop().create_task(exits()))

    async def stops() -> None:
        asyncio.get_running_loop().stop()

    async def says() -> None:
        seen.put("here")

    for job in (starts, stops, says):
        assert bridge.submit(job)
    assert seen.get(timeout=PATIENCE) == "here"
    assert str(told.get(timeout=PATIENCE)) == "enough"
    # Or asyncio tells of it once more when it is collected, which may be while Python parses something else.
    assert isinstance(started.get().exception(), SystemExit)


@pytest.mark.parametrize("asked", [True, False])
def test_to_cancel_a_call_is_to_cancel_its_task_and_so_is_its_deadline(asked: bool) -> None:
    async def main() -> str:
        stop = Cancellation(monotonic() + (3600 if asked else 0.01))
        try:
            with CancelledBy(stop):
                if asked:
                    stop.cancel("enough")
                await asyncio.sleep(3600)
        except asyncio.CancelledError as error:
            return str(stop.meant(error))
        return ""

    assert asyncio.run(main()) == ("enough" if asked else DEADLINE)


def test_an_answer_to_a_loop_that_is_closed_is_dropped() -> None:
    (heard, said) = os.pipe()
    machine = NexoMachine(Role.PLUGIN, stdlib_codec())
    machine.greet()
    connection = Connection(machine, Wire(heard, said))

    async def asks() -> None:
        AwaitableClient(connection).stream(CompleteChat("p", "m", [], stream=True), dict, 60)

    asyncio.run(asks())
    assert 1 in connection._waiting
    connection.deliver_reply(CallProgress(1, "late"))
    os.close(heard)
    os.close(said)


def test_a_time_in_quotes_is_refused_before_anything_is_said() -> None:
    with open(os.devnull, "r+b", buffering=0) as nothing:
        connection = Connection(NexoMachine(Role.PLUGIN, stdlib_codec()), Wire(nothing.fileno(), nothing.fileno()))
        line: Any = AwaitableClient(connection)

        async def asks() -> None:
            await line.ask(RecallMemory("a", "q"), list, "5")

        async def streams() -> None:
            line.stream(RecallMemory("a", "q"), list, "5")

        for attempt in (asks, streams):
            with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* not '5'"):
                asyncio.run(attempt())
        assert not connection.unsent


def test_what_is_done_can_be_awaited() -> None:
    async def main() -> None:
        assert await Done() is None  # type: ignore[func-returns-value]

    asyncio.run(main())


def test_a_bridge_that_is_stopped_cancels_what_still_runs_and_closes_its_loop() -> None:
    bridge, seen = Bridge(), SimpleQueue[object]()

    async def goes_on() -> None:
        seen.put(asyncio.get_running_loop())
        try:
            await asyncio.Event().wait()
        finally:
            seen.put("tidied up")

    assert bridge.submit(goes_on)
    loop = seen.get(timeout=PATIENCE)
    bridge.stop()
    assert seen.get(timeout=PATIENCE) == "tidied up"
    assert isinstance(loop, asyncio.AbstractEventLoop)
    while not loop.is_closed():  # it has nothing more to do
        pass


def test_a_bridge_that_never_ran_anything_can_be_stopped() -> None:
    Bridge().stop()
