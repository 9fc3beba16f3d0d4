"""Every snippet in the README and the docs is true: files are written, programs run, transcripts replayed.

A comment before a fence says what to do with it: `test: file PATH`, `test: run` (a following `text` fence is its exact
output), `test: run together` (the same, in one process with the others of its page) or `test: transcript` (`$` lines
are commands; `…` stands for any text, a line `...` for any lines).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.commands import plugbay
from tests.support.machine import without_limits_notes
from tests.support.patience import PATIENCE, until_blocking
from tests.support.tiers import these

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST_READ = {"README.md"}
"""The page whose snippets belong to `make test`."""
FENCE = re.compile(r"(?:<!-- test: ([^\n]*) -->\n)?```(\w*)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
SHELL_WORDS = re.compile(r"[][|&;<>$`*?~(){}#\\=\n]")
EXECUTABLE = {"python", "console", "toml", "json"}
TOGETHER = """\
import contextlib, io, json, runpy, sys
outputs = []
for path in sys.argv[1:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        runpy.run_path(path)
    outputs.append(said.getvalue())
print(json.dumps(outputs))
"""
"""Runs snippets one after the other: a host in memory takes no time, and starting Python does."""

PATIENT = {
    "debug.md": """\
[plugins."example.greeter".timeouts]
launch = 20
handshake = 20
call = 20
teardown = 20
"""
}
"""Settings for a page with a plugin whose program is plugbay itself: on a busy machine it may take longer to start than
the 2 s that its contract allows."""


IN_BACKGROUND: set[int] = set()
"""Process groups that a command has left."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def snippets(page: Path) -> list[tuple[str, str, str, str]]:
    return [(m[1] or "", m[2], m[3], m[4] or "") for m in FENCE.finditer(page.read_text("utf-8"))]


def shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    state = str(folder / ".state")  # nothing of a reader's own is read or written
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120", "XDG_STATE_HOME": state}
    environment["PYTEST_ADDOPTS"] = "-p no:schemathesis"  # a reader has none, and it takes pytest a second to load
    if takes_no_shell(command):
        forked = plugbay(*shlex.split(command)[1:], cwd=folder, env=environment, timeout=PATIENCE)
        return (forked.stderr + forked.stdout).decode()
    bash = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    IN_BACKGROUND.add(bash.pid)
    out, err = bash.communicate(timeout=PATIENCE)
    with suppress(ProcessLookupError):
        os.killpg(bash.pid, 0)
        return err + out
    IN_BACKGROUND.remove(bash.pid)
    return err + out


@pytest.fixture(autouse=True)
def no_background() -> Iterator[None]:
    """End the servers of a page whose test fails before the command that stops them."""
    yield
    end_background()


def end_background() -> None:
    while IN_BACKGROUND:
        with suppress(ProcessLookupError):
            os.killpg(IN_BACKGROUND.pop(), signal.SIGKILL)


def takes_no_shell(command: str) -> bool:
    """Whether it is `plugbay` with words that mean just themselves; a hundred of them are, and start faster forked."""
    return command.startswith("plugbay ") and not SHELL_WORDS.search(re.sub(r"'[^']*'", "", command))


def pattern(expected: str) -> str:
    lines = [
        # A busy machine takes seconds where a page has milliseconds.
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"…\ ms", "… m?s").replace("…", ".*") + r"\s*\n"
        for line in expected.strip("\n").split("\n")
    ]
    return "".join(lines)


def replay(transcript: str, folder: Path) -> None:
    for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        output = without_limits_notes(shell(command, folder))
        assert re.fullmatch(pattern(expected) + r"\s*", output.strip("\n") + "\n"), f"$ {command}\n{output}"


def run_together(found: list[tuple[str, str]], folder: Path) -> None:
    """Run snippets in one process, and hold each against its output."""
    names = [f"snippet_{number}.py" for number, _ in enumerate(found)]
    for name, (body, _) in zip(names, found, strict=True):
        (folder / name).write_text(body, "utf-8")
    (folder / "together.py").write_text(TOGETHER, "utf-8")
    said = shell(shlex.join([sys.executable, "together.py", *names]), folder)
    assert said.startswith("["), said
    for (body, expected), output in zip(found, json.loads(said), strict=True):
        assert output == expected, body


@pytest.mark.parametrize("page", these(PAGES, lambda page: name_of(page) in FIRST_READ), ids=name_of)
def test_every_snippet_of_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # as a reader's own folder is: plugins with a user of their own are shown what is in it
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if name_of(page) in PATIENT:
        (tmp_path / "plugbay.toml").write_text(PATIENT[name_of(page)], "utf-8")
    for kind, _, body, output in snippets(page):
        if kind.startswith("file "):
            path = tmp_path / kind.removeprefix("file ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, "utf-8")
        elif kind == "run":
            (tmp_path / "snippet.py").write_text(body, "utf-8")
            said = shell(f"{shlex.quote(sys.executable)} snippet.py", tmp_path)
            assert without_limits_notes(said) == output
        elif kind == "transcript":
            replay(body, tmp_path)
    together = [(body, output) for kind, _, body, output in snippets(page) if kind == "run together"]
    if together:
        run_together(together, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_snippet_escapes_the_tests(page: Path) -> None:
    assert [body for kind, language, body, _ in snippets(page) if language in EXECUTABLE and not kind] == []


def test_what_means_more_than_itself_goes_to_a_shell() -> None:
    assert takes_no_shell('plugbay call greeter greet \'{"name": "$HOME | *"}\' --json')
    for command in (
        "echo plugbay",
        "plugbay paths | cat",
        "plugbay paths; ls",
        "plugbay inspect *",
        "plugbay call $X y",
    ):
        assert not takes_no_shell(command)


def test_a_page_that_lies_is_caught(tmp_path: Path) -> None:
    replay("$ echo one; echo two 2\none\n...\n", tmp_path)
    replay("$ echo took 5 ms\ntook … ms\n", tmp_path)
    with pytest.raises(AssertionError, match="echo one"):
        replay("$ echo one\ntwo\n", tmp_path)
    run_together([("print(1)", "1\n"), ("import sys; print(2, file=sys.stderr)", "2\n")], tmp_path)
    with pytest.raises(AssertionError, match=r"print\(2\)"):
        run_together([("print(1)", "1\n"), ("print(2)", "1\n")], tmp_path)
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_together([("1 / 0", "")], tmp_path)


def test_a_server_in_the_background_ends_with_the_test_that_failed(tmp_path: Path) -> None:
    pid = int(shell("sleep 600 >/dev/null 2>&1 & echo $!", tmp_path))
    os.kill(pid, 0)
    end_background()
    until_blocking(lambda: not Path(f"/proc/{pid}").exists())
