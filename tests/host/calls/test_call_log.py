"""Both doubles keep what they are given; a full disk costs records, not the host."""

from __future__ import annotations

import json
from pathlib import Path

from plugbay.host.calls.call_log import JsonLinesCallLog, MemoryCallLog
from plugbay.host.ports import CallRecord


def record(number: int) -> CallRecord:
    return CallRecord(f"call_{number}", "p", "1", "rune", "t", 0.0, 1.0)


def test_the_memory_log_keeps_the_last_calls() -> None:
    log = MemoryCallLog(kept=2)
    for number in range(3):
        log.finished(record(number))
    assert [kept.call_id for kept in log.records] == ["call_1", "call_2"]


def test_the_file_log_appends_one_json_line_per_call(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "calls.jsonl"
    for number in range(2):
        JsonLinesCallLog(path).finished(record(number))
    assert [json.loads(line)["call_id"] for line in path.read_text().splitlines()] == ["call_0", "call_1"]


def test_a_full_disk_is_counted_and_never_raised() -> None:
    log = JsonLinesCallLog(Path("/dev/full"))
    log.finished(record(1))
    assert log.lost == 1


def test_a_name_that_is_no_unicode_is_counted_and_never_raised(tmp_path: Path) -> None:
    log = JsonLinesCallLog(tmp_path / "calls.jsonl")
    log.finished(CallRecord("call_1", "", "", "", "\ud800", 0.0, 1.0))
    assert log.lost == 1
