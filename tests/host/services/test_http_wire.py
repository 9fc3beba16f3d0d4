"""One request and one answer, byte by byte, however badly the server behaves."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from plugbay.host.services.http_wire import MAX_HEAD, Reply, read_reply, written
from plugbay.model.errors import CallFailed, Code
from plugbay.model.fetch import MAX_BODY, MAX_HEADERS
from tests.support.requirements import requirement


def answered(*pieces: bytes, method: str = "GET") -> Reply:
    """What is made of an answer that comes in these pieces and then ends."""

    async def main() -> Reply:
        reader = asyncio.StreamReader(MAX_HEAD)
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        return await read_reply(reader, method)

    return asyncio.run(main())


def refusal(*pieces: bytes, method: str = "GET") -> str:
    with pytest.raises(CallFailed) as caught:
        answered(*pieces, method=method)
    assert caught.value.code == Code.INVALID_INPUT
    return caught.value.failure.message


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def test_a_request_is_its_lines_and_its_body() -> None:
    assert written("POST", "/a?b", [("Host", "x"), ("A", "1")], b"\r\nbody") == (
        b"POST /a?b HTTP/1.1\r\nHost: x\r\nA: 1\r\n\r\n\r\nbody"
    )
    assert written("GET", "/", [], None) == b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello, and more", b"hello"),
        (OK + b"Content-Length: 5\r\ncontent-length: 5\r\n\r\nhello", b"hello"),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
        (OK + b"\r\nuntil the end", b"until the end"),
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
        (b"", "before the answer was complete"),
        (b"HTTP/1.1 200", "before the answer was complete"),
        (OK + b"Content-Length: 5\r\n\r\nhell", "before the answer was complete"),
        (CHUNKED + b"5\r\nhell", "before the answer was complete"),
        (CHUNKED + b"5\r\nhello\r\n", "before the answer was complete"),
        (CHUNKED + b"5\r\nhello\r\n0\r\n", "before the answer was complete"),
        (b"SSH-2.0-x\r\n\r\n", "not HTTP"),
        (b"HTTP/2 200\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 20x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 099 x\r\n\r\n", "not HTTP"),
        (OK + b"no colon\r\n\r\n", "malformed header line"),
        (OK + b"A: 1\r\n folded\r\n\r\n", "malformed header line"),
        (OK + b"A : 1\r\n\r\n", "malformed header line"),
        (OK + b"A: 1\0\r\n\r\n", "malformed header line"),
        (OK + b"A: 1\nB: 2\r\n\r\n", "malformed header line"),
        (OK + b"A: 1\r\n" * (MAX_HEADERS + 1) + b"\r\n", "too many headers"),
        (OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "ambiguous content-length"),
        (OK + b"Content-Length: -1\r\n\r\n", "ambiguous content-length"),
        (OK + b"Content-Length: +5\r\n\r\nhello", "ambiguous content-length"),
        (OK + b"Content-Length: 0x5\r\n\r\nhello", "ambiguous content-length"),
        (OK + b"Content-Length: \xb2\r\n\r\nhello", "ambiguous content-length"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "only chunked"),
        (OK + b"Transfer-Encoding: identity\r\n\r\n", "only chunked"),
        (CHUNKED + b"hello\r\n", "malformed chunk size"),
        (CHUNKED + b"-1\r\n", "malformed chunk size"),
        (CHUNKED + b"0x3\r\nabc\r\n", "malformed chunk size"),
        (CHUNKED + b"FFFFFFFFF\r\n", "malformed chunk size"),
        (CHUNKED + b"3\r\nabcdef\r\n", "longer than its size"),
        (b"HTTP/1.1 101 Switching\r\n\r\n" + OK + b"\r\n", "no final response"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + OK + b"\r\n", "no final response"),
    ],
)
def test_an_answer_that_is_none_is_refused(raw: bytes, word: str) -> None:
    assert word in refusal(raw)


@requirement("ainb:host-network-bounds")
@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (OK + b"A: " + b"x" * (2 * MAX_HEAD) + b"\r\n\r\n", "more than 32,768 bytes"),
        (CHUNKED + b"1;" + b"x" * (2 * MAX_HEAD) + b"\r\nx\r\n", "more than 32,768 bytes"),
        (OK + b"Content-Length: 12500001\r\n\r\n", "more than 12,500,000 bytes"),
        (OK + b"Content-Length: 999999999999999999\r\n\r\n", "more than 12,500,000 bytes"),
        (CHUNKED + b"FFFFFFFF\r\n", "more than 12,500,000 bytes"),
        (CHUNKED + b"5F5E10\r\n" + bytes(0x5F5E10) + b"\r\n5F5E10\r\n" + bytes(0x5F5E10) + b"\r\n1\r\n", "12,500,000"),
        (CHUNKED + b"1\r\nx\r\n" * 100_000, "more framing than content"),
        (CHUNKED + (b"1;" + b"y" * 1000 + b"\r\nx\r\n") * 100, "more framing than content"),
        (CHUNKED + b"0\r\n" + b"Trailer: 1\r\n" * 100_000, "more framing than content"),
    ],
    ids=range(9),
)
def test_no_part_of_an_answer_grows_without_bound(raw: bytes, word: str) -> None:
    assert word in refusal(raw)


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
