"""The public API: call, attempt, look, reload; from any task, loop and thread."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Host, ManifestInvalid, PlugbayError
from plugbay.host.catalog.catalog import Entry
from plugbay.host.records import MemoryCallLog
from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure, Origin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until, until_blocking
from tests.support.plugins import ECHO_SH, write_plugin
from tests.support.requirements import requirement
from tests.support.vai import write_vai_plugin


def test_a_call_returns_the_output_and_is_recorded(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)
    log = MemoryCallLog()

    async def main() -> None:
        async with Host.load(tmp_path, call_log=log) as host:
            assert await host.call("p/t", {"text": "ü"}) == {"text": "ü"}
            assert await host.call("t") == {}
        (first, second) = log.records
        assert (first.plugin, first.export, first.status, first.contract) == ("p", "t", "succeeded", "rune")
        assert first.call_id != second.call_id
        assert first.duration_ms > 0

    run(main)


def test_folders_and_single_names_may_be_plain_text(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", script="echo said >&2\n" + ECHO_SH, capabilities=["x"])
    write_server(tmp_path / "plugins", "notes")
    folders = {"log_dir": str(tmp_path / "logs"), "state_dir": str(tmp_path / "state")}

    async def main() -> None:
        async with Host.load(str(tmp_path / "plugins"), grants="x", trusted="notes", **folders) as host:
            assert await host.call("p/t", {}) == {}
            assert await host.meet("notes") == {}
        assert "said" in (tmp_path / "logs" / "p.log").read_text()

    run(main)


def test_a_failure_is_one_typed_error_with_everything_an_author_needs(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="echo boom >&2; exit 7\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            with pytest.raises(CallFailed) as caught:
                await host.call("t")
        failure = caught.value.failure
        assert (failure.code, failure.plugin) == (Code.CRASHED, "p")
        assert failure.detail["exit_code"] == 7
        assert failure.detail["stderr_tail"] == ["boom"]
        assert caught.value.call_id.startswith("call_")

    run(main)


def test_a_call_is_refused_before_anything_starts(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "needy", capabilities=["a"])
    schema = {"type": "object", "required": ["n"]}
    write_plugin(tmp_path, "picky", tools=[{"name": "t2", "input_schema": schema}])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            codes = [
                (await host.attempt(name, given)).failure
                for name, given in [("needy/t", {}), ("t2", {}), ("nope", {}), ("t2", {"n": float("nan")})]
            ]
            assert [failure.code if failure else None for failure in codes] == [
                Code.CAPABILITY_NOT_ALLOWED,
                Code.INVALID_INPUT,
                Code.NOT_FOUND,
                Code.INVALID_INPUT,
            ]
            assert all(status.busy == 0 for status in host.plugins())
            assert [supervisor.generation for supervisor in host.calls.supervisors.values()] == [0, 0]

    run(main)


def test_an_input_nobody_could_buffer_is_refused_before_anything_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugbay.host.calls.calls.MAX_INPUT", 1000)
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            refused = await host.attempt("t", "x" * 999)
            assert refused.failure is not None
            assert refused.failure.code == Code.FRAME_TOO_LARGE
            assert await host.call("t", "x" * 998) == "x" * 998

    run(main)


def test_grants_from_the_caller_the_config_and_for_everything(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "p", capabilities=["a"])
    (tmp_path / "plugbay.toml").write_text('[plugins.p]\ngrants = ["a"]\n')

    async def main() -> None:
        for options in ({"grants": ["a"]}, {"grant_all": True}, {"config": tmp_path / "plugbay.toml"}):
            async with Host.load(tmp_path / "p", **options) as host:
                assert await host.call("t", [1]) == [1]
                assert host.plugins()[0].granted == ("a",)

    run(main)


def test_the_operator_can_disable_a_plugin_and_change_its_timeouts(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "off")
    write_plugin(tmp_path, "slow", script="sleep 60\n")
    (tmp_path / "c.toml").write_text(
        "[plugins.off]\nenabled = false\n[plugins.slow]\ntimeouts = { handshake = 0.05 }\n"
    )

    async def main() -> None:
        async with Host.load(tmp_path, config=tmp_path / "c.toml") as host:
            off, slow = await host.attempt("off/t"), await host.attempt("slow/t")
            assert off.failure is not None
            assert slow.failure is not None
            assert (off.failure.code, slow.failure.code) == (Code.UNAVAILABLE, Code.TIMEOUT)

    run(main)


@requirement("rune:spawn:environment")
def test_the_environment_is_exactly_what_manifest_and_operator_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", "leaked")
    monkeypatch.setenv("LET_IN", "yes")
    script = """\
