"""Files of calls travel behind operations and values, and come out as they went in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.cluster.envelope import File
from plugbay.cluster.files import CallFiles, files_of, join, split
from plugbay.host.invocations.artifacts import BadArtifact
from plugbay.model.operations import Compact, InvokeTool
from plugbay.wire.json_gate import Malformed
from tests.support.loops import Run, run  # noqa: F401


@given(st.binary(), st.lists(st.tuples(st.text(), st.binary())))
def test_a_body_is_split_as_it_was_joined(value: bytes, files: list[tuple[str, bytes]]) -> None:
    heads, body = join(value, files)
    assert split(body, heads) == (value, files)


def test_a_body_that_is_shorter_than_its_files_is_malformed() -> None:
    with pytest.raises(Malformed, match="shorter"):
        split(b"12", [File("a", 1), File("b", 2)])


def context(folder: Path | None) -> dict[str, Any]:
    return {"context": {"scratch_dir": None if folder is None else str(folder)}}


def test_only_a_projection_goes_along_and_only_with_a_scratch_folder(tmp_path: Path, run: Run) -> None:  # noqa: F811
    (tmp_path / "projection.json").write_bytes(b"{}")
    artifact = {"transport": "artifact", "artifact": {"path": "projection.json"}}

    async def main() -> None:
        for op in (None, InvokeTool("t", {}, {}), InvokeTool("t", {}, context(None))):
            assert await files_of(op) is None
        for projection, sent in (({"transport": "inline"}, []), (artifact, [("projection.json", b"{}")])):
            files = await files_of(Compact("c", {"source": {"projection": projection}}, context(tmp_path)))
            assert files is not None and files.sent == sent

    run(main)


def test_returned_files_come_into_the_folder_and_nowhere_else(tmp_path: Path, run: Run) -> None:  # noqa: F811
    async def main() -> None:
        (tmp_path / "inv_1").mkdir()
        files = CallFiles(tmp_path / "inv_1", [])
        await files.keep()
        files.returned = [("out/a", b"1")]
        await files.keep()
        assert (tmp_path / "inv_1" / "out" / "a").read_bytes() == b"1"
        files.returned = [("../b", b"2")]
        with pytest.raises(BadArtifact, match="inside"):
            await files.keep()
        assert not (tmp_path / "b").exists()

    run(main)
