"""Problems of manifests are listed with their places, and a missing plugin is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import lookup
from plugbay.cli.render.manifest_problems import count_problems, refuse
from plugbay.host.discovery.folders import Found
from plugbay.model.errors import Problem
from tests.cli.conftest import write_manifest

ERROR = Problem("missing_field", "tools", "required, but missing", line=3)
WARNING = Problem("unknown_key", "colour", "ignored", severity="warning")


def found(*problems: Problem, contract: str = "rune", root: Path = Path("plugins/x")) -> Found:
    return Found(root, contract, None, problems)


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        ([ERROR], "1 error"),
        ([ERROR, ERROR, WARNING], "2 errors, 1 warning"),
        ([WARNING], "1 warning"),
        ([], ""),
    ],
)
def test_problems_are_counted_by_kind(problems: list[Problem], text: str) -> None:
    assert count_problems(problems) == text


def test_a_refusal_lists_every_error_with_its_place(capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
    write_manifest(cwd, "{")
    assert refuse(found(ERROR, WARNING, root=cwd), "conform") == 3
    said = capsys.readouterr().err.replace(str(cwd), "HERE")
    assert "HERE cannot be used: its manifest has 1 error" in said
    assert "HERE/rterm-plugin.json:3  missing_field" in said
    assert "tools: required, but missing" in said
    assert "unknown_key" not in said


def test_a_source_without_a_manifest_is_told_the_way_to_one(capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
    refuse(lookup.find(cwd), "inspect")
    assert "hint:  name the folder of one plugin" in capsys.readouterr().err
    (cwd / "plugin.py").write_text("import plugbay.sdk\n")
    refuse(lookup.find(cwd), "inspect")
    assert f"hint:  plugbay manifest {cwd} writes one from its source\n" in capsys.readouterr().err


def test_a_problem_of_an_unknown_contract_names_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert refuse(found(Problem("unreadable", "", "no permission"), contract=""), "conform") == 3
    assert "plugins/x  unreadable" in capsys.readouterr().err
