"""A resident instance is watched: probes are sent in time, a hung one is replaced, a busy one is left alone.

The watch alone on a link that is set by hand, then real processes. Times that matter come from settings.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from plugbay import Host
from plugbay.host.supervision import hung
from plugbay.host.supervision.health import ANSWER_SECONDS, SHOWN_SECONDS, HealthWatch, IdleWatch, describe, rule_of
from plugbay.host.supervision.hung import Facts, Hung, Rule
from plugbay.host.supervision.instance import Instance
from plugbay.link import incoming, sender
from plugbay.link.deadlines import Deadlines
from plugbay.link.in_flight import Silence
from plugbay.link.link import Link
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.model.lifecycle import State
from plugbay.model.operations import CheckHealth, DeliverEvent, DispatchCli, InvokeTool, RunHook, UpsertVectors
from plugbay.model.spec import PluginSpec, Timeouts
from tests.host.supervision.test_resident import Watched, hosting, hosting_changed
from tests.support.ainb import write_ainb_plugin
from tests.support.invoking import raw_host_of, with_host
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.vai import export, write_vai_plugin

FAST = Rule(has_probe=True, patience=0.05, call=0.05, interval=0.01, answer=0.02)


class Patient:
    """As much of a link as a watch looks at."""

    def __init__(self, answers: Callable[[int], bool]) -> None:
        self.fault: Failure | None = None
        self.answering = 0
        self.unread: tuple[float, int] | None = None
        self.asked = 0
        self.calls: dict[Any, Any] = {}
        self.silence = Silence(self.calls, asyncio.get_running_loop().time)
        self._answers = answers

    async def call(self, op: Any, timeout: float) -> CallFinished:
        assert op == CheckHealth()
        self.asked += 1
        if self._answers(self.asked):
            self.silence.heard = self.silence.now()
        return CallFinished(self.asked, None, None)

    def time_out(self, seconds: float = 1.0) -> None:
        future = asyncio.get_running_loop().create_future()
        self.silence.gave_up((future, 0.0, InvokeTool("t", b""), self.silence.now() - seconds))
        assert self.silence.on_timeout is not None
        self.silence.on_timeout()


class Ward:
    """A watch, and what it found."""

    def __init__(self, patient: Patient, rule: Rule = FAST, *, stopped: bool = False) -> None:
        self.stopped = stopped
        self.looks = 0
        self.found: list[str] = []
        link: Link = patient  # type: ignore[assignment]
        self.watch = HealthWatch(link, rule, self._is_stopped, self._hung)

    def _is_stopped(self) -> bool:
        self.looks += 1
        return self.stopped

    def _hung(self, verdict: Hung, facts: Facts) -> None:
        self.found.append(verdict.why)


def test_a_plugin_that_answers_its_probes_is_asked_again_and_again(run: Run) -> None:
    async def main() -> None:
        patient = Patient(lambda number: True)
        ward = Ward(patient, replace(FAST, answer=10.0))
        await until(lambda: patient.asked > 5)
        assert ward.found == []
        ward.watch.stop()

    run(main)


def test_one_that_answers_every_other_probe_is_well_and_one_that_answers_none_is_reported_once(run: Run) -> None:
    async def main() -> None:
        forgetful, silent = Patient(lambda number: number % 2 == 0), Patient(lambda number: False)
        patience, impatience = Ward(forgetful, replace(FAST, interval=0.05)), Ward(silent)
        await until(lambda: bool(impatience.found) and forgetful.asked > 5)
        assert (len(impatience.found), silent.asked) == (1, hung.PROBES)
        assert impatience.found[0].startswith("2 probes in a row were not answered")
        assert patience.found == []
        patience.watch.stop()

    run(main)


def test_a_timeout_is_followed_by_a_probe_at_once_where_there_is_no_other_reason_to_ask(run: Run) -> None:
    async def main() -> None:
        patient = Patient(lambda number: number == 1)
        ward = Ward(patient, replace(FAST, interval=None))
        patient.time_out()
        await until(lambda: patient.asked == 1)
        patient.time_out()
        await until(lambda: bool(ward.found))
        assert patient.asked == 2
        assert ward.found[0].startswith("InvokeTool t was not answered within 1 s, and neither was a later probe")

    run(main)


def test_a_stopped_process_is_noticed_by_a_check_unless_it_has_just_sent_something(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "CHECK_SECONDS", 0.01)

    async def main() -> None:
        talking, stopped = Patient(lambda number: True), Patient(lambda number: True)
        lively = Ward(talking, Rule(has_probe=False))
        await until(lambda: lively.looks > 2)
        lively.stopped = True
        talking.silence.heard = talking.silence.now() + 3600
        looks, silent = lively.looks, Ward(stopped, Rule(has_probe=False), stopped=True)
        await until(lambda: bool(silent.found))
        assert (lively.looks, lively.found) == (looks, [])
        lively.watch.stop()

    run(main)


def test_a_plugin_that_leaves_its_answers_unread_is_hung_and_one_that_takes_some_is_not(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(hung, "UNREAD_SECONDS", 0.1)

    async def main() -> None:
        slow, deaf = Patient(lambda number: True), Patient(lambda number: True)
        began = deaf.silence.now()
        deaf.unread = (began, 0)
        one, other = Ward(slow, Rule(has_probe=False)), Ward(deaf, Rule(has_probe=False))
        taken = 0
        while slow.silence.now() < began + 0.3 or not other.found:
            taken += 1
            slow.unread = (began, taken)
            await asyncio.sleep(0.001)
        assert (one.found, "not read the answers" in other.found[0]) == ([], True)
        one.watch.stop()

    run(main)


def test_nothing_is_done_after_the_end(run: Run) -> None:
    async def main() -> None:
        patient = Patient(lambda number: False)
        ward = Ward(patient)
        patient.fault = Failure(Code.CRASHED, "gone")
        await until(lambda: ward.watch._timer.cancelled())
        assert (patient.asked, ward.found) == (0, [])

    run(main)


def test_the_rule_comes_from_the_settings_of_the_plugin() -> None:
    times = Timeouts(call=7, hung=11)
    spec = PluginSpec("p", "1", "kaged", Path("/"), ("run",), timeouts=times, health_interval=13)
    assert rule_of(spec, True) == Rule(True, patience=11, call=7, interval=13, answer=ANSWER_SECONDS)
    assert rule_of(replace(spec, patience={"CheckHealth": 2.0}), False).answer == 2


def test_a_call_is_described_by_its_kind_and_its_name() -> None:
    assert describe(InvokeTool("t", b"")) == "InvokeTool t"
    assert describe(RunHook("pre", {})) == "RunHook pre"
    assert describe(UpsertVectors("b", "c", [])) == "UpsertVectors"


# Real processes.

HANGS = "def tool_invoke(m):\n    time.sleep(1000)\n"
"""It neither answers nor reads."""

WAITS = """
def wait():
    while not os.path.exists("go"):
        time.sleep(0.01)
