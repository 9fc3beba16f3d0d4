"""Arguments and context travel as one object, and only what is safe travels."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.kaged.calls import (
    LONGEST_PIECE,
    MAX_ID,
    TEXTS,
    fit_text,
    is_unknown_method,
    read_answer,
    read_call,
    safe_context,
    stringify_arguments,
    write_call,
)
from plugbay.contracts.kaged.messages import MAX_SENT, READS, READS_RAW, Identity, Promise
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import CallMethod, GetStored, InvokeTool, ListStored, RunHook
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import ABSENT, Unencodable
from tests.contracts.kaged.talk import line
from tests.support.codecs import CODECS
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugbay.wire.strict_json import Codec

PROMISE = Promise("p", "1", 1, ("p.report.daily",), ("t",), (), ())
CONTEXT = {
    "operator_id": "op",
    "project_id": "p1",
    "agent_path": "primary",
    "session_id": "ses_1",
    "request_id": "req_1",
    "project_root": "/srv/project one",
}


def sent(op: Any, codec: Codec) -> tuple[str, dict[str, Any]]:
    call = write_call(op, PROMISE, codec)
    assert not isinstance(call, Failure)
    assert b"\n" not in call[1]
    return call[0], json.loads(call[1])


def refused(op: Any, codec: Codec) -> str:
    failure = write_call(op, PROMISE, codec)
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_INPUT
    return failure.message


# Writing.


@requirement("kaged:wire-context", "kaged:wire-tool-prefix")
def test_a_call_is_its_arguments_and_the_context_beside_them(codec: Codec) -> None:
    arguments = {"content": "x", "tags": ["auth"], "context": "not the other one"}
    whole = {**arguments, "_context": CONTEXT}
    assert sent(InvokeTool("t", codec.dump(arguments), CONTEXT), codec) == ("p.t", whole)
    assert sent(CallMethod("p.report.daily", codec.dump(arguments), CONTEXT), codec) == ("p.report.daily", whole)
    assert sent(RunHook("on_session_idle", arguments, CONTEXT), codec) == ("kaged.hook.on_session_idle", whole)


@pytest.mark.parametrize("arguments", [{}, {"a": {}}, {"a": "_context"}, {"a": {"_context": 1}}, {"é": "\u2028\x01"}])
def test_arguments_arrive_unchanged_however_they_look(codec: Codec, arguments: dict[str, Any]) -> None:
    assert sent(InvokeTool("t", codec.dump(arguments)), codec) == ("p.t", {**arguments, "_context": {}})
    assert sent(RunHook("h", codec.dump(arguments)), codec) == ("kaged.hook.h", {**arguments, "_context": {}})


@pytest.mark.parametrize("text", [b"{ }", b' {"a" : 1 } ', b'{\n "a": 1\n}', b'{"a":\n[1]}', b'{"\\u0061":1}'])
def test_arguments_may_be_raw_and_written_in_any_way(text: bytes) -> None:
    whole = {**json.loads(text), "_context": {}}
    assert sent(InvokeTool("t", msgspec.Raw(text)), MsgspecCodec()) == ("p.t", whole)


@requirement("kaged:wire-context-reserved")
@pytest.mark.parametrize("arguments", [b'{"_context":{}}', b'{"a":1,"_context":null}', b'{"\\u005fcontext":1}'])
def test_arguments_must_not_bring_a_context_of_their_own(arguments: bytes) -> None:
    for op in (InvokeTool("t", msgspec.Raw(arguments)), CallMethod("p.report.daily", json.loads(arguments))):
        assert "must not hold '_context'" in refused(op, MsgspecCodec())
    assert "must not hold '_context'" in refused(RunHook("h", msgspec.Raw(arguments)), MsgspecCodec())


@requirement("kaged:wire-context")
@pytest.mark.parametrize("value", [None, [], "text", 5, ["_context"]])
def test_arguments_are_an_object(codec: Codec, value: Any) -> None:
    assert "must be an object" in refused(InvokeTool("t", codec.dump(value)), codec)
    assert "must be an object" in refused(RunHook("h", codec.dump(value)), codec)


@requirement("kaged:wire-declared")
@pytest.mark.parametrize("op", [InvokeTool("u", {}), InvokeTool("p.t", {}), CallMethod("p.t", {}), CallMethod("x", {})])
def test_what_the_manifest_does_not_declare_is_not_called(codec: Codec, op: Any) -> None:
    failure = write_call(op, PROMISE, codec)
    assert isinstance(failure, Failure)
    assert failure.code == Code.TOOL_NOT_EXPOSED


@requirement("kaged:wire-hook-texts")
def test_the_texts_of_a_hook_are_sent_as_strings(codec: Codec) -> None:
    event = {"messages_being_compacted": [{"role": "user"}], "messages_remaining": [], "strategy": "drop", "trigger": 1}
    _, params = sent(RunHook("post_compact", event), codec)
    assert params == {
        "messages_being_compacted": '[{"role":"user"}]',
        "messages_remaining": "[]",
        "strategy": "drop",
        "trigger": "1",
        "_context": {},
    }


@requirement("kaged:wire-hook-cut")
def test_an_endless_transcript_is_cut_to_fit_the_line(codec: Codec) -> None:
    call = write_call(RunHook("on_session_idle", {"transcript": "é" * MAX_SENT + "the end"}, CONTEXT), PROMISE, codec)
    assert not isinstance(call, Failure)
    assert MAX_SENT - 1000 < len(call[1]) < MAX_SENT
    params = json.loads(call[1])
    assert params["transcript"].endswith("the end")
    assert params["_context"] == CONTEXT


# The context.


@requirement("kaged:wire-context-ids")
@pytest.mark.parametrize("key", ["project_id", "session_id", "request_id"])
@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("ses_1", True),
        ("A-b.c_9", True),
        (".", False),
        (".x", True),
        ("x" * MAX_ID, True),
        ("", False),
        ("x" * (MAX_ID + 1), False),
        ("../../x", False),
        ("..", False),
        ("a..b", False),
        ("a/b", False),
        ("a b", False),
        ("a\n", False),
        ("é", False),
        ("\ud800", False),
        (5, False),
        (["a"], False),
    ],
)
def test_an_id_is_safe_as_a_file_name_or_nothing_is_sent(key: str, value: Any, good: bool) -> None:
    verdict = safe_context({key: value})
    if good:
        assert verdict == {key: value}
    else:
        assert isinstance(verdict, Failure)
        assert verdict.code == Code.INVALID_INPUT
        assert key in verdict.message


@requirement("kaged:wire-agent-path")
@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("primary", True),
        ("primary.subagents.review", True),
        ("primary.subagents.a.subagents.b-2", True),
        ("", False),
        ("secondary", False),
        ("primary.", False),
        ("primary.review", False),
        ("primary.subagents", False),
        ("primary.subagents.", False),
        ("primary.subagents.a.b", False),
        ("primary.agents.a", False),
        ("primary.subagents.a/b", False),
        (".primary", False),
        (5, False),
    ],
)
def test_an_agent_path_follows_its_grammar(path: Any, good: bool) -> None:
    assert isinstance(safe_context({"agent_path": path}), dict) is good


@pytest.mark.parametrize(
    ("root", "good"),
    [("/", True), ("/srv/a b", True), ("/a..b", True), ("srv", False), ("/a/../b", False), ("/a\0", False), (1, False)],
)
def test_a_project_root_is_an_absolute_path(root: Any, good: bool) -> None:
    assert isinstance(safe_context({"project_root": root}), dict) is good


@requirement("kaged:wire-context")
def test_what_the_contract_does_not_know_travels_when_it_is_safe_and_null_never_does() -> None:
    given = {"session_id": None, "operator_id": "a@b", "tenant": "acme", "secret": {"token": 1}, "depth": 3}
    assert safe_context(given) == {"tenant": "acme"}


@given(st.dictionaries(st.sampled_from(sorted(CONTEXT)) | st.text(), st.none() | st.integers() | st.text()))
def test_no_context_gets_a_file_name_that_escapes_through(given_context: dict[str, Any]) -> None:
    verdict = safe_context(given_context)
    if isinstance(verdict, dict):
        assert all(".." not in value.split("/") for value in verdict.values())
        assert all("/" not in value for key, value in verdict.items() if key != "project_root")


# Reading.

IDENTITY = Identity("p", "1", methods=("p.report.daily", "q.list"), tools=("t",), hooks=("pre_compact",))


@requirement("kaged:wire-context", "kaged:wire-hooks")
@pytest.mark.parametrize(
    ("name", "params", "op"),
    [
        ("p.t", {"a": 1, "_context": {"x": 2}}, InvokeTool("t", {"a": 1}, {"x": 2})),
        ("p.t", {}, InvokeTool("t", {})),
        ("p.t", None, InvokeTool("t", {})),
        ("p.t", [1], InvokeTool("t", {})),
        ("p.t", {"_context": "odd"}, InvokeTool("t", {})),
        ("p.report.daily", {"a": 1, "_context": {}}, CallMethod("p.report.daily", {"a": 1})),
        ("q.list", None, CallMethod("q.list", {})),
        (
            "kaged.hook.pre_compact",
            {"trigger": "x", "_context": {"y": 1}},
            RunHook("pre_compact", {"trigger": "x"}, {"y": 1}),
        ),
        ("kaged.hook.post_compact", {}, None),
        ("kaged.hook.", {}, None),
        ("t", {}, None),
        ("q.t", {}, None),
        ("p.u", {}, None),
        ("p.t.t", {}, None),
        ("pre_compact", {}, None),
    ],
)
def test_a_plugin_reads_what_it_serves_and_nothing_else(name: str, params: Any, op: Any) -> None:
    assert read_call(IDENTITY, name, params) == op


def judged(op: type, answer: dict[str, Any], codec: Codec) -> tuple[Any, str | None]:
    frame = line(answer)
    value, failure = read_answer(op, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec.load)
    return value, failure.code if failure else None


@requirement("kaged:wire-results")
@pytest.mark.parametrize("result", [None, {}, [], "text", 5, {"content": [{"type": "text"}]}, {"error": 1}], ids=str)
def test_the_result_of_a_tool_or_hook_is_passed_on_unread(codec: Codec, result: Any) -> None:
    for op in (InvokeTool, RunHook):
        value, code = judged(op, {"result": result}, codec)
        assert (codec.load(value), code) == (result, None)


@pytest.mark.parametrize(
    ("op", "answer", "code"),
    [
        (InvokeTool, {"error": {"code": -32601, "message": "m"}}, Code.TOOL_NOT_EXPOSED),
        (InvokeTool, {"error": None}, Code.MALFORMED_RESPONSE),
        (InvokeTool, {"error": None, "result": 1}, Code.MALFORMED_RESPONSE),
        (InvokeTool, {"error": {"code": -32602, "message": "m"}, "result": 1}, Code.MALFORMED_RESPONSE),
        (InvokeTool, {}, Code.MALFORMED_RESPONSE),
        (GetStored, {"result": {}}, Code.MALFORMED_RESPONSE),
        (ListStored, {"result": {"keys": "a"}}, Code.MALFORMED_RESPONSE),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_failure(codec: Codec, op: type, answer: Any, code: str) -> None:
    assert judged(op, answer, codec) == (None, code)


def test_the_value_of_storage_is_taken_out_of_its_answer(codec: Codec) -> None:
    assert judged(ListStored, {"result": {"keys": ["a"]}}, codec) == (["a"], None)


@pytest.mark.parametrize(
    ("error", "unknown"),
    [({"code": -32601}, True), ({"code": -32603}, False), ({}, False), (None, False), ("x", False), (ABSENT, False)],
)
def test_an_unknown_method_is_told_from_every_other_error(error: Any, unknown: bool) -> None:
    assert is_unknown_method(error) is unknown


@pytest.fixture(params=first_alone(CODECS))
def encode(request: pytest.FixtureRequest) -> Callable[[Any], bytes]:
    return CODECS[request.param]().encode


@requirement("kaged:wire-hook-texts")
@pytest.mark.parametrize("key", TEXTS)
@pytest.mark.parametrize(
    ("value", "text"),
    [("as it is", "as it is"), ([{"role": "user"}], '[{"role":"user"}]'), ({}, "{}"), (5, "5"), ("", ""), ([], "[]")],
)
def test_a_text_that_is_none_becomes_the_json_of_it(
    encode: Callable[[Any], bytes], key: str, value: Any, text: str
) -> None:
    assert stringify_arguments({key: value, "other": value}, encode) == {key: text, "other": value}


def test_null_says_nothing_and_is_left_out(encode: Callable[[Any], bytes]) -> None:
    assert stringify_arguments({"transcript": None, "other": None}, encode) == {"other": None}


def test_a_text_without_a_json_form_is_refused(encode: Callable[[Any], bytes]) -> None:
    with pytest.raises(Unencodable):
        stringify_arguments({"transcript": object()}, encode)


@requirement("kaged:wire-hook-cut")
def test_the_newest_words_are_kept_and_the_cut_is_told(encode: Callable[[Any], bytes]) -> None:
    cut = fit_text({"transcript": "old " * 100 + "the end", "strategy": "drop"}, 200, encode)
    assert cut["strategy"] == "drop"
    assert cut["transcript"].startswith("[")
    assert " characters cut] " in cut["transcript"]
    assert cut["transcript"].endswith("the end")
    assert len(encode(cut)) <= 200


def test_a_short_text_is_whole_and_the_long_ones_share_what_it_leaves(encode: Callable[[Any], bytes]) -> None:
    params = {"transcript": "a" * 5000, "messages_remaining": "b" * 6000, "trigger": "token_limit"}
    cut = fit_text(params, 2000, encode)
    assert cut["trigger"] == "token_limit"
    kept = [cut[key].count(letter) for key, letter in (("transcript", "a"), ("messages_remaining", "b"))]
    assert min(kept) > 800
    assert len(encode(cut)) <= 2000


def test_long_texts_are_walked_in_pieces_and_lose_no_more_than_they_must(encode: Callable[[Any], bytes]) -> None:
    room = 3 * LONGEST_PIECE
    cut = fit_text({"transcript": "\n" * LONGEST_PIECE * 4}, room, encode)
    assert room - 100 < len(encode(cut)) <= room


def test_what_texts_cannot_make_fit_stays_too_large(encode: Callable[[Any], bytes]) -> None:
    params = {"transcript": "a" * 100, "other": "x" * 1000}
    assert len(encode(fit_text(params, 500, encode))) > 500


@given(
    st.dictionaries(st.sampled_from(TEXTS), st.text(max_size=400).map(lambda text: text * 5), min_size=1),
    st.integers(600, 4000),
    st.sampled_from(sorted(CODECS)),
)
def test_whatever_the_texts_are_they_fit_and_end_as_they_did(texts: dict[str, str], room: int, name: str) -> None:
    encode = CODECS[name]().encode
    cut = fit_text(texts, room, encode)
    assert len(encode(cut)) <= room
    for key, text in texts.items():
        assert cut[key] == text or text.endswith(cut[key].partition(" characters cut] ")[2])
