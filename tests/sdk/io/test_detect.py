"""Which contract a first line or frame opens."""

from __future__ import annotations

import pytest

from plugbay.sdk.io.detect import AINB, KAGED, MAX_FIRST_LINE, MCP, NEXO, RUNE, VAI, detect
from plugbay.wire.strict_json import stdlib_codec
from tests.support.requirements import requirement

CODEC = stdlib_codec()


@pytest.mark.parametrize(
    ("line", "contract"),
    [
        (b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}', RUNE),
        (b'{"type":"nobody knows"}', RUNE),
        (b'\r\n  \n{"type":"handshake"}', RUNE),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"nexo_version":"0.1.5"}}', NEXO),
        (b'{"jsonrpc":"2.0","method":"broker.event","params":{}}', NEXO),
        (b'{"id":1,"method":"shutdown"}', NEXO),
        (b'{"params":{"type":"handshake"}}', NEXO),
        (b"{}", NEXO),
        (b"[1, 2]", NEXO),
        (b'"type"', NEXO),
        (b"hello?", NEXO),
        (b'{"type": oops', NEXO),
        (b"\xff\xfe", NEXO),
    ],
)
@requirement("nexo:sdk-any-method-first")
def test_a_whole_line_is_enough_to_tell(line: bytes, contract: str) -> None:
    assert detect(CODEC, line + b"\n") == contract
    assert detect(CODEC, line + b"\nmore of it") == contract
    assert detect(CODEC, line, ended=True) == contract


@pytest.mark.parametrize(
    ("method", "params", "contract"),
    [
        ("initialize", {"daemon_version": "0.1.0"}, KAGED),
        ("initialize", {"plugin_name": "p"}, KAGED),
        ("initialize", {"nexo_version": "0.1.5"}, NEXO),
        ("initialize", {}, NEXO),
        ("initialize", None, NEXO),
        ("initialize", ["daemon_version"], NEXO),
        ("initialized", {}, KAGED),
        ("health.check", {}, KAGED),
        ("ping", None, KAGED),
        ("kaged.hook.on_session_start", {}, KAGED),
        ("p.echo", {"daemon_version": 1}, KAGED),
        ("p.other", {}, NEXO),
        ("kaged.hooks", {"plugin_name": "p"}, NEXO),
        ("tool.invoke", {"plugin_name": "p"}, NEXO),
        ("shutdown", {}, NEXO),
        (7, {}, NEXO),
        (None, {"plugin_name": "p"}, NEXO),
    ],
)
@requirement("kaged:sdk-detect")
def test_a_daemon_is_told_from_a_nexo_host_by_what_only_it_says(method: object, params: object, contract: str) -> None:
    line = CODEC.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert detect(CODEC, line + b"\n", owns=lambda name: name == "p.echo") == contract


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


