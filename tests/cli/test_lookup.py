"""A PATH argument leads to its plugin, or to the reason why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.cli import lookup
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
