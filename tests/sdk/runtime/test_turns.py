"""One thing at a time, in order, with keys first, and never more waiting than there is room for."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from plugbay.sdk.runtime import turns
from plugbay.sdk.runtime.turns import KEYS, MAX_IN_A_ROW, MOUSE, REST, Turn, Turns
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement


class Stage:
    """Turns that note their names, behind one that waits until everything is queued."""

    def __init__(self, under_test: Turns) -> None:
        self.turns = under_test
        self.done: SimpleQueue[str] = SimpleQueue()
        self.dropped: list[str] = []
        self._curtain = threading.Event()
        begun = threading.Event()

        def hold() -> None:
            begun.set()
            self._curtain.wait(PATIENCE)

        assert self.turns.submit(Turn(hold))
        begun.wait(PATIENCE)

    def add(self, name: str, lane: int = REST, *, may_drop: bool = True, weight: int = 0) -> bool:
        drop: Callable[[], None] | None = (lambda: self.dropped.append(name)) if may_drop else None
        return self.turns.submit(Turn(lambda: self.done.put(name), drop, weight), lane)

    def played(self, count: int) -> list[str]:
        self._curtain.set()
        return [self.done.get(timeout=PATIENCE) for _ in range(count)]


@requirement("ainb:sdk-keys-first")
def test_keys_overtake_the_mouse_and_both_overtake_the_rest_each_in_its_order() -> None:
    stage = Stage(Turns())
    for name, lane in (("e1", REST), ("m1", MOUSE), ("k1", KEYS), ("e2", REST), ("k2", KEYS), ("m2", MOUSE)):
        assert stage.add(name, lane)
    assert stage.played(6) == ["k1", "k2", "m1", "m2", "e1", "e2"]


@requirement("ainb:sdk-keys-first")
def test_a_key_that_is_held_down_does_not_keep_everything_else_waiting_for_ever() -> None:
    stage = Stage(Turns(urgent=1000))
    stage.add("picture")
    stage.add("next picture")
    for _ in range(3 * MAX_IN_A_ROW):
        stage.add("key", KEYS)
    played = stage.played(3 * MAX_IN_A_ROW + 2)
    assert [at for at, name in enumerate(played) if name != "key"] == [MAX_IN_A_ROW, 2 * MAX_IN_A_ROW + 1]


@requirement("ainb:sdk-bounded")
@pytest.mark.parametrize("lane", [KEYS, MOUSE])
def test_of_too_many_keys_the_oldest_give_way(lane: int) -> None:
    stage = Stage(Turns(urgent=2))
    for name in ("1", "2", "3", "4"):
        assert stage.add(name, lane)
    assert stage.add("other")
    assert stage.dropped == ["1", "2"]
    assert stage.played(3) == ["3", "4", "other"]


@requirement("ainb:sdk-bounded")
def test_of_what_nobody_waits_for_the_oldest_gives_way_to_what_somebody_does() -> None:
    stage = Stage(Turns(waiting=2))
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
    stage = Stage(Turns(waiting_bytes=10))
    assert stage.add("huge", weight=100)
    assert stage.add("first", weight=6)
    assert stage.add("second", weight=4)
    assert stage.add("third", weight=1)
    assert stage.dropped == ["huge", "first"]
    assert stage.played(2) == ["second", "third"]


def test_room_is_given_back_by_what_was_done() -> None:
    under_test = Turns(waiting=1, waiting_bytes=1)
    for number in range(5):
        stage = Stage(under_test)
        assert stage.add(str(number), may_drop=False, weight=1)
        assert stage.played(1) == [str(number)]


def test_a_system_without_threads_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(turns, "start_new_thread", refuse)
    assert not Turns().submit(Turn(lambda: None))


def test_turns_that_are_stopped_end_their_thread() -> None:
    before, ran = _thread._count(), SimpleQueue[None]()
    under_test = Turns()
    assert under_test.submit(Turn(lambda: ran.put(None)))
    ran.get(timeout=PATIENCE)
    under_test.stop()
    while _thread._count() > before:  # it has nothing more to do
        pass
