"""One export and one input become one operation; values in, values out."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.schemas import compile_schema
from plugbay.host.catalog.operation import INPUTS, operation
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CallMethod,
    Chat,
    Compact,
    DeleteVectors,
    DispatchCli,
    GetPrompt,
    InvokeTool,
    ReadResource,
    Render,
    RunHarness,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
)
from plugbay.model.spec import Export
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.requirements import requirement

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
        ("screen", {}, Render("x", 80, 24)),
        ("screen", {"width": 200, "height": 60}, Render("x", 200, 60)),
        ("screen", {"width": 65535}, Render("x", 65535, 24)),
        ("cli_namespace", {}, DispatchCli("x", [])),
        ("cli_namespace", {"argv": ["today", "--json", ""]}, DispatchCli("x", ["today", "--json", ""])),
    ],
)
def test_the_kind_and_the_input_say_which_operation_it_is(kind: str, value: Any, op: Any) -> None:
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
        ("screen", {"width": 0}),
        ("screen", {"height": 65536}),
        ("screen", {"width": "80"}),
        ("screen", {"size": 80}),
        ("cli_namespace", {"argv": "today"}),
        ("cli_namespace", {"argv": [1]}),
        ("cli_namespace", {"args": []}),
    ],
)
def test_input_that_fits_no_action_is_refused_by_the_schema(kind: str, value: Any) -> None:
    assert not compile_schema(INPUTS[kind]).is_valid(value)


PROJECTION = {"source": {"projection": {"blocks": []}}, "target": {"max_input_tokens": 100}}
RUN: dict[str, Any] = {"trigger": {"type": "user_request", "input": []}}


@pytest.mark.parametrize(
    ("kind", "value", "op"),
    [
        ("compactor", PROJECTION, Compact),
        ("compactor", {**PROJECTION, "compaction_id": "cmp_1", "policy": {"retain_system": True}}, Compact),
        ("harness", {}, RunHarness),
        ("harness", RUN, RunHarness),
        ("harness", {"mode": "resume", "target": {"execution_id": "exec_1"}}, RunHarness),
    ],
)
def test_a_compactor_and_a_harness_are_asked_with_the_whole_request(kind: str, value: Any, op: Any) -> None:
    assert compile_schema(INPUTS[kind]).is_valid(value)
    export = Export(kind, "x", facts={"execution_class": "worker"})
    assert operation(export, CODEC.dump(value), CODEC, {"context": {}}) == op("x", value, {"context": {}})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("compactor", {}),
        ("compactor", {**PROJECTION, "source": {}}),
        ("compactor", {**PROJECTION, "target": {"max_input_tokens": 0}}),
        ("compactor", {**PROJECTION, "export_id": "y"}),
        ("harness", {"mode": "resume"}),
        ("harness", {"mode": "resume", "target": {}}),
        ("harness", {"mode": "again"}),
        ("harness", {"trigger": {}}),
        ("harness", {"checkpoint": {"kind": "mine"}}),
    ],
)
def test_a_request_that_no_compactor_or_harness_understands_is_refused(kind: str, value: Any) -> None:
    assert not compile_schema(INPUTS[kind]).is_valid(value)


def test_a_compactor_that_is_asked_through_its_hook_cannot_be_called() -> None:
    failure = ask("compactor", PROJECTION)
    assert isinstance(failure, Failure)
    assert (failure.code, "cannot be called" in failure.message) == (Code.NOT_FOUND, True)


@requirement("vai:manifest-platform")
def test_an_export_that_cannot_run_on_this_machine_is_never_asked() -> None:
    export = Export("tool", "x", facts={"unsupported": "it is for darwin on arm64"})
    failure = operation(export, CODEC.dump({}), CODEC, {})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.message) == (Code.UNAVAILABLE, "x cannot run here: it is for darwin on arm64")


def test_a_size_written_as_a_decimal_is_sent_as_an_integer() -> None:
    op = ask("screen", {"width": 100.0, "height": 30.0})
    assert (type(op.width), type(op.height)) == (int, int)
    assert op == Render("x", 100, 30)


def test_a_kind_that_cannot_be_called_says_so() -> None:
    failure = ask("resource", {})
    assert isinstance(failure, Failure)
    assert failure.code == Code.NOT_FOUND


@requirement("mcp:host-resources")
def test_resources_and_prompts_are_asked_for_by_their_own_addresses_and_names() -> None:
    fixed = Export("resource", "x", facts={"mcp": {"uri": "a://b"}})
    template = Export("resource", "x", facts={"mcp": {"uriTemplate": "a://{id}"}})
    prompt = Export("prompt", "x", facts={"mcp": {"name": "own"}})
    given, context = CODEC.dump({"id": "1"}), {"agent_id": "a"}
    assert operation(fixed, given, CODEC, context) == ReadResource("a://b", context)
    assert operation(template, given, CODEC, context) == ReadResource("a://1", context)
    asked = operation(prompt, given, CODEC, context)
    assert isinstance(asked, GetPrompt) and asked.prompt == "own"
    nowhere = operation(Export("resource", "x"), given, CODEC, context)
    assert isinstance(nowhere, Failure) and nowhere.code == Code.NOT_FOUND
