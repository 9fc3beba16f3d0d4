"""A frame that is not whole is neither sent nor compared, unless somebody wants placeholders; and then loudly."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.conformance.replay.exchanges import (
    AwaitFrame,
    CancelRequest,
    Exchange,
    ExitProcess,
    Reaction,
    RecordedFrame,
    SendFrame,
    UnusableFrame,
    WriteStderr,
    check,
    exchanges,
)
from plugbay.contracts.frames import ANSWER, Turn
from plugbay.link.recording import Frame
from tests.conformance.recordings import call, error, items, joined, recording, result, tell

WHOLE = RecordedFrame(4, Frame(0, 1, "plugin", 10, {"a": "***"}), Turn(ANSWER, "", 1))


def tried(said: RecordedFrame, allow: bool = False) -> list[str]:
    heard: list[str] = []
    check(said, allow, heard.append)
    return heard


def test_a_whole_frame_is_true() -> None:
    assert tried(WHOLE) == []


def test_a_redacted_frame_is_a_lie_and_its_places_are_named() -> None:
    redacted = replace(WHOLE, frame=replace(WHOLE.frame, redacted=("/a", "")))
    with pytest.raises(UnusableFrame, match="the plugin's answer in line 4 was redacted at /a, the whole of it"):
        tried(redacted)
    assert tried(redacted, allow=True) == ["the plugin's answer in line 4 has placeholders at /a, the whole of it"]


def test_a_frame_that_was_cut_is_a_lie_whatever_is_allowed() -> None:
    cut = replace(WHOLE, frame=replace(WHOLE.frame, cut="sha256:00", raw=b"{"))
    with pytest.raises(UnusableFrame, match="too long to be recorded whole"):
        tried(cut, allow=True)


def told(exchange: Exchange) -> tuple[str, list[str]]:
    """The name of its cause, and its reactions in short."""
    return (exchange.cause.turn.name if exchange.cause else ""), [_short(each) for each in exchange.reactions]


def _short(reaction: Reaction) -> str:
    if isinstance(reaction, SendFrame | AwaitFrame):
        turn = reaction.said.turn
        return f"{'send' if isinstance(reaction, SendFrame) else 'await'} {turn.name or turn.kind}"
    return {CancelRequest: "called off", WriteStderr: "complain", ExitProcess: "leave"}[type(reaction)]


def all_of(contract: str, *lines: Any) -> list[tuple[str, list[str]]]:
    return [told(each) for each in exchanges(recording(contract, *lines))]


def test_answers_find_their_questions_in_whatever_order_they_come() -> None:
    assert all_of(
        "kaged",
        (">", call(1, "a")),
        (">", call(2, "b")),
        ("<", result(2, "b")),
        ("<", error(1, "no")),
    ) == [("", []), ("a", ["send answer"]), ("b", ["send answer"])]


def test_what_a_plugin_asks_belongs_to_the_question_that_is_open() -> None:
    assert all_of(
        "kaged",
        (">", call(1, "a")),
        ("<", call(1, "storage.get")),
        (">", result(1, None)),
        ("<", result(1, "a")),
        ("<", tell("changed")),
    ) == [("", []), ("a", ["send storage.get", "await answer", "send answer", "send changed"])]


def test_what_comes_before_any_word_and_after_a_notice_has_a_place_too() -> None:
    assert all_of("kaged", ("<", tell("early")), (">", tell("initialized")), ("<", tell("late")), ("!", "oops")) == [
        ("", ["send early"]),
        ("initialized", ["send late", "complain"]),
    ]


def test_pieces_and_a_calling_off_belong_to_the_question_they_name() -> None:
    request = {"type": "request", "id": "req_1", "op": "harness.run", "body": {"export_id": "h"}}
    assert all_of(
        "vai",
        (">", request),
        ("<", {"type": "event", "request_id": "req_1", "event": {}}),
        (">", {"type": "cancel", "request_id": "req_1"}),
        ("<", {"type": "response", "id": "req_1", "ok": True, "body": {}}),
    ) == [("", []), ("harness.run h", ["send event", "called off", "send answer"])]


def test_a_plugin_that_leaves_without_an_answer_leaves() -> None:
    lines = [(">", call(1, "a")), (".", {"event": "exit", "code": 3, "signal": None})]
    assert all_of("kaged", *lines) == [("", []), ("a", ["leave"])]


def test_a_plugin_that_is_killed_by_its_host_or_leaves_after_all_does_not() -> None:
    killed = [(">", call(1, "a")), (".", {"event": "exit", "code": None, "signal": 9})]
    done = [(">", call(1, "a")), ("<", result(1, 1)), (".", {"event": "exit", "code": 0, "signal": None})]
    assert all_of("kaged", *killed) == [("", []), ("a", [])]
    assert all_of("kaged", *done) == [("", []), ("a", ["send answer"])]


def test_conversations_are_kept_apart() -> None:
    one = items([(">", call(1, "a")), ("<", result(1, "first"))], link=1)
    two = items([(">", call(1, "a")), ("<", result(1, "second"))], link=2)
    found = exchanges(joined("kaged", [one[0], two[0], two[1], one[1]]))
    assert [each.answer.frame.value["result"] for each in found if each.answer] == ["first", "second"]
