"""What each method accepts, what it forgives, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.nexo import messages, requests
from plugbay.model.operations import CompleteChat, InvokeTool, RecallMemory, Shutdown
from tests.contracts.nexo.test_messages import EXAMPLES, METHODS
from tests.support.requirements import requirement

BY_NAME = {method.name: method for method in METHODS.values()}


def read(name: str, params: Any) -> Any:
    return requests.read(BY_NAME[name], params, "own")


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
    assert requests.shutdown(params) == Shutdown(reason)


def test_every_kind_of_parameter_is_known() -> None:
    kinds = {kind for method in (*messages.TO_CHILD, *messages.TO_HOST) for *_, kind in method.fields}
    assert kinds == set(requests._KINDS)