def broker_event(m):
    wait()
def tool_invoke(m):
    wait()
    reply(m, os.getpid())
"""
"""One thing at a time, and nothing is read meanwhile."""


def program(watched: Watched) -> int:
    """The pid of the plugin's own process, also behind a sandbox."""
    child = watched.host.calls.supervisors["p"]._instance.child  # type: ignore[attr-defined]
    return int(child.pid if child.jail is None else child.jail.leader)


async def call_until(watched: Watched, name: str, timeout: float, over: Callable[[], bool]) -> list[str]:
    """One caller after another until that is so; the codes of their failures, without repetition."""
    codes: list[str] = []
    while not over():
        failure = (await watched.host.attempt(name, {}, timeout=timeout)).failure
        if failure is not None and failure.code not in codes:
            codes.append(failure.code)
        await asyncio.sleep(0.01)
    return codes


async def overlapping(watched: Watched, name: str, timeout: float) -> set[str]:
    """Two callers who never leave the plugin without a call, until it is hung; the codes of their failures."""

    def over() -> bool:
        return "hung" in watched.names()

    callers = [asyncio.ensure_future(call_until(watched, name, timeout, over)) for _ in range(2)]
    await until(over)
    return {code for codes in await asyncio.gather(*callers) for code in codes}


@pytest.mark.parametrize("confined", [True, False])
def test_a_stopped_plugin_with_two_overlapping_callers_is_replaced(run: Run, tmp_path: Path, confined: bool) -> None:
    write_kaged_plugin(tmp_path)

    async def main() -> None:
        async with hosting(tmp_path, unconfined=not confined) as watched:
            assert await watched.host.call("p/echo", {"a": 1}) == {"a": 1}
            os.kill(program(watched), signal.SIGSTOP)
            codes = await overlapping(watched, "p/echo", 0.3)
            assert Code.TIMEOUT in codes and codes <= {Code.TIMEOUT, Code.CRASHED, Code.UNAVAILABLE}
            assert "its process is stopped (state T); it sent nothing" in watched.payload("hung")["message"]
            assert any("is stopped" in note.text for note in watched.host.journal.recent("p") if note.kind == "hung")
            await until(lambda: watched.status.generation == 2)
            assert await watched.host.call("p/echo", {"a": 2}) == {"a": 2}

    run(main)


