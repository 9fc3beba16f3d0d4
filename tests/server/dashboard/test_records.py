"""What a page shows of what happened, as values."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.host.calls.calls import CallResult
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.dashboard import records
from plugbay.server.domain.host_events import Numbered
from plugbay.server.domain.plugin_logs import Line
from plugbay.store.calls import StoredCall
from plugbay.wire.fast_json import MsgspecCodec


def stored(status: str = "succeeded", failure: dict[str, Any] | None = None) -> StoredCall:
    return StoredCall("call_1", "p", "1", "rune", "t", 1_770_000_000.0, 1_000.0, status, failure)


@pytest.mark.parametrize(
    ("status", "tone"),
    [("succeeded", "good"), ("failed", "bad"), ("retryable_failure", "warn"), ("cancelled", "off"), ("odd", "calm")],
)
def test_an_outcome_has_a_tone(status: str, tone: str) -> None:
    row = records.call_row(stored(status))
    assert (row.tone, row.status) == (tone, status.replace("_", " "))


def test_a_failure_that_was_written_down_is_shown_whole() -> None:
    row = records.call_row(stored("failed", {"code": "crashed", "origin": "plugin", "exit": "exit code 3"}))
    assert (row.code, row.origin, row.exit) == ("crashed", "plugin", "exit code 3")
    odd = records.call_row(stored("failed", {"code": "crashed", "exit": {"signal": 9}}))
    assert (odd.origin, odd.exit) == ("", '{"signal":9}')


def event(payload: Any) -> Numbered:
    data = {"timestamp": "2026-02-02T02:40:00Z", "source": "shop", "payload": payload}
    return Numbered("start-1", "shop.sold", data)


def test_a_small_event_is_one_line_and_a_large_one_can_be_opened() -> None:
    small = records.event_row(event({"n": 1}))
    assert (small.time, small.topic, small.short, small.whole) == ("02:40:00", "shop.sold", '{"n":1}', "")
    large = records.event_row(event(["x" * 100] * 200))
    assert len(large.short) == records.SHORT + 1 and large.short.endswith("…")
    assert large.whole.startswith("[\n") and len(large.whole) < records.MAX_PAYLOAD + 50


def test_a_line_has_the_tone_of_its_level() -> None:
    lines = [Line("2026-02-02T02:40:00Z", "stderr", level, "said") for level in ("info", "warn", "error")]
    assert [records.log_row(line).tone for line in lines] == ["calm", "warn", "bad"]


def test_a_call_is_shown_with_what_was_written_while_it_ran() -> None:
    moments = ("02:39:59", "02:40:00", "02:40:02", "02:40:04")
    lines = [Line(f"2026-02-02T{time}Z", "stderr", "info", time) for time in moments] + [Line("odd", "stderr", "", "")]
    assert [row.text for row in records.lines_of_call(lines, stored())] == ["02:40:00", "02:40:02"]


def result(output: bytes | None, failure: Failure | None = None) -> CallResult:
    record = CallRecord("call_1", "p", "1", "rune", "t", 1.0, 2.5, failure)
    return CallResult(record, output, MsgspecCodec())


def test_an_answer_is_spread_out() -> None:
    shown = records.answered(result(b'{"a":[1]}'))
    assert shown.output == '{\n  "a": [\n    1\n  ]\n}' and shown.failure is None and shown.tone == "good"


def test_a_failure_says_what_to_do_apart_from_the_rest() -> None:
    detail = {"hint": "try again", "stderr_tail": ["a", "b"], "exit": "1"}
    shown = records.answered(result(None, Failure(Code.CRASHED, "gone", origin="plugin", detail=detail)))
    assert shown.failure == records.FailureView(
        "crashed", "plugin", "gone", "try again", ("a", "b"), '{\n  "exit": "1"\n}'
    )
    assert (shown.output, shown.status) == ("", "failed")
    assert records.failure_view(Failure(Code.TIMEOUT, "late")).detail == ""
