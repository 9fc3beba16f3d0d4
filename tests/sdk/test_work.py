"""What compactors and harnesses are asked, as an author reads it. How it arrives is told in test_vai.py."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk.services.artifacts import ArtifactInvalid
from plugbay.sdk.work import Run, read_compaction
from tests.support.requirements import requirement


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
@pytest.mark.parametrize(("data", "why"), [(b"{", "not JSON"), (b"[]", "it is no object"), (b"\xff", "not UTF-8")])
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