@pytest.mark.parametrize(
    ("method", "params", "contract"),
    [
        ("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}, MCP),
        ("initialize", {"clientInfo": {"name": "c"}}, MCP),
        ("initialize", {"protocolVersion": "1", "plugin_name": "p"}, KAGED),
        ("initialize", {"capabilities": {}}, NEXO),
        ("server/discover", None, MCP),
        ("tools/list", {}, MCP),
        ("notifications/cancelled", {}, MCP),
        ("ping", {"_meta": META}, KAGED),
        ("anything", {"_meta": META}, MCP),
        ("anything", {"_meta": {"org.example/x": 1}}, NEXO),
        ("anything", {"_meta": 7}, NEXO),
        ("own/method", {}, KAGED),
    ],
)
@requirement("mcp:sdk-detect")
def test_a_client_of_mcp_is_told_by_its_greeting_its_methods_and_its_meta(
    method: str, params: object, contract: str
) -> None:
    line = CODEC.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    assert detect(CODEC, line + b"\n", owns=lambda name: name == "own/method") == contract


@requirement("kaged:sdk-detect")
def test_a_greeting_that_carries_much_configuration_is_waited_for() -> None:
    config = {"daemon_version": "0.1.0", "config": {"text": "x" * (1 << 20)}}
    line = CODEC.encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": config})
    assert detect(CODEC, line) is None
    assert detect(CODEC, line + b"\n") == KAGED


@pytest.mark.parametrize("received", [b"", b"\n", b'{"type"', b'{"type":"handshake"}'])
def test_half_a_line_is_not(received: bytes) -> None:
    assert detect(CODEC, received) is None


@pytest.mark.parametrize("received", [b"", b"\n \r\n"])
def test_a_host_that_leaves_without_a_word_costs_nothing(received: bytes) -> None:
    assert detect(CODEC, received, ended=True) == RUNE


def test_a_line_too_long_for_any_contract_is_not_waited_for() -> None:
    assert detect(CODEC, b"x" * MAX_FIRST_LINE) is None
    assert detect(CODEC, b"x" * (MAX_FIRST_LINE + 1)) == NEXO
    assert detect(CODEC, b'{"type":"' + b"x" * MAX_FIRST_LINE + b'"}\n') == NEXO


def frame(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


INIT = b'{"jsonrpc":"2.0","id":1,"method":"plugin/init","params":{}}'


@pytest.mark.parametrize(
    ("body", "contract"),
    [
        (INIT, AINB),
        (b'{"method":"plugin/render","type":"x"}', AINB),
        (b'{"protocol":"vai.rpc.v1","type":"hello","role":"host"}', VAI),
        (b'{"type":"hello"}', VAI),
        (b'{"protocol":"vai.rpc.v1"}', VAI),
        (b"{}", AINB),
        (b"[]", AINB),
        (b"???", AINB),
        (b"", AINB),
    ],
)
@requirement("ainb:sdk-detect", "vai:sdk-detect")
def test_a_host_that_frames_what_it_says_is_known_by_the_first_body(body: bytes, contract: str) -> None:
    first = frame(body)
    assert detect(CODEC, first) == contract
    assert detect(CODEC, first + b"Content-Length: 9") == contract
    assert detect(CODEC, first, ended=True) == contract
    for end in range(len(first)):
        assert detect(CODEC, first[:end]) is None


@pytest.mark.parametrize(
    "header", [b"content-length: 2", b"CONTENT-LENGTH:\t+2", b"Content-Length: 9\r\ncontent-length: 2"]
)
@requirement("ainb:sdk-detect")
def test_the_header_may_be_written_in_any_way_the_contract_allows(header: bytes) -> None:
    assert detect(CODEC, header + b"\r\n\r\n{}") == AINB
    assert detect(CODEC, header + b"\r\n\r\n{") is None


@pytest.mark.parametrize(
    "first",
    [
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 5\nhello",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Lengthy: 5\r\n\r\nhello",
        b"Content-Length" + b" " * 9000,
    ],
)
@requirement("ainb:sdk-detect")
def test_a_broken_header_is_for_the_machine_to_judge(first: bytes) -> None:
    assert detect(CODEC, first) == AINB


@pytest.mark.parametrize("first", [b"Content-Length: 5", b"Content-Length: 5\r\n\r\nhel"])
def test_half_a_frame_at_the_end_is_for_the_machine_too(first: bytes) -> None:
    assert detect(CODEC, first) is None
    assert detect(CODEC, first, ended=True) == AINB


@requirement("ainb:sdk-detect")
def test_a_long_greeting_in_a_frame_is_not_waited_for() -> None:
    first = b"Content-Length: 16000000\r\n\r\n" + b" " * MAX_FIRST_LINE
    assert detect(CODEC, first[:MAX_FIRST_LINE]) is None
    assert detect(CODEC, first) == AINB


@pytest.mark.parametrize("first", [b"\r\n", b" ", b"x"])
def test_nothing_may_stand_before_a_frame(first: bytes) -> None:
    assert detect(CODEC, first + frame(INIT)) == NEXO


HELLO = b'{"protocol":"vai.rpc.v1","type":"hello","role":"host"}'


@pytest.mark.parametrize(
    "header",
    [
        b"CONTENT-LENGTH:54",
        b"content-length: 54\r\nContent-Type: application/json",
        b"Content-Type: application/vnd.vai+json; charset=utf-8\r\nContent-Length: 54",
        b"X-Request-ID: a:b\r\nx_y: \r\nContent-Length: 54\r\nZ: 1",
    ],
)
@requirement("vai:sdk-detect")
def test_a_frame_of_vai_may_have_other_headers_wherever_they_stand(header: bytes) -> None:
    assert len(HELLO) == 54
    first = header + b"\r\n\r\n" + HELLO
    assert detect(CODEC, first) == VAI
    assert detect(CODEC, first + b"Content-") == VAI
    for end in range(len(first)):
        assert detect(CODEC, first[:end]) is None


@pytest.mark.parametrize(
    "first",
    [
        b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
        b"note: this is a log line\n",
        b"note: this is another\r\n{}\n",
        b"x-" + b"y" * 80 + b": 1\r\n",
        b"a: " + b" " * 5000 + b"\r\n",
    ],
)
@requirement("vai:sdk-detect")
def test_a_line_that_only_looks_like_a_header_is_for_plugins_that_skip_lines(first: bytes) -> None:
    assert detect(CODEC, first) == NEXO


def test_half_a_header_at_the_end_is_a_line() -> None:
    assert detect(CODEC, b"note: 1\r\n") is None
    assert detect(CODEC, b"note: 1\r\n", ended=True) == NEXO
