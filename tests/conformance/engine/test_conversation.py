"""Each step of a scenario: what it does, and when and in which words it is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.conformance.engine.conversation import Conversation, encode
from plugbay.conformance.engine.dialects import Reaction
from plugbay.conformance.engine.scenario import parse
from plugbay.conformance.engine.subject import NotTried, RuleBroken, Subject
from plugbay.conformance.engine.template import text
from tests.conformance.engine.test_subject import with_subject
from tests.support.requirements import requirement

NAMED: dict[str, Any] = {"tool": "example.echo", "request_id": "plugin_req_1", "shutdown_timeout": 10}
ECHO = "exec cat"


HOST = (
    Reaction({"repeat": "$any"}, ({"id": "$asked", "heard": "$asked_with"},)),
    Reaction({"ask": "$any"}, ({"id": "$asked", "got": "$tool"}, {"more": 1})),
    Reaction({"tell": "$any"}, ()),
)


def converse(script: str, *steps: dict[str, Any], host: tuple[Reaction, ...] = ()) -> int:
    """Carry out the steps against a shell script; how many were begun."""
    scenario = parse(json.dumps({"id": "rune.a.test", "title": "t", "clause": "c", "section": "s", "steps": steps}))

    async def story(subject: Subject) -> int:
        conversation = Conversation(subject, NAMED, {"text": text}, host)
        await conversation.carry_out(scenario.steps)
        return conversation.at

    return with_subject(script, story)


GOOD: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "send": (ECHO, [{"send": {"name": "$tool"}}, {"expect": {"name": "example.echo"}, "within": 10}]),
    "send_crlf": (ECHO, [{"send": {}, "ending": "\r\n"}, {"expect": {}, "within": 10}]),
    "send_raw": (ECHO, [{"send_raw": '{"a":1}\n'}, {"expect": {"a": 1}, "within": 10}]),
    "send_chunked": (
        ECHO,
        [{"send_chunked": {"message": {"a": {"$text": 20}}, "bytes": 3}}, {"expect": {"a": "$any"}, "within": 10}],
    ),
    "skip_unless": (
        ECHO,
        [{"send": {"a": 1}}, {"expect": {}, "within": 10}, {"skip_unless": {"a": 1}, "because": "x"}],
    ),
    "send_all": (
        ECHO,
        [{"send_all": [{"a": 1}, {"a": 2}]}, {"expect": {"a": 1}, "within": 10}, {"expect": {"a": 2}, "within": 10}],
    ),
    "remember": (
        ECHO,
        [
            {"send": {"id": 41}},
            {"expect": {}, "within": 10, "remember": {"asked": "id"}},
            {"send": {"id": "$asked", "b": 1}},
            {"expect": {"id": 41, "b": 1}, "within": 10},
        ],
    ),
    "find": (ECHO, [{"send_all": [{"a": 1}, {"a": 2}]}, {"find": {"a": 2}, "within": 10}, {"last": {"a": 2}}]),
    "every": (
        ECHO,
        [
            {"send_all": [{"n": 1}, {"end": 1}, {"n": 2}]},
            {"every": {"n": "$any"}, "must": {"n": "$count"}, "until": {"end": 1}, "within": 10},
            {"last": {"end": 1}},
        ],
    ),
    "tour": (
        ECHO,
        [
            {
                "tour": [{"id": 1}, {"n": 1, "method": "m"}, {"id": 2}],
                "those": {"n": 1},
                "together": [{}],
                "within": 10,
            },
            {"tour": [{"id": 1, "result": 1}, {"id": 2, "error": 1}], "within": 10},
            {"tour": [{"id": 1, "result": 2}, {"id": 2, "error": 2}], "within": 10, "as_before": True},
        ],
    ),
    "tour_waits_for_the_rest": (
        'read x; echo \'{"n":1,"method":"m"}\'; echo \'{"id":1}\'; sleep 0.5; echo \'{"n":2,"method":"m"}\'; exec cat',
        [{"tour": [{"id": 1}], "those": {"n": "$any"}, "together": [{"n": 1}, {"n": 2}], "patience": 10, "within": 10}],
    ),
    "tour_of_slow_answers": (
        'read x; read y; read repeated; echo "$x"; echo "$y"; exec cat',
        [
            {"send_all": [{"id": 1}, {"id": 2}]},
            {
                "tour": [],
                "those": {"method": "$absent"},
                "together": {"$answers_each": [{"id": 1}, {"id": 2}]},
                "repeat": [{"id": 1}, {"id": 2}],
                "patience": 0.3,
                "within": 10,
            },
        ],
    ),
    "tour_of_the_dead": ("exit 3", [{"tour": [{"id": 1}, {"id": 2}], "answered": False, "within": 10}]),
    "tour_of_strange_answers": (
        "read x; echo '{\"id\":7}'; exec cat",
        [{"tour": [{"id": 1}, {"id": 2}], "answered": False, "within": 30}],
    ),
    "settle": (ECHO, [{"settle": {"id": 1, "v": 5}, "of": "v", "frames": 1, "alike": 3, "within": 10}]),
    "settle_late": (
        'i=10; for v in 1 2 3 3 3; do read x; echo "{\\"id\\":$i,\\"v\\":$v}"; i=$((i+1)); done; exec cat',
        [{"settle": {"id": 10}, "of": "v", "frames": 3, "alike": 2, "within": 10}],
    ),
    "stderr": ("echo Too LONG >&2; exec cat", [{"expect_stderr": {"contains": "too long", "within": 10}}]),
    "stderr_without": ("echo fine >&2; read line; exec cat", [{"expect_stderr_without": "secret"}]),
    "at_most": (ECHO, [{"send_all": [{"n": 1}, {"m": 1}]}, {"at_most": 1, "lines": {"n": 1}, "within": 0.1}]),
    "at_most_of_the_dead": ("echo '{}'", [{"at_most": 1, "lines": {}, "within": 10}]),
    "terminate": (ECHO, [{"terminate": True}, {"expect_exit": {"within": "$shutdown_timeout"}}]),
    "silence": (ECHO, [{"expect_silence": 0.05}]),
    "silence_of_the_dead": ("exit 0", [{"expect_silence": 10}]),
    "running": (ECHO, [{"expect_running": 0.05}]),
    "exit": (ECHO, [{"close_stdin": True}, {"expect_exit": {"code": 0, "within": 10}}]),
    "any_exit": ("exit 3", [{"expect_exit": {"within": 10}}]),
    "no_more": (ECHO, [{"close_stdin": True}, {"expect_exit": {"within": 10}}, {"expect_no_more_output": True}]),
    "no_orphans": (ECHO, [{"close_stdin": True}, {"expect_no_orphans": {"within": 10}}]),
}


@pytest.mark.parametrize("name", sorted(GOOD))
def test_steps_that_hold_are_carried_out_to_the_end(name: str) -> None:
    script, steps = GOOD[name]
    assert converse(script, *steps) == len(steps)


BROKEN: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "late": (ECHO, [{"expect": {}, "within": 0.05}], "nothing came within 0.05 s"),
    "ended": ("exit 3", [{"expect": {}, "within": 10}], "its output ended (exit code 3)"),
    "closed": ("exec >&-; exec sleep 600", [{"expect": {}, "within": 10}], "its output ended"),
    "no_json": ("echo hi", [{"expect": {}, "within": 10}], "not one JSON object on one line"),
    "mismatch": ("echo '{}'", [{"expect": {"a": "$tool"}, "within": 10}], '$.a: expected "example.echo", got nothing'),
    "not_found": (ECHO, [{"find": {"a": 1}, "within": 0.05}], "nothing came within 0.05 s"),
    "found_junk": ("echo hi", [{"find": {}, "within": 10}], "not one JSON object on one line"),
    "every_but_one": (
        ECHO,
        [
            {"send_all": [{"n": 1}, {"n": -1}]},
            {"every": {"n": "$any"}, "must": {"n": "$count"}, "until": {"end": 1}, "within": 10},
        ],
        "$.n: expected an integer that is not negative, got -1",
    ),
    "every_without_end": (
        ECHO,
        [{"send": {"n": 1}}, {"every": {"n": 1}, "must": {}, "until": {"end": 1}, "within": 0.05}],
        "nothing came",
    ),
    "tour_unanswered": (
        "exec sleep 600",
        [{"tour": [{"id": 1}], "within": 0.05}],
        "nothing came within 0.05 s",
    ),
    "tour_answers_something_else": (
        "read x; echo '{\"id\":7}'; exec cat",
        [{"tour": [{"id": 1}], "within": 10}],
        "$.id: expected 1, got 7",
    ),
    "tour_with_a_wrong_line": (
        ECHO,
        [{"tour": [{"method": "m", "n": -1}, {"id": 1}], "those": {"n": "$any"}, "must": {"n": 1}, "within": 10}],
        "$.n: expected 1, got -1",
    ),
    "tour_without_the_rest": (
        ECHO,
        [{"tour": [{"id": 1}], "together": "$nonempty", "patience": 0.05, "within": 10}],
        "$: expected an array that is not empty, got []",
    ),
    "tour_not_as_before": (
        ECHO,
        [
            {"tour": [{"id": 1, "result": 1}], "within": 10},
            {"tour": [{"id": 1, "error": 1}], "within": 10, "as_before": True},
        ],
        "the same request had a result before",
    ),
    "never_settles": (
        ECHO,
        [{"settle": {"id": 1}, "of": "id", "frames": 5, "alike": 2, "within": 10}],
        "id still changed after 5 answers",
    ),
    "many_mismatches": (
        ECHO,
        [{"send": {"a": [0, 0, 0, 0, 0, 0, 0]}}, {"expect": {"a": {"$each": 1}}, "within": 10}],
        "$.a[4]: expected 1, got 0; and 2 more",
    ),
    "last_differs": (ECHO, [{"send": {"a": 1}}, {"expect": {}, "within": 10}, {"last": {"a": 2}}], "$.a: expected 2"),
    "last_of_nothing": (ECHO, [{"last": {}}], "it has sent nothing yet"),
    "stderr_silent": (ECHO, [{"expect_stderr": {"contains": "max", "within": 0.05}}], "'max' did not come on stderr"),
    "stderr_with": (
        "echo a secret >&2; exec cat",
        [{"expect_stderr": {"contains": "secret", "within": 10}}, {"expect_stderr_without": "secret"}],
        "it wrote a forbidden text on stderr",
    ),
    "noise": ("echo hi", [{"expect_silence": 10}], "it wrote output without a request"),
    "gone": ("exit 0", [{"expect_running": 10}], "it exited on its own (exit code 0)"),
    "too_many": (
        ECHO,
        [{"send_all": [{}, {}]}, {"at_most": 1, "lines": {}, "within": 10}],
        "more than 1 of them within",
    ),
    "counted_junk": ("echo hi", [{"at_most": 1, "lines": {}, "within": 10}], "not one JSON object on one line"),
    "ignores_term": (
        "trap '' TERM; echo '{}'; while :; do sleep 600; done",
        [{"expect": {}, "within": 10}, {"terminate": True}, {"expect_exit": {"within": 0.05}}],
        "it was still running 0.05 s later",
    ),
    "stays": (ECHO, [{"expect_exit": {"within": 0.05}}], "it was still running 0.05 s later"),
    "code": ("exit 3", [{"expect_exit": {"code": 0, "within": 10}}], "exit code 3, not with exit code 0"),
    "signal": ("kill -9 $$", [{"expect_exit": {"code": 0, "within": 10}}], "killed by SIGKILL, not with exit code 0"),
    "one_more": ("echo hi", [{"expect_exit": {"within": 10}}, {"expect_no_more_output": True}], "one more line"),
    "more": ("echo a; echo b", [{"expect_exit": {"within": 10}}, {"expect_no_more_output": True}], "2 more lines"),
    "orphan": (
        "sleep 600 & exec cat",
        [{"close_stdin": True}, {"expect_no_orphans": {"within": 10}}],
        "it exited, but these processes did not: ",
    ),
    "orphan_not_yet": (ECHO, [{"expect_no_orphans": {"within": 0.05}}], "it was still running 0.05 s later"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_step_says_what_happened_instead(name: str) -> None:
    script, steps, words = BROKEN[name]
    with pytest.raises(RuleBroken) as caught:
        converse(script, *steps)
    assert words in str(caught.value)


def test_a_broken_step_shows_the_line_that_broke_it() -> None:
    with pytest.raises(RuleBroken) as caught:
        converse("echo hi; echo ho", {"expect_exit": {"within": 10}}, {"expect_no_more_output": True})
    assert caught.value.frame is not None
    assert caught.value.frame.line == b"hi"


def test_raw_text_may_be_a_named_value() -> None:
    with pytest.raises(RuleBroken) as caught:
        converse(ECHO, {"send_raw": "$tool"}, {"close_stdin": True}, {"expect": {}, "within": 10})
    assert caught.value.frame is not None
    assert caught.value.frame.line == b"example.echo"


def test_a_rule_whose_condition_is_not_met_is_untried() -> None:
    with pytest.raises(NotTried, match="it must be ok"):
        converse("echo '{}'", {"expect": {}, "within": 10}, {"skip_unless": {"a": 1}, "because": "it must be ok"})
    with pytest.raises(NotTried):
        converse(ECHO, {"skip_unless": {"a": 1}, "because": "nothing was said"})


LOOK_FOR_BOTH = {
    "tour": [],
    "those": {"method": "$absent"},
    "together": {"$answers_each": [{"id": 1}, {"id": 2}]},
    "repeat": [{"id": 1}, {"id": 2}],
    "patience": 0.2,
    "within": 10,
}


@requirement("mcp:kit-slow-tools")
def test_an_answer_is_lost_when_only_its_repetition_is_answered_and_not_shown_when_neither_is() -> None:
    with pytest.raises(RuleBroken, match="expected one response to each"):
        converse('read x; read y; echo "$x"; exec cat', {"send_all": [{"id": 1}, {"id": 2}]}, LOOK_FOR_BOTH)
    with pytest.raises(NotTried, match=r"its answers take more than 0\.4 s"):
        converse('read x; read y; echo "$x"; exec sleep 600', {"send_all": [{"id": 1}, {"id": 2}]}, LOOK_FOR_BOTH)


def test_a_rule_about_what_never_comes_is_untried() -> None:
    with pytest.raises(NotTried, match="it asks nothing"):
        converse(ECHO, {"find": {"a": 1}, "within": 0.05, "or_skip": "it asks nothing"})
    with pytest.raises(NotTried, match="it asks nothing"):
        converse(
            ECHO,
            {"send": {"end": 1}},
            {"find": {"a": 1}, "until": {"end": 1}, "within": 30, "or_skip": "it asks nothing"},
        )
    with pytest.raises(NotTried, match="it asks nothing"):
        converse(ECHO, {"tour": [{"id": 1}], "those": {"a": 1}, "within": 10, "or_skip": "it asks nothing"})
    with pytest.raises(NotTried, match="it asks nothing"):
        converse(
            ECHO,
            {"send": {"end": 1}},
            {"every": {"a": 1}, "must": {}, "until": {"end": 1}, "within": 10, "or_skip": "it asks nothing"},
        )


def test_the_host_that_stands_by_answers_what_the_plugin_asks_and_its_line_answers_nothing() -> None:
    steps: list[dict[str, Any]] = [
        {"send_all": [{"ask": 1, "id": 7}, {"tell": 1}, {"a": 1}]},
        {"expect": {"a": 1}, "within": 10},
        {"expect": {"id": 7, "got": "example.echo"}, "within": 10},
        {"expect": {"more": 1}, "within": 10},
        {"send": {"tell": 2}},
        {"expect_silence": 0.1},
    ]
    assert converse(ECHO, *steps, host=HOST) == len(steps)
    with pytest.raises(RuleBroken, match=r"\$\.a: expected 1, got nothing"):
        converse(ECHO, *steps)


def test_the_host_that_stands_by_knows_what_it_is_asked_with() -> None:
    asked = {"repeat": 1, "id": 7, "params": {"key": "k"}}
    answered = {"expect": {"id": 7, "heard": {"key": "k"}}, "within": 10}
    assert converse(ECHO, {"send": asked}, answered, host=HOST) == 2


def test_what_the_plugin_asks_on_its_own_can_be_found() -> None:
    converse(ECHO, {"send": {"ask": 1, "id": 7}}, {"find": {"ask": 1}, "within": 10}, host=HOST)


def test_after_the_end_even_what_the_host_stands_by_for_is_too_much() -> None:
    with pytest.raises(RuleBroken, match="one more line"):
        converse("echo '{\"tell\":1}'", {"expect_exit": {"within": 10}}, {"expect_no_more_output": True}, host=HOST)


@pytest.mark.parametrize(
    ("escape", "line"),
    [
        ("", '{"t":"<ž&\u2028>"}'),
        ("ascii", '{"t":"<\\u017e&\\u2028>"}'),
        ("html", '{"t":"\\u003cž\\u0026\\u2028\\u003e"}'),
    ],
)
def test_one_text_has_three_spellings(escape: str, line: str) -> None:
    message = {"t": "<ž&\u2028>"}
    assert encode(message, escape) == line.encode()
    assert json.loads(encode(message, escape)) == message


def test_a_tour_that_ends_badly_shows_the_last_of_what_was_looked_at() -> None:
    steps = [{"tour": [{"id": 1, "n": 7}], "those": {"n": 7}, "together": [{"n": 8}], "patience": 0.05, "within": 10}]
    with pytest.raises(RuleBroken) as broken:
        converse(ECHO, *steps)
    assert broken.value.frame is not None and broken.value.frame.value == {"id": 1, "n": 7}
