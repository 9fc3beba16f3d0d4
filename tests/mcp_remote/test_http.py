"""HTTP requests of the bridge: bounds, redirects, proxies, and server-sent events in any pieces."""

from __future__ import annotations

import asyncio
import gzip
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp.remote import read_url
from plugbay.mcp_remote.http import EventParser, HttpClient, HttpFailed, StreamEvent
from plugbay.model.errors import Code
from plugbay.model.fetch import Url
from tests.support.http_servers import response, scripted_server
from tests.support.loops import Run
from tests.support.requirements import requirement

STREAM = (
    b"\xef\xbb\xbf: hello\r\nid: 7\r\ndata: one\r\n\r\ndata: two\rdata:three\r\revent: x\nretry: 1500\ndata:  4\n\n"
)
EVENTS = [StreamEvent(b"one", "7"), StreamEvent(b"two\nthree", "7"), StreamEvent(b" 4", "7")]


@requirement("mcp:remote-transport")
@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_events_are_the_same_in_whatever_pieces_they_arrive(cuts: list[int]) -> None:
    parser, at = EventParser(), sorted({0, *cuts, len(STREAM)})
    found = [event for a, b in pairwise(at) for event in parser.feed(STREAM[a:b])]
    assert found == EVENTS
    assert parser.retry == 1.5


@requirement("mcp:remote-bounds")
@pytest.mark.parametrize("piece", [b"x" * 50, b"data: " + b"x" * 44 + b"\n", b"data:\n", b": x\ndata: " + b"x" * 40])
def test_an_event_that_is_too_large_is_refused(piece: bytes) -> None:
    parser = EventParser(limit=200)
    with pytest.raises(HttpFailed) as caught:
        for _ in range(300):
            parser.feed(piece)
    assert caught.value.failure.code == Code.FRAME_TOO_LARGE


def test_comments_alone_may_go_on_for_ever() -> None:
    parser = EventParser(limit=100)
    assert [event for _ in range(1000) for event in parser.feed(b": keep-alive\n\n")] == []


def address(text: str) -> Url:
    url = read_url(text)
    assert isinstance(url, Url)
    return url


async def fetch(url: str, method: str = "GET", limit: int = 1000, **environ: str) -> tuple[int, bytes]:
    http = HttpClient(environ)
    try:
        async with http.send(method, address(url), body=b"" if method == "POST" else None) as found:
            return found.status, await found.body(limit)
    finally:
        await http.aclose()


def code_and_text(run: Run, raw: bytes, method: str = "GET") -> tuple[str, str]:
    """The failure of a request that is answered with these bytes."""
    seen: list[HttpFailed] = []

    async def answer(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(raw)

    async def main() -> None:
        async with scripted_server(answer) as url:
            with pytest.raises(HttpFailed) as caught:
                await fetch(url, method)
            seen.append(caught.value)

    run(main)
    return seen[0].failure.code, seen[0].failure.message


@requirement("mcp:remote-bounds")
@pytest.mark.parametrize(
    ("raw", "method", "code", "words"),
    [
        (response("200 OK", b"x" * 2000), "GET", Code.FRAME_TOO_LARGE, "more than 1,000 bytes"),
        (
            response("200 OK", gzip.compress(b"0" * 900), content_encoding="gzip"),
            "GET",
            Code.MALFORMED_RESPONSE,
            "gzip",
        ),
        (
            response("302 Found", location="https://evil.example/x?k=1"),
            "GET",
            Code.UNAVAILABLE,
            "https://evil.example/x,",
        ),
        (response("302 Found", location="http://[bad"), "GET", Code.UNAVAILABLE, "cannot be used"),
        (response("302 Found", location="/other"), "POST", Code.UNAVAILABLE, "redirects a POST"),
        (response("307 Again", location="/mcp"), "POST", Code.UNAVAILABLE, "more than 3 times"),
        (b"no http at all\r\n\r\n", "GET", Code.UNAVAILABLE, "broke HTTP"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000, "GET", Code.UNAVAILABLE, "broke HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort", "GET", Code.UNAVAILABLE, "was lost"),
        (b"", "GET", Code.UNAVAILABLE, "closed the connection"),
    ],
)
def test_a_response_that_cannot_be_used_is_a_failure(run: Run, raw: bytes, method: str, code: str, words: str) -> None:
    found = code_and_text(run, raw, method)
    assert found[0] == code and words in found[1]


@requirement("mcp:remote-bounds")
def test_an_endless_body_is_read_up_to_the_limit(run: Run) -> None:
    async def answer(writer: asyncio.StreamWriter, *_: object) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
            await writer.drain()

    async def main() -> None:
        async with scripted_server(answer) as url:
            with pytest.raises(HttpFailed) as caught:
                await fetch(url, limit=100_000)
            assert caught.value.failure.code == Code.FRAME_TOO_LARGE

    run(main)


@requirement("mcp:remote-transport")
def test_a_redirect_within_the_origin_is_followed(run: Run) -> None:
    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        moved = line.startswith("POST /mcp ")
        writer.write(response("307 Again", location="/mcp/") if moved else response("200 OK", line.encode()))

    async def main() -> None:
        async with scripted_server(answer) as url:
            assert await fetch(url, "POST") == (200, b"POST /mcp/ HTTP/1.1")

    run(main)


@requirement("mcp:remote-confined")
def test_the_proxy_of_the_environment_is_used_unless_the_host_is_exempt(run: Run) -> None:
    async def answer(writer: asyncio.StreamWriter, line: str, headers: Any, body: bytes) -> None:
        writer.write(response("200 OK", line.encode()))

    async def main() -> None:
        async with scripted_server(answer) as proxy:
            named = proxy.removesuffix("/mcp")
            assert await fetch("http://127.0.0.1:9/x", HTTP_PROXY=named) == (200, b"GET http://127.0.0.1:9/x HTTP/1.1")
            for exempt in ("127.0.0.1", "*", "a.example, 127.0.0.1:9"):
                with pytest.raises(HttpFailed):
                    await fetch("http://127.0.0.1:9/x", http_proxy=named, no_proxy=exempt)

    run(main)
