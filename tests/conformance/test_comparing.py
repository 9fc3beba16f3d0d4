"""Topics, paths, payloads, chunks and frames are compared by the rules of their contracts."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from plugbay.conformance.comparing import (
    Undecodable,
    answers_each,
    chunk_fault,
    decoded,
    event_fault,
    fits_schema,
    includes,
    is_answered_last,
    is_apart,
    is_below,
    is_covered,
    is_growing,
    is_schema,
    is_under,
    keeps_schema,
    lacks,
    strings,
    topic_matches,
    unbase64,
)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("entries", "topic", "covered"),
    [
        (["a.b"], "a.b", True),
        (["a.b"], "a.bc", False),
        (["a.*"], "a.b.c", True),
        (["*"], "anything", True),
        (["*"], "", False),
        (["a"], 7, False),
        ([], "a", False),
    ],
)
def test_a_topic_is_covered_by_itself_or_a_beginning(entries: list[str], topic: Any, covered: bool) -> None:
    assert is_covered(topic, entries) is covered


@pytest.mark.parametrize(
    ("path", "under"),
    [
        ("/home/me/notes", True),
        ("/home/me/notes/a/b", True),
        ("/home/me/notes-private", False),
        ("/home/me", False),
        ("/home/me/notes/../x", False),
        ("home/me/notes", False),
        ("~/notes", False),
        (None, False),
    ],
)
def test_a_path_is_under_a_root_part_by_part(path: Any, under: bool) -> None:
    assert is_under(path, ["/home/me/notes"]) is under


@pytest.mark.parametrize(
    ("whole", "part", "held"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": [1, 2], "c": 3}}, {"a": {"b": [1, 2]}}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": True}, {"a": 1}, False),
        ({}, {"a": 1}, False),
        ([], {}, False),
    ],
)
def test_an_object_includes_another_with_the_same_values(whole: Any, part: Any, held: bool) -> None:
    assert includes(whole, part) is held


@pytest.mark.parametrize(
    ("value", "end", "below"), [(0, 1, True), (1, 1, False), (-1, 1, False), (True, 5, False), (0.5, 5, False)]
)
def test_a_number_is_below_an_end(value: Any, end: int, below: bool) -> None:
    assert is_below(value, end) is below


def test_every_string_of_a_value_has_a_path() -> None:
    assert strings({"a": ["x", {"b": "y"}], "c": 1}, "$") == [("$.a[0]", "x"), ("$.a[1].b", "y")]


def test_the_wildcards_of_a_topic_stand_for_segments() -> None:
    assert topic_matches("a.*.c", "a.b.c")
    assert topic_matches("a.>", "a.b.c")
    assert not topic_matches("a.>", "a")


def test_a_payload_is_json_or_msgpack_in_base64() -> None:
    value = {"version": 3, "data": {"calls": [1]}}
    assert decoded(b64(json.dumps(value).encode())) == value
    assert decoded(b64(msgspec.msgpack.encode(value))) == value
    assert unbase64("") == b""


@pytest.mark.parametrize("payload", ["aGk", "a-_b", "aGk=\n", "ä", [104], None, b64(b"\xc1"), b64(b"")])
def test_what_is_no_payload_cannot_be_decoded(payload: Any) -> None:
    with pytest.raises(Undecodable):
        decoded(payload)


def publishes(*chunks: tuple[int, int, bool], topic: str = "t") -> list[Any]:
    return [
        {
            "params": {
                "topic": topic,
                "payload": b64(json.dumps({"published_ns": ns, "chunk_index": index, "is_final": final}).encode()),
            }
        }
        for ns, index, final in chunks
    ]


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [(1, 0, True)],
        [(1, 0, False), (1, 1, True), (2, 0, True)],
        [(1, 0, False), (2, 0, False), (2, 1, True)],
    ],
)
def test_chunks_in_their_order_have_no_fault(chunks: list[tuple[int, int, bool]]) -> None:
    assert chunk_fault(publishes(*chunks)) == ""


def test_topics_are_told_apart_and_what_an_envelope_leaves_out_is_one_chunk() -> None:
    one, other = publishes((1, 0, False), (1, 1, True)), publishes((9, 0, False), (9, 1, True), topic="u")
    assert chunk_fault([one[0], other[0], one[1], other[1]]) == ""
    assert chunk_fault([{"params": {"topic": "t", "payload": b64(b'{"published_ns":1}')}}]) == ""


@pytest.mark.parametrize(
    ("chunks", "fault"),
    [
        ([(1, 1, True)], "chunk 1 of published_ns 1 on t follows no chunk that is still open"),
        ([(1, 0, False), (1, 2, True)], "chunk 2 of published_ns 1 on t follows chunk 0 of published_ns 1"),
        ([(1, 0, False), (2, 1, True)], "chunk 1 of published_ns 2 on t follows chunk 0 of published_ns 1"),
        ([(1, 0, True), (1, 1, True)], "chunk 1 of published_ns 1 on t follows no chunk that is still open"),
        ([(1, 0, False)], "the last publish on t has no final chunk"),
    ],
)
def test_chunks_out_of_order_have_one(chunks: list[tuple[int, int, bool]], fault: str) -> None:
    assert chunk_fault(publishes(*chunks)) == fault


def test_a_text_is_looked_for_everywhere_in_a_value() -> None:
    assert lacks({"a": ["b", {"c": "d"}]}, "e")
    assert not lacks({"a": ["b", {"c": "xdx"}]}, "d")
    assert not lacks({"été": 1}, "été")


def test_a_value_fits_a_schema_or_not() -> None:
    assert fits_schema({"a": 1}, {"type": "object", "required": ["a"]})
    assert not fits_schema(None, {"type": "object"})


def test_every_request_has_one_response() -> None:
    requests = [{"id": "a"}, {"id": "b"}]
    assert answers_each([{"id": "b"}, {"id": "a"}], requests)
    assert not answers_each([{"id": "a"}], requests)
    assert not answers_each([{"id": "a"}, {"id": "a"}, {"id": "b"}], requests)


@pytest.mark.parametrize(
    ("frames", "fault"),
    [
        ("", ""),
        ("ea ra", ""),
        ("ea eb rb ea ra", ""),
        ("ra ea", "an event of a after its response"),
        ("ea ra eb", "an event of 'b', which nobody asked"),
    ],
)
def test_events_come_before_their_response(frames: str, fault: str) -> None:
    kinds = {"e": ("event", "request_id"), "r": ("response", "id")}
    value = [{"type": kinds[frame[0]][0], kinds[frame[0]][1]: frame[1]} for frame in frames.split()]
    assert event_fault(value) == fault


# MCP.


def test_a_text_that_is_json_is_looked_into_and_any_other_is_not() -> None:
    folded = json.dumps({"words": ["é"]})
    assert strings({"a": folded, "b": "{no json"}, "$") == [("$.b", "{no json"), ("$.a.words[0]", "é")]


@pytest.mark.parametrize(
    ("result", "schema", "keeps"),
    [
        ({}, {}, True),
        ({"structuredContent": {"x": 1}}, {"required": ["x"]}, True),
        ({"structuredContent": {}}, {"required": ["x"]}, False),
        ({"content": []}, {"type": "object"}, False),
        (7, {"type": "object"}, False),
    ],
)
def test_a_result_keeps_the_schema_that_it_was_promised_to_fit(result: Any, schema: Any, keeps: bool) -> None:
    assert keeps_schema(result, schema) is keeps


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ({"type": "object"}, True),
        ({}, True),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {}}, True),
        ({"type": "strin"}, False),
        (True, False),
    ],
)
def test_a_schema_is_an_object_of_some_dialect(value: Any, good: bool) -> None:
    assert is_schema(value) is good


@pytest.mark.parametrize(("items", "apart"), [(["c"], True), ([], True), (["a", "c"], False), ("c", False)])
def test_a_page_has_nothing_of_the_page_before(items: Any, apart: bool) -> None:
    assert is_apart(items, ["a", "b"]) is apart


@pytest.mark.parametrize(
    ("said", "grows"), [([], True), ([1], True), ([1, 1.5, 2], True), ([1, 1], False), ([2, 1], False)]
)
def test_progress_grows(said: list[float], grows: bool) -> None:
    assert is_growing([{"params": {"progress": number}} for number in said]) is grows


def test_what_is_told_after_the_answer_is_too_late() -> None:
    told, answer = {"method": "notifications/progress"}, {"id": 1, "result": {}}
    assert is_answered_last([told, answer])
    assert not is_answered_last([answer, told])
    assert not is_answered_last([])
