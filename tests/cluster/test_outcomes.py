"""Each way in which a call over the wire ends without an answer has its failure, and the retry rules treat it right."""

from __future__ import annotations

import pytest

from plugbay.cluster import outcomes
from plugbay.host.invocations import retry
from plugbay.model.errors import Code, Failure
from tests.support.requirements import requirement

UNKNOWN = [
    outcomes.lost("n1", outcomes.NODE_LOST),
    outcomes.lost("n1", outcomes.LINK_LOST),
    outcomes.lost("n1", outcomes.NOT_KNOWN),
    outcomes.malformed("n1", "no JSON"),
    outcomes.late(),
]
NOT_RECEIVED = [
    outcomes.nobody_listens("n1"),
    outcomes.refused("draining", "it takes no new calls", "n1"),
    outcomes.refused("overloaded", "no place left", "n1", Code.OVERLOADED),
    outcomes.stalled("n1"),
    outcomes.unreachable(),
]


@requirement("host:nodes-failures")
@pytest.mark.parametrize("failure", UNKNOWN, ids=lambda failure: failure.message)
def test_an_unknown_outcome_is_reported_and_not_repeated(failure: Failure) -> None:
    found = retry.classify(failure, "tool", may_repeat=False)
    assert found.detail["execution_outcome"] == "unknown"
    assert not retry.should_retry("tool", False, found, is_retryable=False, attempts=1)


@pytest.mark.parametrize("failure", UNKNOWN[:-1], ids=lambda failure: failure.message)
def test_a_repeatable_call_is_made_again(failure: Failure) -> None:
    found = retry.classify(failure, "tool", may_repeat=True)
    assert retry.should_retry("tool", True, found, is_retryable=False, attempts=1)


@requirement("host:nodes-failures")
@pytest.mark.parametrize("failure", NOT_RECEIVED, ids=lambda failure: failure.message)
def test_a_call_that_no_plugin_received_has_no_unknown_outcome(failure: Failure) -> None:
    found = retry.classify(failure, "tool", may_repeat=False)
    assert "execution_outcome" not in found.detail
    assert found.retryable and found.retry_after_ms


def test_a_call_that_is_too_large_is_not_worth_another_try() -> None:
    failure = outcomes.too_large(2_000_000, 1_048_576)
    assert failure.code == Code.FRAME_TOO_LARGE and not failure.retryable
    assert "1,048,576" in failure.message
