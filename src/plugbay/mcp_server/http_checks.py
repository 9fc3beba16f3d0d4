"""What a request over HTTP must look like before anybody does what it wants: who may ask, and what its headers say.

Owns the guard (names, origins, the token) and the rules of either era about headers. Pure: decides with values, and
says which status and which error of the protocol a breach is answered with.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plugbay.contracts.mcp import errors, messages
from plugbay.contracts.mcp.framing import MAX_BATCH
from plugbay.contracts.mcp.messages import MODERN_REVISIONS, REVISIONS, as_object

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

HEADER_MISMATCH = -32020
"""The headers are missing, or say something else than the body."""

NAMED = {messages.CALL_TOOL: "name", messages.GET_PROMPT: "name", messages.READ_RESOURCE: "uri"}
"""The methods whose subject is repeated in `Mcp-Name`, and where the body has it."""

PARAM = "x-mcp-header"
"""With this, the schema of a tool asks for one of its arguments to be repeated in a header."""

_ENCODED = ("=?base64?", "?=")

STATUSES = {errors.METHOD_NOT_FOUND: 404, errors.MISSING_CAPABILITY: 400, errors.UNSUPPORTED_VERSION: 400}
"""In the modern era, the status that goes with an error."""


class Refused(NamedTuple):
    """Why a request is not answered: the status, and the error of the protocol."""

    status: int
    message: str
    code: int = errors.INVALID_REQUEST
    data: Any = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may ask. A page in somebody's browser must not, whatever name it has our address resolve to."""

    token: str | None
    """None: whoever let the request through has checked."""
    hosts: frozenset[str] = field(default=LOOPBACK)
    """The names we are reached by, without a port; `*`: any."""
    origins: frozenset[str] = frozenset()
    """Web pages that may ask, besides those of this machine."""

    def refusal(self, headers: Mapping[str, str]) -> Refused | None:
        """Why this request may not be made; None when it may."""
        host = headers.get("host", "")
        if "*" not in self.hosts and _name(host) not in self.hosts:
            return Refused(421, f"this server is not called {host[:100]!r}; allow the name with --allow-host")
        origin = headers.get("origin")
        if origin is not None and not self._trusts(origin):
            return Refused(403, f"requests of pages from {origin[:100]!r} are not allowed")
        if self.token is None:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_ours = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != "bearer" or not is_ours:
            challenge = (("www-authenticate", "Bearer"),)
            return Refused(401, "the bearer token is missing or wrong", headers=challenge)
        return None

    def _trusts(self, origin: str) -> bool:
        scheme, _, netloc = origin.partition("://")
        return origin in self.origins or (scheme in ("http", "https") and _name(netloc) in LOOPBACK)


def by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name. One that is there twice is both its values: whoever stands before us may go by either."""
    found: dict[str, str] = {}
    for name, value in headers:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


_NETLOC = re.compile(r"(\[[0-9a-f:.]+\]|[^][:@/\s]+)(:[0-9]*)?", re.IGNORECASE)


def _name(netloc: str) -> str:
    """A host's name without its port; nothing where that is not all there is."""
    whole = _NETLOC.fullmatch(netloc)
    return "" if whole is None else whole[1].lower()


def accepts(header: str, *types: str) -> bool:
    """Whether whoever sends this `Accept` takes every one of these types."""
    taken = {part.partition(";")[0].strip().lower() for part in header.split(",")}
    return all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & taken for kind in types)


