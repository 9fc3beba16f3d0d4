"""A host for a plugin under development."""

from __future__ import annotations

from pathlib import Path

from plugbay import Host
from plugbay.host.admin.dev import attached, under_development, warm
from plugbay.host.calls.calls import LONGEST_CALL
from plugbay.host.discovery.folders import inspect
from plugbay.model.spec import Lifetime, PluginSpec, RestartPolicy, SandboxRequest, Timeouts
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin

SPEC = PluginSpec(
    id="p",
    version="1",
    contract="nexo",
    root=Path("/p"),
    command=("python3", "plugin.py"),
    timeouts=Timeouts(handshake=2.0, call=3.0, farewell=5.0, term=2.0),
    patience={"Render": 2.0},
    eager=True,
    respawn=True,
    idle_seconds=60.0,
    health_interval=5.0,
    restart=RestartPolicy(failures=2),
    sandbox=SandboxRequest(),
)


def test_nothing_starts_or_stops_a_plugin_under_development_but_saves_and_calls() -> None:
    spec = under_development(SPEC)
    assert (spec.eager, spec.respawn, spec.idle_seconds) == (False, False, None)
    assert (spec.command, spec.timeouts, spec.sandbox) == (SPEC.command, SPEC.timeouts, SPEC.sandbox)


def test_what_its_author_runs_is_given_all_the_time_there_is() -> None:
    spec = attached(SPEC, ("bridge",))
    assert spec.command == ("bridge",)
    assert (spec.timeouts.handshake, spec.timeouts.call) == (LONGEST_CALL, LONGEST_CALL)
    assert (spec.patience, spec.health_interval, spec.sandbox) == ({}, None, None)
    assert spec.restart.failures > 1000 and not spec.restart.refusal_is_final


def test_its_end_is_waited_for_only_where_that_is_part_of_the_call() -> None:
    assert attached(SPEC, ("bridge",)).timeouts.teardown < 5
    assert attached(SPEC, ("bridge",)).timeouts.hung == LONGEST_CALL
    per_call = PluginSpec("p", "1", "rune", Path("/p"), ("x",), lifetime=Lifetime.PER_CALL)
    assert attached(per_call, ("bridge",)).timeouts.teardown == LONGEST_CALL


def test_a_plugin_is_started_without_a_call_and_stays(run: Run, tmp_path: Path) -> None:
    folder = write_nexo_plugin(tmp_path, "bot", tools=["echo"])

    async def main() -> None:
        async with Host([inspect(folder)], eager=False) as host:
            assert host.plugins()[0].state == "idle"
            assert await warm(host, "bot") is None
            assert host.plugins()[0].state == "running"
            assert host.plugins()[0].busy == 0

    run(main)


def test_a_failed_start_is_reported_in_full(run: Run, tmp_path: Path) -> None:
    folder = write_nexo_plugin(tmp_path, "bot", "sys.exit('no')", tools=["echo"])

    async def main() -> None:
        async with Host([inspect(folder)], eager=False) as host:
            failure = await warm(host, "bot")
            assert failure is not None
            assert failure.code == "crashed"
            assert failure.detail["exit_code"] == 1 and failure.detail["stderr_tail"] == ["no"]

    run(main)


def test_what_may_not_be_started_is_not(run: Run, tmp_path: Path) -> None:
    folder = write_nexo_plugin(
        tmp_path, "bot", tools=["echo"], more="[plugin.capabilities.broker]\nsubscribe = []\npublish = []\n"
    )

    async def main() -> None:
        host = Host([inspect(folder)], eager=False)
        unstarted = await warm(host, "bot")
        assert unstarted is not None and unstarted.message == "the host is not running"
        async with host:
            host.decisions["bot"] = type(host.decisions["bot"])(enabled=False)
            refusal = await warm(host, "bot")
            assert refusal is not None and refusal.code == "unavailable" and refusal.origin == "policy"
            assert host.plugins()[0].state == "idle"

    run(main)
