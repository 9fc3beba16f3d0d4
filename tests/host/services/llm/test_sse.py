"""Where an event ends, what of it counts, and how little an endless one costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.llm.sse import EventDecoder
from plugbay.wire.lines import TooLong
from tests.wire.chunks import cut, one_by_one, places


def decode(chunks: list[bytes], max_event: int = 100) -> list[bytes | TooLong]:
    decoder = EventDecoder(max_event)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data: a\r\n\r\n", [b"a"]),
        (b"data: a\r\r", [b"a"]),
        (b"data: a\r\n\n", [b"a"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data: a\rdata: b\r\r", [b"a\nb"]),
        (b"data: a\n\n\n\ndata: b\n\n", [b"a", b"b"]),
        (b": thinking\n\ndata: a\n\n", [b"a"]),
        (b"event: error\nid: 7\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"dataset: x\n\n", []),
        (b"data\n\n", [b""]),
        (b"data: {: }\n\n", [b"{: }"]),
        (b"\xef\xbb\xbf: start\ndata: \xc3\xa9\n\n", [b"\xc3\xa9"]),
        (b"data: whole\n\ndata: cut off\n", [b"whole"]),
        (b"data: whole\n\ndata: cut of", [b"whole"]),
    ],
)
def test_an_event_is_its_data_up_to_a_blank_line_wherever_the_stream_is_cut(stream: bytes, events: list[bytes]) -> None:
    assert decode([stream]) == events
    assert decode(one_by_one(stream)) == events


LINES = st.sampled_from([b"data: a", b"data: bc", b": note", b"event: x", b""])
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), places)
def test_no_cut_changes_what_comes_out(lines: list[tuple[bytes, bytes]], where: list[int]) -> None:
    stream = b"".join(line + end for line, end in lines)
    assert decode(cut(stream, where)) == decode([stream])


def test_an_event_of_exactly_the_cap_is_taken_and_one_byte_more_is_not() -> None:
    assert decode([b"data:" + b"x" * 100 + b"\n\n"]) == [b"x" * 100]
    assert isinstance(decode([b"data:" + b"x" * 101 + b"\n\n"])[0], TooLong)


def test_many_short_lines_do_not_make_a_longer_event() -> None:
    assert isinstance(decode([b"data: 12345678\n" * 12])[0], TooLong)
    assert decode([b"data: 12345678\n" * 11 + b"\n"]) == [b"\n".join([b"12345678"] * 11)]


def test_a_line_without_end_is_reported_before_its_end() -> None:
    decoder = EventDecoder(100)
    fed = 0
    while not decoder.feed(b"x" * 100):
        fed += 100
        assert fed < 10_000, "an endless line was never reported"
