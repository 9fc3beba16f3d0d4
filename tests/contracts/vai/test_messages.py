"""The vai frames, byte for byte, and ids that can be answered."""

from __future__ import annotations

import json

import pytest

from plugbay.contracts.vai import messages
from plugbay.contracts.vai.messages import MAX_BODY, MAX_ID, METHODS, Identity, glimpsed_id, read_id
from plugbay.model.operations import Compact, InvokeTool, RunHarness, RunHook
from plugbay.wire.content_length import encode
from tests.support.requirements import requirement


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
        messages.request(b'"req_123"', "tool.invoke", b"{}"),
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
