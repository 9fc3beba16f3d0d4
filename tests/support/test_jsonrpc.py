"""What is spliced reads back as what was meant, and a kind is decided by keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import ABSENT, stdlib_codec
from tests.support import jsonrpc
from tests.support.jsonrpc import FIELDS, RAW_FIELDS, error, kind, notification, request, result

CODECS = [stdlib_codec(), MsgspecCodec()]


def test_every_envelope_is_valid_json_with_its_payload_untouched() -> None:
    payload = b'{"b":1.0,  "a":[ ]}'
    encode = stdlib_codec().encode
    assert request(7, "tools/call", payload) == (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"b":1.0,  "a":[ ]}}'
    )
    assert notification("host.log", payload) == (b'{"jsonrpc":"2.0","method":"host.log","params":{"b":1.0,  "a":[ ]}}')
    assert result(7, payload) == b'{"jsonrpc":"2.0","id":7,"result":{"b":1.0,  "a":[ ]}}'
    assert error(7, -32601, 'no "x"', None, encode) == (
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no \\"x\\""}}'
    )
    assert error(None, -1, "", b"[1]", encode) == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"","data":[1]}}'
    )


def test_empty_params_leave_the_key_out() -> None:
    assert request(1, "ping", b"") == b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert notification("initialized", b"") == b'{"jsonrpc":"2.0","method":"initialized"}'


@given(st.none() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20))
def test_any_id_a_peer_may_choose_is_echoed_as_it_was(id: int | str | None) -> None:
    assert json.loads(result(id, b"0"))["id"] == id


@pytest.mark.parametrize("id", [True, 1.5, [1], {}, b"1"])
def test_an_id_that_is_no_id_is_our_own_bug(id: Any) -> None:
    with pytest.raises(ValueError, match="an id is"):
        result(id, b"0")


@pytest.mark.parametrize("method", ["plugin/handle_event", "tool.invoke", "a b", "$/cancelRequest", "\x7e"])
def test_a_plain_method_name_is_written_as_it_is(method: str) -> None:
    assert json.loads(notification(method, b"{}"))["method"] == method


@pytest.mark.parametrize("method", ['a"b', "a\\b", "a\nb", "\x00", "\x7f", "é", "\ud800"])
def test_a_method_name_that_needs_escaping_is_our_own_bug(method: str) -> None:
    with pytest.raises(ValueError, match="method name"):
        request(1, method, b"{}")


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (b'{"id":1,"method":"m"}', "request"),
        (b'{"id":"x","method":"m","params":{}}', "request"),
        (b'{"id":null,"method":"m"}', "request"),
        (b'{"id":1,"method":"m","result":1}', "request"),
        (b'{"method":"m"}', "notification"),
        (b'{"method":"m","error":{}}', "notification"),
        (b'{"id":1,"result":null}', "response"),
        (b'{"id":1,"error":{"code":1,"message":""}}', "response"),
        (b'{"id":1}', "response"),
        (b'{"id":1,"result":1,"error":{}}', "response"),
        (b'{"id":null,"error":{}}', "response"),
        (b"{}", "invalid"),
        (b'{"result":1}', "invalid"),
        (b'{"method":""}', "invalid"),
        (b'{"id":1,"method":""}', "invalid"),
        (b'{"id":1,"method":null}', "invalid"),
        (b'{"id":1,"method":5,"result":1}', "invalid"),
        (b'{"ID":1,"Method":"m"}', "invalid"),
    ],
)
@pytest.mark.parametrize("codec", CODECS, ids=["stdlib", "msgspec"])
def test_the_kind_is_decided_by_the_keys_that_are_there(codec: Any, frame: bytes, expected: str) -> None:
    assert kind(codec.decoder(FIELDS, RAW_FIELDS)(frame)) == expected


@pytest.mark.parametrize("codec", CODECS, ids=["stdlib", "msgspec"])
def test_both_and_neither_of_result_and_error_are_left_for_the_contract_to_see(codec: Any) -> None:
    decode = codec.decoder(FIELDS, RAW_FIELDS)
    neither = decode(b'{"jsonrpc":"2.0","id":1}')
    assert (neither.result, neither.error) == (ABSENT, ABSENT)
    both = decode(b'{"id":1,"result":[1],"error":null}')
    assert (codec.load(both.result), both.error, both.jsonrpc) == ([1], None, ABSENT)


@pytest.mark.parametrize("codec", CODECS, ids=["stdlib", "msgspec"])
def test_each_codec_reads_what_the_other_side_writes(codec: Any) -> None:
    decode = codec.decoder(FIELDS, RAW_FIELDS)
    asked = decode(jsonrpc.request(3, "m", codec.encode({"a": None})))
    assert (asked.jsonrpc, asked.id, asked.method, codec.load(asked.params)) == ("2.0", 3, "m", {"a": None})
    failed = decode(jsonrpc.error("x", -5, "é\n", b"{}", codec.encode))
    assert (failed.id, failed.error) == ("x", {"code": -5, "message": "é\n", "data": {}})
