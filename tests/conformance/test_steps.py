"""Every kind of step can be written, and says what it sends and what it expects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.conformance.scenario import parse
from plugbay.conformance.steps import STEPS, Step, good_bye_of, patterns_of, templates_of, verb_of

EVERY_STEP: list[dict[str, Any]] = [
    {"send": {"a": "$tool"}, "ending": "\r\n", "escape": "ascii"},
    {"send_raw": "text"},
    {"send_chunked": {"message": {}, "bytes": 1, "pause": 0.001}},
    {"send_all": [{}, {"a": 1}]},
    {"expect": "$any", "within": 0.5, "remember": {"asked": "id"}},
    {"find": {"id": 1}, "until": {"id": 2}, "within": 1, "or_skip": "it asks nothing"},
    {"every": {"method": "x"}, "must": {"params": "$any_object"}, "until": {"id": 1}, "within": 1},
    {"tour": ["$tour"], "those": {"method": "x"}, "must": {"a": 1}, "together": "$nonempty", "within": 1},
    {"settle": {"id": 1, "a": "$tool"}, "of": "result", "frames": 20, "alike": 3, "within": 1},
    {"last": {"id": 1}},
    {"skip_unless": {"status": "ok"}, "because": "it must be ok"},
    {"at_most": 3, "lines": {"method": "x"}, "within": 1},
    {"expect_silence": 0.2},
    {"expect_stderr": {"contains": "max", "within": 1}},
    {"expect_stderr_without": "secret"},
    {"expect_running": 0.2},
    {"close_stdin": True},
    {"terminate": True},
    {"restart": True},
    {"expect_exit": {"code": 0, "within": "$shutdown_timeout"}},
    {"expect_no_more_output": True},
    {"expect_no_orphans": {"within": 1}},
]


def steps_of(steps: list[dict[str, Any]]) -> tuple[Step, ...]:
    return parse(json.dumps({"id": "rune.a.test", "title": "t", "clause": "c", "section": "s", "steps": steps})).steps


def test_every_kind_of_step_can_be_written() -> None:
    assert [verb_of(step) for step in steps_of(EVERY_STEP)] == list(STEPS)


@pytest.mark.parametrize(
    ("verb", "templates"),
    [
        ("send", [{"a": "$tool"}]),
        ("send_raw", ["text"]),
        ("send_chunked", [{}]),
        ("send_all", [[{}, {"a": 1}]]),
        ("tour", [["$tour"]]),
        ("settle", [{"id": 1, "a": "$tool"}]),
        ("expect", []),
        ("close_stdin", []),
    ],
)
def test_a_step_names_what_it_sends(verb: str, templates: list[Any]) -> None:
    (step,) = [step for step in steps_of(EVERY_STEP) if verb_of(step) == verb]
    assert templates_of(step) == templates


@pytest.mark.parametrize(
    ("verb", "patterns"),
    [
        ("expect", ["$any"]),
        ("find", [{"id": 1}, {"id": 2}]),
        ("every", [{"method": "x"}, {"params": "$any_object"}, {"id": 1}]),
        ("tour", [{"method": "x"}, {"a": 1}, "$nonempty"]),
        ("last", [{"id": 1}]),
        ("skip_unless", [{"status": "ok"}]),
        ("at_most", [{"method": "x"}]),
        ("send", []),
        ("expect_silence", []),
    ],
)
def test_a_step_names_what_it_expects(verb: str, patterns: list[Any]) -> None:
    (step,) = [step for step in steps_of(EVERY_STEP) if verb_of(step) == verb]
    assert patterns_of(step) == patterns


def test_the_header_of_a_frame_may_have_holes() -> None:
    (step,) = steps_of([{"send": {}, "header": "$plugin_id"}])
    assert templates_of(step) == [{}, "$plugin_id"]


def test_the_last_words_before_a_look_at_what_is_left_are_known() -> None:
    send, good_bye, close, look = {"send": {"a": 1}}, {"send": {"b": 1}}, {"close_stdin": True}, {"within": 1}
    steps = steps_of([send, {"expect": {}, "within": 1}, good_bye, close, {"expect_no_orphans": look}])
    assert good_bye_of(steps) is steps[2]
    assert good_bye_of(steps[:-1]) is None
    assert good_bye_of(steps[-1:]) is None
