"""Lines of logs on pages."""

from __future__ import annotations

from typing import Any

from plugbay.host.admin.logs import LogLine
from plugbay.server.dashboard.views.logs import LogFilter, lines_of_call, log_row
from plugbay.store.calls import StoredCall


def stored(status: str = "succeeded", failure: dict[str, Any] | None = None) -> StoredCall:
    return StoredCall("call_1", "p", "1", "rune", "t", 1_770_000_000.0, 1_000.0, status, failure)


def test_a_line_has_the_tone_of_its_level() -> None:
    lines = [LogLine("2026-02-02T02:40:00Z", "stderr", level, "said") for level in ("info", "warn", "error")]
    assert [log_row(line).tone for line in lines] == ["calm", "warn", "bad"]


def test_a_call_is_shown_with_log_lines_of_its_time() -> None:
    moments = ("02:39:59", "02:40:00", "02:40:02", "02:40:04")
    lines = [LogLine(f"2026-02-02T{time}Z", "stderr", "info", time) for time in moments] + [
        LogLine("odd", "stderr", "", "")
    ]
    assert [row.text for row in lines_of_call(lines, stored())] == ["02:40:00", "02:40:02"]


def test_log_lines_are_found_by_words_and_source() -> None:
    line = LogLine("2026-01-01T00:00:00Z", "stderr", "info", "No such table: tea")
    assert LogFilter().accepts(line) and LogFilter("TABLE no", "stderr").accepts(line)
    assert not LogFilter("coffee").accepts(line) and not LogFilter("tea", "host").accepts(line)
