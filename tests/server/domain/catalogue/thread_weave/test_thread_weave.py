"""Thread Weave: what it keeps, what it weaves, and that both fit."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plugbay.server.domain
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.host.discovery.folders import inspect
from plugbay.host.invocations import compaction_result
from plugbay.sdk import ToolError
from plugbay.sdk.manifests import vai_files
from plugbay.sdk.results import Compaction
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

ROOT = Path(plugbay.server.domain.__file__).parent / "catalogue" / "thread_weave"
WEAVE = runpy.run_path(str(ROOT / "thread_weave.py"))


class Talk:
    """What a compactor is told beside the blocks."""

    def __init__(self, tokens: int | None, pinned: list[Any] | None = None, **config: Any) -> None:
        self.compaction = Compaction("cmp_1", "ch_1", {"max_input_tokens": tokens}, {}, pinned or [], None)
        self.config = config
        self.said: list[str] = []

    def progress(self, text: str) -> None:
        self.said.append(text)


def block(kind: str, text: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "content": [{"type": "text", "text": text}], **more}


def thread(number: int, words: int = 60) -> list[dict[str, Any]]:
    call = f"call_{number}"
    return [
        block("input", f"Task {number}. " + "please " * words, id=f"blk_{number}a"),
        {"kind": "tool_call", "tool_call_id": call, "name": "grep", "input": {}, "content": []},
        block("tool_result", "found", tool_call_id=call, is_error=number % 2 == 0),
        block("response", f"Done {number}. " + "indeed " * words, id=f"blk_{number}z"),
    ]


def talk_of(count: int) -> list[dict[str, Any]]:
    return [block("system", "You write code."), *(each for number in range(count) for each in thread(number))]


def woven(blocks: list[dict[str, Any]], talk: Talk) -> list[dict[str, Any]]:
    seed = WEAVE["thread_weave"](blocks, talk)
    return list(seed.blocks)


def test_what_fits_is_left_as_it_is() -> None:
    blocks = talk_of(2)
    assert woven(blocks, Talk(100_000)) == blocks == woven(blocks, Talk(None))


@requirement("vai:control-thread-weave")
def test_recent_threads_stay_word_for_word_and_older_ones_become_notes_that_lead_back() -> None:
    blocks = talk_of(8)
    seed = woven(blocks, talk := Talk(1_400))
    assert seed[0] == blocks[0] and seed[-4:] == thread(7)
    notes = [item["content"][0]["text"] for item in seed if "Earlier thread" in str(item["content"])]
    assert notes and notes[0].startswith("[Earlier thread 1 of") and "Task: Task 0." in notes[0]
    assert all("ch_1 blk_" in note and "sha256:" in note for note in notes)
    assert all(f"after {WEAVE['digest'](thread(at))}" in note for at, note in enumerate(notes[1:]))
    assert "Tools: grep x1" in notes[-1] and f"Outcome: Done {len(notes) - 1}." in notes[-1]
    assert "Outcome" not in notes[0]  # the older, the shorter
    assert WEAVE["tools"](thread(2)) == "grep x1 (1 failed)"
    assert len(talk.said) == 1


@requirement("vai:control-thread-weave")
@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(300, 4_000), st.floats(0, 1), st.integers(40, 400))
def test_whatever_it_is_given_the_host_accepts_the_seed_or_is_told_that_there_is_no_room(
    count: int, budget: int, share: float, detail: int
) -> None:
    blocks, pinned = talk_of(count), [block("input", "Never forget the tests.")]
    request = {"target": {"max_input_tokens": budget}, "policy": {"retain_system": True}}
    try:
        seed = woven(blocks, Talk(budget, pinned, recent_share=share, detail=detail))
    except ToolError as error:
        assert error.code == "compactor.no_room" and budget < 2_000
        return
    assert pinned[0] in seed or compaction_result.token_estimate([*blocks, *pinned]) <= budget
    whole = compaction_result.with_pinned(seed, pinned)
    assert compaction_result.violations({"seed_blocks": seed}, request, whole, [*blocks, *pinned]) == []


@requirement("vai:control-thread-weave")
def test_recent_threads_make_room_for_the_note_about_older_ones() -> None:
    blocks = talk_of(12)
    for budget in range(2_000, 3_000, 7):
        seed = woven(blocks, Talk(budget, recent_share=1.0))
        assert seed[-4:] == thread(11) and "earlier thread" in str(seed).lower()
        assert compaction_result.token_estimate(seed) <= budget


def test_what_has_to_stay_and_does_not_fit_is_a_refusal() -> None:
    with pytest.raises(ToolError, match="longer than the target"):
        woven([block("system", "x" * 4_000), *thread(1)], Talk(500))


def test_a_call_and_its_result_are_never_in_two_threads() -> None:
    call = {"kind": "tool_call", "tool_call_id": "c", "name": "ask", "input": {}, "content": []}
    blocks = [block("input", "one"), call, block("input", "meanwhile"), block("tool_result", "r", tool_call_id="c")]
    assert WEAVE["woven_from"]([*blocks, block("input", "two")]) == [blocks, [block("input", "two")]]


def test_the_package_is_what_its_source_declares() -> None:
    for name, text in vai_files(WEAVE["plugin"], "thread_weave.py", "python3").items():
        assert (ROOT / name).read_text("utf-8") == text
    assert (ROOT / "bin" / "plugin").stat().st_mode & 0o111


@exhaustive
@requirement("vai:control-thread-weave")
def test_it_conforms() -> None:
    spec = inspect(ROOT).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis.id for axis in report.axes if axis.status == "failed"] == []
    assert {axis.id for axis in report.axes if axis.status == "passed"} >= {"vai.hello", "vai.compactors", "vai.cancel"}
