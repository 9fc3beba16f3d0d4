"""Answers of the peer: a value, a failure, or nothing that can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.kaged.messages import READS, READS_RAW
from plugbay.contracts.kaged.replies import is_unknown_method, outcome
from plugbay.model.errors import Code
from plugbay.model.operations import GetStored, InvokeTool, ListStored, RunHook
from plugbay.wire.strict_json import ABSENT
from tests.contracts.kaged.talk import line
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


def judged(op: type, answer: dict[str, Any], codec: Codec) -> tuple[Any, str | None]:
    frame = line(answer)
    value, failure = outcome(op, "m", codec.decoder(READS, READS_RAW)(frame), frame, codec.load)
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
