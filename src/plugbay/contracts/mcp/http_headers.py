"""The headers of streamable HTTP, in which it repeats parts of a message, for clients and servers.

Pure. Both ends must read the same header from the same message: a server refuses a request whose headers and body
differ.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.messages import as_object

SESSION, REVISION = "Mcp-Session-Id", "MCP-Protocol-Version"
METHOD, NAME = "Mcp-Method", "Mcp-Name"

NAMED = {messages.CALL_TOOL: "name", messages.GET_PROMPT: "name", messages.READ_RESOURCE: "uri"}
"""Methods whose target is repeated in `Mcp-Name`, and the parameter that holds it."""

PARAM = "x-mcp-header"
"""Schema keyword: the client must repeat this argument in a header."""

_ENCODED = ("=?base64?", "?=")


def join_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by lower-case name. Repeated headers are joined: a proxy in front may have used either value."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def modern_headers(message: Mapping[str, Any], input_schema: Any = None) -> dict[str, str]:
    """The headers of a modern request. `input_schema`: that of the called tool."""
    method, params = messages.as_text(message.get("method")), as_object(message.get("params"))
    headers = {METHOD: method}
    version = as_object(params.get("_meta")).get(messages.VERSION)
    if isinstance(version, str):
        headers[REVISION] = version
    target = params.get(NAMED.get(method, ""))
    if isinstance(target, str):
        headers[NAME] = encode_header(target)
    if method == messages.CALL_TOOL:
        for header, value in mirrored_values(input_schema, as_object(params.get("arguments"))):
            if isinstance(value, str | int | float):
                headers[header] = encode_header(_plain(value))
    return headers


def mirrored_values(schema: Any, arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each header that repeats an argument, with the argument's value; None: the argument is absent."""
    for name, path in _mirrored_arguments(schema):
        value: Any = arguments
        for key in path:
            value = as_object(value).get(key)
        yield f"Mcp-Param-{name}", value


def _mirrored_arguments(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Arguments that are repeated in headers: header name, and path in the body."""
    for key, part in as_object(as_object(schema).get("properties")).items():
        name = as_object(part).get(PARAM)
        if isinstance(name, str) and name:
            yield name, (*path, key)
        yield from _mirrored_arguments(part, (*path, key))


def _plain(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode_header(text: str) -> str:
    """The text as a header value: as it is, or in base64 where a header could not carry it unchanged."""
    before, after = _ENCODED
    if _is_plain(text) and text == text.strip() and not text.startswith(before):
        return text
    return f"{before}{base64.b64encode(text.encode('utf-8', 'surrogatepass')).decode()}{after}"


def decode_header(given: str) -> str | None:
    """Decode a header value that may be base64; None when it is invalid."""
    before, after = _ENCODED
    if given.startswith(before) and given.endswith(after):
        try:
            return base64.b64decode(given[len(before) : -len(after)], validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return None
    return given if _is_plain(given) else None


def _is_plain(text: str) -> bool:
    return all(" " <= char <= "~" or char == "\t" for char in text)
