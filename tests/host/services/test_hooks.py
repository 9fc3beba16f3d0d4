"""Answers change or stop an event; failures and nonsense are passed over and reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.hooks import MAX_EVENT, MAX_HANDLERS, MAX_INJECTION, HookOutcome, apply, fire
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.requirements import requirement

EVENT = {"sender": "alice", "body": "ping"}
BEFORE, AFTER = "before_message", "after_message"


def after_one(response: object, hook: str = BEFORE) -> HookOutcome:
    return apply(HookOutcome(EVENT), hook, "p", response)


class Panel:
    """Plugins with one answer each; remembers what it showed to whom."""

    def __init__(self, answers: Mapping[str, object]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def ask(self, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
        self.asked.append((plugin_id, event))
        answer = self.answers[plugin_id]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def fired(run: Run, answers: Mapping[str, object], hook: str = BEFORE) -> tuple[HookOutcome, Panel]:
    panel = Panel(answers)
    outcomes: list[HookOutcome] = []

    async def main() -> None:
        outcomes.append(await fire(hook, EVENT, list(answers), panel.ask))

    run(main)
    return outcomes[0], panel


@pytest.mark.parametrize(
    ("response", "field"),
    [
        ({"override": {"pad": "x" * MAX_EVENT}}, "override"),
        ({"override": {"pad": object()}}, "override"),
        ({"decision": "transform", "transformed_body": "x" * MAX_EVENT}, "transformed_body"),
    ],
)
def test_no_plugin_makes_an_event_that_those_asked_later_could_not_be_told(
    run: Run, response: object, field: str
) -> None:
    outcome, panel = fired(run, {"p": response, "guard": {"abort": True}})
    assert panel.asked[1] == ("guard", EVENT)
    assert (outcome.blocked_by, outcome.transformed_body) == ("guard", None)
    assert [(who, failure.detail["fields"]) for who, failure in outcome.skipped] == [("p", [field])]


def test_a_large_change_that_fits_is_made() -> None:
    pad = "x" * (MAX_EVENT - 100)
    assert after_one({"override": {"pad": pad}}).event == {**EVENT, "pad": pad}


@requirement("nexo:host-hook-continue")
@pytest.mark.parametrize("response", [{}, {"decision": None, "abort": None, "override": None}, {"unknown": 1}])
def test_an_empty_answer_changes_nothing(response: object) -> None:
    assert after_one(response) == HookOutcome(EVENT)


def test_null_says_nothing() -> None:
    assert after_one(None) == HookOutcome(EVENT)


def test_text_to_inject_is_collected_in_the_order_of_the_plugins(run: Run) -> None:
    outcome, _ = fired(run, {"a": {"inject": "one"}, "b": None, "c": {"inject": ""}, "d": {"inject": "two"}})
    assert outcome.injections == (("a", "one"), ("d", "two"))
    outcome, _ = fired(run, {"a": {"inject": ["no text"]}})
    assert (outcome.injections, outcome.skipped[0][1].code) == ((), Code.MALFORMED_RESPONSE)


@requirement("nexo:host-hook-block")
@pytest.mark.parametrize("response", [{"abort": True}, {"decision": "block"}, {"abort": False, "decision": "block"}])
def test_either_word_blocks(response: dict[str, Any]) -> None:
    outcome = after_one({**response, "reason": "PII detected", "override": {"body": "x"}})
    assert outcome == HookOutcome(EVENT, blocked=True, blocked_by="p", reason="PII detected", decision="block")


def test_a_block_without_a_reason_does_not_borrow_one() -> None:
    outcome = apply(after_one({"reason": "fine by me"}), BEFORE, "q", {"abort": True})
    assert (outcome.blocked_by, outcome.reason) == ("q", None)


@requirement("nexo:host-hook-after")
@pytest.mark.parametrize("response", [{"abort": True}, {"decision": "block"}])
def test_a_hook_about_a_past_event_cannot_block_it(response: object) -> None:
    assert not after_one(response, AFTER).blocked


@requirement("nexo:host-hook-override")
def test_an_override_is_merged_key_by_key_for_those_asked_later() -> None:
    outcome = after_one({"override": {"sender": "bob", "new": {"deep": 1}}})
    assert outcome.event == {"sender": "bob", "body": "ping", "new": {"deep": 1}}
    assert EVENT == {"sender": "alice", "body": "ping"}


@requirement("nexo:host-hook-transform")
def test_a_transformed_body_is_kept_and_replaces_the_body() -> None:
    answer = {"decision": "transform", "transformed_body": "[REDACTED]", "override": {"body": "other"}}
    outcome = after_one(answer)
    assert (outcome.transformed_body, outcome.decision, outcome.blocked) == ("[REDACTED]", "transform", False)
    assert outcome.event == {"sender": "alice", "body": "[REDACTED]"}
    bodiless = apply(HookOutcome({"n": 1}), BEFORE, "p", answer | {"override": None})
    assert (bodiless.event, bodiless.transformed_body) == ({"n": 1}, "[REDACTED]")


@requirement("nexo:host-hook-transform")
def test_a_body_without_the_decision_to_transform_means_nothing() -> None:
    assert after_one({"transformed_body": "x"}) == HookOutcome(EVENT)
    assert after_one({"decision": "allow", "transformed_body": "x"}) == HookOutcome(EVENT, decision="allow")


@requirement("nexo:host-hook-quiet")
def test_the_wish_for_silence_stays() -> None:
    outcome = apply(after_one({"do_not_reply_again": True}), BEFORE, "q", {"do_not_reply_again": False})
    assert outcome.do_not_reply_again


@requirement("nexo:host-hook-continue")
@pytest.mark.parametrize(
    ("response", "fields"),
    [
        ([], ["the answer"]),
        ("block", ["the answer"]),
        ({"abort": "true"}, ["abort"]),
        ({"abort": 1, "reason": 5}, ["abort", "reason"]),
        ({"override": ["x"]}, ["override"]),
        ({"decision": "Block"}, ["decision"]),
        ({"decision": {}}, ["decision"]),
        ({"do_not_reply_again": "yes"}, ["do_not_reply_again"]),
    ],
)
def test_a_part_of_the_wrong_kind_counts_as_absent_and_is_reported(response: object, fields: list[str]) -> None:
    outcome = after_one(response)
    ((plugin_id, failure),) = outcome.skipped
    assert (plugin_id, failure.code, failure.detail["fields"]) == ("p", Code.MALFORMED_RESPONSE, fields)
    assert outcome == HookOutcome(EVENT, skipped=outcome.skipped)


@pytest.mark.parametrize("body", [None, 5])
def test_a_transformation_without_a_body_is_reported(body: object) -> None:
    outcome = after_one({"decision": "transform", "transformed_body": body})
    assert [failure.detail["fields"] for _, failure in outcome.skipped] == [["transformed_body"]]
    assert (outcome.event, outcome.transformed_body) == (EVENT, None)


def test_the_valid_fields_of_an_answer_are_used() -> None:
    outcome = after_one({"abort": True, "reason": 7})
    assert outcome.blocked
    assert len(outcome.skipped) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=4,
)
NAMES = st.sampled_from("abort reason override decision transformed_body do_not_reply_again other".split())
ANSWERS = JSON | st.dictionaries(NAMES, JSON | st.sampled_from(["allow", "block", "transform"]))


@given(st.lists(ANSWERS, max_size=4), st.sampled_from([BEFORE, AFTER]))
def test_no_answer_whatever_breaks_the_chain(answers: list[object], hook: str) -> None:
    outcome = HookOutcome(EVENT)
    for answer in answers:
        outcome = apply(outcome, hook, "p", answer)
    assert EVENT == {"sender": "alice", "body": "ping"}
    assert isinstance(outcome.event, Mapping)
    assert not (outcome.blocked and hook == AFTER)


@requirement("nexo:host-hook-override", "nexo:host-hook-transform")
def test_plugins_are_called_in_order_and_each_sees_the_changes_before_it(run: Run) -> None:
    outcome, panel = fired(
        run,
        {
            "a": {"override": {"lang": "en"}},
            "b": {"decision": "transform", "transformed_body": "pong"},
            "c": {"decision": "allow"},
        },
    )
    assert panel.asked == [
        ("a", EVENT),
        ("b", {**EVENT, "lang": "en"}),
        ("c", {"sender": "alice", "body": "pong", "lang": "en"}),
    ]
    assert outcome.event == panel.asked[-1][1]
    assert (outcome.decision, outcome.transformed_body) == ("allow", "pong")


@requirement("nexo:host-hook-block")
def test_no_plugin_is_called_after_a_block(run: Run) -> None:
    outcome, panel = fired(run, {"a": {}, "b": {"abort": True}, "c": {}})
    assert [plugin_id for plugin_id, _ in panel.asked] == ["a", "b"]
    assert (outcome.blocked, outcome.blocked_by) == (True, "b")


@requirement("nexo:host-hook-after")
def test_every_plugin_is_called_about_a_past_event(run: Run) -> None:
    outcome, panel = fired(run, {"a": {"abort": True}, "b": {"decision": "block"}, "c": {}}, AFTER)
    assert [plugin_id for plugin_id, _ in panel.asked] == ["a", "b", "c"]
    assert not outcome.blocked


@requirement("nexo:host-hook-continue")
def test_every_failure_means_continue(run: Run) -> None:
    timeout, crash = Failure(Code.TIMEOUT, "slow"), Failure(Code.CRASHED, "dead")
    outcome, panel = fired(
        run, {"a": timeout, "b": CallFailed(crash), "c": RuntimeError("bug"), "d": "nonsense", "e": {"reason": "ok"}}
    )
    assert len(panel.asked) == 5
    assert (outcome.event, outcome.blocked, outcome.reason) == (EVENT, False, "ok")
    assert [(plugin_id, failure.code) for plugin_id, failure in outcome.skipped] == [
        ("a", Code.TIMEOUT),
        ("b", Code.CRASHED),
        ("c", Code.INTERNAL),
        ("d", Code.MALFORMED_RESPONSE),
    ]


@requirement("nexo:host-hook-max")
def test_so_many_plugins_are_asked_and_the_others_are_reported(run: Run) -> None:
    answers: dict[str, object] = {f"p{number}": {} for number in range(MAX_HANDLERS + 2)}
    outcome, panel = fired(run, answers)
    assert len(panel.asked) == MAX_HANDLERS
    assert [(plugin_id, failure.code) for plugin_id, failure in outcome.skipped] == [
        (f"p{MAX_HANDLERS}", Code.OVERLOADED),
        (f"p{MAX_HANDLERS + 1}", Code.OVERLOADED),
    ]


def test_a_hook_without_handlers_changes_nothing(run: Run) -> None:
    assert fired(run, {})[0] == HookOutcome(EVENT)


def test_cancelling_is_not_a_failure_of_a_plugin(run: Run) -> None:
    with pytest.raises(asyncio.CancelledError):
        fired(run, {"a": asyncio.CancelledError()})


def test_the_public_shape_has_every_part() -> None:
    assert HookOutcome(EVENT).to_json() == {
        "event": EVENT,
        "blocked": False,
        "blocked_by": None,
        "reason": None,
        "decision": None,
        "transformed_body": None,
        "do_not_reply_again": False,
        "injections": [],
        "skipped": [],
    }
    failure = Failure(Code.TIMEOUT, "no answer", plugin="q")
    outcome = HookOutcome(
        EVENT,
        blocked=True,
        blocked_by="p",
        reason="no",
        decision="block",
        transformed_body="x",
        do_not_reply_again=True,
        skipped=(("q", failure),),
        injections=(("p", "text"),),
    )
    assert outcome.to_json() == {
        "event": EVENT,
        "blocked": True,
        "blocked_by": "p",
        "reason": "no",
        "decision": "block",
        "transformed_body": "x",
        "do_not_reply_again": True,
        "injections": [{"plugin": "p", "text": "text"}],
        "skipped": [{"plugin": "q", "failure": failure.to_json()}],
    }


@pytest.mark.parametrize(
    ("response", "field", "reason"),
    [
        ({"abort": True, "reason": "no"}, "abort", " (its reason: no)"),
        ({"decision": "block"}, "decision", ""),
        ({"abort": True, "decision": "block"}, "abort", ""),
    ],
)
def test_a_block_of_the_past_is_reported_with_its_reason(response: dict[str, Any], field: str, reason: str) -> None:
    ((plugin_id, failure),) = after_one(response, AFTER).skipped
    text = f"after_message reports a past event and cannot be blocked: {field} is ignored{reason}"
    assert (plugin_id, failure.code, failure.message) == ("p", Code.MALFORMED_RESPONSE, text)
    assert (failure.detail, failure.origin) == ({"fields": [field]}, Origin.PLUGIN)


@pytest.mark.parametrize("over", [0, 1])
def test_an_event_and_a_text_have_their_limits_to_the_byte(over: int) -> None:
    size = MAX_EVENT - len(MsgspecCodec().encode({**EVENT, "pad": ""}))
    assert bool(after_one({"override": {"pad": "x" * (size + over)}}).skipped) == bool(over)
    assert bool(after_one({"inject": "x" * (MAX_INJECTION + over)}).skipped) == bool(over)
