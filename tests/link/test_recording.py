"""A reader gets back every line that was written; it tolerates an unfinished end and refuses other files."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.link.recording import (
    HEAD_BYTES,
    BadRecording,
    Frame,
    Happening,
    Header,
    Item,
    StderrLine,
    encode,
    is_header,
    read,
)
from plugbay.wire.json_gate import DEFAULT_LIMITS, gate

HEADER = Header("rune", "p", "1", "sha256:00", "2026-11-15T00:00:00.000Z")
END = {"ended_at": "2026-11-15T00:00:01.000Z", "frames": 1, "redactions": 0, "dropped": 0}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
times = st.integers(0, 10**9).map(lambda micros: micros / 10**6)
links = st.integers(1, 99)
directions = st.sampled_from(["host", "plugin"])
paths = st.lists(texts, max_size=2).map(tuple)
items: Any = st.one_of(
    st.builds(Frame, times, links, directions, st.integers(0, 10**6), values, redacted=paths),
    st.builds(
        Frame, times, links, directions, st.integers(0, 10**6), st.none(), st.binary(max_size=20), paths, texts, texts
    ),
    st.builds(StderrLine, times, links, texts),
    st.builds(Happening, times, links, st.just("exit"), st.fixed_dictionaries({"code": st.integers(0, 255)})),
)


def lines(*parts: Item | Header | dict[str, Any]) -> list[bytes]:
    return [encode(part) for part in parts]


@given(st.lists(items, max_size=6))
def test_what_is_read_is_what_was_written(written: list[Item]) -> None:
    recording = read(lines(HEADER, *written, END))
    assert recording.header == HEADER
    assert list(recording.items) == written
    assert recording.lines == tuple(range(2, len(written) + 2))
    assert (recording.end, recording.torn) == (END, False)


@given(st.lists(items, min_size=1, max_size=4), st.data())
def test_a_last_line_that_was_not_finished_costs_nothing_but_itself(written: list[Item], data: st.DataObject) -> None:
    *whole, last = lines(HEADER, *written)
    torn = last[: data.draw(st.integers(1, len(last) - 1))]
    recording = read([*whole, torn])
    assert list(recording.items) == written[:-1]
    assert recording.torn and recording.end is None


def test_a_broken_line_that_is_not_the_last_is_named() -> None:
    frame = Frame(0, 1, "host", 2, {})
    with pytest.raises(BadRecording, match="line 3 cannot be read: JSON is malformed"):
        read([*lines(HEADER, frame), b"{oops}\n", *lines(frame)])


@pytest.mark.parametrize(
    "line", [b'{"t":1}\n', b"[]\n", b'{"t":0,"link":1,"direction":"sideways","size":1,"frame":{}}\n']
)
def test_a_line_that_lacks_something_is_named(line: bytes) -> None:
    with pytest.raises(BadRecording, match="line 2 cannot be read"):
        read([*lines(HEADER), line, *lines(END)])


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "this is not a recording"),
        (b'{"a":1}\n', "this is not a recording"),
        (b"hello\n", "this is not a recording"),
        (b'{"plugbay_recording":2}\n', "it has version 2 of the format; this plugbay reads version 1"),
        (
            b'{"plugbay_recording":1,"contract":5,"plugin":{"id":"p","version":"1"},"manifest_digest":"","began_at":""}\n',
            "does not name the plugin",
        ),
    ],
)
def test_what_is_no_recording_is_refused_with_the_reason(first: bytes, why: str) -> None:
    with pytest.raises(BadRecording, match=why):
        read([first] if first else [])


def test_lines_and_keys_of_a_later_version_are_left_out() -> None:
    frame = Frame(0.5, 1, "plugin", 2, {"a": 1})
    later = json.loads(encode(frame)) | {"mood": "good"}
    recording = read([*lines(HEADER), encode(later), b'{"t":1,"link":1,"weather":"fine"}\n'])
    assert recording.items == (frame,)


def test_a_long_frame_is_cut_with_its_true_length_and_a_digest() -> None:
    value = {"text": "x" * 5000}
    whole = json.dumps(value, separators=(",", ":")).encode()
    frame = Frame(0, 1, "host", len(whole), value)
    cut = frame.shortened(4096)
    assert frame.shortened(len(whole)) is frame and cut.shortened(10) is cut
    assert (cut.size, cut.raw, cut.value) == (len(whole), whole[:HEAD_BYTES], None)
    assert cut.cut == f"sha256:{hashlib.sha256(whole).hexdigest()}"
    assert read(lines(HEADER, cut)).items == (cut,)


def test_every_redaction_is_listed_with_its_line() -> None:
    frames = [Frame(0, 1, "host", 2, {}), Frame(0, 1, "host", 2, {"a": "***"}, redacted=("/a",))]
    recording = read(lines(HEADER, *frames))
    assert recording.redactions == [(3, frames[1], "/a")]


def test_a_file_is_known_by_its_first_line() -> None:
    assert is_header(encode(HEADER))
    assert not any(map(is_header, (b"", b"{}\n", b"text\n", encode(HEADER)[:-1])))


def test_a_frame_as_deep_as_the_wire_allows_can_be_read_again() -> None:
    value: Any = 1
    for _ in range(DEFAULT_LIMITS.depth):
        value = [value]
    gate(encode({"a": value})[5:-2])
    frame = Frame(0, 1, "host", 1, value)
    assert read(lines(HEADER, frame)).items == (frame,)


def test_a_line_of_endless_nesting_is_reported_and_harmless() -> None:
    with pytest.raises(BadRecording, match="line 2 cannot be read"):
        read([*lines(HEADER), b"[" * 100_000 + b"\n", *lines(END)])
