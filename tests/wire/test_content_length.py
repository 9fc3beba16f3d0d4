"""The header grammar line by line, the caps, and what a hostile stream costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.errors import Code
from plugbay.wire.content_length import (
    HEAD_BYTES,
    OPEN_HEADERS,
    STRICT_HEADERS,
    ContentLengthDecoder,
    FrameFault,
    HeaderRules,
    encode,
)
from tests.wire.chunks import cut, one_by_one, places

MEBIBYTE = 1024 * 1024
TOO_LARGE = Code.FRAME_TOO_LARGE
MALFORMED = Code.MALFORMED_RESPONSE

BODY = b"hello"


def decode(chunks: list[bytes], rules: HeaderRules) -> list[bytes | FrameFault | None]:
    """Everything a decoder has to say about a stream that ends."""
    decoder = ContentLengthDecoder(rules)
    items: list[bytes | FrameFault | None] = [item for chunk in chunks for item in decoder.feed(chunk)]
    return [*items, decoder.eof()]


def verdict(header: bytes, rules: HeaderRules) -> bytes | str | None:
    """The body, or the code of the fault, of a stream that is this header and BODY; however it is cut."""
    whole = decode([header + BODY], rules)
    assert decode(one_by_one(header + BODY), rules) == whole
    first = whole[0]
    return first.code if isinstance(first, FrameFault) else first


def padded(total: int) -> bytes:
    """A header block of exactly `total` bytes that asks for BODY, made long by blanks."""
    block = b"Content-Length:%b5\r\n\r\n"
    return block % (b" " * (total - len(block % b"")))


HEADERS = [
    # header                                             strict     open
    (b"Content-Length: 5\r\n\r\n", BODY, BODY),
    (b"content-length: 5\r\n\r\n", BODY, BODY),
    (b"CONTENT-LENGTH:5\r\n\r\n", BODY, BODY),
    (b"CoNtEnT-lEnGtH:\t5\t\r\n\r\n", BODY, BODY),
    (b"  Content-Length  :  5  \r\n\r\n", BODY, BODY),
    (b"Content-Length: 05\r\n\r\n", BODY, BODY),
    (b"Content-Length: 0000000005\r\n\r\n", BODY, BODY),
    (b"Content-Length: 00000000005\r\n\r\n", BODY, BODY),
    (b"Content-Length: %b5\r\n\r\n" % (b"0" * 4000), BODY, BODY),
    (b"Content-Length: %b\r\n\r\n" % (b"0" * 4000), b"", b""),
    (b"Content-Length: %b16777217\r\n\r\n" % (b"0" * 40), TOO_LARGE, TOO_LARGE),
    (b"Content-Length: +5\r\n\r\n", BODY, MALFORMED),
    (b"Content-Length: ++5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: + 5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: +\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: -1\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: -0\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 0x5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 1_0\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5.0\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5e0\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5 5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5,5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5;\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: five\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: \r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length:\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length 5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: \xd9\xa5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: \xb2\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\n\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\n\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r \r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\0\r\n\r\n", MALFORMED, MALFORMED),
    (b"\r\n", MALFORMED, MALFORMED),
    (b"\n", MALFORMED, MALFORMED),
    (b"\r\nContent-Length: 5\r\n\r\n", MALFORMED, MALFORMED),
    (b" \r\n\r\n", MALFORMED, MALFORMED),
    (b": 5\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", BODY, MALFORMED),
    (b"Content-Length: 9\r\nContent-Length: 5\r\n\r\n", BODY, MALFORMED),
    (b"Content-Length: 5\r\ncontent-length: x\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 99999999\r\nContent-Length: 5\r\n\r\n", BODY, MALFORMED),
    (b"Content-Type: application/json\r\nContent-Length: 5\r\n\r\n", MALFORMED, BODY),
    (b"Content-Length: 5\r\nContent-Type: a; charset=utf-8\r\n\r\n", MALFORMED, BODY),
    (b"Content-Length: 5\r\nX: \r\n\r\n", MALFORMED, BODY),
    (b"Content-Length: 5\r\nX: a:b\r\n\r\n", MALFORMED, BODY),
    (b"Content-Length: 5\r\nX: \xc3\xa9\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\nX: \xff\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\nX: a\rb\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 5\r\n folded\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Type: application/json\r\n\r\n", MALFORMED, MALFORMED),
    (b"Content-Length: 9999999999\r\n\r\n", TOO_LARGE, TOO_LARGE),
    (b"Content-Length: 10000000000\r\n\r\n", TOO_LARGE, TOO_LARGE),
    (b"Content-Length: 1000000000000000000\r\n\r\n", TOO_LARGE, TOO_LARGE),
    (b"Content-Length: 16777217\r\n\r\n", TOO_LARGE, TOO_LARGE),
    (b"Content-Length: 8388609\r\n\r\n", MALFORMED, TOO_LARGE),  # strict: fine, but the body never comes
    (b"Starting up...\r\nContent-Length: 5\r\n\r\n", MALFORMED, MALFORMED),
    (b"INFO: ready\nContent-Length: 5\r\n\r\n", MALFORMED, MALFORMED),
    (b'{"jsonrpc":"2.0"}\n', MALFORMED, MALFORMED),
    (b"\xef\xbb\xbfContent-Length: 5\r\n\r\n", MALFORMED, MALFORMED),
    (padded(4096), BODY, BODY),
    (padded(4097), BODY, TOO_LARGE),
    (padded(8192), BODY, TOO_LARGE),
    (padded(8193), TOO_LARGE, TOO_LARGE),
    (b"x" * 65536, TOO_LARGE, TOO_LARGE),
    (b"Content-Length: " + b"9" * 65536, TOO_LARGE, TOO_LARGE),
    (b"X: y\r\n" * 1000 + b"Content-Length: 5\r\n\r\n", MALFORMED, TOO_LARGE),
]


@pytest.mark.parametrize(("header", "strict", "lenient"), HEADERS)
def test_a_header_is_read_exactly_or_is_fatal(header: bytes, strict: bytes | str, lenient: bytes | str) -> None:
    assert verdict(header, STRICT_HEADERS) == strict
    assert verdict(header, OPEN_HEADERS) == lenient


@pytest.mark.parametrize("rules", [STRICT_HEADERS, OPEN_HEADERS])
@pytest.mark.parametrize("header", [header for header, *_ in HEADERS])
def test_after_a_fault_the_decoder_is_dead(header: bytes, rules: HeaderRules) -> None:
    decoder = ContentLengthDecoder(rules)
    items = decoder.feed(header)
    if any(isinstance(item, FrameFault) for item in items):
        assert isinstance(items[-1], FrameFault)
        assert decoder.feed(encode(BODY, 100)) == []
        assert decoder.eof() is None
        assert decoder.pending == 0


def test_the_two_sets_of_rules_are_the_published_ones() -> None:
    assert (STRICT_HEADERS.max_header, STRICT_HEADERS.max_body) == (8192, 16 * MEBIBYTE)
    assert (OPEN_HEADERS.max_header, OPEN_HEADERS.max_body) == (4096, 8 * MEBIBYTE)


def test_an_empty_body_is_a_frame_and_needs_no_further_byte() -> None:
    decoder = ContentLengthDecoder(STRICT_HEADERS)
    assert decoder.feed(b"Content-Length: 0\r\n\r\nContent-Length: 000\r\n\r\n") == [b"", b""]
    assert decoder.eof() is None


def test_a_body_may_look_like_a_header() -> None:
    frame = encode(b"Content-Length: 5\r\n\r\n", 100)
    assert decode([frame + frame], STRICT_HEADERS) == [b"Content-Length: 5\r\n\r\n"] * 2 + [None]


@pytest.mark.parametrize("stream", [b"C", b"Content-Length: 5\r\n", b"Content-Length: 5\r\n\r"])
def test_the_end_inside_a_header_is_a_fault(stream: bytes) -> None:
    assert decode([stream], STRICT_HEADERS) == [FrameFault(MALFORMED, "the stream ended inside a header block", stream)]


def test_the_end_inside_a_body_is_a_fault_that_says_how_much_was_missing() -> None:
    fault = FrameFault(MALFORMED, "the stream ended inside a body, 2 bytes short", b"hel")
    assert decode([b"Content-Length: 5\r\n\r\nhel"], STRICT_HEADERS) == [fault]
    fault = FrameFault(MALFORMED, "the stream ended inside a body, 5 bytes short", b"")
    assert decode([b"Content-Length: 5\r\n\r\n"], STRICT_HEADERS) == [fault]


def test_the_end_before_any_header_byte_is_the_only_clean_one() -> None:
    assert decode([], STRICT_HEADERS) == [None]
    assert decode([encode(BODY, 100)], STRICT_HEADERS) == [BODY, None]


def test_a_fault_comes_after_the_bodies_before_it_and_shows_the_offending_header() -> None:
    stream = encode(b"a", 9) + encode(b"b", 9) + b"oops\r\n" + encode(b"c", 9)
    fault = FrameFault(MALFORMED, "a header line has no name and colon", b"oops\r\n")
    assert decode([stream], STRICT_HEADERS) == [b"a", b"b", fault, None]


def test_a_fault_keeps_only_the_beginning_of_the_header() -> None:
    (fault, _) = decode([b"x" * 10_000], STRICT_HEADERS)
    assert isinstance(fault, FrameFault)
    assert fault.head == b"x" * HEAD_BYTES


def test_a_body_over_the_cap_is_refused_before_a_byte_of_it_is_held() -> None:
    rules = HeaderRules(max_header=100, max_body=10, unknown_headers="fatal", repeated_length="last", plus_sign=False)
    decoder = ContentLengthDecoder(rules)
    (fault,) = decoder.feed(b"Content-Length: 11\r\n\r\n" + b"x" * 1000)
    assert isinstance(fault, FrameFault)
    assert fault.code == TOO_LARGE
    assert decoder.pending == 0


def test_a_header_block_without_end_is_refused_at_the_cap() -> None:
    decoder = ContentLengthDecoder(OPEN_HEADERS)
    for _ in range(4096):
        assert decoder.feed(b"x") == []
        assert decoder.pending <= 4096
    (fault,) = decoder.feed(b"x")
    assert isinstance(fault, FrameFault)
    assert fault.code == TOO_LARGE


def test_announcing_a_body_allocates_nothing_and_a_whole_one_is_held_twice_at_most() -> None:
    size = 16 * MEBIBYTE
    chunk = b"x" * 65536
    decoder = ContentLengthDecoder(STRICT_HEADERS)
    tracemalloc.start()
    decoder.feed(b"Content-Length: %d\r\n\r\n" % size)
    announced = tracemalloc.get_traced_memory()[1]
    items = [item for _ in range(size // len(chunk)) for item in decoder.feed(chunk)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(item) for item in items if isinstance(item, bytes)] == [size]
    assert announced < 10_000
    assert peak < 2.5 * size
    assert decoder.pending == 0


class Touched(bytes):
    """Bytes that count how many of them a decoder looks at or copies."""

    total = 0

    def find(self, sub: bytes, start: int = 0, end: int = 2**62) -> int:  # type: ignore[override]
        found = super().find(sub, start, end)
        Touched.total += (found if found >= 0 else min(end, len(self))) - start
        return found

    def __getitem__(self, index: slice) -> bytes:  # type: ignore[override]
        piece = super().__getitem__(index)
        Touched.total += len(piece)
        return piece


def touched(chunks: list[bytes]) -> int:
    Touched.total = 0
    decoder = ContentLengthDecoder(STRICT_HEADERS)
    for chunk in chunks:
        decoder.feed(Touched(chunk))
    return Touched.total


def test_no_cut_makes_a_byte_be_looked_at_more_than_a_few_times() -> None:
    many = encode(b"x" * 20, 100) * 500
    large = encode(b"x" * 20_000, 100_000)
    for stream in (many, large):
        assert touched([stream]) <= 4 * len(stream)
        assert touched(one_by_one(stream)) <= 4 * len(stream)


bodies = st.lists(st.binary(max_size=40), max_size=6)
odd_headers = st.sampled_from([header for header, *_ in HEADERS if len(header) < 100])


@given(bodies, odd_headers, places, st.sampled_from([STRICT_HEADERS, OPEN_HEADERS]))
def test_how_the_stream_is_cut_changes_nothing(
    frames: list[bytes], odd: bytes, where: list[int], rules: HeaderRules
) -> None:
    stream = b"".join(encode(frame, 100) for frame in frames) + odd + b"tail"
    whole = decode([stream], rules)
    assert decode(cut(stream, where), rules) == whole
    assert decode(one_by_one(stream), rules) == whole
    assert whole[: len(frames)] == frames


@given(st.binary(max_size=200), places)
def test_no_bytes_make_it_raise(stream: bytes, where: list[int]) -> None:
    assert decode(cut(stream, where), OPEN_HEADERS) == decode([stream], OPEN_HEADERS)


def test_a_body_over_the_cap_is_not_sent() -> None:
    assert encode(b"12345", 5) == b"Content-Length: 5\r\n\r\n12345"
    with pytest.raises(ValueError, match="over the cap"):
        encode(b"123456", 5)
