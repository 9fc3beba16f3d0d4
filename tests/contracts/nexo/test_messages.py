"""The parameters of every method, as the contract's examples write them."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.nexo import messages
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    Chat,
    CompleteChat,
    DeleteVectors,
    DeliverEvent,
    InvokeTool,
    Publish,
    RecallMemory,
    RunHook,
    SearchVectors,
    SendOutbound,
    Shutdown,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.wire.fast_json import MsgspecCodec
from tests.contracts.nexo.talk import MANIFEST, TOOL, hello, line
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

METHODS = {method.op: method for method in (*messages.TO_CHILD, *messages.TO_HOST)}
EVENT = {"topic": "plugin.inbound.slack", "source": "slack", "payload": {"text": "hi"}}
REQUEST = {"model": "command-r", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1024}
RECORDS = [{"id": "r1", "content": "hello", "embedding": [0.1, 0.2], "metadata": {"source": "kb"}}]
QUERY = {"embedding": [0.1, 0.2], "limit": 10, "filter": {"namespace": "tenant-1"}}
ASKED = [{"role": "user", "content": "hi"}]
EXAMPLES: list[tuple[Any, str, dict[str, Any]]] = [
    (DeliverEvent("t", EVENT), "broker.event", {"topic": "t", "event": EVENT}),
    (StartChannel("slack", "primary"), "channel.start", {"kind": "slack", "instance": "primary"}),
    (StartChannel("slack"), "channel.start", {"kind": "slack", "instance": None}),
    (StopChannel("slack"), "channel.stop", {"kind": "slack"}),
    (SendOutbound("slack", {"kind": "text"}), "channel.send_outbound", {"kind": "slack", "msg": {"kind": "text"}}),
    (
        Chat("cohere", "command-r", REQUEST),
        "llm.chat",
        {"provider": "cohere", "model": "command-r", "stream": False, "request": REQUEST},
    ),
    (
        Chat("cohere", "command-r", REQUEST, stream=True),
        "llm.chat",
        {"provider": "cohere", "model": "command-r", "stream": True, "request": REQUEST},
    ),
    (
        RunHook("before_message", {"body": "ping"}),
        "hook.on_hook",
        {"plugin_id": "p", "hook_name": "before_message", "event": {"body": "ping"}},
    ),
    (
        UpsertVectors("pinecone", "kb", RECORDS),
        "memory.vector_upsert",
        {"backend": "pinecone", "collection": "kb", "records": RECORDS},
    ),
    (
        SearchVectors("pinecone", "kb", QUERY),
        "memory.vector_search",
        {"backend": "pinecone", "collection": "kb", "query": QUERY},
    ),
    (
        DeleteVectors("pinecone", "kb", ["r1"]),
        "memory.vector_delete",
        {"backend": "pinecone", "collection": "kb", "ids": ["r1"]},
    ),
    (Publish("t", EVENT), "broker.publish", {"topic": "t", "event": EVENT}),
    (RecallMemory("a", "q"), "memory.recall", {"agent_id": "a", "query": "q", "limit": 10}),
    (
        CompleteChat("minimax", "m2", ASKED),
        "llm.complete",
        {"provider": "minimax", "model": "m2", "messages": ASKED, "max_tokens": 4096, "temperature": 0.7},
    ),
    (
        CompleteChat("minimax", "m2", ASKED, max_tokens=5, temperature=0, system_prompt="", stream=True),
        "llm.complete",
        {
            "provider": "minimax",
            "model": "m2",
            "messages": ASKED,
            "max_tokens": 5,
            "temperature": 0,
            "system_prompt": "",
            "stream": True,
        },
    ),
]


@requirement("nexo:wire-methods")
@pytest.mark.parametrize(("op", "name", "params"), EXAMPLES, ids=[f"{row[1]}-{n}" for n, row in enumerate(EXAMPLES)])
def test_every_operation_has_its_method_and_its_parameters(op: Any, name: str, params: dict[str, Any]) -> None:
    method = METHODS[type(op)]
    assert method.name == name
    assert messages.build_params(method, op, "p") == params


@pytest.mark.parametrize("codec", [make() for make in CODECS.values()], ids=list(CODECS))
def test_the_prefix_of_a_tool_call_is_everything_up_to_its_args(codec: Codec) -> None:
    assert messages.tool_prefix(codec, "p", 'p_"t') == (
        b'"method":"tool.invoke","params":{"plugin_id":"p","tool_name":"p_\\"t","args":'
    )


@requirement("nexo:wire-initialize-reply")
def test_the_reply_to_initialize_has_exactly_its_keys_and_no_empty_catalogue() -> None:
    tool = {**TOOL, "handler": "not for the wire"}
    assert messages.build_greeting_result(messages.Identity(MANIFEST, "v")) == {
        "manifest": MANIFEST,
        "server_version": "v",
    }
    assert messages.build_greeting_result(messages.Identity(MANIFEST, "v", (tool,)))["tools"] == [TOOL]


@pytest.mark.parametrize(("manifest", "id"), [(MANIFEST, "p"), ({}, ""), ({"plugin": 1}, ""), ({"plugin": {}}, "")])
def test_an_identity_knows_its_id_from_the_manifest(manifest: dict[str, Any], id: str) -> None:
    assert messages.Identity(manifest, "v").plugin_id == id


CODEC = MsgspecCodec()
DECODE = CODEC.decoder(messages.READS, messages.READS_RAW)


def outcome(op: type, message: Any) -> tuple[Any, Failure | None]:
    data = line({"id": 1, **message})
    return messages.read_answer(METHODS[op], DECODE(data), data, CODEC.load)


USAGE = {"prompt_tokens": 12, "completion_tokens": 4}
TEXT = {"type": "text", "text": "Hello world"}
CHAT = {"content": TEXT, "usage": USAGE, "finish_reason": {"kind": "stop"}}
CALLS = {"type": "tool_calls", "tool_calls": [{"id": "1", "name": "f", "arguments": {}}]}
GOOD: list[tuple[type, Any]] = [
    (InvokeTool, None),
    (InvokeTool, 5),
    (InvokeTool, {"content": [{"type": "text", "text": "x"}], "is_error": False}),
    (StartChannel, {"ok": True}),
    (StartChannel, None),
    (StopChannel, "whatever"),
    (SendOutbound, {"message_id": "1234.5678", "sent_at_unix": 1741032000}),
    (UpsertVectors, {"count": 1}),
    (DeleteVectors, {"count": 0, "extra": 1}),
    (SearchVectors, {"matches": []}),
    (SearchVectors, {"matches": [{"id": "r1", "content": "hello", "score": 0.97, "metadata": {}}]}),
    (RunHook, {}),
    (RunHook, {"abort": True, "reason": "PII detected", "decision": "block"}),
    (Chat, CHAT),
    (Chat, {**CHAT, "content": CALLS}),
    (Chat, {**CHAT, "content": {"type": "text", "text": ""}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other", "reason": "filtered"}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other"}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other", "reason": None}}),
    (Chat, {**CHAT, "cache_usage": {"input_tokens": 1}}),
    (Chat, {**CHAT, "cache_usage": None}),
]
BAD: list[tuple[type, Any]] = [
    *product((SendOutbound, UpsertVectors, SearchVectors, RunHook, Chat), (None, 1, "x")),
    (SendOutbound, []),
    (RunHook, []),
    (SendOutbound, {"message_id": "1"}),
    (SendOutbound, {"message_id": 1, "sent_at_unix": 1}),
    (SendOutbound, {"message_id": "1", "sent_at_unix": "now"}),
    (SendOutbound, {"message_id": "1", "sent_at_unix": True}),
    (UpsertVectors, {"count": 1.0}),
    (DeleteVectors, {"count": None}),
    (SearchVectors, {"matches": None}),
    (SearchVectors, {"matches": ["r1"]}),
    (Chat, {**CHAT, "content": "Hello"}),
    (Chat, {**CHAT, "content": {"type": "text"}}),
    (Chat, {**CHAT, "content": {"type": "image"}}),
    (Chat, {**CHAT, "content": {"type": "tool_calls", "tool_calls": [{"id": "1", "name": "f"}]}}),
    (Chat, {**CHAT, "content": {"type": "tool_calls", "tool_calls": None}}),
    (Chat, {**CHAT, "usage": None}),
    (Chat, {**CHAT, "usage": {"prompt_tokens": 1}}),
    (Chat, {**CHAT, "finish_reason": "stop"}),
    (Chat, {**CHAT, "finish_reason": {"kind": "other", "reason": 1}}),
    (Chat, {**CHAT, "finish_reason": {"kind": "tired"}}),
    (Chat, {**CHAT, "cache_usage": 1}),
]


def named(rows: list[tuple[type, Any]]) -> list[str]:
    return [f"{op.__name__}-{result}" for op, result in rows]


@requirement("nexo:wire-results")
@pytest.mark.parametrize(("op", "result"), GOOD, ids=named(GOOD))
def test_a_good_answer_reaches_the_host_unread(op: type, result: Any) -> None:
    value, failure = outcome(op, {"result": result})
    assert failure is None
    assert CODEC.load(value) == result


@requirement("nexo:wire-results")
@pytest.mark.parametrize(("op", "result"), BAD, ids=named(BAD))
def test_an_answer_of_the_wrong_shape_is_malformed_and_quoted(op: type, result: Any) -> None:
    value, failure = outcome(op, {"result": result})
    assert value is None
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert '"result"' in failure.detail["line"]


@pytest.mark.parametrize("error", [None, {}, "no", {"code": -33405, "message": "no"}], ids=str)
def test_an_answer_with_both_a_result_and_an_error_failed(error: Any) -> None:
    _, failure = outcome(InvokeTool, {"result": 1, "error": error})
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE
    assert "both" in failure.message
    if error and "code" in error:
        assert failure.detail["plugin_code"] == -33405


def test_an_answer_with_neither_a_result_nor_an_error_failed() -> None:
    _, failure = outcome(InvokeTool, {})
    assert failure is not None
    assert (failure.code, "neither" in failure.message) == (Code.MALFORMED_RESPONSE, True)  # What a plugin gets.


SPARSE = {"id": "1", "agent_id": "a", "content": "c"}
FULL = {**SPARSE, "tags": ["x"], "concept_tags": ["y"], "created_at": "2026-04-30T18:22:31Z", "memory_type": "fact"}


@requirement("nexo:wire-recall-entries")
def test_a_plugin_gets_whole_memory_entries_even_from_a_host_that_leaves_some_out() -> None:
    missing: dict[str, Any] = {"tags": [], "concept_tags": [], "created_at": None, "memory_type": None}
    value, failure = outcome(RecallMemory, {"result": {"entries": [SPARSE, FULL]}})
    assert (value, failure) == ([{**SPARSE, **missing}, FULL], None)


def test_a_plugin_gets_a_completion_whose_text_was_streamed_with_no_content() -> None:
    streamed = {"finish_reason": "stop", "usage": USAGE}
    assert outcome(CompleteChat, {"result": streamed}) == ({"content": None, **streamed}, None)
    assert outcome(CompleteChat, {"result": {"content": "x", **streamed}}) == ({"content": "x", **streamed}, None)
    assert outcome(Publish, {"result": {"ok": True}}) == ({"ok": True}, None)


@pytest.mark.parametrize(
    ("op", "result"),
    [(RecallMemory, None), (RecallMemory, {}), (RecallMemory, {"entries": [1]}), (CompleteChat, "text")],
)
def test_an_answer_a_plugin_cannot_use_is_malformed(op: type, result: Any) -> None:
    _, failure = outcome(op, {"result": result})
    assert failure is not None
    assert failure.code == Code.MALFORMED_RESPONSE  # What is given.


def shaped(op: type, value: Any, *, stream: bool = False, said: bool = False) -> Any:
    return messages.build_result(op, value, stream, said)


@pytest.mark.parametrize("op", [StartChannel, StopChannel, Shutdown, Publish])
def test_what_only_needs_to_be_acknowledged_is(op: type) -> None:
    assert shaped(op, "anything") == {"ok": True}


@pytest.mark.parametrize("op", [InvokeTool, SendOutbound, Chat, RunHook, UpsertVectors, SearchVectors, DeleteVectors])
def test_the_other_results_of_a_plugin_go_out_as_they_are(op: type) -> None:
    value = {"count": 1}
    assert shaped(op, value) is value


ANSWER = {"content": "Hi.", "finish_reason": "length", "usage": USAGE, "tool_calls": []}


@requirement("nexo:wire-complete-result")
def test_a_completion_has_its_text_unless_it_was_streamed() -> None:
    assert shaped(CompleteChat, ANSWER) == {"content": "Hi.", "finish_reason": "length", "usage": USAGE}
    assert shaped(CompleteChat, ANSWER, stream=True) == {"finish_reason": "length", "usage": USAGE}
    none = {"prompt_tokens": 0, "completion_tokens": 0}
    assert shaped(CompleteChat, {}) == {"content": "", "finish_reason": "stop", "usage": none}
    assert shaped(CompleteChat, {}, stream=True) == {"finish_reason": "other:stream-no-end", "usage": none}


@requirement("nexo:wire-complete-tool-calls")
@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_of_tool_calls_alone_is_not_implemented(stream: bool) -> None:
    only = {**ANSWER, "content": None, "tool_calls": [{"id": "1"}]}
    failure = shaped(CompleteChat, only, stream=stream)
    assert isinstance(failure, Failure)
    assert failure.code == Code.NOT_FOUND
    assert not isinstance(shaped(CompleteChat, {**only, "content": "text"}, stream=stream), Failure)


def test_a_stream_that_said_some_text_may_end_with_tool_calls() -> None:
    ending = shaped(CompleteChat, {**ANSWER, "content": None, "tool_calls": [{}]}, stream=True, said=True)
    assert ending == {"finish_reason": "length", "usage": USAGE}


def test_recalled_entries_are_wrapped_and_a_completion_must_be_an_object() -> None:
    assert shaped(RecallMemory, [SPARSE]) == {"entries": [SPARSE]}
    assert isinstance(shaped(CompleteChat, "text"), Failure)


def judge(result: Any, expected: str = "p", declared: tuple[str, ...] = ("p_t",)) -> Any:
    return messages.check_greeting(result, expected, declared)


def test_a_good_child_is_described() -> None:
    result = hello(tools=[{**TOOL, "extra": 1}], new_key=1)
    assert judge(result) == {"plugin_id": "p", "server_version": "p-0.2.0", "tools": [TOOL], "warnings": []}


BAD_GREETINGS: list[tuple[str, Any, str]] = [
    ("no object", [], "not an object"),
    ("null", None, "not an object"),
    ("no manifest", hello(manifest=...), "no manifest"),
    ("manifest null", hello(manifest=None), "no manifest"),
    ("manifest without plugin", hello(manifest={}), "no manifest"),
    ("plugin of the wrong type", hello(manifest={"plugin": "p"}), "no manifest"),
    ("id of the wrong type", hello(manifest={"plugin": {"id": 1}}), "no manifest"),
    ("another id", hello(manifest={"plugin": {"id": "q"}}), "'q', not 'p'"),
    ("an id in another case", hello(manifest={"plugin": {"id": "P"}}), "'P', not 'p'"),
    ("tools null", hello(tools=None), "not an array"),
    ("tools an object", hello(tools={}), "not an array"),
    ("a tool that is none", hello(tools=["p_t"]), "tools[0]"),
    ("a tool without name", hello(tools=[TOOL, {**TOOL, "name": ""}]), "tools[1]"),
    ("a tool without description", hello(tools=[{"name": "p_t", "input_schema": {}}]), "tools[0]"),
    ("a tool without schema", hello(tools=[{"name": "p_t", "description": ""}]), "tools[0]"),
    ("a schema that is none", hello(tools=[{**TOOL, "input_schema": None}]), "tools[0]"),
    ("a tool twice", hello(tools=[TOOL, TOOL]), "'p_t' twice"),
    ("a tool nobody declared", hello(tools=[TOOL, {**TOOL, "name": "p_u"}]), "p_u"),
]


@requirement("nexo:wire-identity", "nexo:wire-catalogue")
@pytest.mark.parametrize(("result", "words"), [row[1:] for row in BAD_GREETINGS], ids=[row[0] for row in BAD_GREETINGS])
def test_a_child_that_is_not_what_it_should_be_must_go(result: Any, words: str) -> None:
    failure = judge(result)
    assert isinstance(failure, Failure)
    assert failure.code == Code.HANDSHAKE_FAILED
    assert words in failure.message


def test_both_ids_and_the_drift_are_in_the_detail() -> None:
    assert judge(hello(), "q").detail == {"expected_id": "q", "plugin_id": "p"}
    assert judge(hello(), declared=()).detail == {"undeclared": ["p_t"]}


@pytest.mark.parametrize(("expected", "good"), [("p.eu", True), ("p.eu.2", True), ("q.p", False), ("pp", False)])
def test_an_instance_answers_with_the_id_it_is_an_instance_of(expected: str, good: bool) -> None:
    assert isinstance(judge(hello(), expected), dict) is good


@requirement("nexo:wire-catalogue-missing")
@pytest.mark.parametrize("tools", [..., []])
def test_a_tool_that_was_declared_and_not_offered_is_a_warning(tools: Any) -> None:
    said = judge(hello(tools=tools))
    assert said["tools"] == []
    assert ["'p_t'" in warning for warning in said["warnings"]] == [True]


@pytest.mark.parametrize("version", [..., None, 1, {}])
def test_a_child_without_a_server_version_is_warned_about(version: Any) -> None:
    said = judge({"manifest": MANIFEST, **hello(server_version=version)})
    assert said["server_version"] == ""
    assert said["warnings"] == ["does not say its server_version"]


BY_NAME = {method.name: method for method in METHODS.values()}


def read(name: str, params: Any) -> Any:
    return messages.read_request(BY_NAME[name], params, "own")


@pytest.mark.parametrize(("op", "name", "params"), EXAMPLES, ids=[f"{row[1]}-{n}" for n, row in enumerate(EXAMPLES)])
def test_what_one_end_writes_the_other_reads(op: Any, name: str, params: dict[str, Any]) -> None:
    assert read(name, {**params, "unknown": 1}) == op


@requirement("nexo:wire-recall-limit")
@pytest.mark.parametrize(
    ("limit", "used"),
    [
        (5, 5),
        (0, 0),
        (1000, 1000),
        (1001, 1000),
        (2**64 - 1, 1000),
        (-1, 10),
        (1.5, 10),
        (5.0, 10),
        ("5", 10),
        (None, 10),
        (True, 10),
        ([], 10),
        (..., 10),
    ],
)
def test_a_limit_that_is_no_count_is_ten_and_no_limit_is_above_a_thousand(limit: Any, used: int) -> None:
    params = {"agent_id": "a", "query": "q"} | ({} if limit is ... else {"limit": limit})
    assert read("memory.recall", params) == RecallMemory("a", "q", used)


MESSAGES = [{"role": "user", "content": "hi"}]
COMPLETION = {"provider": "p", "model": "m", "messages": MESSAGES}


@requirement("nexo:wire-complete-params")
@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({}, "max_tokens", 4096),
        ({"max_tokens": 7}, "max_tokens", 7),
        ({"max_tokens": 0}, "max_tokens", 0),
        ({"max_tokens": 2**40}, "max_tokens", 2**32 - 1),
        ({"max_tokens": -1}, "max_tokens", 4096),
        ({"max_tokens": 1.5}, "max_tokens", 4096),
        ({"max_tokens": True}, "max_tokens", 4096),
        ({}, "temperature", 0.7),
        ({"temperature": 0}, "temperature", 0),
        ({"temperature": 9.5}, "temperature", 9.5),
        ({"temperature": "hot"}, "temperature", 0.7),
        ({"temperature": True}, "temperature", 0.7),
        ({}, "system_prompt", None),
        ({"system_prompt": "Be brief."}, "system_prompt", "Be brief."),
        ({"system_prompt": 1}, "system_prompt", None),
        ({}, "stream", False),
        ({"stream": True}, "stream", True),
        ({"stream": 1}, "stream", False),
        ({"stream": "true"}, "stream", False),
    ],
)
def test_a_completion_is_filled_with_the_contracts_defaults(given: Any, field: str, value: Any) -> None:
    op = read("llm.complete", {**COMPLETION, **given})
    assert isinstance(op, CompleteChat)
    assert getattr(op, field) == value
    assert type(getattr(op, field)) is type(value)


GOOD_MESSAGES: list[Any] = [
    *([{"role": role, "content": ""}] for role in ("system", "user", "assistant", "tool")),
    [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
    [{"role": "tool", "content": "4", "tool_call_id": "1", "name": "add"}],
]
BAD_MESSAGES: list[Any] = [
    [],
    None,
    {},
    "hi",
    ["hi"],
    [{}],
    [{"content": "hi"}],
    [{"role": "User", "content": "hi"}],
    [{"role": ["user"], "content": "hi"}],
    [{"role": "user"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": None, "tool_calls": []}],
    [{"role": "user", "content": [{"type": "text"}]}],
    [*MESSAGES, {"role": "robot", "content": "hi"}],
]


@pytest.mark.parametrize("messages", GOOD_MESSAGES)
def test_good_messages_are_taken_as_they_are(messages: Any) -> None:
    op = read("llm.complete", {**COMPLETION, "messages": messages})
    assert isinstance(op, CompleteChat)
    assert op.messages == messages


@pytest.mark.parametrize("messages", BAD_MESSAGES, ids=str)
def test_bad_messages_are_refused(messages: Any) -> None:
    assert "messages" in read("llm.complete", {**COMPLETION, "messages": messages})


@pytest.mark.parametrize(
    ("name", "params", "word"),
    [
        *((method.name, None, "params") for method in METHODS.values()),
        *((method.name, [1], "params") for method in METHODS.values()),
        ("broker.publish", {"event": {}}, "topic"),
        ("broker.publish", {"topic": "", "event": {}}, "topic"),
        ("broker.publish", {"topic": 1, "event": {}}, "topic"),
        ("broker.publish", {"topic": "t"}, "event"),
        ("broker.publish", {"topic": "t", "event": [1]}, "event"),
        ("memory.recall", {"query": "q"}, "agent_id"),
        ("memory.recall", {"agent_id": "a", "query": 1}, "query"),
        ("llm.complete", {"model": "m", "messages": MESSAGES}, "provider"),
        ("llm.complete", {"provider": "p", "messages": MESSAGES}, "model"),
        ("tool.invoke", {}, "tool_name"),
        ("tool.invoke", {"tool_name": ""}, "tool_name"),
        ("tool.invoke", {"tool_name": 1}, "tool_name"),
        ("channel.start", {}, "kind"),
        ("channel.start", {"kind": "k", "instance": 1}, "instance"),
        ("channel.stop", {"kind": None}, "kind"),
        ("channel.send_outbound", {"kind": "k", "msg": "hi"}, "msg"),
        ("llm.chat", {"provider": "p", "model": "m", "stream": 1, "request": {}}, "stream"),
        ("llm.chat", {"provider": "p", "model": "m", "stream": True}, "request"),
        ("hook.on_hook", {"event": {}}, "hook_name"),
        ("memory.vector_upsert", {"backend": "b", "collection": "c", "records": {}}, "records"),
        ("memory.vector_search", {"backend": "b", "collection": "c", "query": []}, "query"),
        ("memory.vector_delete", {"backend": "b", "ids": []}, "collection"),
    ],
)
def test_wrong_parameters_are_refused_by_name(name: str, params: Any, word: str) -> None:
    assert word in read(name, params)


@requirement("nexo:wire-tool-params")
@pytest.mark.parametrize(
    ("params", "op"),
    [
        ({"tool_name": "t"}, InvokeTool("t", None, {"agent_id": None, "plugin_id": "own"})),
        (
            {"tool_name": "t", "args": {"a": 1}, "agent_id": "x", "plugin_id": "p", "policy": {}},
            InvokeTool("t", {"a": 1}, {"agent_id": "x", "plugin_id": "p"}),
        ),
    ],
)
def test_a_tool_call_may_leave_out_all_but_its_name(params: Any, op: InvokeTool) -> None:
    assert read("tool.invoke", params) == op


def test_a_chat_without_a_stream_flag_is_not_streamed() -> None:
    assert read("llm.chat", {"provider": "p", "model": "m", "request": {}}).stream is False


@pytest.mark.parametrize(
    ("params", "reason"), [({"reason": "host requested"}, "host requested"), (None, ""), ([], ""), ({"reason": 1}, "")]
)
def test_a_good_bye_is_one_whatever_it_says(params: Any, reason: str) -> None:
    assert messages.read_shutdown(params) == Shutdown(reason)


def test_every_kind_of_parameter_is_known() -> None:
    kinds = {kind for method in (*messages.TO_CHILD, *messages.TO_HOST) for *_, kind in method.fields}
    assert kinds == set(messages._KINDS)
