"""A recording in place of a plugin's program, for every contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import CallFailed, SyncHost
from plugbay.testing import FakePlugin, replay_plugin

TOOL = {"rune": "look", "nexo": "fake_look", "kaged": "look", "vai": "look", "mcp": "look"}


def record(fake: FakePlugin, tmp_path: Path) -> Path:
    with SyncHost.load(fake.path, grant_all=True, unconfined=True, record=tmp_path / "recordings") as host:
        if fake.contract == "ainb":
            host.run_cli("fake", ["look", "{}"])
        else:
            host.call(TOOL[fake.contract], {"at": "tea"})
    (file,) = (tmp_path / "recordings").iterdir()
    return file


@pytest.mark.parametrize("contract", TOOL)
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
