"""Which contract a first line opens."""

from __future__ import annotations

import pytest

from plugbay.sdk.detect import KAGED, MAX_FIRST_LINE, NEXO, RUNE, detect
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
