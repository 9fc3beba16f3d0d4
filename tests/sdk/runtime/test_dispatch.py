"""What a host asks, as a call of the author's function and the answer its result stands for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CallMethod,
    Chat,
    DeleteVectors,
    DeliverEvent,
    InvokeTool,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.sdk import Cancelled, Plugin, block
from plugbay.sdk.context import unconnected
from plugbay.sdk.runtime.dispatch import Answer, Dispatcher, Task
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.operations import Operation
    from plugbay.sdk.context import Context

plugin = Plugin("p")


@plugin.tool()
def forecast(city: str, ctx: Context) -> Any:
    return city, ctx.agent_id


@plugin.tool()
def pieces() -> Iterator[str]:
    yield "a"
    yield "b"


@plugin.tool()
async def pieces_later() -> AsyncIterator[str]:
    yield "a"
    yield "b"


@plugin.method("index.rebuild")
def rebuild(deep: bool, ctx: Context) -> Any:
    return deep, ctx.session_id


@plugin.hook("before_message")
def redact(event: dict[str, Any]) -> Any:
    return {"none": None, "dict": {"abort": False}, "block": block("why"), "wrong": "block"}[event["want"]]


@plugin.channel("slack")
class Slack:
    def start(self, instance: str | None, ctx: Context) -> str:
        return f"{instance} of {ctx.plugin_id}"

    def send(self, message: dict[str, Any]) -> Any:
        return message["id"]


@plugin.llm_provider("cohere")
def chat(request: dict[str, Any], model: str) -> Any:
    return {"text": f"{model}!", "pieces": iter(["a", "b"]), "wrong": 3}[request["want"]]


@plugin.llm_provider("later")
async def chat_later(request: dict[str, Any], model: str) -> AsyncIterator[str]:
    yield "a"
    yield "b"


@plugin.vector_backend("qdrant")
class Store:
    def upsert(self, collection: str, records: list[Any]) -> Any:
        return len(records) if collection == "kb" else None

    def search(self, collection: str, query: dict[str, Any]) -> Iterator[Any]:
        yield {"id": "r1"}

    def delete(self, collection: str, ids: list[str]) -> int:
        return len(ids)


@plugin.on_event("a.>")
def heard(event: Any) -> Any:
    return "below a"


@plugin.on_event()
def all_heard(event: Any) -> Any:
    return event.payload


dispatcher = Dispatcher(plugin, {f"p_{name}": tool for name, tool in plugin.tools.items()})


def done(op: Operation, sent: list[Any] | None = None) -> Any:
    task = dispatcher.task_for(op)
    assert isinstance(task, Task), task
    send = (sent if sent is not None else []).append
    value = task.call(lambda said, stop: unconnected("p", said, stop=stop), send)
    return task.settle(value, send) if not task.handler.is_async else asyncio.run(task.settle_later(value, send))


@pytest.mark.parametrize(
    ("op", "answer"),
    [
        (InvokeTool("p_forecast", {"city": "Lima"}, {"agent_id": "a"}), ("Lima", "a")),
        (InvokeTool("p_pieces", {}), "ab"),
        (InvokeTool("p_pieces_later", {}), "ab"),
        (CallMethod("index.rebuild", {"deep": True}, {"session_id": "s"}), (True, "s")),
        (RunHook("before_message", {"want": "none"}), {}),
        (RunHook("before_message", {"want": "dict"}), {"abort": False}),
        (RunHook("before_message", {"want": "block"}), block("why")),
        (StartChannel("slack", "primary"), "primary of p"),
        (SendOutbound("slack", {"id": {"message_id": "1", "sent_at_unix": 2}}), {"message_id": "1", "sent_at_unix": 2}),
        (UpsertVectors("qdrant", "kb", [1, 2]), {"count": 2}),
        (SearchVectors("qdrant", "kb", {}), {"matches": [{"id": "r1"}]}),
        (DeleteVectors("qdrant", "kb", ["x"]), {"count": 1}),
    ],
)
@requirement("nexo:sdk-methods")
def test_every_operation_has_its_handler_and_its_answer(op: Operation, answer: Any) -> None:
    assert done(op) == answer


@pytest.mark.parametrize("tool", ["p_forecast", "p_pieces"])
def test_a_call_that_is_cancelled_before_it_starts_never_runs(tool: str) -> None:
    task = dispatcher.task_for(InvokeTool(tool, {"city": "Lima"} if tool == "p_forecast" else {}))
    assert isinstance(task, Task)
    task.check()
    task.cancel("the host cancelled it")
    task.cancel("again")
    with pytest.raises(Cancelled, match="the host cancelled it"):
        task.call(lambda said, stop: unconnected("p", said, stop=stop), print)
    assert task.stop is task.stop


def test_a_message_id_alone_is_a_receipt_with_the_time() -> None:
    receipt = done(SendOutbound("slack", {"id": "1234.5"}))
    assert receipt["message_id"] == "1234.5"
    assert receipt["sent_at_unix"] > 1_700_000_000


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Chat("cohere", "m", {"want": "text"}), "m!"),
        (Chat("cohere", "m", {"want": "pieces"}), "ab"),
        (Chat("later", "m", {}), "ab"),
    ],
)
def test_a_model_answers_at_once_or_in_pieces(op: Chat, text: str) -> None:
    sent: list[Any] = []
    assert done(op, sent)["content"] == {"type": "text", "text": text}
    assert sent == []
    op.stream = True
    assert done(op, sent)["content"] == {"type": "text", "text": ""}
    assert "".join(chunk["delta"] for chunk in sent) == text


@pytest.mark.parametrize(
    ("op", "what"),
    [
        (RunHook("before_message", {"want": "wrong"}), "a hook returns"),
        (SendOutbound("slack", {"id": 3}), "send returns"),
        (UpsertVectors("qdrant", "other", []), "upsert and delete return"),
        (Chat("cohere", "m", {"want": "wrong"}), "a model answers with"),
    ],
)
def test_a_result_that_means_nothing_is_the_handlers_bug(op: Operation, what: str) -> None:
    with pytest.raises(TypeError, match=what):
        done(op)


@pytest.mark.parametrize(
    ("op", "code", "message"),
    [
        (InvokeTool("p_nope", {}), Code.TOOL_NOT_EXPOSED, "there is no tool 'p_nope'"),
        (InvokeTool("p_forecast", {}, {}), Code.INVALID_INPUT, "city: is required"),
        (CallMethod("index.nope", {}), Code.TOOL_NOT_EXPOSED, "there is no method 'index.nope'"),
        (CallMethod("index.rebuild", {}), Code.INVALID_INPUT, "deep: is required"),
        (RunHook("after_message", {}), Code.NOT_FOUND, "there is no hook 'after_message'"),
        (StopChannel("slack"), Code.NOT_FOUND, "the channel 'slack' has no stop"),
        (StopChannel("irc"), Code.NOT_FOUND, "there is no channel 'irc'"),
        (Chat("openai", "m", {}), Code.NOT_FOUND, "there is no model provider 'openai'"),
        (SearchVectors("chroma", "kb", {}), Code.NOT_FOUND, "there is no vector backend 'chroma'"),
    ],
)
def test_what_has_no_handler_is_a_failure(op: Operation, code: str, message: str) -> None:
    failure = dispatcher.task_for(op)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (code, message)


def test_an_event_goes_to_every_handler_whose_pattern_covers_it() -> None:
    def heard_by(topic: str) -> list[Any]:
        found = dispatcher.tasks_for(DeliverEvent(topic, {"payload": 7}))
        return [task.call(lambda said, stop: unconnected(), print) for task in found]

    assert heard_by("a.b") == ["below a", 7]
    assert heard_by("b") == [7]


def test_a_plugin_serves_only_what_it_has_handlers_for() -> None:
    assert Dispatcher(Plugin("p"), {}).serves() == frozenset()
    ops = {InvokeTool, CallMethod, DeliverEvent, RunHook, StartChannel, StopChannel, SendOutbound, Chat}
    assert dispatcher.serves() == ops | {UpsertVectors, SearchVectors, DeleteVectors}


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


def test_pieces_are_joined_unless_the_caller_streams() -> None:
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