def posted(headers: Mapping[str, str]) -> Refused | None:
    """What is wrong with a message before it is read."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return Refused(415, "the body must be application/json")
    if not accepts(headers.get("accept", "*/*"), "application/json", "text/event-stream"):
        return Refused(406, "the answer may be application/json or text/event-stream; Accept must name both")
    version = headers.get("mcp-protocol-version")
    if version is not None and version not in (*MODERN_REVISIONS, *REVISIONS):
        data = {"supported": [*MODERN_REVISIONS, *REVISIONS], "requested": version}
        return Refused(400, "Unsupported protocol version", errors.UNSUPPORTED_VERSION, data)
    return None


def requests_in(message: Any) -> int | Refused:
    """How many answers a body waits for; a batch may hold several requests.

    What a machine would pass over in silence is refused here, for nobody would ever answer it.
    """
    items = message if isinstance(message, list) else [message]
    if not items or not all(isinstance(item, dict) for item in items):
        return Refused(400, "the body must be a message, or a batch of messages")
    if len(items) > MAX_BATCH:
        return Refused(400, f"a batch has at most {MAX_BATCH:,} messages")
    asking = [item for item in items if "method" in item]
    if not all(isinstance(item["method"], str) and item["method"] for item in asking):
        return Refused(400, "method must be a string that is not empty")
    if not all(type(item.get("id")) in messages.IDS for item in asking):
        return Refused(400, "id must be a number or a string")
    return sum(messages.wants_answer(item["method"], item["id"]) for item in asking if "id" in item)


def is_modern(headers: Mapping[str, str], message: Any) -> bool:
    """Whether a message is of the modern era: its header or its body says so."""
    meta = as_object(as_object(as_object(message).get("params")).get("_meta"))
    return messages.VERSION in meta or headers.get("mcp-protocol-version") in MODERN_REVISIONS


def modern(headers: Mapping[str, str], message: Any, input_schema: Any) -> Refused | None:
    """What is wrong with a request of the modern era: headers must say what the body says."""
    method = as_object(message).get("method")
    if not isinstance(method, str):
        return Refused(400, "the body must be one request or one notification")
    if "id" not in message:
        return None
    params = as_object(message.get("params"))
    meta = as_object(params.get("_meta"))
    if not isinstance(meta.get(messages.VERSION), str) or not isinstance(meta.get(messages.CAPABILITIES), dict):
        needed = f"{messages.VERSION} (a string) and {messages.CAPABILITIES} (an object)"
        return Refused(400, f"_meta must hold {needed}", errors.INVALID_PARAMS)
    expected = {"MCP-Protocol-Version": meta[messages.VERSION], "Mcp-Method": method}
    if method in NAMED:
        expected["Mcp-Name"] = params.get(NAMED[method])
    for name, value in expected.items():
        problem = _mismatch(headers, name, value)
        if problem is not None:
            return problem
    return (
        _arguments(headers, as_object(params.get("arguments")), input_schema) if method == messages.CALL_TOOL else None
    )


def _arguments(headers: Mapping[str, str], arguments: dict[str, Any], schema: Any) -> Refused | None:
    for name, path in _mirrored(schema):
        value: Any = arguments
        for key in path:
            value = as_object(value).get(key)
        header = f"Mcp-Param-{name}"
        if value is None and header.lower() not in headers:
            continue
        problem = _mismatch(headers, header, value)
        if problem is not None:
            return problem
    return None


def _mirrored(schema: Any, path: tuple[str, ...] = ()) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The arguments that are repeated in headers: the name of each header, and where the body has its value."""
    for key, part in as_object(as_object(schema).get("properties")).items():
        name = as_object(part).get(PARAM)
        if isinstance(name, str) and name:
            yield name, (*path, key)
        yield from _mirrored(part, (*path, key))


def _mismatch(headers: Mapping[str, str], name: str, value: Any) -> Refused | None:
    said = headers.get(name.lower())
    if said is None:
        return Refused(400, f"Header mismatch: {name} is missing", HEADER_MISMATCH)
    decoded = decoded_value(said)
    if decoded is None or not _is_same(decoded, value):
        return Refused(400, f"Header mismatch: {name} is {said[:100]!r}, the body says otherwise", HEADER_MISMATCH)
    return None


def decoded_value(said: str) -> str | None:
    """The value of a header that may be in base64; None when it cannot be read."""
    before, after = _ENCODED
    if said.startswith(before) and said.endswith(after):
        try:
            return base64.b64decode(said[len(before) : -len(after)], validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            return None
    return said if all(" " <= char <= "~" or char == "\t" for char in said) else None


def _is_same(said: str, value: Any) -> bool:
    if isinstance(value, bool):
        return said == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return said == str(value) or float(said) == value  # a float holds no more than 2**53
        except ValueError:
            return False
    return isinstance(value, str) and said == value
