"""`plugbay new`: prompts on a terminal, options elsewhere."""

from __future__ import annotations

import os
import pty
import select
from pathlib import Path

import pytest

from plugbay.cli.scaffold import CONTRACTS
from tests.cli.conftest import Run, command, environment
from tests.support.patience import PATIENCE


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
        "  plugbay manifest .  after every change of what it declares",
    ]


def test_all_contracts_are_in_their_order_whatever_is_said_first(run: Run) -> None:
    assert run("new", "a", "--contract", "all", "--json").json["contracts"] == list(CONTRACTS)
    done = run("new", "b", "--contract", "vai", "--contract", "nexo", "--dir", "deep/down", "--json")
    assert (done.json["contracts"], done.json["folder"]) == (["nexo", "vai"], "deep/down/b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["Weather"], "Try: plugbay new weather"),
        (["plugins/weather"], "Try: plugbay new weather --dir plugins"),
        (["x" * 30, "--contract", "nexo"], "at most 26 characters for nexo. Try: plugbay new " + "x" * 26),
        (["x", "--contract", "ruen"], "ruen is no contract; there are rune, nexo, kaged, ainb, vai, mcp, and all"),
        (["x", "--lang", "cobol"], "there are templates in python, javascript, shell, none in 'cobol'"),
        (
            ["x", "--lang", "js", "--contract", "rune", "--contract", "vai"],
            "without the SDK a program speaks one contract, not rune and vai; choose one of them, or python",
        ),
        (["x", "--description", "two\nlines"], "a description is one line of at most 200 characters"),
    ],
)
def test_what_cannot_be_made_is_refused_with_what_can(run: Run, cwd: Path, words: list[str], said: str) -> None:
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
    assert "file is there already, and no folder" in run("new", "file").err


# On a terminal.


def converse(tmp_path: Path, cwd: Path, words: list[str], answers: list[tuple[str, str]]) -> tuple[int, str]:
    """Each answer is typed when its question has appeared; the status, and all that was shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        arguments = command("new", *words)
        os.execve(arguments[0], arguments, environment(tmp_path, TERM="dumb", COLUMNS="100"))
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
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert answers == [], shown
    return os.waitstatus_to_exitcode(status), shown.replace("\r\n", "\n")


def test_enter_enter_enter_makes_a_plugin(tmp_path: Path, cwd: Path) -> None:
    enter = [("Contracts [rune]:", "\n"), ("shell [python]:", "\n"), ("[The weather plugin.]:", "\n")]
    code, shown = converse(tmp_path, cwd, ["weather"], enter)
    assert code == 0, shown
    assert "tools, one process per call: the smallest" in shown
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
    assert "ruen is no contract" in shown
    assert (cwd / "weather" / "plugin.mjs").is_file()
    assert "Sees things." in (cwd / "weather" / "kaged-plugin.yaml").read_text()


def test_several_contracts_leave_no_question_about_the_language(tmp_path: Path, cwd: Path) -> None:
    code, shown = converse(tmp_path, cwd, ["weather"], [("Contracts [rune]:", "nexo, rune\n"), ("plugin.]:", "\n")])
    assert code == 0, shown
    assert "✓ weather · python · rune, nexo" in shown


def test_what_was_said_is_not_asked(tmp_path: Path, cwd: Path) -> None:
    words = ["weather", "--contract", "rune", "--lang", "shell", "--description", "x"]
    assert converse(tmp_path, cwd, words, [])[0] == 0
    assert converse(tmp_path, cwd, ["other", "--lang", "shell", "--yes"], [])[0] == 0


def test_to_leave_in_the_middle_makes_nothing(tmp_path: Path, cwd: Path) -> None:
    code, shown = converse(tmp_path, cwd, ["weather"], [("Contracts [rune]:", "\x04")])
    assert code == 130
    assert "nothing was made" in shown
    assert os.listdir(cwd) == []
