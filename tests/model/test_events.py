"""Events are values; an answer carries a value or a failure."""

from __future__ import annotations

from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished, Closed, Noise, Ready


def test_an_answer_defaults_to_no_value_and_no_failure() -> None:
    event = CallFinished(1)
    assert event.value is None
    assert event.failure is None


def test_events_compare_by_content() -> None:
    failure = Failure(Code.CRASHED, "x")
    assert CallFinished(1, None, failure) == CallFinished(1, None, Failure(Code.CRASHED, "x"))
    assert Closed() == Closed()
    assert Noise(b"a", "why") != Ready({})
