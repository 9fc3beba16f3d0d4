"""What tools, compactors and harnesses give back. As a host sees it, that is told in test_vai.py."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk import Cancelled, HarnessResult, Seed, ToolExecutionFailed, ToolResult, ToolUnavailable
from plugbay.sdk.results import Declined, Deltas, harness_result, seed_result, tool_result
from plugbay.sdk.work import Compaction
from tests.support.requirements import requirement

COMPACTION = Compaction("cmp_1", None, {}, {}, [], None)
TEXT = {"type": "text", "text": "a"}


@requirement("vai:sdk-tool-result")
def test_content_goes_before_the_text_of_an_object() -> None:
    assert tool_result(ToolResult("a", {"n": 1}))["content"] == [TEXT]
    assert tool_result(ToolResult((), {"n": 1}))["content"] == [{"type": "text", "text": '{"n":1}'}]
    assert tool_result(ToolResult()) == {"content": [], "is_error": False, "retryable": False}


@requirement("vai:sdk-tool-result")
def test_promised_output_is_there_whatever_the_tool_returned() -> None:
    assert tool_result("a", structured=True)["structured_output"] == {"result": "a"}
    assert tool_result(None, structured=True)["structured_output"] == {"result": None}
    assert tool_result({"n": 1}, structured=True)["structured_output"] == {"n": 1}
    assert "structured_output" not in tool_result(ToolResult("a"), structured=True)


@requirement("vai:sdk-one-source")
def test_a_whole_result_is_a_value_or_an_error_to_other_hosts() -> None:
    assert ToolResult("a").__tool_value__() == "a"
    assert ToolResult(["a", "b"]).__tool_value__() == "ab"
    assert ToolResult(["a", {"type": "image"}]).__tool_value__() == [TEXT, {"type": "image"}]
    assert ToolResult("a", {"n": 1}).__tool_value__() == {"n": 1}
    with pytest.raises(ToolExecutionFailed, match="a"):
        ToolResult("a", is_error=True).__tool_value__()
    with pytest.raises(ToolUnavailable, match="a"):
        ToolResult("a", is_error=True, retryable=True).__tool_value__()


@requirement("vai:sdk-streaming")
def test_pieces_go_out_as_they_come_and_are_one_text_in_the_end() -> None:
    sent: list[Any] = []
    deltas = Deltas(sent.append, lambda: None, structured=True)
    for piece in ("a", "b"):
        deltas.add(piece)
    assert [event["content"][0]["text"] for event in sent] == ["a", "b"]
    whole = deltas.end()
    assert (whole["content"], whole["structured_output"]) == ([{"type": "text", "text": "ab"}], {"result": "ab"})
    with pytest.raises(TypeError, match="a tool yields a str"):
        deltas.add(1)
    assert Deltas(sent.append, lambda: None).end()["content"] == []


@requirement("vai:sdk-cancel")
def test_no_piece_goes_out_when_nobody_wants_it() -> None:
    def check() -> None:
        raise Cancelled

    sent: list[Any] = []
    with pytest.raises(Cancelled):
        Deltas(sent.append, check).add("a")
    assert sent == []


@requirement("vai:sdk-compactor")
def test_a_seed_says_everything_itself() -> None:
    block = {"kind": "thinking", "content": [TEXT]}
    result = seed_result(Seed(iter([block, "b"]), "short"), [], COMPACTION)
    assert result["seed_blocks"] == [block, {"kind": "input", "content": [{"type": "text", "text": "b"}]}]
    assert result["summary"] == {"text": "short"}
    assert result["diagnostics"]["input_tokens_estimate"] is None


@pytest.mark.parametrize(
    ("message", "kind"), [("system", "system"), ("user", "input"), ("assistant", "response"), ("tool", "tool_result")]
)
def test_a_message_is_a_block_of_the_kind_of_whose_it_is(message: str, kind: str) -> None:
    [block] = seed_result([{"role": message, "content": "a", "id": 1}], [], COMPACTION)["seed_blocks"]
    assert block == {"kind": kind, "content": [TEXT], "id": 1}


def test_a_block_that_is_none_is_left_to_the_host_or_refused() -> None:
    unknown = {"role": "nobody", "content": [TEXT]}
    assert seed_result([unknown], [], COMPACTION)["seed_blocks"] == [unknown]
    with pytest.raises(TypeError, match="a block is an object or a text"):
        seed_result([7], [], COMPACTION)
    with pytest.raises(TypeError, match="a compactor returns blocks"):
        seed_result({"seed_blocks": []}, [], COMPACTION)
    with pytest.raises(Declined):
        seed_result(None, [], COMPACTION)


@requirement("vai:sdk-compactor")
def test_what_is_pinned_and_system_is_kept_once_beside_a_text() -> None:
    system = {"kind": "system", "content": [TEXT]}
    compaction = Compaction("cmp_1", None, {}, {}, [system, {"kind": "input", "content": []}, 7], None)
    blocks = seed_result("all of it", [system, "odd"], compaction)["seed_blocks"]
    assert [block["kind"] for block in blocks] == ["system", "input", "input"]


@requirement("vai:sdk-harness")
def test_the_checkpoint_of_the_result_goes_before_the_last_that_was_kept() -> None:
    assert harness_result("a", "lossless", None, None) == {"summary": {"text": "a"}, "artifacts": []}
    kept = harness_result(HarnessResult("a"), "lossless", {"n": 1}, None)
    assert kept["checkpoint"] == {"kind": "lossless", "data": {"n": 1}}
    own = harness_result(HarnessResult("a", checkpoint=0), "lossless", {"n": 1}, None)
    assert own["checkpoint"] == {"kind": "lossless", "data": 0}
    assert harness_result(HarnessResult(artifacts=[{"path": "x"}]), "lossless", None, None)["artifacts"] == [
        {"path": "x"}
    ]
    with pytest.raises(TypeError, match="unexpected keyword argument 'cursor'"):
        harness_result({"cursor": 12}, "lossless", None, None)
