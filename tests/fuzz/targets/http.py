"""The edge of the server: a request gets one answer, and the application sees only checked hosts and JSON."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from typing import Any

from plugbay.mcp_server.http_checks import LOOPBACK, accepts_host, accepts_origin, check_modern, check_post
from plugbay.server.api.direct import DirectRoutes
from plugbay.server.api.middleware import HttpMiddleware, HttpSettings
from plugbay.server.domain.clock import SystemClock
from plugbay.server.domain.meters import Meters
from tests.fuzz.targets import pieces

SETTINGS = HttpSettings(hosts=("localhost", "127.0.0.1", "[::1]"), max_json=512, max_upload=1024)
TRUSTED = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]*)?", re.IGNORECASE | re.ASCII)
SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)


def check(data: bytes) -> None:
    """A head in lines as a server gives it to the application, an empty line, and the body; the first byte says how
    large the pieces of the body are.
    """
    if not data:
        return
    head, _, body = data[1:].partition(b"\n\n")
    first, *lines = head.split(b"\n")
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    answers = [_runner().run(_ask(first, headers, parts)) for parts in ([body], pieces(body, data[0]) or [b""])]
    assert answers[0] == answers[1], "the pieces change the answer"
    _check_pure({name.decode("latin-1"): value.decode("latin-1") for name, value in headers}, body)


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


async def _ask(first: bytes, headers: list[tuple[bytes, bytes]], body: list[bytes]) -> tuple[int, bytes | None]:
    """The status, and the body that the application got."""
    method, _, target = first.decode("latin-1").partition(" ")
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1"),
        "headers": headers,
    }
    sent: list[Any] = []
    waiting = [{"type": "http.request", "body": part, "more_body": at + 1 < len(body)} for at, part in enumerate(body)]
    seen: list[bytes] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        _check_admitted(headers)
        got, more = b"", True
        while more:
            message = await receive()
            got += message.get("body", b"")
            more = message.get("more_body", False)
        seen.append(got)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    await HttpMiddleware(application, SETTINGS, Meters(), SystemClock(), DirectRoutes([]))(scope, receive, send)
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1, "a request has one answer"
    status, given = starts[0]["status"], dict(starts[0]["headers"])
    assert 200 <= status < 500, f"status {status}"
    assert SAFE_ID.fullmatch(given[b"x-request-id"].decode("latin-1"))
    if status != 200:
        json.loads(b"".join(message.get("body", b"") for message in sent))
    _check_body(headers, b"".join(body), seen[0] if seen else None)
    return status, seen[0] if seen else None


def _values(headers: list[tuple[bytes, bytes]], name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]


def _check_admitted(headers: list[tuple[bytes, bytes]]) -> None:
    host = _values(headers, b"host")
    assert host and TRUSTED.fullmatch(host[0]), "a request for another host is let in"
    for origin in _values(headers, b"origin"):
        scheme, _, netloc = origin.partition("://")
        assert scheme in ("http", "https") and TRUSTED.fullmatch(netloc), "a page of another site is let in"


def _check_body(headers: list[tuple[bytes, bytes]], body: bytes, seen: bytes | None) -> None:
    if seen is None:
        return
    assert seen == body and len(seen) <= SETTINGS.max_upload
    kind = (_values(headers, b"content-type") or [""])[0].partition(";")[0].strip().lower()
    if kind == "application/json":
        assert len(seen) <= SETTINGS.max_json
        written = json.dumps(json.loads(seen.decode())) if seen else ""
        assert "\\u0000" not in written.replace("\\\\", ""), "a text with U+0000 is let in"


def _check_pure(headers: dict[str, str], body: bytes) -> None:
    """The checks of MCP over HTTP."""
    netloc = headers.get("host", "")
    assert accepts_host(netloc, LOOPBACK) == bool(TRUSTED.fullmatch(netloc))
    accepts_origin(headers.get("origin", ""), LOOPBACK)
    check_post(headers)
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return
    if isinstance(message, dict):
        check_modern(headers, message, message.get("schema"))
