"""What is asked of a host on behalf of a plugin, and how its answers read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.operations import (
    FetchUrl,
    GetSnapshot,
    InvokeAction,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    SubscribeSnapshot,
)
from plugbay.sdk.context import Context
from plugbay.sdk.services import brokered
from plugbay.sdk.services.brokered import (
    CHUNK_BYTES,
    GRACE_SECONDS,
    ChunkCollector,
    FileEntry,
    Mismatch,
    Response,
    Snapshot,
    as_bytes,
    decode_payload,
    from_json,
    from_msgpack,
    raw_msgpack,
    split_chunks,
    to_json,
    to_msgpack,
)
from plugbay.sdk.services.host_client import SERVICE_SECONDS
from tests.sdk.test_context import Recorder
from tests.support.requirements import requirement


@requirement("ainb:sdk-actions")
def test_an_action_is_given_its_time_and_a_little_more() -> None:
    line = Recorder(b"done")
    actions = Context(line, "p").actions
    assert actions.invoke("a", {"x": 1}, timeout=0.5) == b"done"
    assert actions.invoke("a") == b"done"
    assert line.said == [
        (InvokeAction("a", b'{"x":1}', 500), 0.5 + GRACE_SECONDS),
        (InvokeAction("a", b"", 30_000), SERVICE_SECONDS + GRACE_SECONDS),
    ]


def test_an_action_in_a_time_that_is_none_is_not_asked_for() -> None:
    line, quoted = Recorder(b"done"), "5"
    with pytest.raises(TypeError, match=r"timeout is a number of seconds, .* not '5'"):
        Context(line, "p").actions.invoke("a", timeout=quoted)  # type: ignore[arg-type]
    assert line.said == []


@requirement("ainb:sdk-files")
def test_a_file_is_asked_for_by_its_whole_path() -> None:
    line = Recorder(b"text")
    files = Context(line, "p").files
    for path in ("/a/b", Path("/a/b"), "/a/./x/../b", "~/notes", "b"):
        assert files.read(path) == b"text"
    wanted = ["/a/b", "/a/b", "/a/b", str(Path.home() / "notes"), f"{os.getcwd()}/b"]
    assert line.said == [(ReadFile(path), SERVICE_SECONDS) for path in wanted]


@requirement("ainb:sdk-files")
def test_a_folder_is_a_list_of_entries() -> None:
    line = Recorder([{"name": "a", "is_dir": True, "size": 0}, {"name": "b", "is_dir": False, "size": 7}])
    assert Context(line, "p").files.list("/x", timeout=2) == [FileEntry("a", True, 0), FileEntry("b", False, 7)]
    assert line.said == [(ReadFolder("/x"), 2)]


@requirement("ainb:sdk-http")
def test_a_response_is_read_as_bytes_text_or_json() -> None:
    line = Recorder({"status": 200, "headers": [["Content-Type", "a"], ["X", "1"], ["x", "2"]], "body": b'{"a":1}'})
    response = Context(line, "p").http.fetch("https://a/")
    assert (response.status, response.ok, response.body, response.text) == (200, True, b'{"a":1}', '{"a":1}')
    assert (response.json(), response.header("x"), response.header("y")) == ({"a": 1}, "1", None)
    assert response.headers == [("Content-Type", "a"), ("X", "1"), ("x", "2")]
    assert (Response(404, [], b"\xff").ok, Response(404, [], b"\xff").text) == (False, "\N{REPLACEMENT CHARACTER}")


@requirement("ainb:sdk-http")
@pytest.mark.parametrize(
    ("arguments", "op"),
    [
        ({}, FetchUrl("https://a/", "GET", None, [])),
        ({"method": "POST", "body": {"x": 1}}, FetchUrl("https://a/", "POST", b'{"x":1}', [])),
        ({"method": "PUT", "body": ""}, FetchUrl("https://a/", "PUT", b"", [])),
        ({"headers": {"a": "b"}}, FetchUrl("https://a/", "GET", None, [("a", "b")])),
        ({"headers": [("a", "b"), ("a", "c")]}, FetchUrl("https://a/", "GET", None, [("a", "b"), ("a", "c")])),
    ],
)
def test_a_request_says_what_it_needs(arguments: dict[str, Any], op: FetchUrl) -> None:
    line = Recorder({"status": 204, "headers": [], "body": b""})
    Context(line, "p").http.fetch("https://a/", **arguments, timeout=3)
    assert line.said == [(op, 3)]


@requirement("ainb:sdk-snapshots")
def test_a_snapshot_reads_as_what_it_was_written_as() -> None:
    assert Snapshot("t", b"hi").text() == "hi"
    assert Snapshot("t", to_json({"a": 1})).json() == Snapshot("t", to_msgpack({"a": 1})).msgpack() == {"a": 1}
    with pytest.raises(ValueError, match="JSON"):
        Snapshot("t", b"{").json()


@requirement("ainb:sdk-snapshots")
def test_bytes_texts_and_values_are_published() -> None:
    line = Recorder()
    snapshots = Context(line, "p").snapshots
    for value in (b"\xff", "é", {"a": 1}):
        snapshots.publish("t", value)
    assert line.said == [PublishSnapshot("t", data) for data in (b"\xff", b"\xc3\xa9", b'{"a":1}')]


@requirement("ainb:sdk-snapshots")
def test_the_last_one_can_be_asked_for() -> None:
    line = Recorder({"data": b"x", "version": 7})
    assert Context(line, "p").snapshots.get("t", timeout=2) == Snapshot("t", b"x", 7)
    empty = Recorder({"data": None, "version": 0})
    assert Context(empty, "p").snapshots.get("t") is None
    assert (line.said, empty.said) == ([(GetSnapshot("t"), 2)], [(GetSnapshot("t"), SERVICE_SECONDS)])


@requirement("ainb:sdk-snapshots")
def test_one_more_topic_can_be_subscribed_to() -> None:
    line = Recorder({})
    assert Context(line, "p").snapshots.subscribe("t") is None
    assert line.said == [(SubscribeSnapshot("t"), SERVICE_SECONDS)]


@requirement("ainb:sdk-chunks-envelope")
@pytest.mark.parametrize("encoding", ["msgpack", "json"])
def test_what_is_too_much_for_one_piece_goes_out_in_several(encoding: str) -> None:
    line, collector = Recorder(), ChunkCollector(5)
    calls = [{"text": "x" * 100_000, "n": n} for n in range(50)]
    Context(line, "p").snapshots.publish_chunked(
        "t", calls, {"total": 50}, version=5, field="calls", defaults={"total": 0}, encoding=encoding
    )
    assert [op.topic for op in line.said] == ["t"] * 3
    wholes = [collector.add(op.data) for op in line.said]
    assert wholes == [None, None, {"total": 50, "calls": calls}]


@requirement("ainb:sdk-chunks-envelope")
def test_two_publishes_are_told_apart_by_their_time() -> None:
    line = Recorder()
    for _ in range(2):
        Context(line, "p").snapshots.publish_chunked("t", [1], version=1)
    first, second = (from_msgpack(op.data)["published_ns"] for op in line.said)
    assert 0 < first < second


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\xff", b"\xff"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"x"), b"x"),
        ("é", b"\xc3\xa9"),
        (None, b""),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (0, b"0"),
        (False, b"false"),
    ],
)
def test_anything_can_be_given(value: Any, data: bytes) -> None:
    assert as_bytes(value) == data


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), {"a": object()}])
def test_what_has_no_form_as_bytes_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        as_bytes(value)


@pytest.mark.parametrize("value", [{"a": [1, "é", None]}, {}])
def test_an_object_is_read_whichever_way_it_was_written(value: Any) -> None:
    assert decode_payload(to_json(value)) == decode_payload(to_msgpack(value)) == value
    assert decode_payload(b"\n " + to_json(value)) == value


@pytest.mark.parametrize("read", [from_json, from_msgpack, decode_payload])
@pytest.mark.parametrize("data", [b"", b"\xc1", b'{"a":'])
def test_what_cannot_be_read_is_a_value_error(read: Any, data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_what_is_written_already_is_spliced_in() -> None:
    inner = to_msgpack({"a": [1]})
    assert from_msgpack(to_msgpack({"items": [raw_msgpack(inner)]})) == {"items": [{"a": [1]}]}


ENCODINGS = pytest.mark.parametrize("encoding", ["json", "msgpack"])


def pieces(items: Any, aggregates: Any = None, *, version: int = 3, published_ns: int = 1, **more: Any) -> list[bytes]:
    return list(split_chunks(items, aggregates, version=version, published_ns=published_ns, **more))


def envelope(index: int, data: Any = None, **more: Any) -> dict[str, Any]:
    said = {"version": 3, "published_ns": 1, "partial": False, "chunk_index": index, "is_final": False}
    return {**said, "data": {"calls": [index]} if data is None else data, **more}


# Cutting.


@ENCODINGS
@requirement("ainb:sdk-chunks-envelope")
def test_what_fits_is_one_piece_that_is_the_first_and_the_last(encoding: str) -> None:
    (piece,) = pieces([1, 2], {"total": 3}, encoding=encoding, field="calls", partial=True)
    assert decode_payload(piece) == {
        "version": 3,
        "published_ns": 1,
        "partial": True,
        "chunk_index": 0,
        "is_final": True,
        "data": {"total": 3, "calls": [1, 2]},
    }
    assert [decode_payload(piece)["data"] for piece in pieces([], encoding=encoding)] == [{"items": []}]


@ENCODINGS
@requirement("ainb:sdk-chunks-envelope")
def test_the_aggregates_are_in_the_first_piece_and_only_the_last_is_final(encoding: str) -> None:
    cut = [
        decode_payload(piece)
        for piece in pieces([f"{n:04}" for n in range(10)], {"sum": 1}, encoding=encoding, chunk_bytes=20)
    ]
    assert [piece["chunk_index"] for piece in cut] == list(range(len(cut)))
    assert [piece["is_final"] for piece in cut] == [False] * (len(cut) - 1) + [True]
    assert [set(piece["data"]) for piece in cut] == [{"sum", "items"}] + [{"items"}] * (len(cut) - 1)
    assert len(cut) >= 3


@requirement("ainb:sdk-chunks-envelope")
def test_a_piece_stays_near_two_mebibytes_and_the_default_is_msgpack() -> None:
    cut = pieces([{"text": "x" * 1000}] * 5000)
    assert [from_msgpack(piece)["chunk_index"] for piece in cut] == [0, 1, 2]
    assert all(len(piece) < CHUNK_BYTES + 20_000 for piece in cut)
    assert sum(len(piece) for piece in cut[:2]) > 1.9 * CHUNK_BYTES


@ENCODINGS
def test_an_item_that_is_larger_than_a_piece_is_shipped_alone(encoding: str) -> None:
    cut = [
        decode_payload(piece)["data"]["items"]
        for piece in pieces(["a", "x" * 99, "b"], encoding=encoding, chunk_bytes=9)
    ]
    assert cut == [["a"], ["x" * 99], ["b"]]
    large = [
        decode_payload(piece)["data"] for piece in pieces([1, 2], {"text": "x" * 99}, encoding=encoding, chunk_bytes=9)
    ]
    assert large == [{"text": "x" * 99, "items": []}, {"items": [1, 2]}]


@ENCODINGS
def test_several_lists_follow_each_other_and_defaults_stand_for_the_aggregates(encoding: str) -> None:
    cut = pieces(
        {"calls": [1, 2], "sessions": ["s"]}, {"total": 2}, defaults={"total": 0}, encoding=encoding, chunk_bytes=1
    )
    assert [decode_payload(piece)["data"] for piece in cut] == [
        {"total": 2, "calls": [], "sessions": []},
        {"total": 0, "calls": [1], "sessions": []},
        {"total": 0, "calls": [2], "sessions": []},
        {"total": 0, "calls": [], "sessions": ["s"]},
    ]


@given(
    st.lists(st.text(max_size=9), max_size=30),
    st.lists(st.integers(), max_size=9),
    st.dictionaries(st.sampled_from(["total", 'quo"te']), st.integers(0, 9)),
    st.integers(1, 60),
    st.sampled_from(["json", "msgpack"]),
)
@requirement("ainb:sdk-chunks-collect")
def test_what_is_cut_is_put_together_again(
    calls: list[str], sums: list[int], aggregates: dict[str, int], size: int, encoding: str
) -> None:
    sums = [number % 2**63 for number in sums]
    collector = ChunkCollector(3)
    cut = pieces({"calls": calls, "sums": sums}, aggregates, encoding=encoding, chunk_bytes=size)
    answers = [collector.add(piece) for piece in cut]
    assert answers[:-1] == [None] * (len(cut) - 1)
    assert answers[-1] == collector.data == {**aggregates, "calls": calls, "sums": sums}
    assert (collector.dropped, collector.mismatch, collector.collecting) == (0, None, False)


# Putting together.


@requirement("ainb:sdk-chunks-collect")
@pytest.mark.parametrize("encode", [lambda said: said, to_json, to_msgpack, lambda said: Snapshot("t", to_json(said))])
def test_a_piece_may_come_in_any_form(encode: Any) -> None:
    collector = ChunkCollector(3)
    assert collector.add(encode(envelope(0, {"total": 2, "calls": [1]}))) is None
    assert collector.collecting
    assert collector.add(encode(envelope(1, {"total": 0, "calls": [2]}, is_final=True))) == {
        "total": 2,
        "calls": [1, 2],
    }


@requirement("ainb:sdk-chunks-collect")
def test_what_a_publisher_leaves_out_has_the_contracts_defaults() -> None:
    assert ChunkCollector(3).add({"version": 3, "data": {"calls": [1]}}) == {"calls": [1]}


@requirement("ainb:sdk-chunks-orphans")
def test_a_piece_without_its_first_is_dropped() -> None:
    collector = ChunkCollector(3)
    assert collector.add(envelope(1)) is None
    assert collector.add(envelope(2, is_final=True)) is None
    assert (collector.data, collector.dropped, collector.collecting) == (None, 2, False)


@requirement("ainb:sdk-chunks-orphans")
def test_a_first_piece_starts_anew() -> None:
    collector = ChunkCollector(3)
    collector.add(envelope(0, {"calls": ["old"]}))
    collector.add(envelope(0, {"calls": ["new"]}, published_ns=2))
    assert collector.add(envelope(1, {"calls": ["old"]}, is_final=True)) is None
    assert collector.add(envelope(1, {"calls": ["!"]}, is_final=True, published_ns=2)) == {"calls": ["new", "!"]}
    assert collector.dropped == 1


@requirement("ainb:sdk-chunks-orphans")
def test_a_gap_gives_up_the_publish_and_a_piece_that_comes_twice_does_not() -> None:
    collector = ChunkCollector(3)
    for index in (0, 1, 1, 0):
        collector.add(envelope(index))
    assert (collector.collecting, collector.dropped) == (True, 1)
    collector.add(envelope(2))
    assert (collector.collecting, collector.dropped) == (False, 2)
    assert collector.add(envelope(3, is_final=True)) is None
    assert collector.dropped == 3


def test_a_publish_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokered, "MAX_CHUNKS", 3)
    collector = ChunkCollector(3)
    for index in range(4):
        collector.add(envelope(index))
    assert (collector.collecting, collector.dropped) == (False, 1)


@requirement("ainb:sdk-wire-version")
@pytest.mark.parametrize("got", [2, 4, "3", None])
def test_another_version_is_something_to_show_and_no_crash(got: Any) -> None:
    collector = ChunkCollector(3)
    whole = collector.add(envelope(0, {"calls": [1]}, is_final=True))
    assert collector.add({"version": got, "data": "of another shape", "chunk_index": "?"}) is None
    assert collector.mismatch == Mismatch(3, got)
    assert str(collector.mismatch) == f"the publisher writes version {got}, and this plugin reads version 3"
    assert collector.data == whole
    collector.add(envelope(0, is_final=True))
    assert collector.mismatch is None


@requirement("ainb:sdk-wire-version")
@pytest.mark.parametrize(
    "piece",
    [
        b"",
        b"{",
        b"\xc1",
        b"[1]",
        to_msgpack([1]),
        {},
        {"data": {}},
        {"version": 3},
        {"version": 3, "data": []},
        {"version": 3, "data": {}, "chunk_index": -1},
        {"version": 3, "data": {}, "chunk_index": True},
        {"version": 3, "data": {}, "chunk_index": "0"},
    ],
)
def test_what_is_no_piece_is_dropped_without_a_crash(piece: Any) -> None:
    collector = ChunkCollector(3)
    assert collector.add(piece) is None
    assert (collector.dropped, collector.mismatch, collector.collecting) == (1, None, False)


def test_what_was_given_is_not_changed() -> None:
    collector, first = ChunkCollector(3), envelope(0, {"calls": [1]})
    collector.add(first)
    collector.add(envelope(1, {"calls": [2], "more": [3]}, is_final=True))
    assert first["data"] == {"calls": [1]}
    assert collector.data == {"calls": [1, 2], "more": [3]}


class Model:
    """What a collector must do, said as simply as possible: the pieces of the publish that is being collected."""

    def __init__(self) -> None:
        self.run: list[tuple[int, int]] = []

    def add(self, batch: int, index: int, count: int) -> list[int] | None:
        if index == 0:
            self.run = [(batch, 0)]
        elif self.run and self.run[0][0] == batch and index == len(self.run):
            self.run.append((batch, index))
        elif self.run and self.run[0][0] == batch and index > len(self.run):
            self.run = []
            return None
        else:
            return None
        if index < count - 1:
            return None
        done, self.run = [number for _, number in self.run], []
        return done


@requirement("ainb:sdk-chunks-collect", "ainb:sdk-chunks-orphans")
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
        lambda counts: st.tuples(
            st.just(counts),
            st.lists(
                st.integers(0, len(counts) - 1).flatmap(lambda b: st.tuples(st.just(b), st.integers(0, counts[b] - 1)))
            ),
        )
    )
)
def test_of_any_interleaving_exactly_the_whole_publishes_come_out(
    told: tuple[list[int], list[tuple[int, int]]],
) -> None:
    counts, arrivals = told
    collector, model = ChunkCollector(3), Model()
    for batch, index in arrivals:
        final = index == counts[batch] - 1
        whole = collector.add(envelope(index, published_ns=batch, is_final=final))
        expected = model.add(batch, index, counts[batch])
        assert whole == (None if expected is None else {"calls": expected})
