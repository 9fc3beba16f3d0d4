"""Threads on demand, bounded; and waiting until nothing is being done."""

from __future__ import annotations

import _thread
from queue import SimpleQueue
from threading import Event, get_ident

import pytest

from plugbay.sdk.runtime import workers
from plugbay.sdk.runtime.workers import Tally, Workers


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
    monkeypatch.setattr(workers, "start_new_thread", no_thread)
    assert not Workers().submit(lambda: None)
    assert pool.submit(lambda: ran.put("second"))
    held.set()
    assert [ran.get(), ran.get()] == ["first", "second"]


def test_waiting_for_nothing_ends_when_the_last_thing_does() -> None:
    tally, pool = Tally(), Workers()
    assert tally.wait(0) == 0
    tally.begin()
    tally.begin()
    assert tally.wait(0) == 2
    pool.submit(tally.end)
    pool.submit(tally.end)
    assert tally.wait(60) == 0


def test_a_pool_that_is_stopped_ends_its_threads_after_what_they_do() -> None:
    before = _thread._count()
    pool, held, ran = Workers(size=2), Event(), SimpleQueue[int]()

    def job() -> None:
        held.wait()
        ran.put(1)

    assert pool.submit(job) and pool.submit(job)
    pool.stop()
    held.set()
    assert [ran.get(), ran.get()] == [1, 1]
    while _thread._count() > before:  # they have nothing more to do
        pass
