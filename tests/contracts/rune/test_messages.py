"""The exact bytes of each rune message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugbay.contracts.rune import messages
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


def test_the_handshake_request_is_byte_exact(codec: Codec) -> None:
    assert messages.handshake_request(codec) == b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}'


def test_the_handshake_reply_carries_the_whole_manifest(codec: Codec) -> None:
    identity = messages.Identity("p", "1.0", ("a", "b"), ("tool.execute",))
    assert messages.handshake_reply(codec, identity) == (
        b'{"type":"handshake","manifest":{"plugin_id":"p","plugin_version":"1.0",'
        b'"protocol_version":"rterm.plugin.v1","exposed_tools":["a","b"],"capabilities":["tool.execute"]}}'
    )


@requirement("rune:request:one")
def test_the_request_leaves_empty_and_foreign_context_out_and_keeps_the_rest(codec: Codec) -> None:
    context = {"workspace_id": "ws", "widget_id": "", "repo_root": "/r", "secret": "no"}
    body = messages.execute_request(codec, "r1", "t", context, codec.dump({"text": "ü<&"}))
    assert (
        body
        == (
            '{"type":"request","request_id":"r1","tool_name":"t",'
            '"context":{"workspace_id":"ws","repo_root":"/r"},"input":{"text":"ü<&"}}'
        ).encode()
    )
    assert b'"context":{}' in messages.execute_request(codec, "r1", "t", {}, codec.dump([1]))


def test_the_two_responses_are_byte_exact(codec: Codec) -> None:
    assert messages.ok_response(codec, "r", None) == (
        b'{"type":"response","request_id":"r","status":"ok","output":null}'
    )
    assert messages.error_response(codec, "r", "c", "m") == (
        b'{"type":"response","request_id":"r","status":"error","error":{"code":"c","message":"m"}}'
    )


def test_a_request_id_has_sixteen_hex_digits_whatever_the_nonce() -> None:
    assert messages.request_id(0, 1) == "plugin_req_0000000000000001"
    assert messages.request_id(2**64 - 1, 2) == "plugin_req_0000000000000001"
    assert messages.request_id(0x327A59C14500CDC2, 1) == "plugin_req_327a59c14500cdc3"
