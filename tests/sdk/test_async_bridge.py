"""Coroutines on a loop of their own; services to await are told in test_nexo.py, with a real host."""

from __future__ import annotations

import asyncio
import os
from queue import SimpleQueue
from threading import get_ident

import pytest

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.model.events import CallProgress
from plugbay.model.operations import CompleteChat
from plugbay.sdk import async_bridge
from plugbay.sdk.async_bridge import AwaitableLine, Bridge, Done
from plugbay.sdk.exchange import Exchange
from plugbay.sdk.stdio import Wire
from plugbay.wire.strict_json import stdlib_codec


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


def test_an_answer_to_a_loop_that_is_closed_is_dropped() -> None:
    (heard, said) = os.pipe()
    machine = NexoMachine(Role.PLUGIN, stdlib_codec())
    machine.greet()
    exchange = Exchange(machine, Wire(heard, said))

    async def asks() -> None:
        AwaitableLine(exchange).stream(CompleteChat("p", "m", [], stream=True), dict, 60)

    asyncio.run(asks())
    assert 1 in exchange._waiting
    exchange.heard(CallProgress(1, "late"))
    os.close(heard)
    os.close(said)


def test_what_is_done_can_be_awaited() -> None:
    async def main() -> None:
        assert await Done() is None  # type: ignore[func-returns-value]

    asyncio.run(main())