def test_an_idle_stopped_worker_of_an_org_is_replaced_without_a_call(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hung, "CHECK_SECONDS", 0.05)
    root = write_vai_plugin(tmp_path, exports=[export(execution_class="worker")])

    async def main(host: Host) -> None:
        async def pid() -> int:
            result = await host.invoke("t", {}, org_id="org_1")
            return int(result.value_or_raise()["structured_output"]["pid"])

        first = await pid()
        os.kill(first, signal.SIGSTOP)
        await until(lambda: host.journal.counts("acme/p").get("hung") == 1)
        assert await pid() != first

    with_host(run, raw_host_of(root), main)


@pytest.mark.parametrize("contract", ["nexo", "kaged", "mcp", "ainb"])
def test_a_plugin_that_hangs_in_a_call_is_replaced_however_many_calls_wait(
    run: Run, tmp_path: Path, contract: str
) -> None:
    name = "p_hang"
    if contract == "nexo":
        write_nexo_plugin(tmp_path, body=HANGS, tools=["hang"])
    elif contract == "kaged":
        name = "p/hang"
        write_kaged_plugin(tmp_path, body="def tool(name, params, m):\n    time.sleep(1000)\n", tools=["hang"])
    elif contract == "mcp":
        name = "p/echo"
        write_server(tmp_path, "p", "def tools_call(m):\n    time.sleep(1000)\n")
    else:
        name = "say"
        write_ainb_plugin(tmp_path, body="def cli_dispatch(params, m):\n    time.sleep(1000)\n", namespaces=["say"])
    config = tmp_path / "plugbay.toml"
    config.write_text("[plugins.p]\ntimeouts = { call = 0.4, hung = 0.4, farewell = 0.2, teardown = 0.2 }\n")

    async def main() -> None:
        async with hosting(tmp_path, config=config, grant_all=True, state_dir=tmp_path / "state") as watched:
            if contract == "mcp":
                assert await watched.host.meet("p") == {}
            if contract == "ainb":
                codes = set()
                while "hung" not in watched.names():  # the first calls may end before it has started
                    calls = [watched.host.ask(name, DispatchCli("say", ())) for _ in range(3)]
                    codes |= {result.failure.code for result in await asyncio.gather(*calls) if result.failure}
            else:
                codes = await overlapping(watched, name, 0.4)
            assert Code.TIMEOUT in codes and codes <= {Code.TIMEOUT, Code.CRASHED, Code.UNAVAILABLE}
            why = watched.payload("hung")["message"]
            asked = contract in ("kaged", "mcp")
            assert ("a later probe" in why) == asked and "was not answered within 0." in why
            assert watched.payload("hung")["missed_probes"] >= asked
            await until(lambda: watched.names()[:3] == ["started", "hung", "crashed"])

    run(main)


def test_a_call_within_its_time_protects_a_busy_plugin_from_200_kb_and_impatient_callers(
    run: Run, tmp_path: Path
) -> None:
    root = write_nexo_plugin(tmp_path, body=WAITS, tools=["pid"])
    config = tmp_path / "plugbay.toml"
    config.write_text("[plugins.p]\ntimeouts = { call = 25, hung = 0.01 }\n")

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting(tmp_path, config=config) as watched:
            host, link = watched.host, watched.host.calls.supervisors["p"]._instance.link  # type: ignore[attr-defined]
            busy = asyncio.ensure_future(host.call("p_pid", {}))
            await until(lambda: link.waiting == 1)
            large = asyncio.ensure_future(host.call("p_pid", {"fill": "x" * 200_000}))
            await until(lambda: link._stream.buffered > 0)
            for _ in range(4):
                result = await host.attempt("p_pid", {}, timeout=0.05)
                assert result.failure is not None and result.failure.code == Code.TIMEOUT
            assert len(link.silence.timed_out) == hung.CALLS
            (root / "go").touch()
            assert await busy == await large
            assert (watched.status.generation, watched.names()) == (1, ["started"])

    run(main)


