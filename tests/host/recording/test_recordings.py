"""A recording is private, complete up to any moment, never too large, and never in the way of anything else."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
from pathlib import Path

import pytest

from plugbay.host.discovery.folders import inspect
from plugbay.host.recording.recordings import END_ROOM, Recorder, header_of, record_file, record_in, rfc3339_ms
from plugbay.link.recording import Frame, Header, Recording, StderrLine, encode, read
from plugbay.model.errors import PlugbayError
from plugbay.model.spec import PluginSpec
from tests.support.commands import python
from tests.support.plugins import write_plugin

HEADER = Header("rune", "p", "1")


def load(path: Path) -> Recording:
    with path.open("rb") as lines:
        return read(lines)


@pytest.fixture
def spec(tmp_path: Path) -> PluginSpec:
    spec = inspect(write_plugin(tmp_path, "some.plugin")).spec
    assert spec is not None
    return spec


def test_it_holds_and_counts_the_frames(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    recorder = Recorder(file, HEADER)
    items = (Frame(0.5, 1, "host", 2, {"a": "***"}, redacted=("/a",)), StderrLine(0.6, 1, "oops"))
    for item in items:
        recorder.take(item)
    assert load(file).items == items and load(file).end is None
    recorder.close()
    recorder.close()
    end = load(file).end
    assert end is not None and {**end, "ended_at": ""} == {"ended_at": "", "frames": 1, "redactions": 1, "dropped": 0}


def test_a_recording_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Recorder(tmp_path / "r.jsonl", HEADER).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r.jsonl").stat().st_mode) == 0o600


def test_it_never_grows_beyond_its_limit_and_reports_the_missing_frames(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    most = 1000 + END_ROOM
    recorder = Recorder(file, HEADER, most=most)
    for number in range(50):
        recorder.take(StderrLine(number, 1, "x" * 40))
    recorder.close()
    recording = load(file)
    assert file.stat().st_size <= most
    assert "has reached its limit" in recorder.problem
    assert recording.end is not None and recording.end["dropped"] == 50 - len(recording.items) == recorder.dropped


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(tmp_path / "r.jsonl", HEADER)
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(recorder, "_fd", os.dup2(full, recorder._fd))
    os.close(full)
    recorder.take(StderrLine(0, 1, "x"))
    assert "No space left on device" in recorder.problem and recorder.dropped == 1
    recorder.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from plugbay.host.recording.recordings import Recorder
from plugbay.link.recording import Header, StderrLine
recorder = Recorder(Path(sys.argv[1]), Header("rune", "p", "1"))
for number in range(100):
    recorder.take(StderrLine(number, 1, "line"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_recorded_frames_survive_the_death_of_the_host(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    done = python(KILLED, file)
    assert done.returncode == -signal.SIGKILL
    recording = load(file)
    assert len(recording.items) == 100 and recording.end is None and not recording.torn


def test_the_header_names_the_plugin_and_its_manifest(spec: PluginSpec) -> None:
    digest = hashlib.sha256((spec.root / "rterm-plugin.json").read_bytes()).hexdigest()
    assert header_of(spec, 0.5) == Header("rune", "some.plugin", "1", f"sha256:{digest}", "1970-01-01T00:00:00.500Z")
    (spec.root / "rterm-plugin.json").unlink()
    assert header_of(spec, 0.0).manifest_digest == ""


def test_a_folder_gets_a_file_for_each_time(tmp_path: Path, spec: PluginSpec) -> None:
    folder = tmp_path / "new" / "folder"
    for _ in range(2):
        record_in(folder, spec, 0.0).close()
    assert sorted(path.name for path in folder.iterdir()) == ["some.plugin.2.jsonl", "some.plugin.jsonl"]


def test_an_older_recording_gives_way_and_nothing_else_does(tmp_path: Path, spec: PluginSpec) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(encode(Header("nexo", "old", "1")))
    record_file(file, spec, 0.0).close()
    assert load(file).header.plugin_id == "some.plugin"
    for other in (tmp_path / "notes.txt", tmp_path / "folder", tmp_path / "link"):
        if other.name == "folder":
            other.mkdir()
        elif other.name == "link":
            other.symlink_to(file)
        else:
            other.write_text("dear diary\n")
        with pytest.raises(PlugbayError, match="exists and is not a recording"):
            record_file(other, spec, 0.0)
    assert (tmp_path / "notes.txt").read_text() == "dear diary\n"


def test_a_place_where_nothing_can_be_written_is_an_error_at_once(tmp_path: Path, spec: PluginSpec) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlugbayError, match="cannot record in"):
        record_in(tmp_path / "file" / "folder", spec, 0.0)
    with pytest.raises(PlugbayError, match="cannot record to"):
        record_file(tmp_path / "nowhere" / "r.jsonl", spec, 0.0)


def test_a_timestamp_has_milliseconds() -> None:
    assert rfc3339_ms(1_000_000_000.1239) == "2001-09-09T01:46:40.123Z"
