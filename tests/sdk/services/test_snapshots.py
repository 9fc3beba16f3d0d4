"""What is asked of the host's store of snapshots, and how its answers read."""

from __future__ import annotations

import pytest

from plugbay.model.operations import GetSnapshot, PublishSnapshot, SubscribeSnapshot
from plugbay.sdk.context import Context
from plugbay.sdk.payloads import from_msgpack, to_json, to_msgpack
from plugbay.sdk.services.chunks import ChunkCollector
from plugbay.sdk.services.host_client import SERVICE_SECONDS
from plugbay.sdk.services.snapshots import Snapshot
from tests.sdk.test_context import Recorder
from tests.support.requirements import requirement


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
