"""Pieces of a model's answer, and the answer they make."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk.services.chat import Answer
from tests.support.requirements import requirement

STOP = {"kind": "stop"}
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}
CALL = [
    {"type": "tool_call_start", "id": "c1", "name": "look"},
    {"type": "tool_call_args_delta", "id": "c1", "delta": '{"x":'},
    {"type": "tool_call_args_delta", "id": "c1", "delta": "1}"},
    {"type": "tool_call_end", "id": "c1"},
]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def joined(pieces: list[Any], sent: list[Any] | None = None) -> dict[str, Any]:
    answer = Answer(None if sent is None else sent.append)
    for piece in pieces:
        answer.add(piece)
    return answer.end()


def test_pieces_are_joined_when_nobody_wants_them_one_by_one() -> None:
    assert joined(["a", "b"]) == {"content": text("ab"), "usage": NO_USAGE, "finish_reason": STOP}
    pieces = ["a", {"type": "usage", "usage": USAGE}, {"type": "end", "finish_reason": {"kind": "length"}}]
    assert joined(pieces) == {"content": text("a"), "usage": USAGE, "finish_reason": {"kind": "length"}}


@pytest.mark.parametrize(("arguments", "value"), [('{"x":1}', {"x": 1}), ("", {}), ("{oops", "{oops")])
def test_tool_calls_are_put_together(arguments: str, value: Any) -> None:
    pieces = [CALL[0], {"type": "tool_call_args_delta", "id": "c1", "delta": arguments}, CALL[-1]]
    call = {"id": "c1", "name": "look", "arguments": value}
    content = {"type": "tool_calls", "tool_calls": [call]}
    assert joined(pieces) == {"content": content, "usage": NO_USAGE, "finish_reason": {"kind": "tool_use"}}


def test_an_answer_with_text_and_tool_calls_keeps_the_calls() -> None:
    content = {"type": "tool_calls", "tool_calls": [{"id": "c1", "name": "look", "arguments": {"x": 1}}]}
    assert joined(["let me see", *CALL])["content"] == content


@requirement("nexo:sdk-chat-stream")
def test_what_was_streamed_is_not_repeated_and_ends_once() -> None:
    sent: list[Any] = []
    usage = {"type": "usage", "usage": USAGE}
    end = joined(["a", *CALL, usage, {"type": "end", "finish_reason": STOP}], sent)
    assert sent == [{"type": "text_delta", "delta": "a"}, *CALL, usage]
    assert end == {"content": text(""), "usage": USAGE, "finish_reason": STOP}


def test_an_answer_that_came_whole_is_streamed_all_the_same() -> None:
    sent: list[Any] = []
    assert Answer(sent.append).whole("hello")["content"] == text("")
    whole = {"content": text("full"), "usage": USAGE, "finish_reason": STOP}
    assert Answer(sent.append).whole(whole) == {**whole, "content": text("")}
    assert [chunk["delta"] for chunk in sent] == ["hello", "full"]
    assert Answer(None).whole(whole) is whole
    calls = {"content": {"type": "tool_calls", "tool_calls": []}}
    assert Answer(sent.append).whole(calls) is calls


@pytest.mark.parametrize("piece", [1, None, {}, {"type": 3}])
def test_a_piece_that_is_none_is_refused(piece: Any) -> None:
    with pytest.raises(TypeError, match="a piece of an answer"):
        Answer(None).add(piece)
    with pytest.raises(TypeError, match="a model answers with"):
        Answer(None).whole(7)
