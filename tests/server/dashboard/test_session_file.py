"""The file of sessions: private, whole or not used at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.server.dashboard.session_file import MAX_BYTES, SessionFile, StoredSession

KEPT = [StoredSession(b"c" * 32, b"t" * 32, 1_770_000_000.5), StoredSession(b"d" * 32, b"t" * 32, 1.0)]


def test_sessions_are_read_back_from_a_private_file(tmp_path: Path) -> None:
    file = SessionFile(tmp_path / "s.json")
    assert file.read() == []
    file.write(KEPT)
    assert file.read() == KEPT
    assert (tmp_path / "s.json").stat().st_mode & 0o777 == 0o600
    file.write([])
    assert file.read() == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"{}",
        b'[{"cookie": "AAAA", "token": "AAAA", "ends": 1}]',
        b'[{"cookie": 1}]',
        b'[{"ends": 1e999}]',
        b"[" + b" " * MAX_BYTES + b"]",
    ],
)
def test_a_damaged_file_ends_all_sessions(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(data)
    path.chmod(0o600)
    assert SessionFile(path).read() == []
    assert "sessions of the dashboard have ended" in caplog.text


def test_a_file_that_others_can_change_or_a_link_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    SessionFile(path).write(KEPT)
    (tmp_path / "link.json").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.json", 0o600)
    assert SessionFile(path).read() == KEPT, "the control"
    for other in ("link.json", "pipe.json"):
        assert SessionFile(tmp_path / other).read() == []
    for mode in (0o640, 0o602, 0o644):
        path.chmod(mode)
        assert SessionFile(path).read() == []


def test_sessions_that_cannot_be_stored_do_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    file = SessionFile(tmp_path / "s.json")
    file.write(KEPT)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        file.write(KEPT[:1])
    assert file.read() == [] and list(tmp_path.iterdir()) == []
