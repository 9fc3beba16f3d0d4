"""The verdict on a silent plugin, row by row, and what holds for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plugbay.host.supervision.hung import CHECK_SECONDS, UNREAD_SECONDS, CheckAgain, Facts, Hung, Rule, TimedOut, assess

PROBED = Rule(has_probe=True, patience=30, call=10, interval=20, answer=5)
ASKED_LATE = replace(PROBED, interval=None)
UNPROBED = Rule(has_probe=False, patience=30, call=10)
SLOW = replace(UNPROBED, call=600)

FIRST, SECOND = TimedOut("InvokeTool a", 100, 110), TimedOut("InvokeTool b", 105, 115)
"""Two overlapping calls that ran into their timeouts."""


@pytest.mark.parametrize(
    ("rule", "facts", "why"),
    [
        (
            UNPROBED,
            Facts(110, 99, stopped=True),
            "its process is stopped (state T); it sent nothing for 11 s",
        ),
        (PROBED, Facts(110, 99, stopped=True, working_since=105, owed=1), "its process is stopped"),
        (
            UNPROBED,
            Facts(115, 99, timed_out=(FIRST, SECOND)),
            "InvokeTool a was not answered within 10 s, and InvokeTool b",
        ),
        (
            UNPROBED,
            Facts(115, 99, timed_out=(FIRST, SECOND), working_since=106),
            "InvokeTool b was not answered within 10 s",
        ),
        (SLOW, Facts(130, 99, timed_out=(FIRST, SECOND)), "it sent nothing for 31 s"),
        (
            PROBED,
            Facts(140, 99, timed_out=(FIRST,), probes=(110,)),
            "InvokeTool a was not answered within 10 s, and neither was a later probe",
        ),
        (
            PROBED,
            Facts(140, 99, timed_out=(FIRST,), probes=(110,), working_since=111),
            "neither was a later probe within 30 s",
        ),
        (PROBED, Facts(140, 105, timed_out=(FIRST,), probes=(110,)), "neither was a later probe within 30 s"),
        (ASKED_LATE, Facts(140, 99, timed_out=(FIRST,), probes=(110,)), "it sent nothing for 41 s"),
        (PROBED, Facts(45, 9, probes=(20, 40)), "2 probes in a row were not answered, the first for 25 s"),
        (PROBED, Facts(45, 9, probes=(20, 40), working_since=41), "2 probes in a row"),
        (UNPROBED, Facts(20, 19, unread_since=10, owed=32), "not read the answers to its own requests for 10 s"),
        (PROBED, Facts(45, 20, probes=(20, 40)), "2 probes in a row were not answered, the first for 25 s"),
        (PROBED, Facts(140, 110, timed_out=(FIRST,), probes=(110,)), "neither was a later probe within 30 s"),
    ],
    ids=[
        "stopped",
        "stopped, whatever else it has to do",
        "two calls in a row, without a probe",
        "newer calls that wait change nothing",
        "impatient callers, and 30 s of silence",
        "a probe after a timeout",
        "newer calls than the probe change nothing",
        "a byte before the timeout changes nothing for the probe",
        "a probe after a timeout, where an idle plugin is never asked",
        "idle, and two probes",
        "newer calls than the probes change nothing",
        "it asks and reads no answers",
        "a byte in the moment of the first probe is not an answer to it",
        "a byte in the moment of the timeout is not an answer to the call",
    ],
)
def test_a_plugin_is_hung(rule: Rule, facts: Facts, why: str) -> None:
    verdict = assess(rule, facts)
    assert isinstance(verdict, Hung) and why in verdict.why


@pytest.mark.parametrize(
    ("rule", "facts", "look"),
    [
        (UNPROBED, Facts(100, 10), CheckAgain(105)),
        (UNPROBED, Facts(110, 99, timed_out=(FIRST,)), CheckAgain(115)),
        (UNPROBED, Facts(115, 101, timed_out=(FIRST, SECOND)), CheckAgain(120)),
        (UNPROBED, Facts(115, 99, timed_out=(FIRST, SECOND), working_since=90), CheckAgain(120)),
        (UNPROBED, Facts(115, 99, timed_out=(FIRST, SECOND), owed=1), CheckAgain(120)),
        (SLOW, Facts(115, 99, timed_out=(FIRST, SECOND)), CheckAgain(120)),
        (SLOW, Facts(127, 99, timed_out=(FIRST, SECOND)), CheckAgain(130)),
        (PROBED, Facts(110, 99, timed_out=(FIRST,), asked=95), CheckAgain(115, probe=True)),
        (PROBED, Facts(139, 99, timed_out=(FIRST,), probes=(110,)), CheckAgain(140)),
        (PROBED, Facts(150, 99, timed_out=(FIRST,), probes=(110,), working_since=109), CheckAgain(155)),
        (PROBED, Facts(140, 111, timed_out=(FIRST,), probes=(110,), asked=135), CheckAgain(145)),
        (PROBED, Facts(140, 99, timed_out=(FIRST,), probes=(110,), owed=1), CheckAgain(145)),
        (PROBED, Facts(20, 9, asked=0), CheckAgain(25, probe=True)),
        (PROBED, Facts(19, 9, asked=0), CheckAgain(20)),
        (PROBED, Facts(20, 9, asked=0, working_since=1), CheckAgain(25, probe=True)),
        (ASKED_LATE, Facts(9000, 9), CheckAgain(9005)),
        (PROBED, Facts(44, 9, probes=(20, 40), asked=40), CheckAgain(45)),
        (PROBED, Facts(45, 30, probes=(20, 40), asked=40), CheckAgain(50)),
        (PROBED, Facts(45, 9, probes=(20, 40), asked=40, working_since=15), CheckAgain(50)),
        (replace(PROBED, interval=1), Facts(22, 9, probes=(20,), asked=20), CheckAgain(25)),
        (UNPROBED, Facts(18, 9, unread_since=10, owed=32), CheckAgain(20)),
        (UNPROBED, Facts(115, 99, timed_out=(FIRST, SECOND), working_since=102), CheckAgain(120)),
        (UNPROBED, Facts(115, 99, timed_out=(FIRST, SECOND), working_since=105), CheckAgain(120)),
        (PROBED, Facts(140, 99, timed_out=(FIRST,), probes=(105,)), CheckAgain(145, probe=True)),
    ],
    ids=[
        "idle, and nobody has asked it anything",
        "one call, without a probe",
        "a byte came while the first call ran",
        "an older call is within its timeout",
        "it waits for an answer of the host",
        "impatient callers, and not 30 s of silence",
        "the moment of the verdict is waited for",
        "a call timed out: it is asked at once",
        "the probe has time left",
        "the probe is behind a call within its timeout",
        "a byte came after the probe",
        "it waits for an answer of the host, and was asked",
        "idle: it is asked at its interval",
        "idle: not before",
        "busy: it is asked at its interval",
        "idle, where it is asked only after a timeout",
        "idle, and the second probe has time left",
        "idle, and a byte came between the probes",
        "the probes are behind a call within its timeout",
        "no second probe while the first has time",
        "it asks and reads no answers, for less than the limit",
        "the newer of the calls is behind one within its timeout",
        "the newer of the calls came with one within its timeout",
        "a probe before the timeout is none after it",
    ],
)
def test_a_plugin_is_not_hung_and_looked_at_again(rule: Rule, facts: Facts, look: CheckAgain) -> None:
    assert assess(rule, facts) == look


TIMES = st.floats(0, 1000)
CALLS = st.lists(st.tuples(TIMES, st.floats(0, 100)), max_size=4).map(
    lambda pairs: tuple(sorted((TimedOut("c", sent, sent + took) for sent, took in pairs), key=lambda call: call.at))
)
RULES = st.builds(
    Rule,
    has_probe=st.booleans(),
    patience=st.floats(0.1, 100),
    call=st.floats(0.1, 100),
    interval=st.none() | st.floats(0.1, 300),
    answer=st.floats(0.1, 10),
)
PAST = st.builds(
    Facts,
    now=st.just(1100.0),
    heard=TIMES,
    stopped=st.booleans(),
    unread_since=st.none() | TIMES,
    owed=st.integers(0, 2),
    working_since=st.none() | TIMES,
    timed_out=CALLS,
    probes=st.lists(TIMES, max_size=4).map(lambda sent: tuple(sorted(sent))),
    asked=TIMES,
)


@given(RULES, PAST)
def test_a_plugin_from_which_a_byte_has_just_come_is_not_hung(rule: Rule, facts: Facts) -> None:
    heard_now = replace(facts, heard=facts.now, stopped=False, unread_since=None)
    assert isinstance(assess(rule, heard_now), CheckAgain)


@given(RULES, PAST)
def test_a_stopped_plugin_is_hung_whatever_else_is_known(rule: Rule, facts: Facts) -> None:
    assert isinstance(assess(rule, replace(facts, stopped=True)), Hung)


@given(RULES, PAST)
def test_a_call_older_than_everything_that_still_has_time_protects(rule: Rule, facts: Facts) -> None:
    busy = replace(facts, stopped=False, unread_since=None, working_since=0.0)
    assert isinstance(assess(rule, busy), CheckAgain)


@given(RULES, PAST)
def test_a_newer_call_never_saves_a_hung_plugin(rule: Rule, facts: Facts) -> None:
    alone = replace(facts, working_since=None)
    if isinstance(assess(rule, alone), Hung):
        assert isinstance(assess(rule, replace(facts, working_since=facts.now)), Hung)


@given(RULES, PAST, st.floats(0, 1000))
def test_a_hung_plugin_that_stays_silent_stays_hung(rule: Rule, facts: Facts, later: float) -> None:
    if isinstance(assess(rule, facts), Hung):
        assert isinstance(assess(rule, replace(facts, now=facts.now + later)), Hung)


@given(RULES, PAST)
def test_the_next_look_is_ahead_and_soon(rule: Rule, facts: Facts) -> None:
    verdict = assess(rule, facts)
    if isinstance(verdict, CheckAgain):
        assert facts.now < verdict.at <= facts.now + CHECK_SECONDS


@given(RULES, PAST)
def test_silence_after_a_timeout_ends_in_a_verdict(rule: Rule, facts: Facts) -> None:
    """There are no further calls and no bytes: two calls without one byte are enough, whenever the checks run."""
    calls = tuple(TimedOut("c", facts.now, facts.now + rule.call) for _ in range(2))
    facts = replace(facts, heard=facts.now, timed_out=calls, probes=(), stopped=False, unread_since=None, owed=0)
    facts = replace(facts, working_since=None, now=facts.now + rule.call)
    end = facts.now + max(rule.patience, rule.call) + 2 * CHECK_SECONDS
    while isinstance(verdict := assess(rule, facts), CheckAgain):
        if verdict.probe:
            facts = replace(facts, probes=(*facts.probes, facts.now), asked=facts.now)
        facts = replace(facts, now=verdict.at)
        assert facts.now <= end


def test_the_limit_for_unread_answers_is_that_of_the_deadlock() -> None:
    assert isinstance(assess(UNPROBED, Facts(UNREAD_SECONDS, 0, unread_since=0)), Hung)
    assert isinstance(assess(UNPROBED, Facts(UNREAD_SECONDS - 1, 0, unread_since=0)), CheckAgain)


def test_without_a_word_of_the_operator_a_plugin_has_half_a_minute_and_is_not_probed() -> None:
    rule = Rule(has_probe=True)
    assert (rule.patience, rule.call, rule.answer, rule.interval) == (30, 30, 5, None)
    assert CheckAgain(1).probe is False
    assert Facts(1, 1).asked == 0
