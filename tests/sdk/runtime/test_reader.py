"""One thread reads, whatever it does beside that; real threads, which a script of jobs keeps busy."""

from __future__ import annotations

import _thread
import sys
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Event, Thread, get_ident

import pytest

from plugbay.sdk.runtime import reader as reader_module
from plugbay.sdk.runtime.reader import Reader
from tests.support.patience import until_blocking


class Over(Exception):
    """The script has ended."""


class Script:
    """Jobs for the reading thread. Tells which thread took each, and which of them still read afterwards."""

    def __init__(self) -> None:
        self.jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.taken: SimpleQueue[int] = SimpleQueue()
        self.returned: SimpleQueue[tuple[int, bool]] = SimpleQueue()
        self.raised: list[BaseException] = []
        self.threads: set[int] = set()
        """All threads that have read."""
        self.reader = Reader(self._read_loop)
        self.keeper = Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.reader.run()
        except Over as error:
            self.raised.append(error)

    def _read_loop(self) -> None:
        self.threads.add(get_ident())
        reads = True
        while reads:
            job = self.jobs.get()
            if job is None:
                raise Over
            self.taken.put(get_ident())
            reads = self.reader.run_inline(job)
            self.returned.put((get_ident(), reads))

    def do(self, job: Callable[[], object]) -> int:
        """Have it done; the thread that does."""
        self.jobs.put(job)
        return self.taken.get()


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    script.keeper.start()
    yield script
    script.jobs.put(None)
    script.keeper.join()
    assert len(script.raised) == 1
    until_blocking(lambda: script.threads.isdisjoint(sys._current_frames()))


def test_the_thread_that_reads_does_small_things_and_reads_on(script: Script) -> None:
    first = script.do(int)
    assert script.returned.get() == (first, True)
    assert first not in (get_ident(), script.keeper.ident)


def test_when_something_takes_long_another_thread_reads_and_the_first_one_ends(script: Script) -> None:
    held = Event()
    first = script.do(held.wait)
    second = script.do(int)  # somebody has come to read it
    assert second != first
    assert script.returned.get() == (second, True)
    held.set()
    assert script.returned.get() == (first, False)
    assert script.do(int) == second


def test_every_thread_that_reads_may_be_held_up(script: Script) -> None:
    held = Event()
    threads = [script.do(held.wait) for _ in range(5)]
    assert len(set(threads)) == 5
    held.set()
    returned = [script.returned.get() for _ in threads]
    assert sorted(thread for thread, _ in returned) == sorted(threads)
    assert sum(reads for _, reads in returned) <= 1


def test_a_reading_thread_that_waits_for_the_host_is_replaced_at_once(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, answer = Event(), SimpleQueue[str]()
    monkeypatch.setattr(reader_module, "sleep", lambda seconds: slept.wait())  # whoever sees to it is of no help

    def ask() -> None:
        script.reader.release_reader()
        answer.get()

    first = script.do(ask)
    second = script.do(lambda: answer.put("the host's"))
    assert second != first
    assert {script.returned.get()[0], script.returned.get()[0]} == {first, second}
    slept.set()


def test_what_other_threads_wait_for_is_read_anyway(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = Event()
    monkeypatch.setattr(reader_module, "sleep", lambda seconds: slept.wait())

    def another_one_asks() -> None:
        other = Thread(target=script.reader.release_reader)
        other.start()
        other.join()

    first = script.do(another_one_asks)
    assert script.returned.get() == (first, True)
    slept.set()


def test_a_system_without_threads_is_asked_again(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused, held = _thread.start_new_thread, SimpleQueue[None](), Event()

    def no_thread(*_: object) -> int:
        refused.put(None)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reader_module, "start_new_thread", no_thread)
    first = script.do(held.wait)
    refused.get()
    refused.get()
    monkeypatch.setattr(reader_module, "start_new_thread", start)
    assert script.do(int) != first
    held.set()


def test_a_job_that_ends_before_there_is_a_thread_changes_nothing(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Event()

    def no_thread(*_: object) -> int:
        held.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reader_module, "start_new_thread", no_thread)
    first = script.do(held.wait)
    assert script.returned.get() == (first, True)
    assert script.do(int) == first


def test_long_after_the_last_job_the_next_one_is_watched_too(script: Script) -> None:
    for _ in range(3):
        held = Event()
        first = script.do(held.wait)
        second = script.do(int)
        assert second != first
        held.set()
        while not script.reader._idle:  # the watch sleeps
            pass