read -r _; printf '%s\\n' '{hello}'
IFS= read -r request; id=${request#*'"request_id":"'}; id=${id%%'"'*}
output="$A|$B|$LET_IN|$CANARY"
printf '{"type":"response","request_id":"%s","status":"ok","output":"%s"}\\n' "$id" "$output"
cat >/dev/null
"""
    folder = write_plugin(tmp_path, script=script)
    text = (
        (folder / "rterm-plugin.json")
        .read_text()
        .replace('"./run.sh"', '"./run.sh", "env": ["A=manifest", "B=manifest"]')
    )
    (folder / "rterm-plugin.json").write_text(text)
    (tmp_path / "c.toml").write_text('[plugins.p]\nenv = { B = "operator" }\ninherit_env = ["LET_IN"]\n')

    async def main() -> None:
        async with Host.load(folder, config=tmp_path / "c.toml") as host:
            assert await host.call("t") == "manifest|operator|yes|"

    run(main)


def test_exports_and_plugins_can_be_looked_at_before_anything_runs(tmp_path: Path) -> None:
    write_plugin(tmp_path)
    (write_plugin(tmp_path, "broken") / "rterm-plugin.json").write_text("{")
    host = Host.load(tmp_path)
    assert list(host.exports()) == ["p/t"]
    assert [(status.spec.id, status.state) for status in host.plugins()] == [("p", "stopped")]
    assert [found.root.name for found in host.problems] == ["broken"]


def test_settings_for_a_plugin_that_is_not_there_are_noticed_when_they_look_like_a_slip(tmp_path: Path) -> None:
    write_plugin(tmp_path, "example.words")
    (tmp_path / "c.toml").write_text('[plugins."example.word"]\nenabled = false\n[plugins."elsewhere"]\n')
    host = Host.load(tmp_path / "example.words", config=tmp_path / "c.toml", grants="tool.execute")
    assert host.mistyped_ids == {"example.word": "example.words"}
    assert host.decisions["example.words"].grants == frozenset({"tool.execute"})


def test_a_broken_plugin_that_was_named_itself_is_an_error_at_once(tmp_path: Path) -> None:
    (write_plugin(tmp_path, "broken") / "rterm-plugin.json").write_text("{")
    with pytest.raises(ManifestInvalid, match="not JSON"):
        Host.load(tmp_path / "broken")
    with pytest.raises(ManifestInvalid, match="No such file"):
        Host.load(tmp_path / "missing")
    assert Host.load(tmp_path).problems[0].errors


def test_a_cancelled_call_propagates_and_its_record_says_timeout_as_rune_does(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="sleep 60\n")
    log = MemoryCallLog()

    async def main() -> None:
        async with Host.load(tmp_path, call_log=log) as host:
            assert host._runtime is not None
            spawner = host._runtime.spawner
            task = asyncio.ensure_future(host.call("t"))
            await until(lambda: bool(spawner.children))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert log.records[0].failure is not None
            assert log.records[0].failure.code == Code.TIMEOUT
            await until(lambda: not spawner.children)

    run(main)


def test_the_loop_of_a_host_may_go_on_in_another_thread(tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, tools=["t"])
    host, loop = Host.load(tmp_path), asyncio.new_event_loop()
    loop.run_until_complete(host.start())
    assert loop.run_until_complete(host.call("p_t", {"n": 1})) == {"n": 1}
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert asyncio.run(host.call("p_t", {"n": 2})) == {"n": 2}
        asyncio.run(host.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_host_works_from_another_loop_and_thread(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            results: list[Any] = []

            def elsewhere() -> None:
                results.append(asyncio.run(host.call("t", "from a thread")))

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await until(lambda: not thread.is_alive())
            assert results == ["from a thread"]

    run(main)


def test_a_reloaded_plugin_starts_afresh(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.call("t")
            await host.reload("p")
            assert host.calls.supervisors["p"].generation == 0
            assert await host.call("t", 1) == 1
            with pytest.raises(CallFailed, match="no running plugin"):
                await host.reload("nope")

    run(main)


def test_a_host_starts_once_and_is_unavailable_before_and_after(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        host = Host.load(tmp_path)
        before = await host.attempt("t")
        await host.start()
        with pytest.raises(PlugbayError, match="already started"):
            await host.start()
        await host.stop()
        await host.stop()
        after = await host.attempt("t")
        for result in (before, after):
            assert result.failure is not None
            assert result.failure.code == Code.UNAVAILABLE

    run(main)


def test_input_that_is_no_json_is_the_callers_fault_and_never_an_unexpected_exception(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, tools=[{"name": "t", "input_schema": {"properties": {"a": {"type": "integer"}}}}])
    loop: dict[str, Any] = {}
    loop["self"] = loop
    deep: Any = 0
    for _ in range(300):
        deep = [deep]

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            for given in (object(), {1: 2}, loop, deep, float("inf"), "\ud800"):
                failure = (await host.attempt("t", given)).failure
                assert failure is not None
                assert failure.code == Code.INVALID_INPUT
            assert host.calls.supervisors["p"].generation == 0

    run(main)


def test_a_bug_of_ours_is_an_internal_failure_and_recorded_as_one(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)
    log = MemoryCallLog()

    def ask(entry: Entry) -> Failure:
        raise RuntimeError("nobody thought of this")

    async def main() -> None:
        async with Host.load(tmp_path, call_log=log) as host:
            result = await host.calls.run(CallRequest("t", make_operation=ask))
            assert result.failure is not None
            assert result.failure.code == Code.INTERNAL
            assert "nobody thought of this" in result.failure.message
            assert log.records[0].status == "failed"

    run(main)


def test_a_call_for_which_there_is_no_memory_is_overloaded_and_recorded(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)
    log = MemoryCallLog()

    def ask(entry: Entry) -> Failure:
        raise MemoryError

    async def main() -> None:
        async with Host.load(tmp_path, call_log=log) as host:
            failure = (await host.calls.run(CallRequest("t", make_operation=ask))).failure
            assert failure is not None and (failure.code, failure.origin) == (Code.OVERLOADED, Origin.SYSTEM)
            assert log.records[0].status == "failed"

    run(main)


def test_a_cancelled_stop_still_stops_everything(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="read -r _; printf '%s\\n' '{hello}'; sleep 60\n")

    async def main() -> None:
        host = Host.load(tmp_path)
        await host.start()
        assert host._runtime is not None
        spawner = host._runtime.spawner
        call = asyncio.ensure_future(host.attempt("t"))
        await until(lambda: host.calls.supervisors["p"].busy == 1)
        stopping = asyncio.ensure_future(host.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await host.stop()
        assert not spawner.children
        assert spawner.warden.pid is None
        assert (await call).failure is not None

    run(main)


def test_a_reload_finishes_what_runs_and_what_waits(run: Run, tmp_path: Path) -> None:
    script = ECHO_SH.replace("|| exit 0\n", "|| exit 0\nsleep 0.1\n")  # long enough to be seen
    write_plugin(tmp_path, script=script)
    (tmp_path / "c.toml").write_text("[plugins.p]\nconcurrency = 1\n")

    async def main() -> None:
        async with Host.load(tmp_path / "p", config=tmp_path / "c.toml") as host:
            calls = [asyncio.ensure_future(host.call("t", number)) for number in range(5)]
            await until(lambda: host.calls.supervisors["p"].busy == 1)
            await asyncio.gather(host.reload("p"), host.reload("p"))
            assert [await call for call in calls] == list(range(5))
            assert await host.call("t", "after") == "after"

    run(main)


def test_stopping_with_calls_in_flight_fails_them_and_leaves_nothing(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, script="read -r _; printf '%s\\n' '{hello}'; sleep 60\n")

    async def main() -> None:
        host = Host.load(tmp_path)
        await host.start()
        calls = [asyncio.ensure_future(host.attempt("t")) for _ in range(3)]
        await until(lambda: host.calls.supervisors["p"].busy == 3)
        await host.stop()
        for call in calls:
            failure = (await call).failure
            assert failure is not None
            assert failure.code in (Code.UNAVAILABLE, Code.CRASHED)

    run(main)


def test_a_host_that_cannot_start_closes_its_stores(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_vai_plugin(tmp_path)

    async def main() -> None:
        async def fail() -> None:
            raise PlugbayError("the scratch directory cannot be created")

        host = Host.load(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(host.invocations, "open", fail)
            with pytest.raises(PlugbayError, match="the scratch directory cannot be created"):
                await host.start()
        async with host:  # a store that is open would refuse to be opened
            assert host.is_running

    run(main)


def open_files(path: Path) -> list[str]:
    """The descriptors of this process that lead to the file."""
    descriptors = os.listdir("/proc/self/fd")
    return [each for each in descriptors if os.path.realpath(f"/proc/self/fd/{each}") == os.path.realpath(path)]


def test_a_stop_that_ends_with_its_loop_closes_the_files(run: Run, tmp_path: Path) -> None:
    """At the end of `asyncio.run` every task is cancelled, that of a stop in the background too."""
    stays = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    write_kaged_plugin(tmp_path / "plugins", body=stays, capabilities=["kaged:storage:read"])
    storage = tmp_path / "state" / "storage.db"

    async def main() -> None:
        host = Host.load(tmp_path / "plugins", state_dir=tmp_path / "state", grant_all=True, unconfined=True)
        await host.start()
        assert open_files(storage)
        await host.settled()
        background.append(asyncio.ensure_future(host.stop()))
        await asyncio.sleep(0)

    background: list[asyncio.Future[None]] = []
    run(main)
    assert background[0].cancelled()
    until_blocking(lambda: not open_files(storage))


def test_a_host_that_is_stopped_while_it_starts_does_not_run_on(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path)

    async def main() -> None:
        host = Host.load(tmp_path)
        starting = asyncio.ensure_future(host.start())
        await asyncio.sleep(0)
        await host.stop()
        with pytest.raises(PlugbayError, match="stopped while it was being started"):
            await starting
        assert (await host.attempt("t")).failure is not None

    run(main)


def test_a_topic_that_cannot_be_one_is_refused_and_not_swallowed() -> None:
    with pytest.raises(ValueError, match="cannot publish"):
        Host([]).publish("a..b", 1)


def test_the_services_are_there_before_the_host_is_started() -> None:
    host = Host([])
    assert host.memory.path == ":memory:"
    assert host.llm.names() == []
    assert host.vectors is host._backends.vectors
    assert host.channels is host._backends.channels
    assert host.screens is host._screens
    services = host._backends.services
    assert (host.snapshots, host.actions, host.journal) == (services.snapshots, services.actions, services.journal)


def test_what_is_published_reaches_who_subscribed_and_odd_topics_do_not(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host, host.subscribe("a.>") as events:
            host.publish("a.b", {"n": 1})
            assert (await anext(events)).payload == {"n": 1}
            with pytest.raises(ValueError, match="cannot publish"):
                host.publish("a..b", {})

    run(main)


def test_the_processes_of_each_plugin_are_known(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, "shop", tools=["t"])
    write_plugin(tmp_path, "p")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.meet("shop")
            await until(lambda: "shop" in host.processes())
            (pid,) = host.processes()["shop"]
            assert pid == host.supervisor("shop").pid and "p" not in host.processes()  # type: ignore[union-attr]
        assert host.processes() == {} and host.bindings.decide("p").enabled and host.state_dir is None

    run(main)
