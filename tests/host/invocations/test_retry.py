"""Whether a failed execution is attempted again, row by row."""

from __future__ import annotations

import pytest

from plugbay.host.invocations import retry
from plugbay.host.limits import queue_failure
from plugbay.model.errors import Code, Failure, Origin, Outcome
from tests.support.requirements import requirement

CRASH = Failure(Code.CRASHED, "gone", origin=Origin.PLUGIN)
GARBLED = Failure(Code.MALFORMED_RESPONSE, "?", origin=Origin.PLUGIN)
TRANSIENT = Failure(Code.PLUGIN_ERROR, "later", origin=Origin.PLUGIN, retryable=True)
PERMANENT = Failure(Code.PLUGIN_ERROR, "no", origin=Origin.PLUGIN)
LATE = Failure(Code.TIMEOUT, "no answer")


@requirement("vai:host-tool-effect-class")
@pytest.mark.parametrize(
    ("effect_class", "again"),
    [
        ("read_only", True),
        ("idempotent_write", True),
        ("non_idempotent_write", False),
        ("unknown", False),
        (None, False),
    ],
)
@pytest.mark.parametrize("failure", [CRASH, GARBLED, TRANSIENT])
def test_the_effect_class_of_a_tool_decides_whatever_the_plugin_says(
    effect_class: str | None, again: bool, failure: Failure
) -> None:
    may = retry.repeatable("tool", effect_class)
    counts = retry.classify(failure, "tool", may)
    assert retry.should_retry("tool", may, counts, is_retryable=False, attempts=1) is again
    assert retry.should_retry("tool", may, None, is_retryable=True, attempts=1) is again


def test_a_call_whose_caller_does_not_want_to_queue_is_not_tried_again() -> None:
    busy = Failure(Code.OVERLOADED, "busy", retryable=True)
    assert retry.should_retry("tool", True, busy, is_retryable=False, attempts=1), "a plugin may say so of itself"
    refused = queue_failure("busy", 1.0, 2.0)
    assert not retry.should_retry("tool", True, refused, is_retryable=False, attempts=1)


def test_nothing_is_tried_more_than_three_times() -> None:
    tried = [retry.should_retry("tool", True, TRANSIENT, is_retryable=False, attempts=count) for count in (1, 2, 3)]
    assert tried == [True, True, False]


@pytest.mark.parametrize("failure", [PERMANENT, LATE])
def test_what_would_end_the_same_way_is_not_tried_again(failure: Failure) -> None:
    assert not retry.should_retry("tool", True, failure, is_retryable=False, attempts=1)
    assert not retry.should_retry("tool", True, None, is_retryable=False, attempts=1)


@pytest.mark.parametrize(
    ("kind", "has_checkpoint", "may"),
    [("hook", False, True), ("compactor", False, True), ("harness", True, True), ("harness", False, False)],
)
def test_which_other_kinds_may_be_attempted_again(kind: str, has_checkpoint: bool, may: bool) -> None:
    assert retry.repeatable(kind, None, has_checkpoint=has_checkpoint) is may


@requirement("vai:host-hook-outcome")
def test_a_delivery_is_never_tried_again_here_but_may_be_delivered_again() -> None:
    for failure in (CRASH, GARBLED, LATE, TRANSIENT):
        counts = retry.classify(failure, "hook", True)
        assert counts.retryable and counts.outcome == Outcome.RETRYABLE_FAILURE
        assert not retry.should_retry("hook", True, counts, is_retryable=False, attempts=1)
    assert retry.classify(PERMANENT, "hook", True).outcome == Outcome.FAILED


def test_what_an_interrupted_write_has_done_is_unknown() -> None:
    for failure in (CRASH, LATE):
        assert retry.classify(failure, "tool", False).detail["execution_outcome"] == "unknown"
        assert "execution_outcome" not in retry.classify(failure, "tool", True).detail
        assert "execution_outcome" not in retry.classify(failure, "tool", False, asked=False).detail
    assert retry.classify(PERMANENT, "tool", False) is PERMANENT


def test_the_plugin_says_when_and_otherwise_each_pause_is_twice_the_last() -> None:
    patient = Failure(Code.PLUGIN_ERROR, "later", retryable=True, retry_after_ms=1500)
    assert retry.delay(patient, 1) == 1.5
    assert retry.delay(CRASH, 2) == 2 * retry.delay(CRASH, 1) == 2 * retry.FIRST_DELAY
    assert retry.delay(None, 1) == retry.FIRST_DELAY
