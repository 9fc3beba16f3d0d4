"""What an operator sees of a plugin, running or not."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.bindings import Bindings, Options
from plugbay.host.config.config import parse
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.host.status import plugin_status
from plugbay.model.spec import PluginSpec
from tests.support.ainb import write_ainb_plugin
from tests.support.loops import Run
from tests.support.machine import limits_state
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement

SPEC = PluginSpec("p", "1", "kaged", Path("/"), ("x",), capabilities=("read", "write"))


def test_without_a_host_that_runs_a_plugin_is_stopped_and_keeps_its_counts() -> None:
    bindings = Bindings(parse('[plugins.p]\ngrants = ["read"]\n[plugins.p.sandbox]\noff = "ours"'), Options(), None)
    status = plugin_status(SPEC, None, {"noise": 2}, bindings)
    assert (status.state, status.granted, status.counters) == ("stopped", ("read",), {"noise": 2})
    assert (status.busy, status.ready, status.pid, status.limits) == (0, 0, None, "")
    assert str(status.confinement) == "unconfined: ours"


def test_a_running_plugin_shows_its_process_and_how_often_it_was_started(run: Run, tmp_path: Path) -> None:
    async def look() -> None:
        write_ainb_plugin(tmp_path, "panel", screens=("panel",))
        async with Host.load(tmp_path) as host:
            (before,) = host.plugins()
            assert (before.state, before.pid, before.generation) == ("idle", None, 0)
            await host.screens.render("panel", 10, 3)
            (after,) = host.plugins()
            assert (after.state, after.ready, after.generation) == ("running", 1, 1)
            assert (str(after.confinement), after.limits) == ("confined", limits_state())
            assert after.pid is not None

    run(look)


@requirement("host:pending")
def test_a_plugin_that_waits_for_grants_is_pending_and_a_disabled_one_is_not(run: Run, tmp_path: Path) -> None:
    for name in ("open", "off"):
        write_plugin(tmp_path, name, capabilities=["tool.execute"])

    async def look() -> None:
        config = parse("[plugins.off]\nenabled = false")
        async with Host(discover([tmp_path]), config) as host:
            states = {status.spec.id: (status.state, status.missing) for status in host.plugins()}
            assert states["open"] == ("pending", ("tool.execute",))
            assert states["off"][0] == "idle"
            assert [note.kind for note in host.journal.recent("open")] == ["pending"]
        async with Host(discover([tmp_path]), config, grant_all=True) as host:
            assert {status.state for status in host.plugins()} == {"idle"}

    run(look)
