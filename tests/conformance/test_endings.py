"""The reasons for which a conversation ends early say what happened, and show the line if there is one."""

from __future__ import annotations

from plugbay.conformance.endings import Broken, Nothing, Untried
from plugbay.conformance.subject import Frame


def test_a_broken_step_may_show_a_line() -> None:
    frame = Frame(b"{}", {})
    assert (str(Broken("it sang", frame)), Broken("it sang", frame).frame) == ("it sang", frame)
    assert Broken("it sang").frame is None
    assert [Broken("it slept", late=late).late for late in (True, False)] == [True, False]


def test_a_line_that_never_came_is_a_broken_step_and_a_rule_without_a_case_is_not() -> None:
    assert isinstance(Nothing("nothing came"), Broken)
    assert not isinstance(Untried("it has no screen"), Broken)
