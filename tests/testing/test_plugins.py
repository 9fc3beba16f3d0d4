"""Fake plugins, bad plugins and recordings in place of plugins, each with a real host."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.testing import FakePlugin, answers, bad_plugin, fails, faults, in_turn, replay_plugin
from tests.support.tiers import few

TOOL = {"rune": "look", "nexo": "fake_look", "kaged": "look", "vai": "look", "mcp": "look"}


# Fake plugins.


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


# Bad plugins.


@pytest.mark.parametrize("contract", ["rune", "nexo", "kaged", "ainb", "vai"])
def test_every_contract_has_a_good_one_to_compare_with(contract: str, tmp_path: Path) -> None:
    name = {"rune": "rune/good"}.get(contract, f"{contract}/good")
    good = bad_plugin(name, tmp_path)
    assert good.expect == "succeeded" and good.path.is_dir()


def test_a_bad_plugin_ends_a_call_as_it_says(tmp_path: Path) -> None:
    bad = bad_plugin("nexo/dies_in_call", tmp_path)
    with SyncHost.load(bad.path, grant_all=True) as host, pytest.raises(CallFailed) as caught:
        host.call(bad.tool, bad.input)
    assert caught.value.code == bad.expect == "crashed"


@pytest.mark.parametrize(
    ("name", "says"),
    [("nexo/dies_in_cal", "there is dies_in_call"), ("dies_in_call", "write contract/name"), ("mcp/x", "one of rune")],
)
def test_an_unknown_name_is_answered_with_similar_ones(name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        bad_plugin(name, tmp_path)


# Recordings.


def record(fake: FakePlugin, tmp_path: Path) -> Path:
    with SyncHost.load(fake.path, grant_all=True, unconfined=True, record=tmp_path / "recordings") as host:
        if fake.contract == "ainb":
            host.run_cli("fake", ["look", "{}"])
        else:
            host.call(TOOL[fake.contract], {"at": "tea"})
    (file,) = (tmp_path / "recordings").iterdir()
    return file


@pytest.mark.parametrize("contract", few(TOOL))
def test_what_was_recorded_is_answered_and_nothing_else(contract: str, tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path / "real", {"look": {"seen": "tea"}}, contract=contract)
    folder = replay_plugin(record(fake, tmp_path), fake.path, tmp_path / "replayed")
    with SyncHost.load(folder, grant_all=True, unconfined=True) as host:
        assert "tea" in str(host.call(TOOL[contract], {"at": "tea"}))
        with pytest.raises(CallFailed):
            host.call(TOOL[contract], {"at": "coffee"})
    assert len(fake.calls) == 1


def test_a_program_beside_its_manifest_is_replaced(tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path / "real", {"look": 7}, contract="ainb")
    folder = replay_plugin(record(fake, tmp_path), fake.path, tmp_path / "replayed", loose=True)
    with SyncHost.load(folder, grant_all=True, unconfined=True) as host:
        assert host.run_cli("fake", ["look", '{"other": 1}']).stdout == b"7\n"
    assert len(fake.calls) == 1


def test_a_recording_of_another_contract_is_refused(tmp_path: Path) -> None:
    fake = FakePlugin(tmp_path / "real", {"look": 7}, contract="kaged")
    other = FakePlugin(tmp_path / "other", {"look": 7}, contract="nexo")
    with pytest.raises(FileNotFoundError, match=r"the recording is of kaged, and there is no kaged-plugin\.yaml"):
        replay_plugin(record(fake, tmp_path), other.path, tmp_path / "replayed")
