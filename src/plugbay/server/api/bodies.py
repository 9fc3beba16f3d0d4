"""Bodies of requests: how large they may be, and that JSON is the JSON we accept before anybody parses it.

Owns two ways to read: JSON whole, everything else piece by piece and counted; neither waits for ever. Refuses to
know what is in them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from plugbay.server.domain.errors import INVALID, GatewayError, invalid, too_large
from plugbay.server.settings import EdgeSettings
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed

UPLOADS = frozenset({"application/gzip", "application/octet-stream", "application/vnd.vai.plugin.package.v1.tar+gzip"})
"""The only kinds that may be large."""

_CODEC = MsgspecCodec()


def kind_of(headers: Headers) -> str:
    """The media type of a body, without its parameters; empty when it is not said."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


async def received(headers: Headers, receive: Receive, settings: EdgeSettings) -> Receive:
    """What a handler reads the body with; raises for one that is too large, or JSON that is none."""
    kind = kind_of(headers)
    most = settings.max_upload if kind in UPLOADS else settings.max_json
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)
    pieces = _timed(receive, settings.body_seconds)
    if not is_json(kind):
        return _counted(pieces, most)
    body = await _whole(pieces, most)
    if body is None:
        return receive
    return Whole(body, _checked(body) if body else None, receive)


class Whole:
    """JSON that is all here: what a handler reads its bytes with, and what they say."""

    def __init__(self, body: bytes, value: Any, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self.value = value

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


def _timed(receive: Receive, seconds: float) -> Receive:
    """Waits only so long for each piece; after the last, for ever: what comes then is that the sender goes."""
    more = True

    async def timed() -> Message:
        nonlocal more
        try:
            async with asyncio.timeout(seconds if more else None):
                message = await receive()
        except TimeoutError:
            text = f"nothing more of the body came for {seconds:g} seconds"
            raise GatewayError(INVALID, "request.timeout", 408, text, retryable=True) from None
        more = message.get("more_body", False)
        return message

    return timed


def _counted(receive: Receive, most: int) -> Receive:
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise _too_large(most)
        return message

    return counted


async def _whole(receive: Receive, most: int) -> bytes | None:
    """All of the body; None when whoever sent it went away."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _checked(body: bytes) -> Any:
    try:
        _CODEC.decode(body)
        value = _DISTINCT.decode(body.decode())
    except Malformed as error:
        raise invalid("request.invalid_json", str(error)) from None
    if b"\\u0000" in body and _has_nul(value):
        raise invalid("request.invalid_json", "U+0000 is in a text, which no database keeps")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """What has a key twice means one thing to us and may mean another to whoever let it through."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Malformed("a key is there twice in one object")
    return found


_DISTINCT = json.JSONDecoder(object_pairs_hook=_distinct)


def _has_nul(value: Any) -> bool:
    todo = [value]
    for item in todo:
        if isinstance(item, str) and "\0" in item:
            return True
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            todo += item
    return False


def _too_large(most: int) -> GatewayError:
    return too_large("request.too_large", f"the body has more than {most:,} bytes", max_bytes=most)
