"""What a client asks: operations into parameters and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.mcp import requests
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import (
    CheckHealth,
    CompleteArgument,
    GetPrompt,
    InvokeTool,
    ReadResource,
    SetLogLevel,
    WatchResource,
)
from tests.support.codecs import CODECS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


COMPLETION = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}


@requirement("mcp:wire-methods")
@pytest.mark.parametrize(
    ("op", "method", "params"),
    [
        (InvokeTool("t", {"a": [1]}), "tools/call", {"name": "t", "arguments": {"a": [1]}}),
        (InvokeTool("t", None), "tools/call", {"name": "t", "arguments": {}}),
        (ReadResource("note:a"), "resources/read", {"uri": "note:a"}),
        (GetPrompt("p", {"a": "x"}), "prompts/get", {"name": "p", "arguments": {"a": "x"}}),
        (CompleteArgument(COMPLETION), "completion/complete", COMPLETION),
        (WatchResource("note:a"), "resources/subscribe", {"uri": "note:a"}),
        (WatchResource("note:a", False), "resources/unsubscribe", {"uri": "note:a"}),
        (SetLogLevel("error"), "logging/setLevel", {"level": "error"}),
    ],
)
def test_an_operation_is_one_method_and_is_read_again(op: Any, method: str, params: Any, codec: Codec) -> None:
    written = requests.written(op, codec)
    assert not isinstance(written, Failure)
    assert (written[0], json.loads(b"{%b}" % written[1])) == (method, params)
    again = requests.read(method, params)
    assert again == (InvokeTool("t", {}, {}) if op == InvokeTool("t", None) else op)


def test_health_is_a_ping(codec: Codec) -> None:
    assert requests.written(CheckHealth(), codec) == ("ping", b"")


def test_arguments_go_out_as_they_were_encoded(codec: Codec) -> None:
    written = requests.written(InvokeTool("t", codec.dump({"a": 1})), codec)
    assert written == ("tools/call", b'"name":"t","arguments":{"a":1}')


def test_raw_arguments_with_line_breaks_are_put_on_one_line() -> None:
    codec = CODECS["msgspec"]()
    raw = type(codec.dump({}))(b'{\n "a": 1\n}')
    assert requests.written(InvokeTool("t", raw), codec) == ("tools/call", b'"name":"t","arguments":{"a":1}')


@pytest.mark.parametrize("given", [[], "x", 5, True, {"a": float("nan")}, {1: 2}, {"a": object()}])
def test_arguments_that_are_no_object_of_json_are_refused(given: Any, codec: Codec) -> None:
    failure = requests.written(InvokeTool("t", given), codec)
    assert isinstance(failure, Failure) and failure.code == Code.INVALID_INPUT


@requirement("mcp:wire-prompts")
def test_the_arguments_of_a_prompt_are_texts(codec: Codec) -> None:
    given = {"text": "x", "number": 5, "flag": True, "list": [1, "a"], "nothing": None}
    for op in (GetPrompt("p", given), GetPrompt("p", codec.dump(given))):
        written = requests.written(op, codec)
        assert not isinstance(written, Failure)
        arguments = json.loads(b"{%b}" % written[1])["arguments"]
        assert arguments == {"text": "x", "number": "5", "flag": "true", "list": '[1,"a"]'}


@requirement("mcp:wire-meta")
def test_what_a_client_says_beside_the_arguments_is_in_the_context() -> None:
    meta = {"progressToken": 1, "io.modelcontextprotocol/protocolVersion": "x", "com.example/a": 1}
    op = requests.read("tools/call", {"name": "t", "_meta": meta})
    assert isinstance(op, InvokeTool) and op.context == {"_meta": {"com.example/a": 1}}


@requirement("mcp:wire-invalid-params")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {}),
        ("tools/call", {"name": ""}),
        ("tools/call", {"name": 5}),
        ("tools/call", {"name": "t", "arguments": []}),
        ("resources/read", {"uri": None}),
        ("resources/read", {"uri": ""}),
        ("prompts/get", {"name": None}),
        ("prompts/get", {"name": "p", "arguments": "x"}),
        ("completion/complete", {"ref": {}}),
        ("completion/complete", {"ref": "x", "argument": {}}),
        ("resources/subscribe", {}),
        ("resources/unsubscribe", {"uri": 5}),
        ("logging/setLevel", {"level": "loud"}),
        ("logging/setLevel", {"level": []}),
    ],
)
def test_parameters_that_cannot_be_used_are_named(method: str, params: dict[str, Any]) -> None:
    assert isinstance(requests.read(method, params), str)


def test_a_method_that_nobody_knows_is_none() -> None:
    assert requests.read("tasks/list", {}) is None


def test_every_method_with_a_capability_can_be_read() -> None:
    assert all(isinstance(requests.read(method, {}), str) for method in requests.NEEDS)
    assert {requests.CAPABILITIES.get(op, "") for op in requests.SUPPORTS} <= {"", *requests.NEEDS.values()}
