"""A resident instance: shared, watched, restarted, shut down. Real processes, both loops."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay import CallFailed, Code, Host
from plugbay.host.confinement.policy import own_folder
from plugbay.host.discovery.folders import Found, discover
from plugbay.host.request import CallRequest
from plugbay.host.status import PluginStatus
from plugbay.host.supervision import resident
from plugbay.model.lifecycle import State
from plugbay.model.operations import DeliverEvent, DeliverSnapshot, DispatchCli, PressKey, Render
from plugbay.model.spec import PluginSpec, RestartPolicy, Timeouts
from tests.support.ainb import write_ainb_plugin
from tests.support.descriptors import no_free_descriptors
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.machine import confined_counters
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.requirements import requirement

FAST = "[plugin.supervisor]\nrespawn = true\nmax_attempts = 3\nbackoff_ms = 100\n"


class Watched:
    """A host, and every lifecycle event in the order it came."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.events: list[tuple[str, dict[str, Any]]] = []

    @property
    def status(self) -> PluginStatus:
        return self.host.plugins()[0]

    def state(self) -> str:
        return self.status.state

    def names(self) -> list[str]:
        return [name for name, _ in self.events]

    def payload(self, name: str) -> dict[str, Any]:
        return next(payload for told, payload in self.events if told == name)


@contextlib.asynccontextmanager
async def hosting(path: Path, **options: Any) -> AsyncIterator[Watched]:
    async with watching(Host.load(path, **options)) as watched:
        yield watched


@contextlib.asynccontextmanager
async def hosting_changed(path: Path, **fields: Any) -> AsyncIterator[Watched]:
    """The same, with other values for fields of the specs."""
    async with watching(Host(changed(path, **fields))) as watched:
        yield watched


def changed(path: Path, **fields: Any) -> list[Found]:
    return [replace(item, spec=replace(item.spec, **fields)) for item in discover([path]) if item.spec is not None]


@contextlib.asynccontextmanager
async def watching(host: Host) -> AsyncIterator[Watched]:
    watched = Watched(host)
    host._backends.services.bus.listen(
        ["plugin.lifecycle.>"],
        lambda event: watched.events.append((event.topic.rsplit(".", 1)[1], event.payload)),
    )
    async with host:
        await host.settled()
        yield watched


async def code_of(call: Any) -> str:
    try:
        await call
    except CallFailed as error:
        return error.code
    return "succeeded"


