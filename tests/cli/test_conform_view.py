"""How an axis looks on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plugbay.cli import output
from plugbay.cli.conform_view import Files, conclude, show_axis
from plugbay.conformance.reports.report import AxisResult, Report, Status
from plugbay.model.spec import PluginSpec


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[AxisResult], str]:
    def shown(axis: AxisResult) -> str:
        output.out.cache_clear()
        show_axis(axis)
        return capsys.readouterr().out

    return shown


def test_an_axis_is_one_line_with_the_detail_under_failures(shown: Callable[[AxisResult], str]) -> None:
    assert shown(AxisResult("rune.a", "answers", Status.PASSED)) == "✓ answers\n"
    skipped = shown(AxisResult("rune.b", "declares", Status.SKIPPED, "nothing to declare"))
    assert skipped == f"{output.SKIP} declares  nothing to declare\n"
    failed = shown(AxisResult("rune.c", "leaves", Status.FAILED, "it stayed\nexit: none\nstderr: a: b\nstderr: c"))
    assert failed == "✗ leaves  rune.c\n    it stayed\n    exit      none\n    stderr    a: b\n              c\n"


def test_the_last_line_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    output.out.cache_clear()
    passed = AxisResult("rune.a", "answers", Status.PASSED)
    conclude(Report("rune", (passed,)))
    conclude(Report("rune", (passed, AxisResult("rune.b", "leaves", Status.FAILED, "it stayed"))))
    assert capsys.readouterr().out.split("\n") == [
        "",
        "rune: conforms  1 passed, 0 failed, 0 skipped",
        "",
        "rune: 1 failed  1 passed, 1 failed, 0 skipped",
        "",
    ]


def test_what_was_not_tried_after_a_failure_is_one_line_for_each_reason(
    shown: Callable[[AxisResult], str], capsys: pytest.CaptureFixture[str]
) -> None:
    untried = [
        AxisResult(f"rune.{n}", "answers", Status.SKIPPED, f"not tried, because rune.{n % 2}") for n in (2, 3, 4)
    ]
    assert [shown(axis) for axis in untried] == ["", "", ""]
    conclude(Report("rune", (AxisResult("rune.0", "leaves", Status.FAILED, "it stayed"), *untried)))
    assert capsys.readouterr().out.split("\n")[:3] == [
        f"{output.SKIP} 2 more  not tried, because rune.0",
        f"{output.SKIP} 1 more  not tried, because rune.1",
        "",
    ]


def test_only_the_files_that_are_wanted_are_written(tmp_path: Path) -> None:
    report, spec = Report("rune", ()), PluginSpec("a", "1", "rune", tmp_path, ("true",))
    Files().write(report, spec, ["plugbay"])
    assert list(tmp_path.iterdir()) == []
    Files(tmp_path / "a.xml", tmp_path / "a.html", tmp_path / "a.svg").write(
        report, spec, ["plugbay", "conform", "a b"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.svg", "a.xml"]
    assert "plugbay conform &#x27;a b&#x27;" in (tmp_path / "a.html").read_text("utf-8")
