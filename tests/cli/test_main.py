"""The last line of defence: whatever goes wrong has words and a status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plugbay import __version__
from plugbay.cli.main import app_for
from tests.cli.conftest import Run, environment


def test_the_version_is_the_packages(run: Run) -> None:
    done = run("--version")
    assert (done.code, done.out, done.err) == (0, f"plugbay {__version__}\n", "")


def test_without_a_command_the_help_is_on_stderr_and_the_status_is_usage(run: Run) -> None:
    done = run()
    assert done.code == 2
    assert done.out == ""
    assert "Usage: plugbay COMMAND" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["inspekt", "x"], "inspect"),
        (["--frob"], "No such option: --frob"),
        (["inspect"], "Missing argument 'PATH'"),
        (["call", "x", "y", "{}", "more"], "unexpected extra argument"),
        (["call", "x", "y", "--timeout"], "--timeout"),
    ],
)
def test_what_cannot_be_understood_is_a_usage_error(run: Run, arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert words in done.err
    assert "--help" in done.err


def test_only_the_command_that_is_asked_for_is_read() -> None:
    def names(word: str) -> list[str | None]:
        app = app_for(word)
        groups = [group.typer_instance.info.name for group in app.registered_groups if group.typer_instance]
        return [*(command.name for command in app.registered_commands), *groups]

    assert (names("call"), names("list"), names("mcp")) == (["call"], ["list"], ["mcp"])
    assert names("") == names("--help") == names("inspekt")
    assert {"call", "list", "inspect", "mcp"} < set(names(""))


BUG = """
import sys
import plugbay.cli.folders as folders

def look(path):
    raise {error}

folders.look = look
sys.argv = ["plugbay", "inspect", "."]
from plugbay.cli.main import main
main()
"""


def broken(cwd: Path, error: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`plugbay inspect .` with a bug in it."""
    return subprocess.run(
        [sys.executable, "-c", BUG.format(error=error)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(cwd, **env),
        check=False,
    )


def test_a_bug_is_one_line_and_the_way_to_its_traceback(cwd: Path) -> None:
    done = broken(cwd, "ZeroDivisionError('by accident')")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: ZeroDivisionError: by accident",
        "hint:  this is a bug in plugbay; run with PLUGBAY_DEBUG=1 for the traceback",
    ]


def test_whoever_asks_gets_the_traceback(cwd: Path) -> None:
    done = broken(cwd, "ZeroDivisionError('by accident')", PLUGBAY_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert "by accident" in done.stderr


def test_a_mistake_of_the_caller_has_no_traceback_for_anybody(run: Run) -> None:
    done = run("frobnicate", PLUGBAY_DEBUG="1")
    assert done.code == 2
    assert "Traceback" not in done.err


def test_an_error_of_the_system_is_told_in_its_words(cwd: Path) -> None:
    done = broken(cwd, "PermissionError(13, 'Permission denied', '/secret')")
    assert done.returncode == 1
    assert done.stderr.startswith("error: /secret: Permission denied\n")


def test_errors_raised_on_purpose_list_their_problems(cwd: Path) -> None:
    problem = "__import__('plugbay').model.errors.Problem('x', 'command', 'is missing', line=7)"
    done = broken(cwd, f"__import__('plugbay').ManifestInvalid('rterm-plugin.json', [{problem}])")
    assert done.returncode == 3
    assert "line 7: command: is missing" in done.stderr


HEAVY = {"asyncio", "pydantic", "msgspec", "jsonschema_rs", "plugbay.host.host", "plugbay.conformance"}


@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_the_quick_answers_load_nothing_heavy(cwd: Path, argument: str) -> None:
    code = (
        "import sys, atexit\n"
        f"sys.argv = ['plugbay', {argument!r}]\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from plugbay.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(cwd),
        check=True,
    )
    assert set(done.stderr.split()) & HEAVY == set()


def test_a_closed_stdout_is_told(cwd: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "plugbay", "paths", "--json"],
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(cwd),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == b"error: standard output is closed, so there is nowhere to write the result\n"


def test_the_command_is_there_under_its_own_name_when_installed(cwd: Path) -> None:
    script = Path(sys.executable).with_name("plugbay")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, cwd=os.sep, check=True)
    assert done.stdout == f"plugbay {__version__}\n"
