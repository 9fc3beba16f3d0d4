"""Each step of a scenario: what it does, and when and in which words it is broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.conformance.conversation import Broken, Conversation, Untried, encode
from plugbay.conformance.scenario import parse
from plugbay.conformance.subject import Subject
from plugbay.conformance.template import text
from tests.conformance.test_subject import with_subject

NAMED = {"tool": "example.echo", "request_id": "plugin_req_1"}
ECHO = "exec cat"


def converse(script: str, *steps: dict[str, Any]) -> int:
    """Carry out the steps against a shell script; how many were begun."""
    scenario = parse(json.dumps({"id": "rune.a.test", "title": "t", "clause": "c", "steps": steps}))

    async def story(subject: Subject) -> int:
        conversation = Conversation(subject, NAMED, {"text": text})
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
    "noise": ("echo hi", [{"expect_silence": 10}], "it wrote something although nothing was asked"),
    "gone": ("exit 0", [{"expect_running": 10}], "it left by itself (exit code 0)"),
    "stays": (ECHO, [{"expect_exit": {"within": 0.05}}], "it was still running 0.05 s later"),
    "code": ("exit 3", [{"expect_exit": {"code": 0, "within": 10}}], "exit code 3, not with exit code 0"),
    "signal": ("kill -9 $$", [{"expect_exit": {"code": 0, "within": 10}}], "killed by SIGKILL, not with exit code 0"),
    "one_more": ("echo hi", [{"expect_exit": {"within": 10}}, {"expect_no_more_output": True}], "one more line"),
    "more": ("echo a; echo b", [{"expect_exit": {"within": 10}}, {"expect_no_more_output": True}], "2 more lines"),
    "orphan": (
        "sleep 600 & exec cat",
        [{"close_stdin": True}, {"expect_no_orphans": {"within": 10}}],
        "it left, but not what it started: ",
    ),
    "orphan_not_yet": (ECHO, [{"expect_no_orphans": {"within": 0.05}}], "it was still running 0.05 s later"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_broken_step_says_what_happened_instead(name: str) -> None:
    script, steps, words = BROKEN[name]
    with pytest.raises(Broken) as caught:
        converse(script, *steps)
    assert words in str(caught.value)


def test_a_broken_step_shows_the_line_that_broke_it() -> None:
    with pytest.raises(Broken) as caught:
        converse("echo hi; echo ho", {"expect_exit": {"within": 10}}, {"expect_no_more_output": True})
    assert caught.value.frame is not None
    assert caught.value.frame.line == b"hi"


def test_a_rule_whose_condition_is_not_met_is_untried() -> None:
    with pytest.raises(Untried, match="it must be ok"):
        converse("echo '{}'", {"expect": {}, "within": 10}, {"skip_unless": {"a": 1}, "because": "it must be ok"})
    with pytest.raises(Untried):
        converse(ECHO, {"skip_unless": {"a": 1}, "because": "nothing was said"})


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
