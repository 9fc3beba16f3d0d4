"""A PATH argument leads to its plugin, or to the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import lookup
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.lookup import count_problems, refusal
from plugbay.cli.render.call_view import HumanView
from plugbay.host.discovery.folders import Found
from plugbay.model.errors import Problem
from tests.cli.conftest import MakePlugin, write_manifest

ERROR = Problem("missing_field", "tools", "required, but missing", line=3)
WARNING = Problem("unknown_key", "colour", "ignored", severity="warning")


def found(*problems: Problem, contract: str = "rune", root: Path = Path("plugins/x")) -> Found:
    return Found(root, contract, None, problems)


def test_a_manifest_stands_for_its_folder_and_nothing_else_does(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    assert lookup.folder_of(plugin / "rterm-plugin.json") == plugin
    assert lookup.folder_of(plugin) == plugin
    assert lookup.folder_of(plugin / "run.sh") == plugin / "run.sh"
    assert lookup.folder_of(cwd / "rterm-plugin.json") == cwd / "rterm-plugin.json", "there is no such file"


def test_of_several_manifests_the_one_that_is_named_is_looked_at(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    (plugin / "nexo-plugin.toml").write_text("")
    assert lookup.find(plugin).contract == "rune"
    assert lookup.find(plugin, "nexo").contract == "nexo"
    assert lookup.find(plugin / "nexo-plugin.toml").contract == "nexo"
    assert lookup.find(plugin / "rterm-plugin.json").problems == ()


def test_the_plugins_of_a_folder_are_found_and_a_plugin_has_none(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    write_manifest(cwd / "plugins" / "broken", "{")
    (cwd / "plugins" / "empty").mkdir()
    assert lookup.plugins_below(cwd / "plugins") == [cwd / "plugins" / "broken", plugin]
    assert lookup.plugins_below(plugin) == []
    assert lookup.plugins_below(cwd / "nowhere") == []


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
    assert lookup.exit_status(found(*problems)) == status


def test_without_a_contract_no_manifest_has_a_name() -> None:
    assert lookup.manifest_name(found(contract="")) == ""


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


def test_a_refusal_lists_every_problem_with_its_place(capsys: pytest.CaptureFixture[str], cwd: Path) -> None:
    write_manifest(cwd, "{")
    refused = refusal(found(ERROR, WARNING, root=cwd), "conform")
    assert refused.status == 3
    HumanView().show_refusal(refused)
    printed = capsys.readouterr().err.replace(str(cwd), "HERE")
    assert "HERE cannot be used: its manifest has 1 error" in printed
    assert "HERE/rterm-plugin.json:3  missing_field" in printed
    assert "tools: required, but missing" in printed


def test_the_hint_for_a_source_without_a_manifest_is_the_command_that_writes_one(cwd: Path) -> None:
    assert hint_of(refusal(lookup.find(cwd), "inspect")).startswith("name the folder of one plugin")
    (cwd / "plugin.py").write_text("import plugbay.sdk\n")
    assert hint_of(refusal(lookup.find(cwd), "inspect")) == f"plugbay manifest {cwd} writes one from its source"


def test_the_hint_for_a_folder_of_plugins_is_a_command_for_each(cwd: Path, make_plugin: MakePlugin) -> None:
    plugin = cwd / make_plugin()
    refused = refusal(lookup.find(cwd / "plugins"), "inspect")
    assert (refused.status, str(refused)) == (4, f"{cwd / 'plugins'} is a folder of 1 plugin, not a plugin")
    assert hint_of(refused) == f"name one of them:\nplugbay inspect {plugin}"


def hint_of(refused: Refusal) -> str:
    return str(refused.failure.detail["hint"])


def test_a_problem_of_an_unknown_contract_names_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    refused = refusal(found(Problem("unreadable", "", "no permission"), contract=""), "conform")
    assert refused.status == 3
    HumanView().show_refusal(refused)
    assert "plugins/x  unreadable" in capsys.readouterr().err
