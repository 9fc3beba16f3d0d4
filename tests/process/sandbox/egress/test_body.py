"""Where a body ends: nothing after it is sent on, and servers see one framing only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.process.sandbox.egress.body import MAX_LINE, MAX_TRAILERS, Body, Chunks, Counted

FRAGMENTS = st.sampled_from([b"5\r\n", b"hello", b"\r\n", b"0\r\n", b"\n", b"a;x=y\r\n", b"X: y\r\n", b"ffffffff\r\n"])
WILD = st.lists(FRAGMENTS | st.binary(max_size=6), max_size=20).map(b"".join)


def through(body: Body, data: bytes, size: int) -> tuple[bytes, bool, bool]:
    out = b""
    for at in range(0, len(data), size):
        if body.done or body.problem:
            break
        out += body.feed(data[at : at + size])
    return out, body.done, body.problem


@given(data=WILD, size=st.integers(1, 40))
def test_the_pieces_in_which_chunks_arrive_change_nothing(data: bytes, size: int) -> None:
    assert through(Chunks(), data, size) == through(Chunks(), data, len(data) or 1)


@given(data=WILD)
def test_what_is_sent_on_in_chunks_is_read_the_same_once_more(data: bytes) -> None:
    out, done, _ = through(Chunks(), data, 1000)
    assert through(Chunks(), out, 1000) == (out, done, False)


@given(parts=st.lists(st.binary(min_size=1, max_size=50), max_size=8), size=st.integers(1, 60))
def test_chunks_keep_their_content(parts: list[bytes], size: int) -> None:
    wire = b"".join(b"%X;ext=1\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nX-Trailer: a\r\n\r\n"
    plain = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert through(Chunks(), wire, size) == (plain, True, False)


def test_what_comes_after_the_last_chunk_is_not_sent_on() -> None:
    assert through(Chunks(), b"0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\n\r\n", 1000) == (b"0\r\n\r\n", True, False)


def test_a_counted_body_ends_where_it_says() -> None:
    assert through(Counted(5), b"helloGET / HTTP/1.1", 3) == (b"hello", True, False)
    assert through(Counted(5), b"hell", 3) == (b"hell", False, False)
    assert Counted().done


@pytest.mark.parametrize(
    "data",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"5\rhello\r\n0\r\n\r\n" + b"\n",
        b"0x5\r\nhello",
        b"+5\r\nhello",
        b"-1\r\n",
        b" 5\r\nhello",
        b"5 \r\nhello",
        b"\r\n",
        b"fffffffff\r\n",
        b"5\r\nhelloX\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"5;\0\r\nhello",
        b"5;a\rb\r\nhello",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\n\n",
        b"0;" + b"a" * MAX_LINE,
        b"0\r\nX: " + b"a" * MAX_LINE,
        b"0\r\n" + b"X: y\r\n" * (MAX_TRAILERS + 1),
    ],
)
def test_chunks_that_another_parser_could_read_differently_are_not_sent_on(data: bytes) -> None:
    out, done, problem = through(Chunks(), data, 1)
    assert (done, problem) == (False, True)
    assert not out.endswith(b"0\r\n\r\n")


def test_as_many_trailers_as_there_may_be_are_left_out() -> None:
    assert through(Chunks(), b"0\r\n" + b"X: y\r\n" * MAX_TRAILERS + b"\r\n", 7) == (b"0\r\n\r\n", True, False)
