"""A child that nobody uses goes, and comes back with the next use. A clock of our own, then real processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from plugbay import Code
from plugbay.host.supervision.idle import SHOWN_SECONDS, IdleWatch
from plugbay.host.supervision.instance import Seat
from plugbay.link.deadlines import Deadlines
from plugbay.model.lifecycle import State
from plugbay.model.operations import DeliverEvent
from tests.host.supervision.test_resident import hosting_changed
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.requirements import requirement


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Clock:
    """As much of a loop as deadlines need, with a time that we set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(at, callback))
        return self.timers[-1]

    def advance(self, to: float) -> None:
        while due := [timer for timer in self.timers if timer.at <= to and not timer.cancelled]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.callback()
        self.now = to


class Child:
    """What a watch sees of a child: whether it is needed, and when it was reaped."""

    def __init__(self, seconds: float) -> None:
        self.clock = Clock()
        self.needed = False
        self.reaped: list[float] = []
        deadlines = Deadlines(cast("asyncio.AbstractEventLoop", self.clock))
        self.watch = IdleWatch(
            deadlines,
            self.clock.time,
            seconds,
            lambda: self.needed,
            lambda: self.reaped.append(self.clock.now),
        )


def test_its_time_runs_from_its_last_use() -> None:
    child = Child(10)
    for at in (4, 12, 13):
        child.clock.advance(at)
        child.watch.used()
    child.clock.advance(22.9)
    assert child.reaped == []
    child.clock.advance(100)
    assert child.reaped == [23]


def test_what_is_needed_stays_and_has_its_whole_time_after_its_next_use() -> None:
    child = Child(10)
    child.needed = True
    child.clock.advance(95)
    child.needed = False
    child.watch.used()
    child.clock.advance(104.9)
    assert child.reaped == []
    child.clock.advance(200)
    assert child.reaped == [105]


@requirement("ainb:host-idle-shown-screen")
def test_a_screen_that_was_shown_keeps_its_plugin_longer_than_a_short_time() -> None:
    child = Child(1)
    child.watch.shown()
    child.watch.used()
    child.clock.advance(SHOWN_SECONDS - 0.1)
    assert child.reaped == []
    child.clock.advance(100)
    assert child.reaped == [SHOWN_SECONDS]


def test_a_screen_that_was_shown_has_at_least_the_time_of_any_use() -> None:
    child = Child(2 * SHOWN_SECONDS)
    child.clock.advance(10)
    child.watch.shown()
    child.clock.advance(1000)
    assert child.reaped == [10 + 2 * SHOWN_SECONDS]


def test_a_stopped_watch_reaps_nothing() -> None:
    child = Child(1)
    child.watch.stop()
    child.clock.advance(100)
    assert child.reaped == []


def test_one_timer_waits_however_often_it_is_used() -> None:
    child = Child(10)
    for at in range(1, 9):
        child.clock.advance(at)
        child.watch.used()
    assert len(child.clock.timers) == 1


# Real processes.

PID = "def tool_invoke(m):\n    reply(m, os.getpid())\n"

LINGERS = (
    PID
    + """
def shutdown(m):
    reply(m, {"ok": True})
    while not os.path.exists("go"):
        time.sleep(0.01)
    os._exit(0)
"""
)
"""Says good-bye at once, and leaves when it is allowed to."""


@requirement("ainb:host-idle-reap")
def test_an_idle_child_is_said_good_bye_to_and_the_next_call_starts_another(run: Run, tmp_path: Path) -> None:
    body = PID + 'def shutdown(m):\n    open("said", "w").close()\n    reply(m, {"ok": True})\n    os._exit(0)\n'
    root = write_nexo_plugin(tmp_path, body=body, tools=["pid"])

    async def main() -> None:
        (root / "said").unlink(missing_ok=True)
        async with hosting_changed(root, eager=False, idle_seconds=0.05) as watched:
            first = await watched.host.call("p_pid", {})
            await until(lambda: "reaped" in watched.names())
            assert (watched.state(), watched.status.pid) == (State.IDLE, None)
            assert (root / "said").exists()
            assert await watched.host.call("p_pid", {}) != first
            assert watched.names()[:3] == ["started", "reaped", "started"]
            assert watched.payload("reaped") == {"plugin_id": "p", "idle_seconds": 0.05}
            assert watched.status.generation == 2

    run(main)


