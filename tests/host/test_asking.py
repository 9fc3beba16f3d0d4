"""One export and one input become one operation; values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.schemas import compile_schema
from plugbay.host.asking import INPUTS, operation
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CallMethod,
    Chat,
    DeleteVectors,
    InvokeTool,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec

CODEC = MsgspecCodec()
TEXT = {"kind": "text", "to": "u", "body": "hi"}
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def ask(kind: str, value: Any, **options: Any) -> Any:
    return operation(Export(kind, "x"), CODEC.dump(value), CODEC, {"agent_id": "a"}, **options)


def test_tools_hooks_and_methods_pass_their_input_on_unparsed() -> None:
    payload = CODEC.dump({"a": 1})
    assert operation(Export("tool", "x"), payload, CODEC, {"agent_id": "a"}) == InvokeTool(
        "x", payload, {"agent_id": "a"}
    )
    assert operation(Export("hook", "x"), payload, CODEC, {"k": 1}) == RunHook("x", payload, {"k": 1})
    assert operation(Export("method", "x.y"), payload, CODEC, {"k": 1}) == CallMethod("x.y", payload, {"k": 1})


@pytest.mark.parametrize(
    ("kind", "value", "op"),
    [
        ("channel", {"action": "start"}, StartChannel("x")),
        ("channel", {"action": "start", "instance": "i"}, StartChannel("x", "i")),
        ("channel", {"action": "stop"}, StopChannel("x")),
        ("channel", {"action": "send", "message": TEXT}, SendOutbound("x", TEXT)),
        ("vector_backend", {"action": "upsert", "collection": "c", "records": []}, UpsertVectors("x", "c", [])),
        (
            "vector_backend",
            {"action": "search", "collection": "c", "query": {"embedding": [1.0]}},
            SearchVectors("x", "c", {"limit": 10, "embedding": [1.0]}),
        ),
        ("vector_backend", {"action": "delete", "collection": "c", "ids": ["1"]}, DeleteVectors("x", "c", ["1"])),
    ],
)
def test_the_action_says_which_operation_it_is(kind: str, value: Any, op: Any) -> None:
    assert compile_schema(INPUTS[kind]).is_valid(value)
    assert ask(kind, value) == op


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_is_completed_with_what_providers_always_expect(stream: bool) -> None:
    op = ask("llm_provider", ASK, stream=stream)
    assert isinstance(op, Chat)
    assert (op.provider, op.model, op.stream) == ("x", "m", stream)
    assert op.request["tool_choice"] == {"kind": "auto"}
    assert op.request["max_tokens"] == 4096


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("channel", {}),
        ("channel", {"action": "explode"}),
        ("channel", {"action": "send"}),
        ("channel", {"action": "send", "message": {"kind": "smoke"}}),
        ("channel", {"action": "stop", "extra": 1}),
        ("llm_provider", {"model": "m"}),
        ("llm_provider", {"model": "m", "messages": []}),
        ("llm_provider", {**ASK, "strem": True}),
        ("vector_backend", {"action": "search", "collection": "c"}),
        ("vector_backend", {"action": "upsert", "records": []}),
        ("hook", []),
    ],
)
def test_input_that_fits_no_action_is_refused_by_the_schema(kind: str, value: Any) -> None:
    assert not compile_schema(INPUTS[kind]).is_valid(value)


def test_a_kind_that_cannot_be_called_says_so() -> None:
    failure = ask("screen", {})
    assert isinstance(failure, Failure)
    assert failure.code == Code.NOT_FOUND
