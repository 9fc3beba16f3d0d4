"""What is known of a plugin, from everywhere it is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.host.journal import Note
from plugbay.server.dashboard.loader import (
    LifecycleEvent,
    PluginLoader,
    count_calls,
    exports_of,
    last_trouble,
    lifecycle_event,
)
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.operator_plugins import NumberedEvent
from plugbay.server.domain.principal import OPERATOR
from tests.support.clocks import TurnedClock
from tests.support.dashboards import hosting_at
from tests.support.loops import Run
from tests.support.plugins import write_plugin


def test_a_plugin_is_known_with_its_calls_grants_and_refusal(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p", script="exit 3\n")
    write_plugin(tmp_path / "plugins", "q", capabilities=["tool.execute"])

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path, "p") as gateway:
            for _ in range(2):
                assert (await gateway.host.attempt("p/t")).failure is not None
            looks = PluginLoader(gateway)
            p, q = looks.plugins()
            assert (p.calls, p.failures, p.refusal, p.kept) == (2, 2, None, None)
            assert p.failed is not None and p.failed.failure is not None and p.failed.failure.code == "crashed"
            assert (q.calls, q.failed) == (0, None) and q.refusal is not None
            assert looks.plugin("p") == p
            assert list(exports_of(gateway, "q")) == ["q/t"]
            with pytest.raises(GatewayError, match=r"plugin\.not_found"):
                looks.plugin("nobody")

    run(main)


def test_concurrent_streams_share_a_snapshot(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        clock = TurnedClock()
        async with hosting_at(sqlite_url, tmp_path, clock=clock) as gateway:
            looks = PluginLoader(gateway)
            (first,) = looks.plugins(0.2)
            assert first.since == clock.now()
            await gateway.operator_plugins.operate(OPERATOR, "p", "stop")
            assert looks.plugin("p", 0.2) is first
            assert looks.plugin("p").status.state == "stopped", "whoever cannot wait looks again"
            await gateway.operator_plugins.operate(OPERATOR, "p", "start")
            clock.turn(0.2)
            assert looks.plugin("p", 0.2).status.state == "idle"

    run(main)


def test_calls_that_were_called_off_are_no_failures() -> None:
    series = {
        (("plugin", "p"), ("status", "succeeded")): 3.0,
        (("plugin", "p"), ("status", "failed")): 2.0,
        (("plugin", "p"), ("status", "retryable_failure")): 1.0,
        (("plugin", "p"), ("status", "cancelled")): 4.0,
        (("rest", "true"),): 5.0,
    }
    assert count_calls(series) == {"p": (10, 3), "": (5, 0)}


def test_a_lifecycle_event_is_described() -> None:
    data = {"timestamp": "2026-02-02T02:40:00Z", "payload": {"plugin_id": "a.b", "exit_code": 1, "stderr_tail": ["x"]}}
    told = lifecycle_event(NumberedEvent("1", "plugin.lifecycle.a.b.crashed", data))
    assert told == LifecycleEvent("crashed", 1_770_000_000.0, "exit code 1: x")
    assert lifecycle_event(None) is None
    assert lifecycle_event(NumberedEvent("1", "a.b", {"timestamp": "never", "payload": {}})) is None


def test_the_last_trouble_is_the_one_that_counts() -> None:
    notes = [
        Note(1.0, "warn", "crashed", "first"),
        Note(2.0, "warn", "gave_up", "then"),
        Note(3.0, "info", "log.info", ""),
    ]
    assert last_trouble(notes) == "gave up: then"
    assert last_trouble(notes[2:]) == ""
