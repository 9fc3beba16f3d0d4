"""A call that answers in pieces, as an iterator. No process, both loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from plugbay.host.calls import streaming
from plugbay.host.calls.streaming import CallStream
from plugbay.host.ports import CallRecord
from plugbay.host.request import CallResult
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.patience import until

CODEC = MsgspecCodec()


def result(value: Any = None, failure: Failure | None = None) -> CallResult:
    return CallResult(CallRecord("c", "p", "1", "nexo", "x", 0.0, 0.0, failure), CODEC.dump(value), CODEC)


def test_pieces_come_in_order_and_then_the_answer(run: Run) -> None:
    async def begin(each: Callable[[Any], None]) -> CallResult:
        for number in range(3):
            each(number)
            await asyncio.sleep(0)
        return result({"done": True})

    async def main() -> None:
        stream = CallStream(begin)
        with pytest.raises(RuntimeError, match="iterate it first"):
            _ = stream.result
        assert [piece async for piece in stream] == [0, 1, 2]
        assert stream.result == {"done": True}

    run(main)


def test_a_failure_comes_after_the_pieces_that_made_it(run: Run) -> None:
    async def begin(each: Callable[[Any], None]) -> CallResult:
        each("a")
        return result(failure=Failure(Code.CRASHED, "gone"))

    async def main() -> None:
        seen = []
        with pytest.raises(CallFailed) as caught:
            async for piece in CallStream(begin):
                seen.append(piece)
        assert (seen, caught.value.code) == (["a"], Code.CRASHED)

    run(main)


def test_leaving_early_cancels_the_call(run: Run) -> None:
    cancelled = []

    async def begin(each: Callable[[Any], None]) -> CallResult:
        each("a")
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return result()

    async def main() -> None:
        async with CallStream(begin) as stream:
            assert await anext(stream) == "a"
        assert cancelled == [True]

    run(main)


def test_a_cancelled_consumer_cancels_the_call(run: Run) -> None:
    started: list[asyncio.Task[Any]] = []

    async def begin(each: Callable[[Any], None]) -> CallResult:
        task = asyncio.current_task()
        assert task is not None
        started.append(task)
        await asyncio.sleep(1000)
        return result()

    async def main() -> None:
        task = asyncio.ensure_future(anext(CallStream(begin)))
        await until(lambda: bool(started))
        task.cancel()
        await asyncio.wait({task, started[0]})
        assert started[0].cancelled()

    run(main)


def test_a_consumer_that_does_not_keep_up_ends_its_own_call(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING", 3)

    async def begin(each: Callable[[Any], None]) -> CallResult:
        for number in range(10):
            each(number)
        await asyncio.sleep(1000)
        return result()

    async def main() -> None:
        seen = []
        with pytest.raises(CallFailed) as caught:
            async for piece in CallStream(begin):
                seen.append(piece)
        assert (seen, caught.value.code) == ([0, 1, 2], Code.OVERLOADED)

    run(main)


def test_large_pieces_fill_the_line_before_many_do(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING_BYTES", 100)

    async def begin(each: Callable[[Any], None]) -> CallResult:
        each("x" * 1000)  # alone it may have any size
        await asyncio.sleep(0)
        for letter in "abc":
            each(letter * 50)
        await asyncio.sleep(1000)
        return result()

    async def main() -> None:
        stream = CallStream(begin)
        assert await anext(stream) == "x" * 1000
        assert await anext(stream) == "a" * 50
        with pytest.raises(CallFailed) as caught:
            await anext(stream)
        assert caught.value.code == Code.OVERLOADED

    run(main)


def test_nothing_is_read_after_a_gap_and_the_result_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MAX_WAITING", 1)
    sinks: list[Callable[[Any], None]] = []

    async def begin(each: Callable[[Any], None]) -> CallResult:
        sinks.append(each)
        each("a")
        each("b")
        await asyncio.sleep(1000)
        return result()

    async def main() -> None:
        stream = CallStream(begin)
        assert await anext(stream) == "a"
        sinks[0]("c")
        with pytest.raises(CallFailed) as caught:
            await anext(stream)
        assert caught.value.code == Code.OVERLOADED
        with pytest.raises(CallFailed) as again:
            _ = stream.result
        assert again.value.code == Code.OVERLOADED

    run(main)


def test_a_stream_that_was_closed_has_ended_and_has_no_result(run: Run) -> None:
    async def begin(each: Callable[[Any], None]) -> CallResult:
        each("a")
        each("b")
        await asyncio.sleep(1000)
        return result()

    async def main() -> None:
        async with CallStream(begin) as stream:
            assert await anext(stream) == "a"
        assert [piece async for piece in stream] == []
        with pytest.raises(CallFailed) as caught:
            _ = stream.result
        assert caught.value.code == Code.CANCELLED

    run(main)


def test_pieces_from_another_thread_arrive_on_the_consumers_loop(run: Run) -> None:
    async def begin(each: Callable[[Any], None]) -> CallResult:
        thread = threading.Thread(target=each, args=("from afar",))
        thread.start()
        await asyncio.to_thread(thread.join)
        return result()

    async def main() -> None:
        assert [piece async for piece in CallStream(begin)] == ["from afar"]

    run(main)