def test_an_eager_plugin_runs_before_the_first_call(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            status = watched.status
            assert (status.state, status.ready, status.generation) == (State.RUNNING, 1, 1)
            assert status.pid is not None and os.getsid(status.pid) == status.pid
            assert await watched.host.call("p_echo", {"a": 1}) == {"a": 1}
            assert watched.names() == ["started"]

    run(main)


def test_a_host_that_is_not_eager_starts_it_with_the_first_call(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path, eager=False) as watched:
            assert watched.state() is State.IDLE
            assert await watched.host.call("p_echo", {}) == {}
            assert watched.state() is State.RUNNING

    run(main)


def test_many_calls_share_one_instance(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            calls = [watched.host.call("p_echo", {"n": number}) for number in range(300)]
            assert await asyncio.gather(*calls) == [{"n": number} for number in range(300)]
            assert watched.status.generation == 1

    run(main)


@requirement("nexo:host-crash-fails-pending-calls")
def test_a_crash_fails_every_waiting_call_at_once_with_exit_and_stderr(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        if m["params"]["args"].get("die"):
            sys.stderr.write("boom\\n"); sys.stderr.flush()
            os._exit(3)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            waiting = [asyncio.ensure_future(watched.host.attempt("p_echo", {})) for _ in range(5)]
            await until(lambda: watched.status.busy == 5)
            results = await asyncio.gather(*waiting, watched.host.attempt("p_echo", {"die": True}))
            failures = [result.failure for result in results]
            assert all(failure and failure.code == Code.CRASHED for failure in failures)
            assert all(failure and failure.detail["exit_code"] == 3 for failure in failures)
            assert all(failure and failure.detail["stderr_tail"] == ["boom"] for failure in failures)

    run(main)


@requirement("nexo:host-crashed-event", "nexo:host-stderr-tail")
def test_a_crash_is_published_even_without_respawn(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        sys.stderr.write("one\\n\\n  two  \\nthree\\n"); sys.stderr.flush()
        os._exit(7)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["echo"], more="[plugin.supervisor]\nstderr_tail_lines = 2\n")

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            assert await code_of(watched.host.call("p_echo")) == Code.CRASHED
            await until(lambda: "crashed" in watched.names())
            assert watched.payload("crashed") == {"plugin_id": "p", "exit_code": 7, "stderr_tail": ["two", "three"]}
            assert "respawning" not in watched.names()

    run(main)


def test_a_plugin_that_does_not_respawn_is_started_by_the_next_call(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        if m["params"]["args"].get("die"):
            os._exit(7)
        reply(m, os.getpid())
    """
    write_nexo_plugin(tmp_path, body=body, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            first = await watched.host.call("p_echo", {})
            assert await code_of(watched.host.call("p_echo", {"die": True})) == Code.CRASHED
            second = await watched.host.call("p_echo", {})
            assert first != second
            assert watched.status.generation == 2

    run(main)


@requirement("nexo:host-respawn", "nexo:host-respawn-backoff")
def test_a_plugin_that_respawns_is_back_by_itself_and_calls_reach_the_new_instance(run: Run, tmp_path: Path) -> None:
    body = "def tool_invoke(m):\n    reply(m, os.getpid())\n"
    write_nexo_plugin(tmp_path, body=body, tools=["pid"], more=FAST)

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            first = await watched.host.call("p_pid", {})
            os.kill(first, signal.SIGKILL)
            await until(lambda: "respawned" in watched.names())
            assert await watched.host.call("p_pid", {}) not in (first, None)
            assert watched.names() == ["started", "crashed", "respawning", "started", "respawned"]
            assert watched.payload("crashed")["exit_code"] == -1
            assert watched.payload("respawning") == {"plugin_id": "p", "attempt": 1, "backoff_ms": 100}
            assert watched.payload("respawned")["attempt"] == 1

    run(main)


@requirement("nexo:host-respawn-attempts", "nexo:host-gave-up-event")
def test_three_attempts_then_it_gives_up_and_only_a_reload_brings_it_back(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, body="def initialize(m):\n    os._exit(5)\n", tools=["echo"], more=FAST)

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            await until(lambda: "gave_up" in watched.names(), seconds=20)
            waits = [payload["backoff_ms"] for name, payload in watched.events if name == "respawning"]
            assert waits == [100, 200, 400]
            told = watched.payload("gave_up")
            assert (told["attempts"], told["last_exit_code"]) == (3, 5)
            assert watched.status.state is State.QUARANTINED
            result = await watched.host.attempt("p_echo")
            assert result.failure and result.failure.code == Code.QUARANTINED
            assert "reload" in result.failure.detail["hint"]
            write_nexo_plugin(root.parent, tools=["echo"])
            await watched.host.reload("p")
            assert await watched.host.call("p_echo", {"a": 1}) == {"a": 1}

    run(main)


@requirement("nexo:host-clean-exit")
def test_an_unasked_exit_with_0_is_reported_and_not_respawned(run: Run, tmp_path: Path) -> None:
    body = "def tool_invoke(m):\n    os._exit(0)\n"
    write_nexo_plugin(tmp_path, body=body, tools=["leave"], more=FAST)

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            assert await code_of(watched.host.call("p_leave")) == Code.CRASHED
            await until(lambda: "exited" in watched.names())
            assert watched.status.state is State.IDLE
            assert "respawning" not in watched.names()

    run(main)


@requirement("nexo:host-init-timeout")
def test_an_instance_that_never_answers_initialize_is_killed(run: Run, tmp_path: Path) -> None:
    root = write_nexo_plugin(tmp_path, body="def initialize(m):\n    pass\n", tools=["echo"])
    config = tmp_path / "c.toml"
    config.write_text("[plugins.p]\ntimeouts = { handshake = 0.3 }\n")

    async def main() -> None:
        async with hosting(root, config=config) as watched:
            assert "start_failed" in watched.names()
            assert watched.payload("start_failed")["code"] == Code.TIMEOUT
            assert watched.status.pid is None

    run(main)


@requirement("nexo:host-identity-mismatch")
def test_an_instance_that_claims_another_id_is_refused_for_good(run: Run, tmp_path: Path) -> None:
    body = 'def initialize(m):\n    reply(m, {"manifest": {"plugin": {"id": "other"}}, "server_version": "1"})\n'
    write_nexo_plugin(tmp_path, body=body, tools=["echo"], more=FAST)
    write_nexo_plugin(tmp_path, "q", tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            assert watched.status.state is State.QUARANTINED
            assert "respawning" not in watched.names()
            result = await watched.host.attempt("p_echo")
            assert result.failure and "other" in result.failure.message
            assert await watched.host.call("q_echo", {}) == {}

    run(main)


@requirement("nexo:host-shutdown")
def test_stopping_says_shutdown_and_waits_for_the_answer(run: Run, tmp_path: Path) -> None:
    body = """
    def shutdown(m):
        open("said", "w").write(m["params"]["reason"])
        reply(m, {"ok": True})
        os._exit(0)
    """
    root = write_nexo_plugin(tmp_path, body=body, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            assert watched.state() is State.RUNNING
        assert watched.names() == ["started", "stopped"]
        assert watched.state() is State.STOPPED

    run(main)
    assert (root / "said").read_text() == "host requested"


@requirement("nexo:host-shutdown-drain")
def test_a_call_in_flight_is_answered_before_the_shutdown(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        globals()["waiting"] = m
    def shutdown(m):
        reply(waiting, "late but there")
        reply(m, {"ok": True})
        os._exit(0)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["slow"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            call = asyncio.ensure_future(watched.host.call("p_slow", {}))
            await until(lambda: watched.status.busy == 1)
            supervisor: Any = watched.host.calls.supervisors["p"]
            await until(lambda: supervisor._instance.link.waiting == 1)
        assert await call == "late but there"

    run(main)


@requirement("nexo:host-shutdown-error")
def test_an_error_in_answer_to_shutdown_is_reported(run: Run, tmp_path: Path) -> None:
    body = 'def shutdown(m):\n    fail(m, -32000, "disk full")\n    os._exit(1)\n'
    write_nexo_plugin(tmp_path, body=body, tools=["echo"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            pass
        assert "disk full" in watched.payload("shutdown_failed")["message"]

    run(main)


@requirement("nexo:host-shutdown-kill")
def test_an_instance_that_never_answers_shutdown_is_killed_with_everything_it_started(run: Run, tmp_path: Path) -> None:
    body = """
    import subprocess
    helper = subprocess.Popen(["sleep", "1000"])
    def tool_invoke(m):
        reply(m, [os.getpid(), helper.pid])
    def shutdown(m):
        time.sleep(1000)
    """
    root = write_nexo_plugin(tmp_path, body=body, tools=["pids"])
    config = tmp_path / "c.toml"
    config.write_text("[plugins.p]\ntimeouts = { farewell = 0.2, teardown = 0.2 }\n")
    pids: list[int] = []

    async def main() -> None:
        async with hosting(root, config=config) as watched:
            pids.extend(await watched.host.call("p_pids", {}))
        assert watched.payload("shutdown_failed")["code"] == Code.TIMEOUT
        assert all(not _alive(pid) for pid in pids)

    run(main)


def test_a_stop_during_the_wait_before_a_respawn_starts_nothing(run: Run, tmp_path: Path) -> None:
    slow = "[plugin.supervisor]\nrespawn = true\nbackoff_ms = 60000\n"
    write_nexo_plugin(tmp_path, body="def tool_invoke(m):\n    os._exit(1)\n", tools=["die"], more=slow)

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            await code_of(watched.host.call("p_die"))
            await until(lambda: watched.status.state is State.BACKOFF)
            result = await watched.host.attempt("p_die", timeout=1)
            assert result.failure and result.failure.code == Code.UNAVAILABLE
            assert result.failure.retryable and result.failure.retry_after_ms
        assert watched.names()[-1] == "respawning"
        assert watched.status.state is State.STOPPED

    run(main)


def test_a_reload_ends_the_old_instance_before_the_new_one_starts(run: Run, tmp_path: Path) -> None:
    body = """
    try:
        os.mkdir("lock")
    except FileExistsError:
        os._exit(9)
    def tool_invoke(m):
        reply(m, os.getpid())
    def shutdown(m):
        os.rmdir("lock")
        reply(m, {"ok": True})
        os._exit(0)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["pid"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            first = await watched.host.call("p_pid", {})
            old = watched.host.calls.supervisors["p"]
            reloading = asyncio.ensure_future(watched.host.reload("p"))
            await until(lambda: watched.host.calls.supervisors["p"] is not old)
            second = await watched.host.call("p_pid", {})
            await reloading
            assert second != first
            told = watched.payload("restarted_manually")
            assert told["new_pid"] == second
            assert told["previous_uptime_ms"] >= 0
            assert "crashed" not in watched.names()

    run(main)


def test_more_calls_than_allowed_wait_for_their_turn(run: Run, tmp_path: Path) -> None:
    body = "def tool_invoke(m):\n    threading.Timer(0.05, reply, (m, 1)).start()\n"
    root = write_nexo_plugin(tmp_path, body=body, tools=["slow"])
    config = tmp_path / "c.toml"
    config.write_text("[plugins.p]\nconcurrency = 2\n")

    async def main() -> None:
        async with hosting(root, config=config) as watched:
            calls = [asyncio.ensure_future(watched.host.call("p_slow", {})) for _ in range(6)]
            await until(lambda: watched.status.busy == 2)
            assert await asyncio.gather(*calls) == [1] * 6
            assert watched.status.busy == 0

    run(main)


@requirement("nexo:host-stalled-child-drops-events")
def test_ten_thousand_events_for_a_stalled_instance_are_dropped_and_counted_and_no_other_waits(
    run: Run, tmp_path: Path
) -> None:
    body = "def broker_event(m):\n    time.sleep(1000)\ndef shutdown(m):\n    os._exit(0)\n"
    write_nexo_plugin(tmp_path, body=body, channels=["k"])
    heard = "def broker_event(m):\n    publish('plugin.inbound.l', n=m['params']['event']['payload'])\n"
    write_nexo_plugin(tmp_path, "q", body=heard, channels=["l"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            answers = watched.host.subscribe("plugin.inbound.l")
            for number in range(10_000):
                watched.host.publish("plugin.outbound.k", {"n": number, "fill": "x" * 100})
            watched.host.publish("plugin.outbound.l", 1)
            event = await anext(aiter(answers))
            assert event.payload == {"n": 1}
            assert watched.status.counters["events_dropped"] > 5_000
            watched.host.calls.supervisors["p"]._instance.child.kill()  # type: ignore[attr-defined]

    run(main)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


@requirement("kaged:health-missed")
def test_an_instance_that_answers_no_probe_is_restarted(run: Run, tmp_path: Path) -> None:
    write_kaged_plugin(tmp_path, body="def health(m):\n    pass\n")

    async def main() -> None:
        found = [replace(item, spec=_probed(item.spec)) for item in discover([tmp_path])]
        async with watching(Host(found)) as watched:
            await until(lambda: watched.status.generation == 2)
            assert watched.names()[:4] == ["started", "hung", "crashed", "respawning"]

    run(main)


@requirement("kaged:health-any-answer")
@pytest.mark.parametrize("answer", ['fail(m, -32601, "no such method")', 'fail(m, -32000, "ill")', 'reply(m, "fine")'])
def test_any_answer_to_a_probe_keeps_an_instance_alive(run: Run, tmp_path: Path, answer: str) -> None:
    body = f'def health(m):\n    open("probed", "a").write(m["method"] + "\\n")\n    {answer}\n'
    root = write_kaged_plugin(tmp_path, body=body)

    async def main() -> None:
        found = [replace(item, spec=_probed(item.spec)) for item in discover([tmp_path])]
        async with Host(found, unconfined=True) as host:  # it writes down what it is asked, beside itself
            probed = root / "probed"
            await until(lambda: probed.exists() and len(probed.read_text().splitlines()) > 5)
            assert host.plugins()[0].generation == 1
            second = probed.read_text().splitlines()[1]
            assert second == ("ping" if "-32601" in answer else "health.check")

    run(main)


@requirement("kaged:shutdown-sequence")
@pytest.mark.parametrize("ignores", ["shutdown", "the end of its input", "SIGTERM"])
def test_a_kaged_instance_ends_by_request_by_end_of_input_by_term_or_by_kill(
    run: Run, tmp_path: Path, ignores: str
) -> None:
    body = "import signal\n"
    if ignores != "shutdown":
        body += "import atexit\ndef linger():\n    time.sleep(1000)\natexit.register(linger)\n"
    if ignores == "SIGTERM":
        body += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    else:
        termed = 'open(os.environ["KAGED_CONFIG_ROOT"] + "/termed", "w").close()'
        body += f"signal.signal(signal.SIGTERM, lambda *_: ({termed}, os._exit(0)))\n"
    write_kaged_plugin(tmp_path / "plugins", body=body, shutdown_timeout_sec=1)
    folder = own_folder(tmp_path / "state", "p")

    async def main() -> None:
        (folder / "termed").unlink(missing_ok=True)
        async with hosting(tmp_path / "plugins", state_dir=tmp_path / "state") as watched:
            pid = watched.status.pid
            assert str(watched.status.confinement) == "confined"
        assert pid is not None and not _alive(pid)
        assert (folder / "termed").exists() == (ignores == "the end of its input")

    run(main)


def _probed(spec: PluginSpec | None) -> PluginSpec:
    assert spec is not None
    return replace(spec, health_interval=0.01, patience={"CheckHealth": 0.05}, restart=RestartPolicy(first_delay=0.01))


@requirement("nexo:host-stderr-tail")
def test_a_crash_report_holds_as_many_lines_as_were_asked_for(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        sys.stderr.write("".join(f"line {n}\\n" for n in range(100)))
        sys.stderr.flush()
        os._exit(1)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["die"], more="[plugin.supervisor]\nstderr_tail_lines = 64\n")

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            await code_of(watched.host.call("p_die"))
            await until(lambda: "crashed" in watched.names())
            assert watched.payload("crashed")["stderr_tail"] == [f"line {n}" for n in range(36, 100)]

    run(main)


def test_a_call_while_an_instance_with_closed_output_dies_says_why_or_reaches_the_next_one(
    run: Run, tmp_path: Path
) -> None:
    body = 'def tool_invoke(m):\n    os.close(1) if m["params"]["args"] else reply(m, "fine")\n'
    write_nexo_plugin(tmp_path, body=body, tools=["close"])

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            first = asyncio.ensure_future(watched.host.attempt("p_close", {"now": True}))
            results = [(await first)] + [await watched.host.attempt("p_close", {}) for _ in range(3)]
            texts = [result.failure.message if result.failure else "fine" for result in results]
            assert texts[-1] == "fine"
            assert all("start its host again" not in text for text in texts)

    run(main)


def test_an_instance_that_exits_right_after_its_greeting_is_started_once_per_call(run: Run, tmp_path: Path) -> None:
    body = "hello = initialize\ndef initialize(m):\n    hello(m)\n    os._exit(0)\n"
    write_nexo_plugin(tmp_path, body=body, tools=["t"])

    async def main() -> None:
        async with hosting(tmp_path, eager=False) as watched:
            result = await watched.host.attempt("p_t", {})
            assert result.failure is not None and result.failure.code == Code.CRASHED
            assert sum(name in ("started", "start_failed") for name in watched.names()) == 1

    run(main)


# Failures, as a contract counts them.

LADDER = RestartPolicy(first_delay=0.05, factor=4, longest_delay=1, jitter=0, failures=2, window=60, healthy_after=60)


@requirement("ainb:host-clean-exit-is-failure")
def test_leaving_unasked_with_0_is_a_failure_where_the_contract_says_so(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body="def tool_invoke(m):\n    os._exit(0)\n", tools=["leave"])

    async def main() -> None:
        slow = replace(LADDER, first_delay=60, longest_delay=60)
        async with hosting_changed(tmp_path, exit_is_failure=True, restart=slow) as watched:
            assert await code_of(watched.host.call("p_leave")) == Code.CRASHED
            await until(lambda: watched.state() is State.BACKOFF)
            assert watched.names() == ["started", "crashed"]
            assert watched.payload("crashed")["exit_code"] == 0

    run(main)


@requirement("ainb:host-backoff", "ainb:host-quarantine", "ainb:host-init-error-is-failure")
@pytest.mark.parametrize("cause", ["a refused greeting", "no greeting", "no program"])
def test_each_failed_start_waits_longer_and_the_third_quarantines(run: Run, tmp_path: Path, cause: str) -> None:
    refuses = 'def initialize(m):\n    fail(m, -32000, "not today")\n'
    body = refuses if cause == "a refused greeting" else "def initialize(m):\n    os._exit(0)\n"
    root = write_nexo_plugin(tmp_path, body=body, tools=["echo"])
    command = ("./absent",) if cause == "no program" else ("python3", "child.py")

    async def main() -> None:
        policy = replace(LADDER, refusal_is_final=False)
        async with hosting_changed(root, respawn=True, command=command, restart=policy) as watched:
            await until(lambda: watched.state() is State.QUARANTINED, seconds=20)
            waits = [payload["backoff_ms"] for name, payload in watched.events if name == "respawning"]
            assert waits == [50, 200]
            assert watched.names().count("start_failed") == 3

    run(main)


def test_a_refused_greeting_quarantines_at_once_unless_the_contract_counts_it(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body='def initialize(m):\n    fail(m, -32000, "never")\n', tools=["echo"])

    async def main() -> None:
        async with hosting_changed(tmp_path, restart=LADDER) as watched:
            assert watched.state() is State.QUARANTINED
            assert watched.names() == ["start_failed", "gave_up"]

    run(main)


def test_a_start_that_fails_is_no_healthy_run_however_long_it_took(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body="def initialize(m):\n    os._exit(1)\n", tools=["echo"])

    async def main() -> None:
        policy = replace(LADDER, healthy_after=1e-9)
        async with hosting_changed(tmp_path, respawn=True, restart=policy) as watched:
            await until(lambda: watched.state() is State.QUARANTINED, seconds=20)

    run(main)


@requirement("ainb:host-quarantine-reload", "ainb:host-states")
@requirement("host:shortage")
@pytest.mark.parametrize("confined", [True, False])
def test_a_host_without_descriptors_holds_nothing_against_a_plugin_and_the_next_call_starts_it(
    run: Run, tmp_path: Path, confined: bool
) -> None:
    write_kaged_plugin(tmp_path)

    async def main() -> None:
        async with hosting(tmp_path, eager=False, unconfined=not confined) as watched:
            with no_free_descriptors():
                for _ in range(5):
                    failure = (await watched.host.attempt("echo", {})).failure
                    assert failure is not None and failure.detail["errno"] == "EMFILE"
                    assert (failure.code, watched.state()) == (Code.LAUNCH_FAILED, State.IDLE)
            assert await watched.host.call("echo", {"a": 1}) == {"a": 1}
            assert (watched.names(), watched.status.generation) == (["start_failed"] * 5 + ["started"], 1)

    run(main)


@requirement("host:shortage")
def test_a_plugin_that_respawns_starts_by_itself_when_the_host_has_descriptors_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resident, "SHORTAGE_SECONDS", 0.01)
    write_nexo_plugin(tmp_path, tools=["echo"], more=FAST)

    async def main() -> None:
        async with hosting(tmp_path, eager=False) as watched:
            with no_free_descriptors():
                assert await code_of(watched.host.call("p_echo", {})) == Code.LAUNCH_FAILED
                await until(lambda: watched.names().count("start_failed") > 10)  # more than its three attempts
            await until(lambda: watched.state() == State.RUNNING)
            assert set(watched.names()) == {"start_failed", "started"}

    run(main)


def test_a_plugin_passes_through_six_states_and_only_a_reload_leaves_quarantine(run: Run, tmp_path: Path) -> None:
    body = """
    def gate(name):
        while not os.path.exists(name):
            time.sleep(0.01)
    hello = initialize
    def initialize(m):
        gate("enter")
        hello(m)
    def tool_invoke(m):
        reply(m, os.getpid()) if not m["params"]["args"] else os._exit(1)
    def shutdown(m):
        reply(m, {"ok": True})
        gate("leave")
        os._exit(0)
    """
    root = write_nexo_plugin(tmp_path, body=body, tools=["pid"])
    enter, leave = root / "enter", root / "leave"

    async def main() -> None:
        enter.unlink(missing_ok=True)
        leave.unlink(missing_ok=True)
        async with hosting_changed(root, eager=False, idle_seconds=0.2, respawn=True, restart=LADDER) as watched:
            host, seen = watched.host, [watched.state()]
            first = asyncio.ensure_future(host.call("p_pid", {}))
            await until(lambda: watched.state() != State.IDLE)
            seen.append(watched.state())
            enter.touch()
            await first
            seen.append(watched.state())
            await until(lambda: watched.state() is State.SHUTTING_DOWN)
            seen.append(watched.state())
            leave.touch()
            await until(lambda: "reaped" in watched.names())
            bus = host._backends.services.bus
            bus.listen(["*.*.*.respawning", "*.*.*.gave_up"], lambda _: seen.append(watched.state()))
            for _ in range(3):
                assert await code_of(host.call("p_pid", {"die": 1})) == Code.CRASHED
            await until(lambda: watched.state() is State.QUARANTINED)
            assert seen == ["idle", "spawning", "running", "shutting_down", "backoff", "backoff", "quarantined"]
            assert await code_of(host.call("p_pid", {})) == Code.QUARANTINED
            assert not host.calls.tell("p", DeliverEvent("t", 1))
            started = watched.names().count("started")
            await host.reload("p")
            assert (watched.state(), watched.names().count("started")) == (State.IDLE, started)
            assert isinstance(await host.call("p_pid", {}), int)

    run(main)


# Telling.


def test_a_notification_reaches_a_running_instance_and_starts_none(run: Run, tmp_path: Path) -> None:
    body = """
    heard = []
    def broker_event(m):
        heard.append(m["params"]["topic"])
    def tool_invoke(m):
        reply(m, heard)
    """
    write_nexo_plugin(tmp_path, body=body, tools=["heard"])

    async def main() -> None:
        async with hosting(tmp_path, eager=False) as watched:
            calls = watched.host.calls
            assert not calls.tell("p", DeliverEvent("too.early", {}))
            assert (watched.state(), watched.names()) == (State.IDLE, [])
            await watched.host.call("p_heard", {})
            assert calls.tell("p", DeliverEvent("now", {}))
            assert not calls.tell("stranger", DeliverEvent("now", {}))
            assert await watched.host.call("p_heard", {}) == ["now"]

    run(main)


@requirement("ainb:host-key-queue", "ainb:host-key-order")
def test_a_flood_of_keys_is_bounded_counted_apart_and_the_last_arrive_in_order(run: Run, tmp_path: Path) -> None:
    body = """
    def handle_key(params):
        keys.append(params["generation"])
        while not os.path.exists("go"):
            time.sleep(0.01)
    def cli_dispatch(params, m):
        reply(m, {"stdout": b64(json.dumps(keys).encode()), "stderr": "", "exit_code": 0})
    """
    root = write_ainb_plugin(tmp_path, body=body, namespaces=["keys"])
    escape = {"code": {"type": "esc"}, "mods": 0, "kind": "press"}

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting_changed(root, eager=True) as watched:
            calls = watched.host.calls
            for number in range(5_000):
                assert calls.tell("p", PressKey("s", escape, number))
            dropped = watched.status.counters["keys_dropped"]
            assert dropped > 3_000 and "events_dropped" not in watched.status.counters
            (root / "go").touch()
            answer = await calls.run(CallRequest("keys", make_operation=lambda _: DispatchCli("keys", ())))
            heard = json.loads(base64.b64decode(answer.value()["stdout"]))
            assert heard == sorted(heard) and heard[-64:] == list(range(4_936, 5_000))
            assert len(heard) + dropped == 5_000

    run(main)


@requirement("ainb:host-keys-overtake-events")
def test_a_key_overtakes_fifty_large_snapshots(run: Run, tmp_path: Path) -> None:
    body = """
    order = []
    def handle_event(params):
        order.append(params["topic"])
        while not os.path.exists("go"):
            time.sleep(0.01)
    def handle_key(params):
        order.append("key")
    def cli_dispatch(params, m):
        reply(m, {"stdout": b64(json.dumps(order).encode()), "stderr": "", "exit_code": 0})
    """
    root = write_ainb_plugin(tmp_path, body=body, namespaces=["order"])
    escape = {"code": {"type": "esc"}, "mods": 0, "kind": "press"}

    async def main() -> None:
        (root / "go").unlink(missing_ok=True)
        async with hosting_changed(root, eager=True) as watched:
            calls = watched.host.calls
            for _ in range(50):
                calls.tell("p", DeliverSnapshot("t", b"x" * (1 << 20)))
            calls.tell("p", PressKey("s", escape))
            (root / "go").touch()

            async def order() -> list[str]:
                answer = await calls.run(CallRequest("order", make_operation=lambda _: DispatchCli("order", ())))
                heard: list[str] = json.loads(base64.b64decode(answer.value()["stdout"]))
                return heard

            while len(heard := await order()) < 51:
                pass
            assert heard == ["t", "key", *["t"] * 49]
            assert watched.status.counters == confined_counters()

    run(main)


# Answers that come too late.


@requirement("ainb:host-render-watchdog")
def test_renders_that_time_out_do_not_end_the_instance_and_late_answers_are_counted(run: Run, tmp_path: Path) -> None:
    body = """
    waiting = []
    def render(params, m):
        waiting.append(m)
        if params["viewport"]["width"] == 80:
            for each in waiting:
                reply(each, picture(params, str(os.getpid())))
    """
    root = write_ainb_plugin(tmp_path, body=body, screens=["s"])

    async def main() -> None:
        async with hosting_changed(root, eager=True, sandbox=None) as watched:  # inside, it would have another pid
            ask, pid = watched.host.ask, watched.status.pid
            narrow = [ask("s", Render("s", 40, 10), timeout=0.1) for _ in range(3)]
            results = await asyncio.gather(*narrow)
            assert [result.failure and result.failure.code for result in results] == [Code.TIMEOUT] * 3
            wide = await ask("s", Render("s", 80, 10))
            assert "".join(cell["symbol"] for _, cell in wide.value()["buffer"]["cells"]) == str(pid)
            assert watched.status.counters == {"late_answers": 3}
            assert (watched.state(), watched.status.generation) == (State.RUNNING, 1)

    run(main)


# An ainb plugin's life.


@requirement("ainb:host-spawn-mode")
@pytest.mark.parametrize(("mode", "state"), [("lazy", State.IDLE), ("eager", State.RUNNING)])
def test_an_eager_plugin_starts_with_the_host_and_a_lazy_one_with_its_first_request(
    run: Run, tmp_path: Path, mode: str, state: State
) -> None:
    write_ainb_plugin(tmp_path, namespaces=["say"], lifecycle={"spawn": mode})

    async def main() -> None:
        async with hosting(tmp_path) as watched:
            assert watched.state() is state
            assert not watched.host.calls.tell("p", PressKey("s", {})) or mode == "eager"
            assert watched.state() is state
            answer = await watched.host.ask("say", DispatchCli("say", ("hi",)))
            assert base64.b64decode(answer.value()["stdout"]) == b"say hi\n"
            assert watched.state() is State.RUNNING

    run(main)


@requirement("ainb:host-shutdown")
@pytest.mark.parametrize("child", ["answers and waits for the end of its input", "leaves at once", "stays"])
def test_shutdown_is_asked_for_then_the_input_is_closed_then_it_is_ended(run: Run, tmp_path: Path, child: str) -> None:
    shutdown = {
        "answers and waits for the end of its input": "reply(m, {})",
        "leaves at once": "os._exit(0)",
        "stays": "time.sleep(1000)",
    }[child]
    body = f"""
    import atexit, signal
    signal.signal(signal.SIGTERM, lambda *_: (open("termed", "w").close(), os._exit(0)))
    atexit.register(lambda: open("left", "w").close())
    def shutdown(m):
        open("asked", "w").write(json.dumps([m["method"], m["params"], "id" in m]))
        {shutdown}
    """
    root = write_ainb_plugin(tmp_path, body=body, screens=["s"])

    async def main() -> None:
        for name in ("asked", "left", "termed"):
            (root / name).unlink(missing_ok=True)
        times = Timeouts(handshake=15, farewell=0.3, teardown=5 if child != "stays" else 0.2, term=5)
        async with hosting_changed(
            root, eager=True, timeouts=times, sandbox=None
        ) as watched:  # it writes beside itself
            pid = watched.status.pid
        assert pid is not None and not _alive(pid)
        assert json.loads((root / "asked").read_text()) == ["plugin/shutdown", {}, True]
        assert (root / "left").exists() == (child == "answers and waits for the end of its input")
        assert (root / "termed").exists() == (child == "stays")
        assert ("shutdown_failed" in watched.names()) == (child == "stays")

    run(main)


@requirement("ainb:host-idle-subscribers")
def test_an_idle_plugin_stays_for_topics_that_matter_and_goes_for_those_of_which_only_the_latest_does(
    run: Run, tmp_path: Path
) -> None:
    bus = {"event_bus": True}
    write_ainb_plugin(tmp_path, "waits", capabilities=bus, subscribes={"snapshots": ["t"]})
    latest = {"snapshots": ["t"], "latest_state": ["t"]}
    write_ainb_plugin(tmp_path, "glances", capabilities=bus, subscribes=latest)

    async def main() -> None:
        found = changed(tmp_path, eager=True, idle_seconds=0.2)
        async with watching(Host(found, grant_all=True)) as watched:
            supervisors = watched.host.calls.supervisors
            await until(lambda: supervisors["glances"].state is State.IDLE)
            assert supervisors["waits"].state is State.RUNNING

    run(main)


DIES = """
def cli_dispatch(params, m):
    if params["argv"] == ["die"]:
        os._exit(3)
    reply(m, {"stdout": b64(repr(events).encode()), "stderr": "", "exit_code": 0})
"""


@requirement("ainb:host-subscriber-comes-back")
def test_a_lazy_subscriber_comes_back_after_a_crash_and_hears_the_next_event(run: Run, tmp_path: Path) -> None:
    bus = {"event_bus": True}
    write_ainb_plugin(tmp_path, "deaf", DIES, namespaces=["deaf"])
    write_ainb_plugin(
        tmp_path, "hearing", DIES, namespaces=["hearing"], capabilities=bus, subscribes={"snapshots": ["t"]}
    )

    async def main() -> None:
        async with hosting(tmp_path, grant_all=True) as watched:
            for namespace in ("hearing", "deaf"):
                assert await code_of(watched.host.run_cli(namespace, ["die"])) == Code.CRASHED

            def states() -> dict[str, str]:
                return {status.spec.id: status.state for status in watched.host.plugins()}

            await until(lambda: states() == {"deaf": State.IDLE, "hearing": State.RUNNING})
            watched.host.snapshots.publish("t", b"next")
            assert (await watched.host.run_cli("hearing", [])).stdout == b"[('t', b'next')]"
            assert watched.names().count("started") == 3

    run(main)


ODD_IDS = """
def cli_dispatch(params, m):
    for id in ("a", -1):
        request(id, "host/snapshot/get", topic="t")
    reply(m, {"stdout": "", "stderr": "", "exit_code": 0})
"""


@requirement("ainb:host-refused-ids")
def test_requests_with_a_string_or_a_negative_id_are_refused_in_the_journal_and_counted(
    run: Run, tmp_path: Path
) -> None:
    write_ainb_plugin(tmp_path, body=ODD_IDS, namespaces=["p"], capabilities={"event_bus": True})

    async def main() -> None:
        async with hosting(tmp_path, grant_all=True) as watched:
            assert (await watched.host.run_cli("p", [])).exit_code == 0
            await until(lambda: watched.status.counters.get("noise") == 2)
            texts = [note.text for note in watched.host.journal.recent("p") if note.kind == "noise"]
            refused = "is refused: an id of this contract is an unsigned integer"
            heads = [text.partition(refused)[0] for text in texts]
            assert heads == [f"'host/snapshot/get' with the id {id} " for id in ("'a'", "-1")]

    run(main)
