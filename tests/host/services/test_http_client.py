"""One request and its response, byte by byte, however badly the server behaves."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import httpcore2
import pytest

from plugbay.host.services.http_client import (
    MAX_BODY,
    MAX_HEAD,
    MAX_HEADERS,
    OwnAddress,
    PinnedBackend,
    Reply,
    Unreachable,
    send,
)
from plugbay.model.errors import CallFailed, Code
from tests.support.requirements import requirement


class Script(httpcore2.AsyncNetworkBackend, httpcore2.AsyncNetworkStream):
    """A network with one connection: sends these bytes and ends."""

    def __init__(self, raw: bytes, peer: str = "192.0.2.1") -> None:
        self.raw = memoryview(raw)
        self.peer = peer
        self.written = b""
        self.connected: list[tuple[str, int]] = []
        self.closed = False

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> Script:
        self.connected.append((host, port))
        return self

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)  # requests are written in the background
        piece, self.raw = self.raw[:max_bytes], self.raw[max_bytes:]
        return bytes(piece)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.written += buffer

    async def aclose(self) -> None:
        self.closed = True

    def get_extra_info(self, info: str) -> Any:
        return {"server_addr": (self.peer, 80), "client_addr": ("192.0.2.2", 40_000)}.get(info)


def exchange(script: Script, method: str = "GET") -> Reply:
    request = httpcore2.Request(method, "http://name.test/a?b", headers={"Host": "name.test"})
    return asyncio.run(send(request, PinnedBackend("192.0.2.1", network=script), None))


def answered(*pieces: bytes, method: str = "GET") -> Reply:
    """The reply to a request whose server sends these pieces."""
    return exchange(Script(b"".join(pieces)), method)


def refusal(*pieces: bytes, method: str = "GET") -> str:
    script = Script(b"".join(pieces))
    with pytest.raises(CallFailed) as caught:
        exchange(script, method)
    assert caught.value.code == Code.INVALID_INPUT
    assert script.closed
    return caught.value.failure.message


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@requirement("ainb:host-network-pinned")
def test_the_connection_goes_to_the_checked_address_and_is_closed() -> None:
    script = Script(OK + b"Content-Length: 2\r\n\r\nhi")
    assert exchange(script).body == b"hi"
    assert script.connected == [("192.0.2.1", 80)]
    assert script.written == b"GET /a?b HTTP/1.1\r\nHost: name.test\r\n\r\n"
    assert script.closed


def test_nothing_is_sent_to_a_public_address_of_this_machine() -> None:
    script = Script(OK + b"\r\n", peer="192.0.2.2")
    with pytest.raises(OwnAddress):
        exchange(script)
    assert (script.written, script.closed) == (b"", True)


def test_an_address_without_a_server_is_unreachable() -> None:
    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(Unreachable, match="refused"):
            await send(httpcore2.Request("GET", f"http://a.test:{port}"), PinnedBackend("127.0.0.1"), None)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello, and more", b"hello"),
        (OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"\r\nuntil the end", b"until the end"),
        (OK + b"\r\nlines\n with\r\n\r\n blanks\n", b"lines\n with\r\n\r\n blanks\n"),
        (OK + b"\r\n", b""),
        (b"HTTP/1.0 200\r\n\r\nx", b"x"),
        (CHUNKED + b"3\r\nabc\r\nA \r\n0123456789\r\n0\r\n\r\n", b"abc0123456789"),
        (CHUNKED + b"3;name=value\r\nabc\r\n0;x\r\nTrailer: 1\r\n\r\n", b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\nx", b"x"),
    ],
)
def test_an_answer_says_where_it_ends(raw: bytes, body: bytes) -> None:
    reply = answered(raw)
    assert (reply.status, reply.body) == (200, body)


def test_headers_keep_their_order_and_their_repetition() -> None:
    reply = answered(OK + b"Set-Cookie: a\r\nX:\r\nset-cookie: \t b \r\nCaf: \xe9\r\n\r\n")
    assert reply.headers == (("Set-Cookie", "a"), ("X", ""), ("set-cookie", "b"), ("Caf", "é"))
    assert (reply.header("set-cookie"), reply.header("none")) == ("a", None)


@pytest.mark.parametrize(("status", "method"), [(b"204", "GET"), (b"304", "GET"), (b"200", "HEAD")])
def test_some_answers_have_no_body_whatever_they_say(status: bytes, method: str) -> None:
    assert answered(b"HTTP/1.1 " + status + b" x\r\nContent-Length: 99\r\n\r\n", method=method).body == b""


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "without sending a response"),
        (b"HTTP/1.1 200", "without sending a response"),
        (OK + b"Content-Length: 5\r\n\r\nhell", "without sending complete message body"),
        (CHUNKED + b"5\r\nhell", "without sending complete message body"),
        (CHUNKED + b"5\r\nhello\r\n", "without sending complete message body"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", "without sending complete message body"),
        (b"SSH-2.0-x\r\n\r\n", "illegal status line"),
        (b"HTTP/2 200\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 20x\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 099 x\r\n\r\n", "not 99"),
        (OK + b"no colon\r\n\r\n", "illegal header line"),
        (OK + b"A: 1\r\n folded\r\n\r\n", "malformed header line"),
        (OK + b"A: 1\nB: 2\r\n\r\n", "malformed header line"),
        (b"HTTP/1.1 200 OK\nA: 1\n\nbody\r\n\r\n", "malformed header line"),
        (b"HTTP/1.1 100 Continue\nA: 1\r\n\r\n" + OK + b"\r\n", "malformed header line"),
        (OK + b"A : 1\r\n\r\n", "illegal header line"),
        (OK + b"A: 1\0\r\n\r\n", "illegal header line"),
        (OK + b"A: \x1b[2J\r\n\r\n", "control character"),
        (OK + b"A: 1\r\n" * (MAX_HEADERS + 1) + b"\r\n", "more than 100 headers"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "conflicting Content-Length"),
        (OK + b"Content-Length: -1\r\n\r\n", "bad Content-Length"),
        (OK + b"Content-Length: +5\r\n\r\nhello", "bad Content-Length"),
        (OK + b"Content-Length: 0x5\r\n\r\nhello", "bad Content-Length"),
        (OK + b"Content-Length: \xb2\r\n\r\nhello", "bad Content-Length"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "chunked is supported"),
        (OK + b"Transfer-Encoding: identity\r\n\r\n", "chunked is supported"),
        (CHUNKED + b"hello\r\n", "illegal chunk header"),
        (CHUNKED + b"-1\r\n", "illegal chunk header"),
        (CHUNKED + b"0x3\r\nabc\r\n", "illegal chunk header"),
        (CHUNKED + b"3\r\nabcdef\r\n", "malformed chunk footer"),
        (b"HTTP/1.1 101 Switching\r\n\r\n" + OK + b"\r\n", "cannot be read"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + OK + b"\r\n", "interim responses"),
    ],
)
def test_an_invalid_response_is_refused(raw: bytes, word: str) -> None:
    assert word in refusal(raw)


@requirement("ainb:host-network-bounds")
@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (OK + b"A: " + b"x" * (2 * MAX_HEAD) + b"\r\n\r\n", "more than 32,768 bytes"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000 + OK + b"\r\n", "more than 32,768 bytes"),
        (b"SSH" + b"x" * 2_000 + b"\r\n\r\n", "illegal status line"),
        (CHUNKED + b"1;" + b"x" * (4 * MAX_HEAD) + b"\r\nx\r\n", "more framing than content"),
        (OK + b"Content-Length: 12500001\r\n\r\n", "more than 12,500,000 bytes"),
        (OK + b"Content-Length: 999999999999999999\r\n\r\n", "more than 12,500,000 bytes"),
        (CHUNKED + b"FFFFFFFFF\r\n" + bytes(MAX_BODY + 1), "more than 12,500,000 bytes"),
        (
            CHUNKED
            + b"5F5E10\r\n"
            + bytes(0x5F5E10)
            + b"\r\n5F5E10\r\n"
            + bytes(0x5F5E10)
            + b"\r\n80000\r\n"
            + bytes(0x80000),
            "12,500,000",
        ),
        (CHUNKED + b"1\r\nx\r\n" * 100_000, "more framing than content"),
        (CHUNKED + (b"1;" + b"y" * 1000 + b"\r\nx\r\n") * 100, "more framing than content"),
        (CHUNKED + b"0\r\n" + b"Trailer: 1\r\n" * 100_000, "more framing than content"),
    ],
    ids=range(11),
)
def test_no_part_of_a_response_grows_without_bound(raw: bytes, word: str) -> None:
    text = refusal(raw)
    assert word in text
    assert len(text) < 300, "a failure quotes little of the server"


@requirement("ainb:host-network-bounds")
def test_a_body_without_a_length_is_bounded_too_and_the_largest_is_read() -> None:
    assert len(answered(OK + b"\r\n", bytes(MAX_BODY)).body) == MAX_BODY
    assert "more than 12,500,000" in refusal(OK + b"\r\n", bytes(MAX_BODY + 1))
    assert len(answered(OK + b"Content-Length: 12500000\r\n\r\n", bytes(MAX_BODY)).body) == MAX_BODY


def test_many_small_chunks_are_fine_as_long_as_there_is_more_in_them_than_between() -> None:
    assert len(answered(CHUNKED + b"8\r\n01234567\r\n" * 50_000 + b"0\r\n\r\n").body) == 400_000


@requirement("ainb:host-network-not-decoded")
def test_a_compressed_body_stays_as_it_came() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    raw = OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    assert answered(raw).body == bomb