@requirement("nexo:host-stalled-child-drops-events")
def test_a_plugin_busy_with_an_event_survives_a_flood_of_them_and_impatient_callers(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, body=WAITS, tools=["pid"], channels=["k"])

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting(tmp_path) as watched:
            for number in range(2_000):
                watched.host.publish("plugin.outbound.k", {"n": number, "fill": "x" * 1000})
            for _ in range(4):
                result = await watched.host.attempt("p_pid", {}, timeout=0.05)
                assert result.failure is not None and result.failure.code == Code.TIMEOUT
            (root / "go").touch()
            assert await watched.host.call("p_pid", {}) > 0
            assert watched.status.counters["events_dropped"] > 1_000
            assert (watched.status.generation, watched.names()) == (1, ["started"])

    run(main)


def test_a_plugin_that_waits_for_the_host_is_not_hung(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        request("q", "memory.recall", agent_id="a", query="q")
        for line in sys.stdin:
            if json.loads(line).get("id") == "q":
                break
        reply(m, "answered")
    """
    write_nexo_plugin(tmp_path, body=body, tools=["ask"])
    config = tmp_path / "plugbay.toml"
    config.write_text('[plugins.p]\ngrants = ["memory"]\ntimeouts = { call = 25, hung = 0.01 }\n')

    async def main() -> None:
        asked, go = asyncio.Event(), asyncio.Event()
        async with hosting(tmp_path, config=config) as watched:
            link = watched.host.calls.supervisors["p"]._instance.link  # type: ignore[attr-defined]

            async def slowly(op: Any, progress: Any) -> Any:
                asked.set()
                await go.wait()
                return []

            link._hooks.handler = slowly
            first = await watched.host.attempt("p_ask", {}, timeout=1)
            assert first.failure is not None and asked.is_set()
            for _ in range(3):
                result = await watched.host.attempt("p_ask", {}, timeout=0.05)
                assert result.failure is not None and result.failure.code == Code.TIMEOUT
            assert link.answering == 1
            go.set()
            await until(lambda: link.late > 0)
            assert (watched.status.generation, watched.names()) == (1, ["started"])

    run(main)


@requirement("ainb:host-write-timeout")
def test_a_plugin_that_never_reads_its_input_is_replaced_when_its_calls_have_run_into_their_timeouts(
    run: Run, tmp_path: Path
) -> None:
    body = "hello = init\ndef init(m):\n    hello(m)\n    time.sleep(1000)\n"
    write_ainb_plugin(tmp_path, body=body, namespaces=["say"])

    async def main() -> None:
        times = Timeouts(handshake=15, call=0.4, farewell=0.2, teardown=0.2)
        async with hosting_changed(tmp_path, eager=True, timeouts=times) as watched:
            for _ in range(2):
                answer = await watched.host.ask("say", DispatchCli("say", ("x" * 100_000,)))
                assert answer.failure is not None and answer.failure.code == Code.TIMEOUT
            await until(lambda: "crashed" in watched.names())
            assert watched.names()[:2] == ["started", "hung"]

    run(main)


def test_a_plugin_that_asks_without_end_and_reads_no_answer_is_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "MAX_UNREAD", 100_000)
    monkeypatch.setattr(hung, "UNREAD_SECONDS", 0.2)
    body = """
    hello = initialize
    def initialize(m):
        hello(m)
        while True:
            request("q", "no.such.method." + "x" * 1000)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["t"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            await until(lambda: "hung" in watched.names())
            assert "not read the answers to its own requests" in watched.payload("hung")["message"]

    run(main)


@pytest.mark.parametrize("speed", ["fast", "slow"])
def test_a_line_without_an_end_ends_at_its_limit(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speed: str
) -> None:
    piece, pause = ('"x" * 65536', "0") if speed == "fast" else ('"x"', "0.01")
    body = f"def tool_invoke(m):\n    while True:\n        os.write(1, ({piece}).encode()); time.sleep({pause})\n"
    write_nexo_plugin(tmp_path, body=body, tools=["t"])
    if speed == "slow":
        monkeypatch.setattr(incoming, "FRAME_SECONDS", 0.3)

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            result = await watched.host.attempt("p_t", {}, timeout=25)
            assert result.failure is not None
            if speed == "fast":
                assert result.failure.code == Code.FRAME_TOO_LARGE
                assert "without an end" in result.failure.message
            else:
                assert (result.failure.code, "did not end a message" in result.failure.message) == (Code.TIMEOUT, True)
            await until(lambda: "crashed" in watched.names())

    run(main)


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
        child.watch.touch()
    child.clock.advance(22.9)
    assert child.reaped == []
    child.clock.advance(100)
    assert child.reaped == [23]


def test_a_needed_instance_stays_and_has_its_full_idle_time_after_its_next_use() -> None:
    child = Child(10)
    child.needed = True
    child.clock.advance(95)
    child.needed = False
    child.watch.touch()
    child.clock.advance(104.9)
    assert child.reaped == []
    child.clock.advance(200)
    assert child.reaped == [105]


@requirement("ainb:host-idle-shown-screen")
def test_a_screen_that_was_shown_keeps_its_plugin_longer_than_a_short_time() -> None:
    child = Child(1)
    child.watch.mark_shown()
    child.watch.touch()
    child.clock.advance(SHOWN_SECONDS - 0.1)
    assert child.reaped == []
    child.clock.advance(100)
    assert child.reaped == [SHOWN_SECONDS]


def test_a_screen_that_was_shown_has_at_least_the_time_of_any_use() -> None:
    child = Child(2 * SHOWN_SECONDS)
    child.clock.advance(10)
    child.watch.mark_shown()
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
        child.watch.touch()
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
def test_an_idle_instance_is_shut_down_and_the_next_call_starts_another(run: Run, tmp_path: Path) -> None:
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
def test_a_call_during_a_reap_waits_for_its_end_and_gets_a_new_instance(run: Run, tmp_path: Path) -> None:
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


def test_a_call_with_less_time_than_the_shutdown_takes_times_out(run: Run, tmp_path: Path) -> None:
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
def test_a_busy_instance_is_not_idle_and_its_own_messages_are_no_use(run: Run, tmp_path: Path) -> None:
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
def test_a_notification_and_a_shown_screen_count_as_use(run: Run, tmp_path: Path) -> None:
    for name in ("told", "shown", "left"):
        write_nexo_plugin(tmp_path, name, body=PID, tools=["pid"])

    async def main() -> None:
        async with hosting_changed(tmp_path, idle_seconds=2.0) as watched:
            calls = watched.host.calls
            for name in ("left", "told", "shown"):  # one that was reaped while the others started runs again
                await watched.host.call(f"{name}_pid", {})
            calls.supervisors["shown"].mark_shown()
            reaped = watched.names().count("reaped")

            def left_is_reaped() -> bool:
                assert calls.tell("told", DeliverEvent("t", {}))
                return watched.names().count("reaped") > reaped

            await until(left_is_reaped)
            states = {status.spec.id: status.state for status in watched.host.plugins()}
            assert states == {"told": State.RUNNING, "shown": State.RUNNING, "left": State.IDLE}

    run(main)


@requirement("ainb:host-idle-subscribers")
def test_an_instance_that_waits_for_events_stays(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("waits", "idles"):
        write_nexo_plugin(tmp_path, name, body=PID, tools=["pid"])
    waiting = {"waits"}
    keeps_alive: Any = property(lambda instance: instance.binding.spec.id in waiting)
    monkeypatch.setattr(Instance, "keeps_alive", keeps_alive)

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
            supervisor.mark_shown()

    run(main)


PUBLISHER = """
import threading
def stream():
    while not os.path.exists("quiet"):
        publish(NAME, b"chunk")
        time.sleep(0.1)
def init(m):
    reply(m, {"name": NAME, "version": "1.0.0"})
    threading.Thread(target=stream, daemon=True).start()
"""


@requirement("ainb:host-idle-eager-publisher")
def test_an_eager_publisher_is_kept_while_it_publishes_and_reaped_when_it_stops(run: Run, tmp_path: Path) -> None:
    bus = {"event_bus": True}
    lazy = {"idle_reap_secs": 1}
    root = write_ainb_plugin(
        tmp_path, "session-reader", PUBLISHER, capabilities=bus, lifecycle={"spawn": "eager", **lazy}
    )
    write_ainb_plugin(tmp_path, "chatty", PUBLISHER, capabilities=bus, lifecycle=lazy, namespaces=["chatty"])

    async def main() -> None:
        (root / "quiet").unlink(missing_ok=True)
        async with hosting(tmp_path, grant_all=True) as watched:

            def reaped() -> list[str]:
                return [payload["plugin_id"] for name, payload in watched.events if name == "reaped"]

            await watched.host.run_cli("chatty", [])
            await until(lambda: reaped() == ["chatty"])  # lazy: the next use starts it
            await asyncio.sleep(1.5)
            assert reaped() == ["chatty"]
            (root / "quiet").touch()
            await until(lambda: reaped() == ["chatty", "session-reader"])

    run(main)
