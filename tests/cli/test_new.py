"""`plugbay new`: prompts on a terminal, options elsewhere."""

from __future__ import annotations

import ast
import json
import os
import pty
import select
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest

from plugbay.cli import lookup
from plugbay.cli.new import (
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
from tests.cli.conftest import Run, environment
from tests.support.commands import Command
from tests.support.patience import PATIENCE
from tests.support.tiers import few


def test_flags_say_it_all(run: Run, cwd: Path) -> None:
    done = run("new", "sky-map", "--lang", "sh", "--contract", "nexo", "--description", "Maps the sky.", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "name": "sky-map",
        "folder": "sky-map",
        "language": "shell",
        "contracts": ["nexo"],
        "files": [
            "plugin.sh",
            "README.md",
            "json.awk",
            "test.sh",
            "nexo-plugin.toml",
            ".gitignore",
            ".github/workflows/plugin.yml",
        ],
    }
    assert all((cwd / "sky-map" / file).is_file() for file in done.json["files"])
    assert "Maps the sky." in (cwd / "sky-map" / "nexo-plugin.toml").read_text()


def test_without_a_terminal_nothing_is_asked_and_the_next_steps_are_reported(run: Run, cwd: Path) -> None:
    done = run("new", "weather")
    assert (done.code, done.err) == (0, "")
    assert (cwd / "weather" / "rterm-plugin.json").is_file()
    said = done.out.splitlines()
    assert said[0] == "✓ weather · python · rune"
    assert said[1].split() == ["plugin.py", "the", "plugin:", "start", "here"]
    assert said[said.index("Next") :] == [
        "Next",
        "  cd weather",
        """  plugbay call . hello '{"name": "Ada"}'""",
        "  plugbay conform .",
        "  python -m pytest",
        "  plugbay manifest .  after each change of its declarations",
    ]


def test_contracts_are_in_their_order_regardless_of_the_options(run: Run) -> None:
    assert run("new", "a", "--contract", "all", "--json").json["contracts"] == list(CONTRACTS)
    done = run("new", "b", "--contract", "vai", "--contract", "nexo", "--dir", "deep/down", "--json")
    assert (done.json["contracts"], done.json["folder"]) == (["nexo", "vai"], "deep/down/b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Weather"], "Try: plugbay new weather"),
        (["plugins/weather"], "Try: plugbay new weather --dir plugins"),
        (["x" * 30, "--contract", "nexo"], "at most 26 characters for nexo. Try: plugbay new " + "x" * 26),
        (["x", "--contract", "ruen"], "ruen is not a contract; there are rune, nexo, kaged, ainb, vai, mcp, and all"),
        (
            ["x", "--lang", "cobol"],
            "there are no templates for 'cobol'; there are templates for python, javascript, shell",
        ),
        (
            ["x", "--lang", "js", "--contract", "rune", "--contract", "vai"],
            "a javascript plugin speaks one contract, not rune and vai; choose one of them, or python",
        ),
        (["x", "--description", "two\nlines"], "a description is one line of at most 200 characters"),
    ],
)
def test_impossible_options_are_refused_with_the_possible_ones(
    run: Run, cwd: Path, words: list[str], said: str
) -> None:
    done = run("new", *words)
    assert done.code == 2
    assert said in done.err
    assert os.listdir(cwd) == []


def test_a_folder_with_something_in_it_is_left_alone(run: Run, cwd: Path) -> None:
    (cwd / "weather").mkdir()
    (cwd / "weather" / "mine").write_text("")
    (cwd / "file").write_text("")
    done = run("new", "weather")
    assert (done.code, os.listdir(cwd / "weather")) == (1, ["mine"])
    assert "the folder weather is not empty" in done.err
    assert "file exists and is not a folder" in run("new", "file").err


# On a terminal.


def converse(tmp_path: Path, cwd: Path, words: list[str], answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Each answer is typed when its question has appeared; the status, and all that was shown."""
    terminal, theirs = pty.openpty()
    env = environment(tmp_path, TERM="dumb", COLUMNS="100")
    process = Command(["new", *words], (theirs,) * 3, cwd, env, controlled=True)
    os.close(theirs)
    shown, unseen = "", ""
    try:
        while select.select([terminal], [], [], PATIENCE)[0]:
            data = os.read(terminal, 65536).decode()
            shown, unseen = shown + data, unseen + data
            if answers and answers[0][0] in unseen:
                unseen = ""
                os.write(terminal, answers.pop(0)[1].encode())
    except OSError:  # how Linux says that nobody has the other end open any more
        pass
    status = process.wait(PATIENCE)
    os.close(terminal)
    assert answers == [], shown
    return status, shown.replace("\r\n", "\n")


def test_enter_enter_enter_makes_a_plugin(tmp_path: Path, cwd: Path) -> None:
    enter = [("Contracts [rune]:", "\n"), ("shell [python]:", "\n"), ("[The weather plugin.]:", "\n")]
    code, shown = converse(tmp_path, cwd, ["weather"], enter)
    assert code == 0, shown
    assert "tools, one process per call; the smallest contract" in shown
    assert "✓ weather · python · rune" in shown
    assert (cwd / "weather" / "plugin.py").is_file()


def test_an_answer_that_makes_no_sense_is_asked_for_again(tmp_path: Path, cwd: Path) -> None:
    answers = [
        ("Contracts [rune]:", "ruen\n"),
        ("Contracts [rune]:", "kaged\n"),
        ("shell [python]:", "js\n"),
        ("plugin.]:", "Sees things.\n"),
    ]
    code, shown = converse(tmp_path, cwd, ["weather"], answers)
    assert code == 0, shown
    assert "ruen is not a contract" in shown
    assert (cwd / "weather" / "plugin.mjs").is_file()
    assert "Sees things." in (cwd / "weather" / "kaged-plugin.yaml").read_text()


def test_several_contracts_leave_no_question_about_the_language(tmp_path: Path, cwd: Path) -> None:
    code, shown = converse(tmp_path, cwd, ["weather"], [("Contracts [rune]:", "nexo, rune\n"), ("plugin.]:", "\n")])
    assert code == 0, shown
    assert "✓ weather · python · rune, nexo" in shown


def test_given_options_are_not_asked_for(tmp_path: Path, cwd: Path) -> None:
    words = ["weather", "--contract", "rune", "--lang", "shell", "--description", "x"]
    assert converse(tmp_path, cwd, words, [])[0] == 0
    assert converse(tmp_path, cwd, ["other", "--lang", "shell", "--yes"], [])[0] == 0


def test_to_leave_in_the_middle_makes_nothing(tmp_path: Path, cwd: Path) -> None:
    code, shown = converse(tmp_path, cwd, ["weather"], [("Contracts [rune]:", "\x04")])
    assert code == 130
    assert "nothing was created" in shown
    assert os.listdir(cwd) == []


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
def test_every_file_has_the_format_of_its_name(tmp_path: Path, language: str, contract: str) -> None:
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


def test_a_source_declares_only_exports_that_its_contracts_support(tmp_path: Path) -> None:
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
