"""What tools, compactors and harnesses give back. As a host sees it, that is told in test_vai.py."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk import Cancelled, HarnessResult, Seed, ToolExecutionFailed, ToolResult, ToolUnavailable
from plugbay.sdk.results import (
    ArtifactInvalid,
    Compaction,
    Declined,
    Deltas,
    Run,
    block,
    harness_result,
    inject,
    make_reference,
    override,
    read_artifact,
    read_compaction,
    seed_result,
    tool_result,
    transform,
)
from tests.support.requirements import requirement

COMPACTION = Compaction("cmp_1", None, {}, {}, [], None)

TEXT = {"type": "text", "text": "a"}


@requirement("vai:sdk-tool-result")
def test_content_goes_before_the_text_of_an_object() -> None:
    assert tool_result(ToolResult("a", {"n": 1}))["content"] == [TEXT]
    assert tool_result(ToolResult((), {"n": 1}))["content"] == [{"type": "text", "text": '{"n":1}'}]
    assert tool_result(ToolResult()) == {"content": [], "is_error": False, "retryable": False}


@requirement("vai:sdk-tool-result")
def test_declared_output_is_there_for_every_result() -> None:
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
def test_no_piece_is_sent_after_the_cancellation() -> None:
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


def request(**projection: Any) -> dict[str, Any]:
    source = {"chain_id": "ch_1", "projection": projection}
    return {"compaction_id": "cmp_1", "source": source, "target": {}, "policy": {}}


def stored(scratch: Path, data: bytes) -> dict[str, Any]:
    (scratch / "p.json").write_bytes(data)
    ref = {"path": "p.json", "size_bytes": len(data), "sha256": sha256(data).hexdigest()}
    return request(transport="artifact", artifact=ref)


def test_what_is_missing_in_a_projection_is_nothing() -> None:
    blocks, compaction = read_compaction(request(), None)
    assert (blocks, compaction.pinned, compaction.token_estimate, compaction.max_tokens) == ([], [], None, None)
    blocks, compaction = read_compaction({**request(), "source": {}}, None)
    assert (blocks, compaction.chain_id, compaction.id) == ([], None, "cmp_1")
    blocks, compaction = read_compaction(request(blocks=7, pinned_items=None, token_estimate="many"), None)
    assert (blocks, compaction.pinned, compaction.token_estimate) == ([], [], None)


@requirement("vai:sdk-projection")
@pytest.mark.parametrize(("data", "why"), [(b"{", "not JSON"), (b"[]", "it is not an object"), (b"\xff", "not UTF-8")])
def test_a_file_that_is_no_conversation_is_told_so(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(ArtifactInvalid, match=why):
        read_compaction(stored(tmp_path, data), str(tmp_path))


def test_a_large_conversation_is_read(tmp_path: Path) -> None:
    blocks, _ = read_compaction(stored(tmp_path, b'{"blocks":["%b"]}' % (b"x" * (20 << 20))), str(tmp_path))
    assert len(blocks[0]) == 20 << 20


def test_a_reference_that_is_none_is_told_so() -> None:
    with pytest.raises(ArtifactInvalid):
        read_compaction(request(transport="artifact"), "/")


@requirement("vai:sdk-harness")
def test_a_run_says_what_set_it_off_and_where_it_goes_on() -> None:
    asked = {"target": {"chain_id": "ch_1"}, "policy": {"max_depth": 4}}
    trigger = {"type": "user_request", "input": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}, 7]}
    start = Run({"mode": "start", "trigger": trigger, **asked})
    assert (start.text, start.input, start.resumed, start.checkpoint) == ("a\nb", trigger["input"], False, None)
    assert (start.target, start.policy) == ({"chain_id": "ch_1"}, {"max_depth": 4})
    later = Run({"mode": "resume", "trigger": {}, "checkpoint": {"kind": "checkpoint", "data": [1]}, **asked})
    assert (later.text, later.input, later.resumed, later.checkpoint) == ("", [], True, [1])


DATA = b"# report"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A folder with a file, another in a folder, and ways out of it."""
    folder = tmp_path / "scratch"
    (folder / "sub").mkdir(parents=True)
    (folder / "report.md").write_bytes(DATA)
    (folder / "sub" / "a.bin9").write_bytes(b"")
    (tmp_path / "secret").write_bytes(DATA)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inside").symlink_to(folder / "report.md")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    return folder


def ref(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "size_bytes": len(DATA), "sha256": sha256(DATA).hexdigest(), **more}


@requirement("vai:sdk-artifacts")
def test_a_reference_leads_to_the_bytes_it_was_made_of(scratch: Path) -> None:
    made = make_reference(str(scratch), "report.md")
    assert made == {**ref("report.md"), "media_type": "text/markdown"}
    assert read_artifact(str(scratch), made) == DATA
    assert make_reference(str(scratch), scratch / "report.md") == made
    assert make_reference(str(scratch), Path("sub/a.bin9"))["media_type"] == "application/octet-stream"


@requirement("vai:sdk-artifacts")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret", "leads out of"),
        ("link", "leads out of"),
        ("inside", "leads out of"),
        ("out/secret", "leads out of"),
        ("sub/../report.md", "simplest form"),
        ("pipe", "not a regular file"),
        ("sub", "not a regular file"),
        ("gone", "cannot be read: No such file"),
    ],
)
def test_nothing_but_plain_files_of_the_folder_are_read(scratch: Path, path: str, why: str) -> None:
    with pytest.raises(ArtifactInvalid, match=why):
        read_artifact(str(scratch), ref(path))


@pytest.mark.parametrize("path", ["../secret", "link", "out/secret", "pipe"])
def test_nothing_else_is_handed_out_either(scratch: Path, path: str) -> None:
    with pytest.raises(ArtifactInvalid):
        make_reference(str(scratch), path)


def test_a_whole_path_in_a_reference_is_none_of_the_folder(scratch: Path) -> None:
    with pytest.raises(ArtifactInvalid, match="leads out of"):
        read_artifact(str(scratch), ref(str(scratch / "report.md")))


@pytest.mark.parametrize("wrong", [{"size_bytes": 7}, {"size_bytes": "8"}, {"sha256": "0" * 64}, {"sha256": None}])
def test_other_bytes_than_the_reference_says_are_refused(scratch: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ArtifactInvalid, match="that its reference says"):
        read_artifact(str(scratch), ref("report.md", **wrong))


def test_without_a_folder_there_are_no_files() -> None:
    with pytest.raises(ArtifactInvalid, match="does not name a file"):
        read_artifact(None, ref("report.md"))
    with pytest.raises(ArtifactInvalid, match="no scratch folder"):
        make_reference(None, "report.md")


@requirement("nexo:sdk-hook-block")
def test_a_block_is_said_in_both_ways_that_hosts_read() -> None:
    assert block("PII") == {"abort": True, "reason": "PII", "decision": "block"}
    assert block("PII", do_not_reply_again=True)["do_not_reply_again"] is True


def test_an_agent_can_be_told_something() -> None:
    assert inject("remember this") == {"inject": "remember this"}


def test_what_happens_can_be_changed() -> None:
    assert transform("[…]") == {"abort": False, "decision": "transform", "transformed_body": "[…]"}
    assert transform("x", reason="why")["reason"] == "why"
    assert override({"body": "x"}) == {"abort": False, "decision": "allow", "override": {"body": "x"}}
