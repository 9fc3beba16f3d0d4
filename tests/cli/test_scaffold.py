"""Valid names of a plugin, and the files of a new one."""

from __future__ import annotations

import ast
import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from plugbay.cli import lookup
from plugbay.cli.scaffold import (
    CONTRACTS,
    LANGUAGES,
    MAX_NAME_LENGTH,
    TEMPLATES,
    NewPlugin,
    contract_names,
    create,
    fill_template,
    name_problem,
    suggest_name,
)
from plugbay.contracts.registry import CONTRACTS as KNOWN
from tests.support.tiers import few

AWKWARD = 'Says "it\'s" — \'\'\'well\'\'\' """so""" \\ $x #1: {a} @@name@@ ☃'
"""A description that some format would take for something else."""


def wish(tmp_path: Path, language: str = "python", *contracts: str, name: str = "sky-map") -> NewPlugin:
    return NewPlugin(name, language, contracts or ("rune",), AWKWARD, tmp_path)


def test_every_contract_has_templates() -> None:
    assert CONTRACTS == tuple(KNOWN) == tuple(MAX_NAME_LENGTH)


@pytest.mark.parametrize("name", ["weather", "sky-map", "sky_map", "a", "x2", "a" * 64])
def test_these_are_names(name: str) -> None:
    assert name_problem(name, ("rune", "kaged", "ainb", "vai")) is None


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Weather", "weather"),
        ("Über Wetter!", "uber-wetter"),
        ("2nd", "my-2nd"),
        ("a.b", "a-b"),
        ("-x-", "x"),
        ("", "my"),
        ("☃", "my"),
        ("bin", "my-bin"),
        ("x" * 40, "x" * 26),
    ],
)
def test_these_are_none_and_another_is_suggested(name: str, instead: str) -> None:
    assert name_problem(name, CONTRACTS) is not None
    assert suggest_name(name, CONTRACTS) == instead
    assert name_problem(instead, CONTRACTS) is None


def test_how_long_a_name_may_be_depends_on_the_contract() -> None:
    assert name_problem("x" * 27, ("rune",)) is None
    assert name_problem("x" * 27, ("rune", "nexo")) == "a name has at most 26 characters for nexo"


def test_contracts_that_spell_a_name_in_another_way_say_so() -> None:
    assert contract_names("sky-map", CONTRACTS) == {"nexo": "sky_map", "vai": "local/sky-map"}
    assert contract_names("sky_map", ("nexo", "kaged")) == {"kaged": "sky-map"}


# Templates.


def test_a_template_is_filled_with_values_and_parts() -> None:
    text = "a\n@@if x@@\nb @@v@@\n@@end@@\n@@if y@@\nc\n@@end@@\nd@@if x@@ e@@end@@@@if y@@ f@@end@@\n"
    assert fill_template(text, {"v": "@@v@@"}, frozenset({"x"})) == "a\nb @@v@@\nd e\n"


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        fill_template("@@gone@@", {}, frozenset())


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("contract", few(CONTRACTS))
def test_every_file_is_what_its_name_says(tmp_path: Path, language: str, contract: str) -> None:
    made = wish(tmp_path, language, contract)
    paths = create(made)
    assert paths[0] == made.main
    assert sorted(paths) == sorted(str(f.relative_to(made.folder)) for f in made.folder.rglob("*") if f.is_file())
    for path in paths:
        text = (made.folder / path).read_text()
        check_format(path, text)
        assert "@@" not in text.replace(AWKWARD, "").replace(json.dumps(AWKWARD, ensure_ascii=False), "").replace(
            AWKWARD.replace("\\", "\\\\").replace('"""', "'''"), ""
        )
        assert bool((made.folder / path).stat().st_mode & stat.S_IXUSR) == text.startswith("#!")
    assert {"README.md", ".gitignore", ".github/workflows/plugin.yml"} <= set(paths)


def check_format(path: str, text: str) -> None:
    """Parse it as whatever it is."""
    assert text.endswith("\n") and not text.endswith("\n\n")
    if path.endswith(".json"):
        json.loads(text)
    elif path.endswith(".toml"):
        tomllib.loads(text)
    elif path.endswith(".py"):
        ast.parse(text)
    elif path.endswith((".yaml", ".yml")):
        from ruamel.yaml import YAML

        assert isinstance(YAML(typ="safe").load(text), dict)
    elif path.endswith(".sh") or text.startswith("#!/bin/sh"):
        subprocess.run(["sh", "-n"], input=text.encode(), check=True)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_manifest_is_free_of_problems(tmp_path: Path, language: str, contract: str) -> None:
    made = wish(tmp_path, language, contract)
    create(made)
    found = lookup.find(made.folder)
    assert (found.contract, found.problems) == (contract, ())
    assert found.spec is not None
    assert found.spec.description == ("" if contract == "mcp" else AWKWARD)  # which a server says itself


def test_a_python_source_serves_any_set_of_contracts(tmp_path: Path) -> None:
    made = wish(tmp_path, "python", *CONTRACTS)
    create(made)
    for contract in CONTRACTS:
        found = lookup.find(made.folder, contract)
        assert (found.contract, found.problems) == (contract, ())


def test_a_source_declares_what_its_contracts_carry_and_nothing_else(tmp_path: Path) -> None:
    create(wish(tmp_path, "python", "rune", name="tool"))
    create(wish(tmp_path, "python", "ainb", name="screen"))
    assert "plugin.screen" not in (tmp_path / "tool" / "plugin.py").read_text()
    assert "plugin.tool" not in (tmp_path / "screen" / "plugin.py").read_text()


def test_an_empty_folder_is_used_and_a_full_one_is_left_alone(tmp_path: Path) -> None:
    made = wish(tmp_path, "shell", "rune")
    made.folder.mkdir()
    create(made)
    (made.folder / "plugin.sh").write_text("mine\n")
    with pytest.raises(OSError):
        create(made)
    assert (made.folder / "plugin.sh").read_text() == "mine\n"


def test_nothing_is_left_behind_when_something_goes_wrong(tmp_path: Path) -> None:
    (tmp_path / "sky-map").write_text("in the way")
    with pytest.raises(OSError):
        create(wish(tmp_path, "shell", "rune"))
    assert os.listdir(tmp_path) == ["sky-map"]


def test_every_template_belongs_to_some_plugin(tmp_path: Path) -> None:
    used = {"@@"}
    for language in LANGUAGES:
        for contract in CONTRACTS:
            made = wish(tmp_path / language / contract, language, contract)
            used |= {Path(path).name for path in create(made)}
    names = {file.name.removesuffix(".txt") for file in TEMPLATES.rglob("*") if file.is_file()}
    assert names - used == {"gitignore", "program", "mcp.json"}  # which have other names in a plugin
    assert {".gitignore", "sky-map", ".mcp.json"} <= used
