"""The vai frames, byte for byte, and ids that can be answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.vai import messages
from plugbay.contracts.vai.messages import MAX_BODY, MAX_ID, METHODS, Identity, glimpsed_id, read_id
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.wire.content_length import encode
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.vai.talk import EXPORTS, WHO
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


@requirement("vai:wire-framing", "vai:wire-shutdown")
def test_the_shutdown_is_43_bytes_behind_their_length() -> None:
    golden = b'Content-Length: 43\r\n\r\n{"protocol":"vai.rpc.v1","type":"shutdown"}'
    assert encode(messages.SHUTDOWN_FRAME, MAX_BODY) == golden


@requirement("vai:wire-framing", "vai:wire-event")
def test_the_length_of_a_frame_counts_bytes_and_not_characters() -> None:
    body = messages.event(b'"req_1"', '{"type":"progress","message":"été"}'.encode())
    text = '{"protocol":"vai.rpc.v1","type":"event","request_id":"req_1","event":{"type":"progress","message":"été"}}'
    assert (len(text), body) == (105, text.encode())
    assert encode(body, MAX_BODY).startswith(b"Content-Length: 107\r\n\r\n")


FRAMES = [
    (
        messages.hello("host", b'{"name":"vai-runner","version":"0.1.0"}'),
        {"type": "hello", "role": "host", "host": {"name": "vai-runner", "version": "0.1.0"}},
    ),
    (
        messages.hello("plugin", b'{"package_id":"acme/devkit","version":"0.1.0"}'),
        {"type": "hello", "role": "plugin", "plugin": {"package_id": "acme/devkit", "version": "0.1.0"}},
    ),
    (
        messages.request("req_123", "tool.invoke", b"{}"),
        {"type": "request", "id": "req_123", "op": "tool.invoke", "body": {}},
    ),
    (
        messages.event(b'"req_123"', b'{"type":"progress","message":"working"}'),
        {"type": "event", "request_id": "req_123", "event": {"type": "progress", "message": "working"}},
    ),
    (messages.response(b'"req_123"', b"{}"), {"type": "response", "id": "req_123", "ok": True, "body": {}}),
    (
        messages.refusal(b'"req_123"', b'{"code":"protocol.invalid_frame","message":"missing body"}'),
        {
            "type": "response",
            "id": "req_123",
            "ok": False,
            "error": {"code": "protocol.invalid_frame", "message": "missing body"},
        },
    ),
    (
        messages.cancel(b'"req_123"', "deadline_exceeded"),
        {"type": "cancel", "request_id": "req_123", "reason": "deadline_exceeded"},
    ),
    (messages.SHUTDOWN_FRAME, {"type": "shutdown"}),
]


@requirement("vai:wire-frames")
@pytest.mark.parametrize(("written", "published"), FRAMES, ids=lambda case: str(case)[:60])
def test_each_frame_is_written_as_the_contract_shows_it(written: bytes, published: dict[str, object]) -> None:
    expected = {"protocol": "vai.rpc.v1", **published}
    assert written == json.dumps(expected, separators=(",", ":")).encode()


@requirement("vai:wire-ops")
def test_four_ops_carry_the_four_kinds() -> None:
    assert [(method.name, method.kind, method.op) for method in METHODS] == [
        ("tool.invoke", "tool", InvokeTool),
        ("hook.handle", "hook", RunHook),
        ("compactor.compact", "compactor", Compact),
        ("harness.run", "harness", RunHarness),
    ]


@pytest.mark.parametrize("reason", messages.CANCEL_REASONS)
def test_the_reasons_of_the_contract_are_told_as_they_are(reason: str) -> None:
    assert json.loads(messages.cancel(b'"r"', reason))["reason"] == reason


@pytest.mark.parametrize("reason", ["the caller cancelled", "", 'a "quote"'])
def test_any_other_reason_means_that_somebody_no_longer_wants_the_answer(reason: str) -> None:
    assert json.loads(messages.cancel(b'"r"', reason))["reason"] == "user_cancelled"


def test_an_identity_keeps_its_own_exports() -> None:
    exports = {"a": "tool"}
    identity = Identity("p/q", "1.0.0", exports)
    exports["b"] = "hook"
    assert identity.exports == {"a": "tool"}
    assert Identity("p/q", "1.0.0").exports == {}


@pytest.mark.parametrize(
    ("value", "id"),
    [("req_1", "req_1"), ("x" * MAX_ID, "x" * MAX_ID), ("x" * (MAX_ID + 1), None), ("", None), (5, None), (None, None)],
    ids=lambda case: str(case)[:20],
)
def test_an_id_is_a_short_string(value: object, id: str | None) -> None:
    assert read_id(value) == id


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"protocol":"vai.rpc.v1","type":"request","id":"req_1","op":"tool.inv', "req_1"),
        (b'{"id": "req_1" ,', "req_1"),
        (b'{"id":"req_1', None),
        (b'{"id":7,"x":"y"', None),
        (b'{"id":null,"x":"y"', None),
        (b'{"id":""', None),
        (b'{"id":"a\\"b"', None),
        (b'{"id":"\xff"', None),
        (b'{"id":"\x07"', None),
        (b'{"body":{"id":"req_1"}', None),
        (b'{"type":"event","event":{"id":"req_1"}', None),
        (b'{"error":{"id":"req_1"}', None),
        (b'{"trace":{"id":"req_1"}', None),
        (b'{"later":[{"id":"req_1"}', None),
        (b'{"trace":{},"id":"req_1"}', None),
        (b'[{"id":"req_1"}', None),
        (b'"id":"req_1"}', None),
        (b'{"text":"\\"id\\":\\"req_1\\""}', None),
        (b'{"request_id":"req_1"}', None),
        (b"", None),
    ],
)
def test_the_id_of_an_unreadable_frame_is_taken_only_where_it_is_certain(head: bytes, id: str | None) -> None:
    assert glimpsed_id(head) == id


@requirement("vai:wire-identity")
def test_the_package_that_is_installed_is_welcome() -> None:
    assert messages.check_greeting({**WHO, "later": 1}, **WHO) == {**WHO, "warnings": []}


@requirement("vai:wire-identity")
@pytest.mark.parametrize(
    ("plugin", "code"),
    [
        ({**WHO, "package_id": "acme/other"}, "plugin.identity_mismatch"),
        ({**WHO, "package_id": "Acme/devkit"}, "plugin.identity_mismatch"),
        ({**WHO, "version": "0.1.1"}, "plugin.identity_mismatch"),
        ({**WHO, "version": "0.1.0 "}, "plugin.identity_mismatch"),
        ({**WHO, "version": 1}, "plugin.identity_mismatch"),
        ({"package_id": "acme/devkit"}, "plugin.identity_mismatch"),
        ({}, "plugin.identity_mismatch"),
        (None, "protocol.invalid_frame"),
        ("acme/devkit", "protocol.invalid_frame"),
        ([], "protocol.invalid_frame"),
    ],
)
def test_anybody_else_must_go(plugin: Any, code: str) -> None:
    failure = messages.check_greeting(plugin, **WHO)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin, failure.detail["plugin_code"]) == (Code.HANDSHAKE_FAILED, Origin.PLUGIN, code)


def test_who_came_instead_is_named_at_a_bounded_length() -> None:
    failure = messages.check_greeting({"package_id": "x" * 100_000, "version": "9.9.9"}, **WHO)
    assert isinstance(failure, Failure)
    assert "9.9.9, but acme/devkit 0.1.0 is installed" in failure.message
    assert len(failure.message) < 400
    assert failure.detail["expected"] == WHO
    assert failure.detail["got"] == {"package_id": "x" * 200, "version": "9.9.9"}


@pytest.mark.parametrize(
    ("host", "hello"),
    [
        ({"name": "vai-runner", "version": "0.1.0"}, {"host_name": "vai-runner", "host_version": "0.1.0"}),
        ({"name": 5}, {"host_name": "", "host_version": ""}),
        (None, {"host_name": "", "host_version": ""}),
        ("x", {"host_name": "", "host_version": ""}),
    ],
)
def test_a_plugin_takes_what_a_host_says_about_itself(host: Any, hello: dict[str, str]) -> None:
    assert messages.read_greeting(host) == hello


KINDS = ["tool", "hook", "compactor", "harness"]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", ["tool", "compactor", "harness"])
@pytest.mark.parametrize("result", [{"content": [], "is_error": False}, {}, None, [1]], ids=str)
def test_work_that_is_done_has_a_result(codec: Codec, kind: str, result: Any) -> None:
    value, failure = messages.read_response(kind, True, {"status": "succeeded", "result": result}, None, codec)
    assert (codec.load(value), failure) == (result, None)


@requirement("vai:wire-hook")
@pytest.mark.parametrize("body", [{"status": "ack"}, {"status": "succeeded"}, {"status": "ack", "result": 5}], ids=str)
def test_a_hook_acknowledges_and_carries_nothing(codec: Codec, body: Any) -> None:
    value, failure = messages.read_response("hook", True, body, None, codec)
    assert (codec.load(value), failure) == ({}, None)


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        ("failed", Code.PLUGIN_ERROR, False),
        ("retryable_failure", Code.PLUGIN_ERROR, True),
        ("cancelled", Code.CANCELLED, False),
    ],
)
def test_work_of_any_kind_may_end_early(codec: Codec, kind: str, status: str, code: str, retryable: bool) -> None:
    error = {"code": "jira.down", "message": "try later"}
    value, failure = messages.read_response(kind, True, {"status": status, "error": error}, None, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.retryable, failure.message) == (code, retryable, "try later")
    assert failure.detail == {"plugin_code": "jira.down"}


@requirement("vai:wire-early-result")
@pytest.mark.parametrize("status", ["failed", "retryable_failure", "cancelled"])
def test_what_is_left_of_work_that_ended_early_comes_along(codec: Codec, status: str) -> None:
    left = {"checkpoint": {"kind": "checkpoint", "data": {"cursor": 12}}}
    _, failure = messages.read_response("harness", True, {"status": status, "result": left}, None, codec)
    assert failure is not None
    assert failure.detail == {"result": left}


def test_what_is_left_is_not_remembered_when_it_is_huge(codec: Codec) -> None:
    huge = "x" * messages.MAX_LEFT
    _, failure = messages.read_response("tool", True, {"status": "failed", "result": huge}, None, codec)
    assert failure is not None
    assert failure.detail == {"result_left_out": messages.MAX_LEFT + 2}
    _, failure = messages.read_response("tool", True, {"status": "failed", "result": huge[2:]}, None, codec)
    assert failure is not None
    assert failure.detail == {"result": huge[2:]}


INVALID: list[tuple[str, Any, Any, str]] = [
    ("tool", True, None, "no body"),
    ("tool", True, [], "no body"),
    ("tool", True, {}, "no status"),
    ("tool", True, {"status": None}, "no status"),
    ("tool", True, {"status": ["succeeded"]}, "no status"),
    ("tool", True, {"status": "timed_out"}, "'timed_out'"),
    ("tool", True, {"status": "completed", "result": {}}, "'completed'"),
    ("tool", True, {"status": "SUCCEEDED", "result": {}}, "'SUCCEEDED'"),
    ("tool", True, {"status": "ack"}, "'ack'"),
    ("harness", True, {"status": "ack"}, "'ack'"),
    ("hook", True, {"status": "done"}, "'done'"),
    ("tool", True, {"status": "succeeded"}, "without a result"),
    ("tool", None, {"status": "succeeded", "result": {}}, "neither ok=true"),
    ("tool", 1, {"status": "succeeded", "result": {}}, "neither ok=true"),
    ("tool", "true", {"status": "succeeded", "result": {}}, "neither ok=true"),
]


@requirement("vai:wire-invalid-response")
@pytest.mark.parametrize(("kind", "ok", "body", "words"), INVALID, ids=str)
def test_a_response_that_the_contract_does_not_know_is_a_failure(
    codec: Codec, kind: str, ok: Any, body: Any, words: str
) -> None:
    value, failure = messages.read_response(kind, ok, body, None, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.detail["plugin_code"]) == (Code.MALFORMED_RESPONSE, "protocol.invalid_response")
    assert words in failure.message


@requirement("vai:wire-refusal")
def test_a_refusal_is_no_outcome_of_the_work(codec: Codec) -> None:
    error = {"code": "protocol.unknown_export", "message": "none such"}
    value, failure = messages.read_response("tool", False, {"status": "succeeded", "result": {}}, error, codec)
    assert value is None
    assert failure is not None
    assert (failure.code, failure.message) == (Code.TOOL_NOT_EXPOSED, "none such")


def test_a_result_that_cannot_be_handed_on_is_an_invalid_response() -> None:
    codec = MsgspecCodec()
    assert messages.read_response("tool", True, {"status": "succeeded", "result": nested(60)}, None, codec)[1] is None
    _, failure = messages.read_response("tool", True, {"status": "succeeded", "result": nested(61)}, None, codec)
    assert failure is not None
    assert "nested deeper" in failure.message


@requirement("vai:wire-statuses")
@pytest.mark.parametrize("kind", KINDS)
def test_success_says_what_came_out(kind: str) -> None:
    expected = {"status": "ack"} if kind == "hook" else {"status": "succeeded", "result": {"n": 1}}
    assert messages.success(kind, {"n": 1}) == expected


@requirement("vai:wire-statuses", "vai:wire-early-result")
@pytest.mark.parametrize(
    ("failure", "body"),
    [
        (Failure(Code.PLUGIN_ERROR, "no"), {"status": "failed", "error": {"code": "plugin_error", "message": "no"}}),
        (
            Failure(Code.PLUGIN_ERROR, "no", retryable=True, retry_after_ms=50),
            {
                "status": "retryable_failure",
                "error": {"code": "plugin_error", "message": "no", "retry_after_ms": 50},
            },
        ),
        (
            Failure(Code.CANCELLED, "stopped", detail={"result": {"checkpoint": 1}}),
            {
                "status": "cancelled",
                "error": {"code": "cancelled", "message": "stopped"},
                "result": {"checkpoint": 1},
            },
        ),
    ],
    ids=["failed", "retryable", "cancelled"],
)
def test_an_early_end_says_why_and_what_is_left(failure: Failure, body: dict[str, Any]) -> None:
    assert messages.end(failure) == body
    assert messages.end(failure, leave=False) == {key: value for key, value in body.items() if key != "result"}


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
    written = messages.write_request(BY_OP[type(op)], op, codec)
    assert isinstance(written, bytes)
    return json.loads(written)


@requirement("vai:wire-tool", "vai:wire-hook", "vai:wire-compactor", "vai:wire-harness", "vai:wire-context")
@pytest.mark.parametrize(("name", "op"), OPERATIONS, ids=str)
def test_what_a_host_asks_arrives_as_it_was_meant(codec: Codec, name: str, op: Any) -> None:
    assert messages.read_request(name, body_of(op, codec), EXPORTS) == op


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
    refusal = messages.write_request(BY_OP[make], make("x", request_), codec)
    assert isinstance(refusal, Failure)
    assert refusal.code == Code.INVALID_INPUT


@pytest.mark.parametrize(
    "op", [InvokeTool("t", {"a": object()}), Compact("c", {"a": object()}), RunHarness("h", {"a": {1}})]
)
def test_what_is_no_json_is_the_callers_fault(op: Any) -> None:
    refusal = messages.write_request(BY_OP[type(op)], op, stdlib_codec())
    assert isinstance(refusal, Failure)
    assert (refusal.code, "cannot be sent as JSON" in refusal.message) == (Code.INVALID_INPUT, True)


def test_a_refusal_never_quotes_a_secret() -> None:
    op = InvokeTool("t", float("nan"), {"secrets": {"a": "s3cret", "b": object()}})
    refusal = messages.write_request(BY_OP[InvokeTool], op, stdlib_codec())
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
    refusal = messages.read_request(name, body, EXPORTS)
    assert isinstance(refusal, tuple)
    assert refusal[0] == f"protocol.{code}"
    assert words in refusal[1]
    assert "s3cret" not in refusal[1]


@requirement("vai:wire-unknown-fields")
def test_keys_nobody_knows_are_ignored_and_null_is_nothing() -> None:
    body = {**TOOL, "later": 1, "attempt": "not a hook's", "secrets": None, "config": {}}
    assert messages.read_request("tool.invoke", body, EXPORTS) == InvokeTool("jira_search", {}, {"config": {}})
