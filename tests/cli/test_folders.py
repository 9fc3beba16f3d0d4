"""What somebody typed is found, or its absence explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import folders
from plugbay.host.discovery.folders import Found
from plugbay.model.errors import Problem
from tests.cli.conftest import MakePlugin, write_manifest

ERROR = Problem("missing_field", "tools", "required, but missing", line=3)
WARNING = Problem("unknown_key", "colour", "ignored", severity="warning")


def found(*problems: Problem, contract: str = "rune", root: Path = Path("plugins/x")) -> Found:
    return Found(root, contract, None, problems)


def test_a_manifest_stands_for_its_folder_and_nothing_else_does(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    assert folders.folder_of(plugin / "rterm-plugin.json") == plugin
    assert folders.folder_of(plugin) == plugin
    assert folders.folder_of(plugin / "run.sh") == plugin / "run.sh"
    assert folders.folder_of(cwd / "rterm-plugin.json") == cwd / "rterm-plugin.json", "there is no such file"


def test_of_several_manifests_the_one_that_is_named_is_looked_at(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    (plugin / "nexo-plugin.toml").write_text("")
    assert folders.look(plugin).contract == "rune"
    assert folders.look(plugin, "nexo").contract == "nexo"
    assert folders.look(plugin / "nexo-plugin.toml").contract == "nexo"
    assert folders.look(plugin / "rterm-plugin.json").problems == ()


def test_the_plugins_of_a_folder_are_found_and_a_plugin_has_none(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    write_manifest(cwd / "plugins" / "broken", "{")
    (cwd / "plugins" / "empty").mkdir()
    assert folders.plugins_below(cwd / "plugins") == [cwd / "plugins" / "broken", plugin]
    assert folders.plugins_below(plugin) == []
    assert folders.plugins_below(cwd / "nowhere") == []


@pytest.mark.parametrize(
    ("problems", "status"),
    [
        ((), 0),
        ((WARNING,), 0),
        ((ERROR, WARNING), 3),
        ((Problem("not_found", "", "no plugin manifest here"),), 4),
    ],
)
def test_a_folder_has_the_status_of_its_worst_problem(problems: tuple[Problem, ...], status: int) -> None:
    assert folders.status_of(found(*problems)) == status


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
    assert folders.tally(problems) == text


def test_a_refusal_lists_every_error_with_its_place(capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
    write_manifest(cwd, "{")
    assert folders.refuse(found(ERROR, WARNING, root=cwd), "conform") == 3
    said = capsys.readouterr().err.replace(str(cwd), "HERE")
    assert "HERE cannot be used: its manifest has 1 error" in said
    assert "HERE/rterm-plugin.json:3  missing_field" in said
    assert "tools: required, but missing" in said
    assert "unknown_key" not in said


def test_a_source_without_a_manifest_is_told_the_way_to_one(capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
    folders.refuse(folders.look(cwd), "inspect")
    assert "hint:  name the folder of one plugin" in capsys.readouterr().err
    (cwd / "plugin.py").write_text("import plugbay.sdk\n")
    folders.refuse(folders.look(cwd), "inspect")
    assert f"hint:  plugbay manifest {cwd} writes one from its source\n" in capsys.readouterr().err


def test_a_problem_of_an_unknown_contract_names_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert folders.manifest_name(found(contract="")) == ""
    assert folders.refuse(found(Problem("unreadable", "", "no permission"), contract=""), "conform") == 3
    assert "plugins/x  unreadable" in capsys.readouterr().err
