"""Generated files are what the code makes of them today; a stale one is reported and mended."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from plugbay.process.sandbox.filters import HASHES
from scripts import generate
from tests.architecture import ROOT

FILTER = f"{generate.FILTERS}/x86_64.bpf"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    assert generate.main([], tmp_path) == 0
    return tmp_path


def test_nothing_in_this_tree_is_stale() -> None:
    assert generate.main(["--check"], ROOT) == 0


def test_what_was_just_written_is_not_stale(tree: Path) -> None:
    assert generate.main(["--check"], tree) == 0


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_stale_file_is_named_and_not_touched_by_a_check(
    tree: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in generate.generated():
        file = tree / name
        content = file.read_bytes()
        file.unlink()
        if damage == "changed":
            file.write_bytes(content + b"\n")
        assert generate.main(["--check"], tree) == 1
        assert capsys.readouterr().err == f"stale: {name}; run scripts/generate.py\n"
        assert (file.read_bytes() if file.exists() else b"") == (content + b"\n" if damage == "changed" else b"")
        file.write_bytes(content)


def test_writing_renews_stale_files_and_leaves_the_others_alone(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / FILTER).write_bytes(b"")
    capsys.readouterr()
    assert generate.main([], tree) == 0
    assert capsys.readouterr().out == f"wrote {FILTER}\n"
    assert (tree / FILTER).read_bytes() == (ROOT / FILTER).read_bytes()


def test_the_hashes_are_those_of_the_filters() -> None:
    assert {name: hashlib.sha256(code).hexdigest() for name, code in generate.filters().items()} == HASHES


def test_a_changed_filter_changes_its_hash() -> None:
    programs = generate.filters()
    assert generate.hashes_module(programs) != generate.hashes_module({**programs, "x86_64.bpf": b""})
