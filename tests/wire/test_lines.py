"""Where lines end, what is trimmed, and how little an endless one costs."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.wire.lines import HEAD_BYTES, SLACK_BYTES, LineDecoder, TooLong, encode
from tests.wire.chunks import cut, one_by_one, places

MEBIBYTE = 1024 * 1024


def decode(chunks: list[bytes], max_line: int, slack: int = SLACK_BYTES) -> list[bytes | TooLong | None]:
    """Everything a decoder has to say about a stream that ends."""
    decoder = LineDecoder(max_line, slack)
    items: list[bytes | TooLong | None] = [item for chunk in chunks for item in decoder.feed(chunk)]
    return [*items, decoder.eof()]


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", [None]),
        (b"{}\n", [b"{}", None]),
        (b"{}\r\n", [b"{}", None]),
        (b"a\nb\nc\n", [b"a", b"b", b"c", None]),
        (b"\n\r\n \t\v\f\n", [b"", b"", b"", None]),
        (b" \t{} \r\n", [b"{}", None]),
        (b"{}", [b"{}"]),
        (b"a\n b ", [b"a", b"b"]),
        (b"a\n  ", [b"a", b""]),
        (b"a\rb\n", [b"a\rb", None]),
        (b"\xc2\x85\xc2\xa0\n", [b"\xc2\x85\xc2\xa0", None]),
        (b"\x00\x1f\n", [b"\x00\x1f", None]),
        (b"\xe2\x80\xa8x\xff\n", [b"\xe2\x80\xa8x\xff", None]),
    ],
)
def test_only_a_newline_ends_a_line_and_only_ascii_whitespace_is_trimmed(
    stream: bytes, lines: list[bytes | None]
) -> None:
    assert decode([stream], 100) == lines
    assert decode(one_by_one(stream), 100) == lines


def test_a_line_of_exactly_the_cap_is_taken_and_one_byte_more_is_not() -> None:
    assert decode([b"x" * 8 + b"\n"], 8) == [b"x" * 8, None]
    assert decode([b"x" * 9 + b"\n"], 8) == [TooLong(9, b"x" * 9), None]


def test_the_cap_is_measured_after_trimming() -> None:
    assert decode([b"  " + b"x" * 8 + b"\r\n"], 8) == [b"x" * 8, None]


def test_an_unterminated_last_line_is_held_to_the_same_cap() -> None:
    assert decode([b"a\n" + b"x" * 8], 8) == [b"a", b"x" * 8]
    assert decode([b"a\n" + b"x" * 9], 8) == [b"a", TooLong(9, b"x" * 9)]


def test_an_endless_line_is_reported_when_it_passes_the_cap_not_when_it_ends() -> None:
    decoder = LineDecoder(max_line=8, slack=4)
    assert decoder.feed(b"x" * 12) == []
    assert decoder.feed(b"x") == [TooLong(13, b"x" * 13)]
    assert decoder.feed(b"x" * 1000) == []
    assert decoder.feed(b"x\nnext\n") == [b"next"]
    assert decoder.eof() is None


def test_what_is_left_of_a_refused_line_at_the_end_is_not_a_line() -> None:
    assert decode([b"x" * 100], 8, 4) == [TooLong(13, b"x" * 13), None]


def test_blanks_do_not_buy_room_beyond_the_slack() -> None:
    padded = b" " * 5 + b"x" * 8 + b"\n"
    assert decode([padded], 8, 4) == decode(one_by_one(padded), 8, 4) == [TooLong(13, padded[:-1]), None]


def test_each_refused_line_is_reported_once_and_decoding_goes_on() -> None:
    stream = b"a\n" + b"x" * 50 + b"\nb\n" + b"y" * 50 + b"\nc\n"
    assert decode(one_by_one(stream), 8, 4) == decode([stream], 8, 4)
    kinds = [type(item) for item in decode([stream], 8, 4)]
    assert kinds == [bytes, TooLong, bytes, TooLong, bytes, type(None)]


def test_only_the_beginning_of_a_refused_line_is_kept() -> None:
    stream = b"abc" * 1000
    for chunks in ([stream], one_by_one(stream), [stream[:100], stream[100:]]):
        refused = decode(chunks, 8, 4)[0]
        assert isinstance(refused, TooLong)
        assert refused.head == stream[: len(refused.head)]
        assert len(refused.head) <= HEAD_BYTES


def test_nothing_beyond_the_cap_is_held_back_and_all_of_a_line_is_counted() -> None:
    decoder = LineDecoder(max_line=100, slack=10)
    for number in range(1, 51):
        decoder.feed(b"x" * 7)
        assert decoder.pending == 7 * number
        assert len(decoder._buffer) <= 110
    decoder.feed(b"\nab")
    assert decoder.pending == 2


def test_a_gibibyte_without_a_newline_costs_no_more_than_the_cap() -> None:
    decoder = LineDecoder(max_line=MEBIBYTE)
    chunk = b"x" * (4 * MEBIBYTE)
    tracemalloc.start()
    items = [item for _ in range(256) for item in decoder.feed(chunk)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(items) == 1
    assert decoder.pending == 1 << 30
    assert peak < 2 * len(chunk)


class Searched(bytes):
    """Bytes that count how many of them a decoder looks at."""

    total = 0

    def find(self, *arguments: object) -> int:
        Searched.total += len(self)
        return super().find(*arguments)  # type: ignore[arg-type]

    def split(self, *arguments: object) -> list[bytes]:
        Searched.total += len(self)
        return super().split(*arguments)  # type: ignore[arg-type]


def test_a_line_in_single_bytes_is_searched_once_per_byte() -> None:
    Searched.total = 0
    decoder = LineDecoder(max_line=MEBIBYTE)
    for _ in range(20_000):
        decoder.feed(Searched(b"x"))
    assert decoder.feed(Searched(b"\n")) == [b"x" * 20_000]
    assert Searched.total == 20_001


lines = st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=8)


@given(lines, st.binary(max_size=30), places, st.integers(0, 20), st.integers(0, 8))
def test_how_the_stream_is_cut_changes_nothing(
    body: list[bytes], rest: bytes, where: list[int], max_line: int, slack: int
) -> None:
    stream = b"".join(line + b"\n" for line in body) + rest
    whole = decode([stream], max_line, slack)
    assert decode(cut(stream, where), max_line, slack) == whole
    assert decode(one_by_one(stream), max_line, slack) == whole


@given(lines, places)
def test_what_is_encoded_is_decoded(bodies: list[bytes], where: list[int]) -> None:
    stream = b"".join(map(encode, bodies))
    assert decode(cut(stream, where), 100) == [*(body.strip() for body in bodies), None]


def test_a_body_with_a_newline_is_our_own_bug() -> None:
    with pytest.raises(ValueError, match="newline"):
        encode(b"{\n}")