@requirement("ainb:host-idle-no-lost-call")
def test_a_call_while_it_is_being_reaped_waits_for_its_end_and_gets_another_child(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, body=LINGERS, tools=["pid"])

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting_changed(root, eager=False, idle_seconds=0.05) as watched:
            first = await watched.host.call("p_pid", {})
            await until(lambda: watched.state() is State.SHUTTING_DOWN)
            waiting = [asyncio.ensure_future(watched.host.call("p_pid", {})) for _ in range(3)]
            await until(lambda: watched.status.busy == 3)
            assert watched.status.generation == 1
            (root / "go").touch()
            pids = set(await asyncio.gather(*waiting))
            assert len(pids) == 1 and first not in pids
            assert "crashed" not in watched.names()

    run(main)


def test_a_call_with_less_time_than_the_good_bye_takes_is_told_so(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, body=LINGERS, tools=["pid"])

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting_changed(root, eager=False, idle_seconds=0.05) as watched:
            await watched.host.call("p_pid", {})
            await until(lambda: watched.state() is State.SHUTTING_DOWN)
            result = await watched.host.attempt("p_pid", {}, timeout=0.05)
            assert result.failure is not None and result.failure.code == Code.TIMEOUT
            (root / "go").touch()

    run(main)


@pytest.mark.parametrize("how", ["stop", "reload"])
def test_stopping_or_reloading_while_it_is_being_reaped_waits_for_its_end(run: Run, tmp_path: Path, how: str) -> None:
    root = write_nexo_plugin(tmp_path, body=LINGERS, tools=["pid"])

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting_changed(root, eager=False, idle_seconds=0.05) as watched:
            supervisor = watched.host.calls.supervisors["p"]
            await watched.host.call("p_pid", {})
            await until(lambda: watched.state() is State.SHUTTING_DOWN)
            ending = asyncio.ensure_future(watched.host.stop() if how == "stop" else watched.host.reload("p"))
            await asyncio.sleep(0)
            assert supervisor.state == "shutting_down"
            (root / "go").touch()
            await ending
            assert supervisor.state == "stopped"
            assert watched.names()[:2] == ["started", "reaped"]

    run(main)


@requirement("ainb:host-idle-use")
def test_a_child_that_works_is_not_idle_and_what_it_says_itself_is_no_use(run: Run, tmp_path: Path) -> None:
    body = """
    def chatter():
        while True:
            time.sleep(0.01)
            notify("broker.publish", topic="plugin.inbound.k", event={"topic": "t", "source": ID, "payload": {}})
    threading.Thread(target=chatter, daemon=True).start()
    def tool_invoke(m):
        time.sleep(0.5)
        reply(m, os.getpid())
    """
    root = write_nexo_plugin(tmp_path, body=body, tools=["slow"], channels=["k"])

    async def main() -> None:
        async with hosting_changed(root, eager=False, idle_seconds=0.05) as watched:
            assert await watched.host.call("p_slow", {}) == watched.status.pid
            assert watched.names() == ["started"]
            await until(lambda: "reaped" in watched.names())

    run(main)


@requirement("ainb:host-idle-use")
def test_being_told_something_or_shown_is_a_use(run: Run, tmp_path: Path) -> None:
    for name in ("told", "shown", "left"):
        write_nexo_plugin(tmp_path, name, body=PID, tools=["pid"])

    async def main() -> None:
        async with hosting_changed(tmp_path, idle_seconds=0.3) as watched:
            calls = watched.host.calls
            calls.supervisors["shown"].shown()

            def left_is_reaped() -> bool:
                assert calls.tell("told", DeliverEvent("t", {}))
                return "reaped" in watched.names()

            await until(left_is_reaped)
            states = {status.spec.id: status.state for status in watched.host.plugins()}
            assert states == {"told": State.RUNNING, "shown": State.RUNNING, "left": State.IDLE}

    run(main)


@requirement("ainb:host-idle-subscribers")
def test_a_child_that_waits_for_something_stays(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("waits", "idles"):
        write_nexo_plugin(tmp_path, name, body=PID, tools=["pid"])
    waiting = {"waits"}
    keeps_alive: Any = property(lambda seat: seat.binding.spec.id in waiting)
    monkeypatch.setattr(Seat, "keeps_alive", keeps_alive)

    async def main() -> None:
        waiting.add("waits")
        async with hosting_changed(tmp_path, idle_seconds=0.05) as watched:
            supervisors = watched.host.calls.supervisors
            await until(lambda: supervisors["idles"].state is State.IDLE)
            assert supervisors["waits"].state is State.RUNNING
            waiting.clear()
            await until(lambda: supervisors["waits"].state is State.IDLE)

    run(main)


@requirement("ainb:host-idle-never")
def test_a_plugin_without_a_time_is_never_reaped(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["echo"])

    async def main() -> None:
        async with hosting_changed(tmp_path, idle_seconds=None) as watched:
            supervisor = watched.host.calls.supervisors["p"]
            assert supervisor._idle is None  # type: ignore[attr-defined]
            supervisor.shown()

    run(main)
