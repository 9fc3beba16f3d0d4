"""Checks on HTTP requests before they are handled: host names, origins, the token, and MCP's headers.

Pure functions. The REST server uses the checks of names and media types, too. Each violation of MCP is a `Refusal` with
its HTTP status and JSON-RPC error code.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.http_headers import METHOD, NAME, NAMED, REVISION, decode_header, mirrored_values
from plugbay.contracts.mcp.machine import MAX_BATCH
from plugbay.contracts.mcp.messages import MODERN_REVISIONS, REVISIONS, as_object

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

HEADER_MISMATCH = -32020
"""Headers are missing or contradict the body."""

STATUSES = {errors.METHOD_NOT_FOUND: 404, errors.MISSING_CAPABILITY: 400, errors.UNSUPPORTED_VERSION: 400}
"""HTTP status by JSON-RPC error code, in the modern era."""

_NETLOC = re.compile(r"(\[[0-9a-f:.]+\]|[^][:@/\s]+)(:[0-9]*)?", re.IGNORECASE)


def accepts_host(netloc: str, hosts: Collection[str]) -> bool:
    """Whether a `Host` header names one of these hosts; `*` stands for any. The port does not count.

    This and the check of `Origin` turn away web pages that make a browser send requests here (DNS rebinding).
    """
    if "*" in hosts:
        return True
    whole = _NETLOC.fullmatch(netloc)
    return whole is not None and whole[1].lower() in hosts


def accepts_origin(origin: str, hosts: Collection[str]) -> bool:
    """Whether an `Origin` header is a web page of one of these hosts."""
    scheme, _, netloc = origin.partition("://")
    return "*" in hosts or (scheme in ("http", "https") and accepts_host(netloc, hosts))


def media_type(content_type: str) -> str:
    """The media type in a `Content-Type` header, without parameters."""
    return content_type.partition(";")[0].strip().lower()


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    message: str
    code: int = errors.INVALID_REQUEST
    data: Any = None
    headers: tuple[tuple[str, str], ...] = ()


class Guard(msgspec.Struct, frozen=True):
    """Accepts requests to a known host name, from a known origin, with the token."""

    token: str | None
    """None: the caller has checked authorization already."""
    hosts: frozenset[str] = msgspec.field(default=LOOPBACK)
    """Accepted host names without port; `*`: any."""
    origins: frozenset[str] = frozenset()
    """Accepted origins of web pages, besides loopback."""

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Why a request is refused; None when it is accepted."""
        host = headers.get("host", "")
        if not accepts_host(host, self.hosts):
            return Refusal(421, f"this server does not have the name {host[:100]!r}; allow the name with --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins and not accepts_origin(origin, LOOPBACK):
            return Refusal(403, f"requests of pages from {origin[:100]!r} are not allowed")
        if self.token is None:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_ours = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != "bearer" or not is_ours:
            challenge = (("www-authenticate", "Bearer"),)
            return Refusal(401, "the bearer token is missing or wrong", headers=challenge)
        return None


def accepts(header: str, *types: str) -> bool:
    """Whether an `Accept` header accepts all of these types."""
    taken = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    return all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & taken for kind in types)


def check_post(headers: Mapping[str, str]) -> Refusal | None:
    """Check the headers of a POST before its body is read."""
    if media_type(headers.get("content-type", "")) != "application/json":
        return Refusal(415, "the body must be application/json")
    if not accepts(headers.get("accept", "*/*"), "application/json", "text/event-stream"):
        return Refusal(406, "Accept must contain application/json and text/event-stream")
    version = headers.get("mcp-protocol-version")
    if version is not None and version not in (*MODERN_REVISIONS, *REVISIONS):
        data = {"supported": [*MODERN_REVISIONS, *REVISIONS], "requested": version}
        return Refusal(400, "Unsupported protocol version", errors.UNSUPPORTED_VERSION, data)
    return None


def count_requests(message: Any) -> int | Refusal:
    """Count the answers that a body waits for; a batch may hold several requests.

    Messages that the machine would ignore are refused here, because they would get no answer.
    """
    items = message if isinstance(message, list) else [message]
    if not items or not all(isinstance(item, dict) for item in items):
        return Refusal(400, "the body must be a message, or a batch of messages")
    if len(items) > MAX_BATCH:
        return Refusal(400, f"a batch has at most {MAX_BATCH:,} messages")
    asking = [item for item in items if "method" in item]
    if not all(isinstance(item["method"], str) and item["method"] for item in asking):
        return Refusal(400, "method must be a string that is not empty")
    if not all(type(item.get("id")) in messages.IDS for item in asking):
        return Refusal(400, "id must be a number or a string")
    return sum(messages.wants_answer(item["method"], item["id"]) for item in asking if "id" in item)


def is_modern(headers: Mapping[str, str], message: Any) -> bool:
    """Whether a message is of the modern era, by its header or its body."""
    meta = as_object(as_object(as_object(message).get("params")).get("_meta"))
    return messages.VERSION in meta or headers.get("mcp-protocol-version") in MODERN_REVISIONS


def check_modern(headers: Mapping[str, str], message: Any, input_schema: Any) -> Refusal | None:
    """Check a modern request: headers must match the body."""
    method = as_object(message).get("method")
    if not isinstance(method, str):
        return Refusal(400, "the body must be one request or one notification")
    if "id" not in message:
        return None
    params = as_object(message.get("params"))
    meta = as_object(params.get("_meta"))
    if not isinstance(meta.get(messages.VERSION), str) or not isinstance(meta.get(messages.CAPABILITIES), dict):
        needed = f"{messages.VERSION} (a string) and {messages.CAPABILITIES} (an object)"
        return Refusal(400, f"_meta must have {needed}", errors.INVALID_PARAMS)
    expected = {REVISION: meta[messages.VERSION], METHOD: method}
    if method in NAMED:
        expected[NAME] = params.get(NAMED[method])
    for name, value in expected.items():
        problem = _check_header(headers, name, value)
        if problem is not None:
            return problem
    return (
        _check_arguments(headers, as_object(params.get("arguments")), input_schema)
        if method == messages.CALL_TOOL
        else None
    )


def _check_arguments(headers: Mapping[str, str], arguments: dict[str, Any], schema: Any) -> Refusal | None:
    for header, value in mirrored_values(schema, arguments):
        if value is None and header.lower() not in headers:
            continue
        problem = _check_header(headers, header, value)
        if problem is not None:
            return problem
    return None


def _check_header(headers: Mapping[str, str], name: str, value: Any) -> Refusal | None:
    given = headers.get(name.lower())
    if given is None:
        return Refusal(400, f"Header mismatch: {name} is missing", HEADER_MISMATCH)
    decoded = decode_header(given)
    if decoded is None or not _is_equal(decoded, value):
        return Refusal(400, f"Header mismatch: {name} is {given[:100]!r}, the body has another value", HEADER_MISMATCH)
    return None


def _is_equal(given: str, value: Any) -> bool:
    if isinstance(value, bool):
        return given == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return given == str(value) or float(given) == value  # a float is exact up to 2**53
        except ValueError:
            return False
    return isinstance(value, str) and given == value
