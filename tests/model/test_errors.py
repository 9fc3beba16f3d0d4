"""The closed codes, what a failure says, and what the exceptions print."""

from __future__ import annotations

import pickle

import pytest

from plugbay.model.errors import (
    CODES,
    CallFailed,
    Code,
    ConfigInvalid,
    Failure,
    ManifestInvalid,
    Origin,
    Outcome,
    PlugbayError,
    Problem,
)
from tests.support.requirements import requirement

DESIGNED = """launch_failed handshake_failed timeout crashed malformed_response tool_not_exposed
protocol_version_mismatch capability_not_declared capability_not_allowed invalid_input plugin_error unavailable
cancelled overloaded frame_too_large sandbox_unavailable quarantined not_found internal"""


@requirement("rune:codes:nine")
def test_the_codes_are_exactly_the_published_ones() -> None:
    assert frozenset(DESIGNED.split()) == CODES


def test_a_failure_refuses_a_code_or_origin_outside_the_closed_sets() -> None:
    with pytest.raises(ValueError, match="not a failure code"):
        Failure("broken", "x")
    with pytest.raises(ValueError, match="not a failure origin"):
        Failure(Code.CRASHED, "x", origin="martian")


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Failure(Code.CRASHED, ""), Outcome.FAILED),
        (Failure(Code.CANCELLED, "", retryable=True), Outcome.CANCELLED),
        (Failure(Code.UNAVAILABLE, "", retryable=True), Outcome.RETRYABLE_FAILURE),
    ],
)
def test_every_failure_has_one_outcome(failure: Failure, outcome: str) -> None:
    assert failure.outcome == outcome


def test_detail_added_later_never_overwrites_what_was_known_first() -> None:
    failure = Failure(Code.CRASHED, "x", detail={"hint": "first"}).with_detail("p", hint="second", exit_code=3)
    assert failure.plugin == "p"
    assert failure.detail == {"hint": "first", "exit_code": 3}


def test_a_failure_has_the_public_json_shape() -> None:
    failure = Failure(Code.TIMEOUT, "slow", origin=Origin.SYSTEM, detail={"a": 1}, retry_after_ms=5)
    assert failure.to_json() == {
        "code": "timeout",
        "origin": "system",
        "message": "slow",
        "detail": {"a": 1},
        "retry_after_ms": 5,
    }


def test_a_failed_call_prints_plugin_code_message_hint_and_stderr() -> None:
    detail = {"hint": "install it", "stderr_tail": ["boom"]}
    text = str(CallFailed(Failure(Code.CRASHED, "gone", plugin="p", detail=detail), "call_1"))
    assert text == "p: crashed: gone\n  hint: install it\n  stderr: boom"


def test_an_invalid_file_prints_every_problem_with_its_line() -> None:
    problems = [Problem("missing_field", "id", "required", line=3), Problem("parse_error", "", "not JSON")]
    error = ManifestInvalid("a.json", problems)
    assert str(error) == "a.json cannot be used:\n  line 3: id: required\n  not JSON"
    assert problems[0].to_json() == {
        "severity": "error",
        "code": "missing_field",
        "path": "id",
        "line": 3,
        "message": "required",
    }


def test_everything_raised_on_purpose_is_one_tree() -> None:
    for kind in (CallFailed, ManifestInvalid, ConfigInvalid):
        assert issubclass(kind, PlugbayError)


def test_a_plugins_words_cannot_move_the_cursor_of_whoever_reads_the_error() -> None:
    assert "\x1b" not in str(CallFailed(Failure(Code.PLUGIN_ERROR, "\x1b[2Jgone\nfake: line")))


def test_errors_survive_a_trip_through_another_process() -> None:
    failed = pickle.loads(pickle.dumps(CallFailed(Failure(Code.CRASHED, "x", plugin="p"), "call_1")))
    assert (failed.failure.plugin, failed.call_id, failed.code) == ("p", "call_1", Code.CRASHED)
    invalid = pickle.loads(pickle.dumps(ManifestInvalid("a.json", [Problem("c", "p", "m", line=3)])))
    assert invalid.problems[0].line == 3
