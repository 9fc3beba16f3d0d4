"""What a compactor gives back is judged rule by rule, and never by its own figures."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.host.invocations import compaction_result
from tests.support.requirements import requirement


def block(kind: str = "input", text: str = "hello", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "content": [{"type": "text", "text": text}], **more}


SYSTEM = block("system", "You are a coding agent.")
CALL = {"kind": "tool_call", "tool_call_id": "c1", "name": "search", "input": {}}
ANSWER = block("tool_result", "found", tool_call_id="c1")


def judge(blocks: list[Any], source: list[Any] | None = None, limit: int = 10_000, **policy: Any) -> list[str]:
    request = {"target": {"max_input_tokens": limit}, "policy": policy}
    return compaction_result.violations({"seed_blocks": blocks}, request, blocks, source or [])


@requirement("vai:host-seed")
@pytest.mark.parametrize(
    "blocks", [[block()], [SYSTEM, block()], [block(), CALL, ANSWER, block("response")], [block("thinking")]]
)
def test_a_seed_of_legal_blocks_is_accepted(blocks: list[Any]) -> None:
    assert judge(blocks, [SYSTEM] if SYSTEM in blocks else [], retain_system=True) == []


@requirement("vai:host-seed")
@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([], "at least one block"),
        (["text"], "must be an object"),
        ([block("poem")], "the kind 'poem'"),
        ([block(["input"])], "the kind ['input']"),  # type: ignore[arg-type]
        ([{"kind": "input"}], "must have content"),
        ([{"kind": "input", "content": ["text"]}], "must have content"),
        ([{"kind": "input", "content": [{"text": "no type"}]}], "must have content"),
        ([CALL], "'c1' has no result"),
        ([ANSWER], "has no call before it"),
        ([ANSWER, CALL], "has no call before it"),
        ([CALL, ANSWER, ANSWER], "has no call before it"),
        ([CALL, ANSWER, CALL, ANSWER], "appears twice"),
        ([{"kind": "tool_call", "name": "search"}], "must have a tool_call_id"),
        ([{"kind": "tool_call", "tool_call_id": "c1"}], "must have a name"),
    ],
)
def test_a_seed_that_would_make_a_broken_chain_is_refused(blocks: list[Any], why: str) -> None:
    assert why in "; ".join(judge(blocks))


@pytest.mark.parametrize("result", [None, "seed", [], {}, {"seed_blocks": None}, {"seed_blocks": {}}])
def test_a_result_without_blocks_is_no_seed(result: Any) -> None:
    assert compaction_result.violations(result, {}, [], [])


def test_the_system_block_comes_first_where_it_is_to_be_retained() -> None:
    assert "system block" in judge([block(), SYSTEM], [SYSTEM, block()], retain_system=True)[0]
    assert judge([block(), SYSTEM], [SYSTEM, block()], retain_system=False) == []
    assert judge([block()], [block()], retain_system=True) == []


@requirement("vai:host-seed-retain-system")
def test_a_system_block_that_was_replaced_or_dropped_is_refused() -> None:
    other, second = block("system", "You are a pirate."), block("system", "Answer in French.")
    stored = {**SYSTEM, "id": "blk_1", "sequence": 1}
    for seed in ([other, block()], [other, SYSTEM, block()], [SYSTEM, block()]):
        found = judge(seed, [stored, second, block()], retain_system=True)
        assert found and all("system block" in why for why in found), seed
        assert judge(seed, [stored, second, block()], retain_system=False) == []
    # Ids and positions belong to the old chain; the words are what counts. More system blocks may follow.
    assert judge([SYSTEM, block(), second, other], [stored, second, block()], retain_system=True) == []


@requirement("vai:host-seed-estimate")
def test_the_hosts_own_estimate_has_to_fit_the_target_whatever_the_plugin_says() -> None:
    long = block(text="x" * 4000)
    size = compaction_result.token_estimate([long])
    assert 1000 < size < 1100
    assert judge([long], limit=size) == []
    request = {"target": {"max_input_tokens": size - 1}}
    said = {"seed_blocks": [long], "diagnostics": {"output_tokens_estimate": 3}}
    assert f"about {size:,} tokens" in compaction_result.violations(said, request, [long], [])[0]


@requirement("vai:host-seed-pinned")
def test_pinned_items_that_were_lost_come_back_at_the_end() -> None:
    pin, other = block(text="keep me"), block(text="and me")
    assert compaction_result.with_pinned([pin, block()], [pin, other]) == [pin, block(), other]
    assert compaction_result.with_pinned([block()], []) == [block()]


@requirement("vai:host-compactor-pinned")
def test_a_pinned_item_that_a_supporting_compactor_lost_is_a_violation() -> None:
    pin = block(text="keep me")
    assert compaction_result.lost_pins([pin, block()], [pin]) == []
    assert "pinned item 1" in compaction_result.lost_pins([block()], [block(), pin])[0]
