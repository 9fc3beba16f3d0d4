"""The headers that repeat parts of a message: both ends agree on each value."""

from __future__ import annotations

import pytest

from plugbay.contracts.mcp import http_headers, messages
from tests.support.requirements import requirement


@requirement("mcp:remote-modern")
@pytest.mark.parametrize("text", ["plain", "a b", " padded ", "käse", "line\nbreak", "=?base64?x?=", "", "\t"])
def test_every_text_survives_a_header(text: str) -> None:
    value = http_headers.encode_header(text)
    assert value.isascii() and "\n" not in value and value == value.strip()
    assert http_headers.decode_header(value) == text


@requirement("mcp:remote-modern")
def test_a_modern_request_repeats_its_method_target_and_marked_arguments() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "inner": {"properties": {"deep": {"x-mcp-header": "Deep"}, "absent": {"x-mcp-header": "Absent"}}},
            "other": {"type": "string"},
        }
    }
    arguments = {"region": "north", "inner": {"deep": True}, "other": "x"}
    params = {"name": "add", "arguments": arguments, "_meta": {messages.VERSION: "2026-07-28"}}
    assert http_headers.modern_headers({"method": "tools/call", "params": params}, schema) == {
        "Mcp-Method": "tools/call",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Name": "add",
        "Mcp-Param-Region": "north",
        "Mcp-Param-Deep": "true",
    }
    read = http_headers.modern_headers({"method": "resources/read", "params": {"uri": "memo://käse"}})
    assert http_headers.decode_header(read["Mcp-Name"]) == "memo://käse"
    assert http_headers.modern_headers({"method": "tools/list"}) == {"Mcp-Method": "tools/list"}
