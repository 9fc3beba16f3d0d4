"""A plugin whose process follows a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.testing import FakePlugin, answers, fails, faults, in_turn

TOOL = {"rune": "look", "nexo": "fake_look", "kaged": "look", "vai": "look", "mcp": "look"}


@pytest.mark.parametrize("contract", TOOL)
def test_a_fake_plugin_follows_its_script_and_records_its_calls(contract: str, tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path, {"look": in_turn({"n": 1}, answers({"n": 2}, after=0.01))}, contract=contract)
    assert fake.calls == [] and fake.pids == []
    with SyncHost.load(fake.path, grant_all=True, unconfined=True) as host:
        said = [host.call(TOOL[contract], {"time": time}) for time in range(3)]
    within = {"vai": "structured_output", "mcp": "structuredContent"}.get(contract)
    values = [each[within] for each in said] if within else said
    assert values == [{"n": 1}, {"n": 2}, {"n": 2}]
    assert [(call.tool, call.input) for call in fake.calls] == [("look", {"time": time}) for time in range(3)]
    assert {call.pid for call in fake.calls} <= set(fake.pids)


def test_tools_of_ainb_are_behind_a_command_line(tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path, {"look": fails("too dark")}, contract="ainb", id="lamp")
    with SyncHost.load(fake.path, grant_all=True, unconfined=True) as host:
        done = host.run_cli("lamp", ["look", '{"at": 1}'])
    assert (done.stdout, done.exit_code, [call.input for call in fake.calls]) == (b"", 1, [{"at": 1}])
    assert b"too dark" in done.stderr


def test_an_error_has_the_code_of_its_author(tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path, {"look": fails("too dark", code="dark")}, contract="rune")
    with SyncHost.load(fake.path) as host, pytest.raises(CallFailed, match="too dark") as caught:
        host.call("look")
    assert caught.value.failure.detail["plugin_code"] == "dark"


def test_a_plugin_that_died_is_another_process_afterwards(tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path, {"look": in_turn(faults.killed_mid_call, 1)}, contract="kaged")
    with SyncHost.load(fake.path, unconfined=True) as host:
        with pytest.raises(CallFailed, match="crashed"):
            host.call("look")
        assert host.call("look") == 1
    assert len(set(fake.pids)) == 2


def test_a_contract_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no fake plugins of the contract 'mpc', only of rune"):
        FakePlugin(tmp_path, {}, contract="mpc")
