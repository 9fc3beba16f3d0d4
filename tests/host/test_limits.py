"""Limits: bounded, fair, and no call waits beyond its own deadline."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.discovery.folders import inspect
from plugbay.host.limits import (
    MAX_START_SECONDS,
    MIN_STARTS,
    QUEUE_SECONDS,
    STARTS_PER_CORE,
    ConcurrencyLimit,
    SlidingWindow,
    StartLimit,
    TokenBucket,
    default_start_slots,
)
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
from plugbay.link.deadlines import Deadlines
from plugbay.model.errors import Code, Failure
from plugbay.process.child import Spawner
from tests.support.loops import Run
from tests.support.patience import PATIENCE, until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.supervision import CODEC


def test_a_free_slot_is_acquired_at_once_and_released() -> None:
    limit = ConcurrencyLimit(2)
    assert limit.try_acquire() and limit.try_acquire()
    assert not limit.try_acquire()
    limit.release()
    assert limit.in_use == 1
    assert limit.try_acquire()


def test_slots_go_to_waiting_calls_in_order(run: Run) -> None:
    async def main() -> None:
        limit, order = ConcurrencyLimit(1), []
        assert limit.try_acquire()

        async def one(number: int) -> None:
            assert await limit.acquire(PATIENCE) is None
            order.append(number)
            limit.release()

        waiting = [asyncio.ensure_future(one(number)) for number in range(5)]
        await asyncio.sleep(0)
        assert not limit.try_acquire()
        limit.release()
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2, 3, 4]
        assert limit.in_use == 0

    run(main)


def test_a_call_that_gets_no_slot_in_time_is_overloaded(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        limit.try_acquire()
        failure = await limit.acquire(0.01)
        assert failure is not None and (failure.code, failure.retryable) == (Code.OVERLOADED, True)
        limit.release()
        assert limit.try_acquire()

    run(main)


async def saturate(limit: ConcurrencyLimit, waiting: int) -> list[asyncio.Task[Failure | None]]:
    """Take all slots, and queue so many calls without a bound behind them."""
    while limit.try_acquire():
        pass
    queued = [asyncio.ensure_future(limit.acquire(PATIENCE)) for _ in range(waiting)]
    await asyncio.sleep(0)
    return queued


async def release_all(limit: ConcurrencyLimit, queued: list[asyncio.Task[Failure | None]]) -> None:
    while limit.in_use:
        limit.release()
    assert await asyncio.gather(*queued) == [None] * len(queued)


def test_a_call_that_would_queue_for_too_long_is_refused_at_once_and_told_when_to_return(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        queued = await saturate(limit, 5)
        assert limit.queue_refusal(0.0) is None, "no turn was handed on yet, so the pace is unknown"
        limit.release()
        await asyncio.sleep(0.01)  # the pace is one turn in this time, or slower
        refused = limit.queue_refusal(0.02)
        assert refused is not None and await limit.acquire(PATIENCE, 0.02) is not None
        assert (refused.code, refused.retryable) == (Code.OVERLOADED, True)
        assert refused.detail[QUEUE_SECONDS] == 0.02
        assert refused.retry_after_ms is not None and refused.retry_after_ms >= 40, "four wait, 10 ms each"
        assert limit.queue_refusal(PATIENCE * 1000) is None, "a patient call may queue"
        await release_all(limit, queued)
        assert limit.queue_refusal(0.0) is None and await limit.acquire(PATIENCE, 0.0) is None, "a slot is free"

    run(main)


def test_a_call_that_has_queued_for_as_long_as_it_may_is_refused_and_leaves_the_queue(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        assert limit.try_acquire()
        refused = await limit.acquire(PATIENCE, 0.01)
        assert refused is not None and refused.detail[QUEUE_SECONDS] == 0.01
        assert refused.retry_after_ms is not None and refused.retry_after_ms >= 10
        late = await limit.acquire(0.01, PATIENCE)
        assert late is not None and QUEUE_SECONDS not in late.detail, "its deadline came first"
        limit.release()
        assert limit.in_use == 0

    run(main)


def test_the_pace_of_a_queue_is_forgotten_when_it_is_empty(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        await release_all(limit, await saturate(limit, 3))
        queued = await saturate(limit, 3)
        await asyncio.sleep(0.01)
        assert limit.queue_refusal(0.0) is None
        await release_all(limit, queued)

    run(main)


def test_a_slot_granted_to_a_call_cancelled_at_the_same_moment_goes_to_the_next(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        limit.try_acquire()
        first = asyncio.ensure_future(limit.acquire(PATIENCE))
        second = asyncio.ensure_future(limit.acquire(PATIENCE))
        await asyncio.sleep(0)
        limit.release()
        first.cancel()
        await asyncio.wait({first})
        assert await second is None
        limit.release()
        assert limit.in_use == 0

    run(main)


def test_a_call_cancelled_in_the_queue_takes_no_slot(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(1)
        limit.try_acquire()
        waiting = asyncio.ensure_future(limit.acquire(PATIENCE))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        limit.release()
        assert limit.in_use == 0

    run(main)


def test_draining_waits_for_queued_calls_and_admits_none_afterwards(run: Run) -> None:
    async def main() -> None:
        limit = ConcurrencyLimit(2)
        limit.try_acquire()
        limit.try_acquire()
        waiting = asyncio.ensure_future(limit.acquire(PATIENCE))
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(limit.drain())
        await asyncio.sleep(0)
        limit.release()
        assert await waiting is None
        limit.release()
        assert not draining.done()
        limit.release()
        await draining
        assert not limit.try_acquire()

    run(main)


FOREVER = 3600.0


def test_there_are_two_start_slots_per_processor_and_at_least_four() -> None:
    assert default_start_slots() == max(MIN_STARTS, STARTS_PER_CORE * len(os.sched_getaffinity(0)))
    assert MAX_START_SECONDS < FOREVER


def test_starts_get_slots_in_order_and_the_others_wait(run: Run) -> None:
    async def main() -> None:
        start_limit = StartLimit(2, FOREVER)
        come: list[int] = []

        async def arrive(number: int) -> None:
            slot = await start_limit.acquire()
            come.append(number)
            await leave[number].wait()
            slot.release()

        leave = [asyncio.Event() for _ in range(4)]
        tasks = [asyncio.ensure_future(arrive(number)) for number in range(4)]
        await until(lambda: len(come) == 2)
        await asyncio.sleep(0)
        assert come == [0, 1], "there are two slots"
        leave[1].set()
        await until(lambda: len(come) == 3)
        assert come == [0, 1, 2]
        for event in leave:
            event.set()
        await asyncio.gather(*tasks)
        assert come == [0, 1, 2, 3]

    run(main)


def test_a_start_slot_held_too_long_goes_to_the_next_start(run: Run) -> None:
    async def main() -> None:
        start_limit = StartLimit(1, 0.01)
        kept = await start_limit.acquire()
        other = await start_limit.acquire()
        kept.release()
        other.release()

    run(main)


def test_a_start_slot_released_twice_counts_once(run: Run) -> None:
    async def main() -> None:
        start_limit = StartLimit(1, FOREVER)
        slot = await start_limit.acquire()
        slot.release()
        slot.release()
        await start_limit.acquire()
        waits = asyncio.ensure_future(start_limit.acquire())
        await asyncio.sleep(0)
        assert not waits.done()
        waits.cancel()

    run(main)


def test_a_call_waits_for_a_start_slot_no_longer_than_its_deadline(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        spec = inspect(write_plugin(tmp_path)).spec
        assert spec is not None
        spawner, start_limit = Spawner(), StartLimit(1, FOREVER)
        runtime = Runtime(spawner, Deadlines(asyncio.get_running_loop()), CODEC, start_limit=start_limit)
        slot = await start_limit.acquire()
        refused = await open_instance(Binding(spec), runtime, Deadline(0.01))
        assert isinstance(refused, Failure)
        assert (refused.code, refused.plugin) == (Code.TIMEOUT, "p")
        impatient = await open_instance(Binding(spec), runtime, Deadline(PATIENCE, 0.01))
        assert isinstance(impatient, Failure) and QUEUE_SECONDS in impatient.detail
        assert (impatient.code, impatient.plugin) == (Code.OVERLOADED, "p")
        assert not spawner.children, "nothing was started"
        slot.release()
        instance = await open_instance(Binding(spec), runtime, Deadline(20))
        assert isinstance(instance, Instance)
        again = await open_instance(Binding(spec), runtime, Deadline(20))
        assert isinstance(again, Instance), "a greeted instance holds no start slot"
        instance.kill()
        again.kill()
        await spawner.close()

    run(main)


def test_a_plugin_that_never_greets_delays_other_starts_only_for_a_while(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        silent = inspect(write_plugin(tmp_path, "silent", script="cat >/dev/null")).spec
        good = inspect(write_plugin(tmp_path, "good")).spec
        assert silent is not None and good is not None
        spawner = Spawner()
        deadlines = Deadlines(asyncio.get_running_loop())
        runtime = Runtime(spawner, deadlines, CODEC, start_limit=StartLimit(1, 0.05))
        hangs = asyncio.ensure_future(open_instance(Binding(silent), runtime, Deadline(FOREVER)))
        await until(lambda: len(spawner.children) == 1)
        instance = await open_instance(Binding(good), runtime, Deadline(20))
        assert isinstance(instance, Instance)
        instance.kill()
        hangs.cancel()
        await asyncio.wait({hangs})
        await spawner.close()

    run(main)


@pytest.mark.parametrize(
    ("rate", "burst", "times", "passed"),
    [
        (1, 3, [0, 0, 0, 0], [True, True, True, False]),
        (2, 1, [0, 0.25, 0.5, 0.75, 1.0], [True, False, True, False, True]),
        (1, 2, [0, 0, 0, 100, 100, 100], [True, True, False, True, True, False]),
        (1, 2, [10, 5, 5, 10.5, 11], [True, True, False, False, True]),
        (1, 1, [-5, -4.5, -4], [True, False, True]),
        (0.5, 1, [0, 1, 2], [True, False, True]),
    ],
    ids=["a burst", "a steady rate", "it fills to the burst", "a clock that goes back", "any clock", "a slow rate"],
)
def test_a_token_bucket_limits_the_rate(rate: float, burst: float, times: list[float], passed: list[bool]) -> None:
    bucket = TokenBucket(rate, burst)
    assert [bucket.take(at) for at in times] == passed


@requirement("kaged:host-notification-rate")
def test_a_hundred_a_second_pass_and_the_next_does_not() -> None:
    bucket = TokenBucket(100, 100)
    assert [bucket.take(7.0) for _ in range(101)] == [True] * 100 + [False]
    assert [bucket.take(8.0) for _ in range(101)] == [True] * 100 + [False]


@given(
    st.floats(0.01, 1000),
    st.floats(1, 200),
    st.lists(st.floats(0, 10, allow_subnormal=False), max_size=300).map(sorted),
)
def test_never_more_pass_than_the_burst_and_the_rate_since(rate: float, burst: float, times: list[float]) -> None:
    bucket = TokenBucket(rate, burst)
    passed = [at for at in times if bucket.take(at)]
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + rate * (passed[last] - passed[first]) + 1e-6


@given(st.integers(1, 100), st.integers(1, 50))
def test_a_caller_that_keeps_to_the_rate_is_never_stopped(rate: int, count: int) -> None:
    bucket = TokenBucket(rate, 2)
    assert all(bucket.take(number / rate) for number in range(count))


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0.5)])
def test_a_bucket_that_lets_nothing_through_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TokenBucket(rate, burst)


@requirement("kaged:notification-rate-exact")
def test_a_window_takes_its_count_in_any_second_and_no_more() -> None:
    window = SlidingWindow(3)
    assert [window.take(at) for at in (0.0, 0.5, 0.9, 0.99, 1.0, 1.1, 1.5, 1.89, 1.91)] == [
        *(True, True, True, False, True),
        *(False, True, False, True),
    ]


def test_a_window_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError):
        SlidingWindow(0)
