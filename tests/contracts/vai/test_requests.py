"""Bodies of requests: each operation there and back, and every body that is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.vai import requests
from plugbay.contracts.vai.messages import METHODS
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.vai.talk import EXPORTS
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

BY_OP = {method.op: method for method in METHODS}

CONTEXT: dict[str, Any] = {"invocation_id": "inv_1", "run_id": None, "gateway": {"scopes": []}}
BESIDE: dict[str, Any] = {"context": CONTEXT, "config": {"max": 10}, "secrets": {"jira_token": "s3cret"}}
COMPACTION = {"compaction_id": "cmp_1", "source": {"chain_id": "ch_1"}, "target": {}, "policy": {}}
HARNESS = {"mode": "start", "target": {"execution_id": "exec_1"}, "trigger": {"type": "user_request"}, "policy": {}}

OPERATIONS: list[tuple[str, Any]] = [
    ("tool.invoke", InvokeTool("jira_search", {"query": "q"}, {**BESIDE, "tool_execution_id": "toolx_1"})),
    ("tool.invoke", InvokeTool("jira_search", {})),
    ("hook.handle", RunHook("slack_notify", {"type": "x"}, {**BESIDE, "delivery_id": "del_1", "attempt": 2})),
    ("compactor.compact", Compact("coder_window", COMPACTION, BESIDE)),
    ("harness.run", RunHarness("triage", HARNESS, BESIDE)),
    ("harness.run", RunHarness("triage", {**HARNESS, "checkpoint": {"kind": "checkpoint", "data": 1}}, BESIDE)),
]


def body_of(op: Any, codec: Codec) -> Any:
    written = requests.written(BY_OP[type(op)], op, codec)
    assert isinstance(written, bytes)
    return json.loads(written)


@requirement("vai:wire-tool", "vai:wire-hook", "vai:wire-compactor", "vai:wire-harness", "vai:wire-context")
@pytest.mark.parametrize(("name", "op"), OPERATIONS, ids=str)
def test_what_a_host_asks_arrives_as_it_was_meant(codec: Codec, name: str, op: Any) -> None:
    assert requests.judge(name, body_of(op, codec), EXPORTS) == op


@requirement("vai:wire-tool")
def test_the_body_of_a_tool_has_the_published_keys(codec: Codec) -> None:
    op = InvokeTool("jira_search", {"query": "q"}, {"context": {}, "tool_execution_id": "toolx_123"})
    body = body_of(op, codec)
    expected = {"export_id": "jira_search", "context": {}, "tool_execution_id": "toolx_123", "input": {"query": "q"}}
    assert list(body.items()) == list(expected.items())


@requirement("vai:wire-compactor", "vai:wire-harness")
@pytest.mark.parametrize(
    ("op", "keys"),
    [
        (Compact("c", COMPACTION, {"context": {}}), "export_id context compaction_id source target policy"),
        (RunHarness("h", HARNESS, {"context": {}}), "export_id context mode target trigger policy"),
    ],
    ids=["compactor", "harness"],
)
def test_what_a_compactor_or_harness_is_asked_stands_beside_the_context(codec: Codec, op: Any, keys: str) -> None:
    assert list(body_of(op, codec)) == keys.split()


@pytest.mark.parametrize("op", [op for _, op in OPERATIONS], ids=str)
def test_a_payload_that_is_raw_is_written_like_one_that_is_not(op: Any) -> None:
    codec = MsgspecCodec()
    method = BY_OP[type(op)]
    raw = method.op(getattr(op, method.kind), codec.dump(getattr(op, method.payload)), op.context)
    assert body_of(raw, codec) == body_of(op, codec)


@requirement("vai:wire-context")
def test_a_request_cannot_replace_what_the_host_says_itself(codec: Codec) -> None:
    forged = {**COMPACTION, "export_id": "other", "context": {"org_id": "org_2"}, "secrets": {}}
    body = body_of(Compact("coder_window", forged, BESIDE), codec)
    assert body == {"export_id": "coder_window", **BESIDE, **COMPACTION}


@pytest.mark.parametrize("request_", [[], "x", None, 5], ids=str)
@pytest.mark.parametrize("make", [Compact, RunHarness])
def test_a_compactor_or_harness_is_asked_an_object(codec: Codec, make: Any, request_: Any) -> None:
    refusal = requests.written(BY_OP[make], make("x", request_), codec)
    assert isinstance(refusal, Failure)
    assert refusal.code == Code.INVALID_INPUT


@pytest.mark.parametrize(
    "op", [InvokeTool("t", {"a": object()}), Compact("c", {"a": object()}), RunHarness("h", {"a": {1}})]
)
def test_what_is_no_json_is_the_callers_fault(op: Any) -> None:
    refusal = requests.written(BY_OP[type(op)], op, stdlib_codec())
    assert isinstance(refusal, Failure)
    assert (refusal.code, "cannot be sent as JSON" in refusal.message) == (Code.INVALID_INPUT, True)


def test_a_refusal_never_quotes_a_secret() -> None:
    op = InvokeTool("t", float("nan"), {"secrets": {"a": "s3cret", "b": object()}})
    refusal = requests.written(BY_OP[InvokeTool], op, stdlib_codec())
    assert isinstance(refusal, Failure)
    assert "s3cret" not in repr(refusal)


TOOL = {"export_id": "jira_search", "input": {}}
HOOK = {"export_id": "slack_notify", "event": {}}
COMPACTOR = {"export_id": "coder_window", **COMPACTION}
RUN = {"export_id": "triage", **HARNESS}

REFUSED: list[tuple[Any, Any, str, str]] = [
    (None, TOOL, "invalid_frame", "missing op"),
    (5, TOOL, "invalid_frame", "missing op"),
    ("tool.delete", TOOL, "unknown_op", "unknown op 'tool.delete'"),
    ("", TOOL, "unknown_op", "unknown op"),
    ("tool.invoke", None, "invalid_frame", "missing body"),
    ("tool.invoke", [], "invalid_frame", "missing body"),
    ("tool.invoke", "x", "invalid_frame", "missing body"),
    ("tool.invoke", {}, "invalid_frame", "export_id"),
    ("tool.invoke", {"export_id": 5}, "invalid_frame", "export_id"),
    ("tool.invoke", {**TOOL, "export_id": "other"}, "unknown_export", "this plugin has no tool 'other'"),
    ("tool.invoke", {**TOOL, "export_id": "slack_notify"}, "unknown_export", "no tool 'slack_notify'"),
    ("hook.handle", TOOL, "unknown_export", "no hook 'jira_search'"),
    ("tool.invoke", {"export_id": "jira_search"}, "invalid_frame", "no input"),
    ("tool.invoke", {**TOOL, "input": None}, "invalid_frame", "no input"),
    ("tool.invoke", {**TOOL, "input": []}, "invalid_frame", "input must be an object"),
    ("tool.invoke", {**TOOL, "context": []}, "invalid_frame", "context must be an object"),
    ("tool.invoke", {**TOOL, "config": "x"}, "invalid_frame", "config must be an object"),
    ("tool.invoke", {**TOOL, "secrets": ["s3cret"]}, "invalid_frame", "secrets must be an object"),
    ("tool.invoke", {**TOOL, "tool_execution_id": 5}, "invalid_frame", "tool_execution_id must be a string"),
    ("hook.handle", {"export_id": "slack_notify"}, "invalid_frame", "no event"),
    ("hook.handle", {**HOOK, "attempt": True}, "invalid_frame", "attempt must be an integer"),
    ("hook.handle", {**HOOK, "attempt": "2"}, "invalid_frame", "attempt must be an integer"),
    ("hook.handle", {**HOOK, "delivery_id": 5}, "invalid_frame", "delivery_id must be a string"),
    *(("compactor.compact", {**COMPACTOR, name: None}, "invalid_frame", f"no {name}") for name in COMPACTION),
    *(("compactor.compact", {**COMPACTOR, name: 5}, "invalid_frame", f"{name} must be") for name in COMPACTION),
    *(("harness.run", {**RUN, name: None}, "invalid_frame", f"no {name}") for name in HARNESS),
    *(("harness.run", {**RUN, name: 5}, "invalid_frame", f"{name} must be") for name in HARNESS),
    ("harness.run", {**RUN, "checkpoint": "x"}, "invalid_frame", "checkpoint must be an object"),
]


@requirement("vai:wire-bad-request")
@pytest.mark.parametrize(("name", "body", "code", "words"), REFUSED, ids=str)
def test_a_request_that_cannot_be_served_is_refused_with_its_reason(
    name: Any, body: Any, code: str, words: str
) -> None:
    refusal = requests.judge(name, body, EXPORTS)
    assert isinstance(refusal, tuple)
    assert refusal[0] == f"protocol.{code}"
    assert words in refusal[1]
    assert "s3cret" not in refusal[1]


@requirement("vai:wire-unknown-fields")
def test_keys_nobody_knows_are_ignored_and_null_is_nothing() -> None:
    body = {**TOOL, "later": 1, "attempt": "not a hook's", "secrets": None, "config": {}}
    assert requests.judge("tool.invoke", body, EXPORTS) == InvokeTool("jira_search", {}, {"config": {}})
