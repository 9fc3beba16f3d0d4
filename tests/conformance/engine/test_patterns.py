"""Topics, paths, payloads, chunks and frames are compared by the rules of their contracts."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.conformance.engine.patterns import (
    OPERATORS,
    WORDS,
    Undecodable,
    answers_each,
    chunk_fault,
    decode_base64,
    decode_payload,
    event_fault,
    fits_schema,
    format_value,
    includes,
    is_answered_last,
    is_apart,
    is_below,
    is_covered,
    is_equal,
    is_growing,
    is_schema,
    is_under,
    keeps_schema,
    lacks,
    match,
    pattern_problems,
    strings,
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


def test_a_payload_is_json_or_msgpack_in_base64() -> None:
    value = {"version": 3, "data": {"calls": [1]}}
    assert decode_payload(b64(json.dumps(value).encode())) == value
    assert decode_payload(b64(msgspec.msgpack.encode(value))) == value
    assert decode_base64("") == b""


@pytest.mark.parametrize("payload", ["aGk", "a-_b", "aGk=\n", "ä", [104], None, b64(b"\xc1"), b64(b"")])
def test_what_is_no_payload_cannot_be_decoded(payload: Any) -> None:
    with pytest.raises(Undecodable):
        decode_payload(payload)


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
        ("ea ra eb", "an event of 'b', which is no open request"),
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


@pytest.mark.parametrize("word", WORDS)
def test_a_word_says_what_it_wants_and_is_sure_about_null(word: str) -> None:
    wants, test = WORDS[word]
    assert wants and word.startswith("$")
    if word not in ("$growing", "$answer_last"):  # which are asked about lists alone
        assert test(None) is (word == "$any")


@pytest.mark.parametrize(
    ("word", "value", "fits"),
    [
        ("$tool_name", "x" * 128, True),
        ("$tool_name", "x" * 129, False),
        ("$tool_name", "", False),
        ("$tool_name", "naïve", False),
        ("$uri", "urn:x", True),
        ("$uri", "1x:y", False),
        ("$uri", ":y", False),
        ("$uri", 7, False),
    ],
)
def test_the_names_of_mcp_have_their_letters(word: str, value: object, fits: bool) -> None:
    assert WORDS[word][1](value) is fits


NAMED = {"plugin_id": "example.good", "tools": ["a", "b"], "odd": "$any"}

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def literal(value: Any) -> Any:
    """The pattern that means exactly this value."""
    if isinstance(value, str):
        return "$" + value if value.startswith("$") else value
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value


FITS: list[tuple[Any, Any]] = [
    (1, 1),
    (1, 1.0),
    (None, None),
    ("text", "text"),
    ("$$any", "$any"),
    ([1, "$any"], [1, {}]),
    ({}, {"more": 1}),
    ({"a": 1, "b?": 2}, {"a": 1}),
    ({"a": 1, "b?": 2}, {"a": 1, "b": 2, "c": 3}),
    ({"error?": None}, {"error": None}),
    ("$plugin_id", "example.good"),
    ("$odd", "$any"),
    ("$any", None),
    ("$any_string", ""),
    ("$nonblank", " x "),
    ("$trimmed", "x"),
    ("$any_object", {}),
    ("$any_array", []),
    ("$nonempty", [0]),
    ("$unique", [1, 2, True]),
    ({"$one_of": [1, "$any_string"]}, "x"),
    ({"$all_of": ["$nonempty", {"$each": "$trimmed"}]}, ["x"]),
    ({"$each": 1}, []),
    ({"$subset_of": [1, 2]}, [2]),
    ({"$subset_of": "$tools"}, []),
    ({"$superset_of": "$tools"}, ["c", "b", "a"]),
    ({"$contains": {"name": "x"}}, [1, {"name": "x", "more": 2}]),
    ({"$contains": "ell"}, "hello"),
    ({"$undamaged": "begin ž end"}, {"text": ["say begin ž end now"]}),
    ({"$undamaged": "begin ž end"}, {"text": "begin, and cut"}),
    ({"$undamaged": "begin ž end"}, "something else"),
    ({"$undamaged": "begin ž end"}, '{"q": "begin \\u017e end"}'),
    ({"$undamaged": "begin \\ end"}, "got 'begin \\\\ end'"),
    ({"$undamaged": "begin ž end"}, {"isError": True, "content": [{"text": "no file 'begin ? end'"}]}),
    ({"a": 1, "b": "$absent"}, {"a": 1, "c": 2}),
    ("$any_boolean", False),
    ("$any_integer", -3),
    ("$any_number", 0.5),
    ("$any_number", 2),
    ("$count", 0),
    ({"$among": "$tools"}, "b"),
    ({"$begins_with": ["ext_", "b_"]}, "b_x"),
    ({"$topic_among": ["a.b", "a.b.>"]}, "a.b.c.d"),
    ({"$topic_among": ["a.*.c"]}, "a.b.c"),
    ({"$only": {"a": 1, "b?": 2}}, {"a": 1}),
    ({"$distinct": "name"}, [{"name": "a"}, {"name": "b"}, 7]),
    ({"$between": [-33405, -33401]}, -33405),
    ({"$bytes": [1, 4]}, "ää"),
    ({"$bytes": [0, 4]}, ""),
    ("$base64", "aGk="),
    ("$base64", ""),
    ({"$decodes_to": {"a": "$any_integer"}}, "eyJhIjoxfQ=="),
    ({"$chunks_in_order": True}, []),
    ({"$covered_by": "$tools"}, "a"),
    ({"$covered_by": ["usage.*"]}, "usage.today"),
    ({"$under": ["/home/me/notes"]}, "/home/me/notes/today"),
    ({"$includes": {"a": {"b": [1]}}}, {"a": {"b": [1], "c": 2}}),
    ({"$below": 1}, 0),
    ({"$events_in_time": True}, [{"type": "event", "request_id": "a"}, {"type": "response", "id": "a"}]),
    ({"$answers_each": [{"id": "a"}]}, [{"type": "response", "id": "a"}]),
    ({"$without": "$plugin_id"}, {"a": "nothing of it"}),
    ({"$fits": {"type": "object"}}, {}),
    ({"$keeps": {}}, {}),
    ({"$keeps": {"type": "object"}}, {"structuredContent": {}}),
    ({"$apart_from": "$tools"}, ["c"]),
    ("$tool_name", "admin.tools-list_2"),
    ("$uri", "note://one two"),
    ("$schema", {"type": "object"}),
    ("$growing", [{"params": {"progress": 1}}, {"params": {"progress": 1.5}}]),
    ("$growing", []),
    ("$answer_last", [{"method": "m"}, {"id": 1}]),
]


@pytest.mark.parametrize(("pattern", "value"), FITS, ids=map(str, range(len(FITS))))
def test_a_value_that_fits_has_no_mismatch(pattern: Any, value: Any) -> None:
    assert match(pattern, value, NAMED) == []
    assert pattern_problems(pattern, NAMED) == []


DIFFERS: list[tuple[Any, Any, list[str]]] = [
    ("$base64", "aGk", ['$: expected base64 with its padding, got "aGk"']),
    ("$base64", [104], ["$: expected base64 with its padding, got [104]"]),
    ({"$decodes_to": {"a": 2}}, "eyJhIjoxfQ==", ["$().a: expected 2, got 1"]),
    ({"$decodes_to": {}}, "{}", ['$: expected base64 of JSON or MessagePack, got "{}": not base64']),
    (
        {"$chunks_in_order": True},
        [{"params": {"topic": "t", "payload": "eyJwdWJsaXNoZWRfbnMiOjEsImNodW5rX2luZGV4IjoxfQ=="}}],
        [
            "$: expected every chunk after the one before it, "
            "got chunk 1 of published_ns 1 on t follows no chunk that is still open"
        ],
    ),
    ({"$covered_by": ["usage.*"]}, "usages", ['$: expected a topic covered by one of ["usage.*"], got "usages"']),
    ({"$under": ["/a/b"]}, "/a/bc", ['$: expected an absolute path under one of ["/a/b"], got "/a/bc"']),
    ({"$includes": {"a": 1}}, {"b": 1}, ['$: expected an object with all of {"a": 1}, got {"b": 1}']),
    ({"$below": 80}, 80, ["$: expected an integer that is not negative and below 80, got 80"]),
    (
        {"$events_in_time": True},
        [{"type": "response", "id": "a"}, {"type": "event", "request_id": "a"}],
        ["$: expected every event before the response to its request, got an event of a after its response"],
    ),
    ({"$answers_each": [{"id": "a"}]}, [], ['$: expected one response to each of [{"id": "a"}], got []']),
    ({"$fits": {"type": "object"}}, 1, ['$: expected what fits the schema {"type": "object"}, got 1']),
    (
        {"$keeps": {"type": "object"}},
        {"structuredContent": 1},
        ['$: expected structuredContent that fits the schema {"type": "object"}, got {"structuredContent": 1}'],
    ),
    (
        {"$keeps": {"type": "object"}},
        {},
        ['$: expected structuredContent that fits the schema {"type": "object"}, got {}'],
    ),
    ({"$apart_from": "$tools"}, ["b"], ['$: expected an array with no item of ["a", "b"], got ["b"]']),
    ("$tool_name", "say it", ["$: expected 1 to 128 letters, digits, '_', '-' and '.', got \"say it\""]),
    ("$uri", "one", ['$: expected a URI with a scheme, got "one"']),
    ("$schema", {"type": "strin"}, ['$: expected a valid JSON Schema, got {"type": "strin"}']),
    ("$schema", None, ["$: expected a valid JSON Schema, got null"]),
    (
        "$growing",
        [{"params": {"progress": 1}}, {"params": {"progress": 1}}],
        [
            "$: expected progress that increases with each notification, "
            'got [{"params": {"progress": 1}}, {"params": {"progress": 1}}]'
        ],
    ),
    ("$answer_last", [{"method": "m"}], ['$: expected every notification before the answer, got [{"method": "m"}]']),
    (1, True, ["$: expected 1, got true"]),
    (0, False, ["$: expected 0, got false"]),
    (None, 0, ["$: expected null, got 0"]),
    ("text", "Text", ['$: expected "text", got "Text"']),
    ([1], [1, 2], ["$: expected an array of 1, got [1, 2]"]),
    ([1, 2], {"0": 1}, ['$: expected an array of 2, got {"0": 1}']),
    ([1, [2]], [1, [3]], ["$[1][0]: expected 2, got 3"]),
    ({"a": 1}, {}, ["$.a: expected 1, got nothing"]),
    ({"a": "$nonblank"}, {}, ["$.a: expected a string that is not blank, got nothing"]),
    ({"a": "$plugin_id"}, {}, ['$.a: expected "example.good", got nothing']),
    ({"a": {"b": 1}}, {"a": []}, ["$.a: expected an object, got []"]),
    ({"a": 1, "b": 2}, {"a": 2}, ["$.a: expected 1, got 2", "$.b: expected 2, got nothing"]),
    ({"a?": None}, {"a": {}}, ["$.a: expected null, got {}"]),
    ("$plugin_id", "other", ['$: expected "example.good", got "other"']),
    ("$odd", "anything", ['$: expected "$any", got "anything"']),
    ("$any_string", 1, ["$: expected a string, got 1"]),
    ("$nonblank", " \t", ['$: expected a string that is not blank, got " \\t"']),
    ("$trimmed", " x", ['$: expected a string without blanks around it, got " x"']),
    ("$any_object", [], ["$: expected an object, got []"]),
    ("$any_array", {}, ["$: expected an array, got {}"]),
    ("$nonempty", [], ["$: expected an array that is not empty, got []"]),
    ("$unique", ["a", "a"], ['$: expected an array without repeated items, got ["a", "a"]']),
    ("$unique", "aa", ['$: expected an array without repeated items, got "aa"']),
    ({"$one_of": [1, "$any_object"]}, "x", ['$: expected 1 or an object, got "x"']),
    (
        {"$all_of": ["$nonempty", [1]]},
        [],
        ["$: expected an array that is not empty, got []", "$: expected an array of 1, got []"],
    ),
    ({"$each": 1}, [1, 2], ["$[1]: expected 1, got 2"]),
    ({"$each": 1}, 1, ["$: expected an array, got 1"]),
    ({"$subset_of": "$tools"}, ["a", "z"], ['$[1]: expected one of ["a", "b"], got "z"']),
    ({"$subset_of": [1]}, None, ["$: expected an array, got null"]),
    ({"$superset_of": "$tools"}, ["a"], ['$: expected "b" among its items, got ["a"]']),
    ({"$superset_of": []}, {}, ["$: expected an array, got {}"]),
    ({"$contains": 1}, [True], ["$: expected something with 1, got [true]"]),
    ({"$contains": "x"}, "hello", ['$: expected something with "x", got "hello"']),
    (
        {"$undamaged": "begin ž end"},
        {"t": ["begin ? end"]},
        ['$.t[0]: expected "begin ž end" unchanged, got "begin ? end"'],
    ),
    (
        {"$undamaged": "begin ž end"},
        {"isError": False, "t": "begin ? end"},
        ['$.t: expected "begin ž end" unchanged, got "begin ? end"'],
    ),
    ({"b": "$absent"}, {"b": None}, ["$.b: expected nothing, got null"]),
    ("$any_boolean", 0, ["$: expected true or false, got 0"]),
    ("$any_integer", True, ["$: expected an integer, got true"]),
    ("$any_integer", 1.5, ["$: expected an integer, got 1.5"]),
    ("$any_number", "1", ['$: expected a number, got "1"']),
    ("$count", -1, ["$: expected an integer that is not negative, got -1"]),
    ({"$among": "$tools"}, "z", ['$: expected one of ["a", "b"], got "z"']),
    ({"$begins_with": ["b_"]}, "a_b_", ['$: expected a text that begins with one of ["b_"], got "a_b_"']),
    ({"$begins_with": ["b_"]}, 7, ['$: expected a text that begins with one of ["b_"], got 7']),
    ({"$topic_among": ["a.>"]}, "a", ['$: expected a topic covered by one of ["a.>"], got "a"']),
    ({"$topic_among": ["a.*"]}, "a.b.c", ['$: expected a topic covered by one of ["a.*"], got "a.b.c"']),
    ({"$topic_among": ["a.>"]}, "a.*", ['$: expected a topic covered by one of ["a.>"], got "a.*"']),
    ({"$topic_among": ["a.>"]}, "a..b", ['$: expected a topic covered by one of ["a.>"], got "a..b"']),
    ({"$topic_among": []}, "a", ['$: expected a topic covered by one of [], got "a"']),
    ({"$only": {"a": 1}}, {"a": 2, "z": 3}, ["$.a: expected 1, got 2", "$.z: expected nothing, got 3"]),
    ({"$only": {}}, [], ["$: expected an object, got []"]),
    (
        {"$distinct": "name"},
        [{"name": "a"}, {"name": "a"}],
        ['$[].name: expected a value that no other item has, got "a"'],
    ),
    ({"$between": [1, 2]}, 3, ["$: expected an integer from 1 to 2, got 3"]),
    ({"$between": [0, 2]}, True, ["$: expected an integer from 0 to 2, got true"]),
    ({"$bytes": [1, 3]}, "ää", ['$: expected a text of 1 to 3 bytes, got "ää"']),
    ({"$bytes": [1, 3]}, 12, ["$: expected a text of 1 to 3 bytes, got 12"]),
]


@pytest.mark.parametrize(("pattern", "value", "expected"), DIFFERS, ids=map(str, range(len(DIFFERS))))
def test_a_mismatch_says_where_what_was_expected_and_what_was_there(
    pattern: Any, value: Any, expected: list[str]
) -> None:
    assert [str(miss) for miss in match(pattern, value, NAMED)] == expected


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("$nonblnk", "'$nonblnk' is neither a matcher nor a named value"),
        ({"a": ["$no"]}, "'$no' is neither a matcher nor a named value"),
        ({"$no": 1}, "'$no' is not an operator"),
        ({"$each": 1, "more": 2}, "'$each' must be the only key of its object"),
        ({"$one_of": {}}, "'$one_of' needs a list of patterns"),
        ({"$all_of": []}, "'$all_of' needs a list of patterns"),
        ({"$one_of": ["$no"]}, "'$no' is neither a matcher nor a named value"),
        ({"$subset_of": "$no"}, "'$subset_of' needs a list or the name of one"),
        ({"$superset_of": "tools"}, "'$superset_of' needs a list or the name of one"),
        ({"$each": "$no"}, "'$no' is neither a matcher nor a named value"),
        ({"$undamaged": "word"}, "'$undamaged' needs a text of at least two words"),
        ({"$distinct": 1}, "'$distinct' needs the name of a key"),
        ({"$between": [1]}, "'$between' needs two integers"),
        ({"$bytes": ["1", 2]}, "'$bytes' needs two integers"),
        ({"$among": 7}, "'$among' needs a list or the name of one"),
        ({"$only": []}, "'$only' needs an object"),
        (["$absent"], "'$absent' is neither a matcher nor a named value"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(pattern: Any, problem: str) -> None:
    assert pattern_problems(pattern, NAMED) == [problem]


def test_every_word_and_operator_is_tried_above() -> None:
    tried = repr(FITS) + repr(DIFFERS)
    assert [name for name in (*WORDS, *OPERATORS) if f"'{name}'" not in tried] == []


@given(JSON)
def test_every_value_without_objects_is_its_own_pattern(value: Any) -> None:
    pattern = literal(value)
    if "{" not in repr(pattern):
        assert match(pattern, value) == []


@given(JSON, JSON)
def test_equality_is_symmetric_and_tells_numbers_from_booleans(one: Any, other: Any) -> None:
    assert is_equal(one, one)
    assert is_equal(one, other) == is_equal(other, one)
    assert not is_equal(True, 1)


def test_a_long_value_is_shown_cut() -> None:
    assert len(format_value("x" * 1000)) == 120
    assert format_value("x" * 1000).endswith("…")
