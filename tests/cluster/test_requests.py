"""Requests of plugins and their answers are the same on both sides of the wire."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.cluster.requests import REQUESTS, decode_answer, decode_request, encode_answer, encode_request
from plugbay.host.inbound.handler import ELSEWHERE
from plugbay.model.operations import (
    CompleteChat,
    DeleteStored,
    GetStored,
    InvokeAction,
    ListStored,
    Publish,
    RecallMemory,
    SetStored,
)
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

CODEC = MsgspecCodec()


@pytest.mark.parametrize(
    "op",
    [
        GetStored("k"),
        SetStored("k", {"a": [1, None, "ä"]}),
        DeleteStored("k"),
        ListStored("p", 3),
        RecallMemory("agent", "query", 7),
        CompleteChat("p", "m", [{"role": "user"}], max_tokens=5, stream=True),
        InvokeAction("host.echo", b"\x00\xff", 250),
    ],
    ids=lambda op: type(op).__name__,
)
def test_a_request_is_read_as_it_was_written(op: Any) -> None:
    assert decode_request(encode_request(op, CODEC), CODEC) == op


def test_every_request_that_is_answered_elsewhere_can_be_written() -> None:
    assert set(REQUESTS.values()) == set(ELSEWHERE)


@pytest.mark.parametrize("value", [None, 1, {"found": False, "value": None}, ["a"], b"\x00\xff", b""])
def test_an_answer_is_read_as_it_was_written(value: Any) -> None:
    assert decode_answer(encode_answer(value, CODEC), CODEC) == value


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"kind":"Publish","topic":"a","event":{}}',
        b'{"kind":"GetStored"}',
        b'{"kind":"GetStored","key":"k","more":1}',
        b'{"kind":"InvokeAction","action":"a","data":"*","timeout_ms":0}',
        b'{"kind":"InvokeAction","action":"a","data":1,"timeout_ms":0}',
    ],
)
def test_anything_else_is_no_request(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode_request(body, CODEC)


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"bytes":"*"}', b'{"value":1,"bytes":""}'])
def test_anything_else_is_no_answer(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode_answer(body, CODEC)


def test_what_a_node_answers_itself_is_not_sent() -> None:
    with pytest.raises(Malformed, match="not answered by gateways"):
        encode_request(Publish("a", {}), CODEC)
