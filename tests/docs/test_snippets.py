"""Every snippet in the README and the docs is true: files are written, programs run, transcripts replayed.

A comment before a fence says what to do with it: `test: file PATH`, `test: run` (a following `text` fence is its exact
output) or `test: transcript` (`$` lines are commands; `…` stands for any text, a line `...` for any lines).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"(?:<!-- test: ([^\n]*) -->\n)?```(\w*)\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
EXECUTABLE = {"python", "console", "toml", "json"}


def snippets(page: Path) -> list[tuple[str, str, str, str]]:
    return [(m[1] or "", m[2], m[3], m[4] or "") for m in FENCE.finditer(page.read_text("utf-8"))]


def shell(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stderr + done.stdout


def pattern(expected: str) -> str:
    lines = [
        r"(?:.*\n)*?" if line == "..." else re.escape(line).replace("…", ".*") + r"\s*\n"
        for line in expected.strip("\n").split("\n")
    ]
    return "".join(lines)


def replay(transcript: str, folder: Path) -> None:
    for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        output = shell(command, folder)
        assert re.fullmatch(pattern(expected) + r"\s*", output.strip("\n") + "\n"), f"$ {command}\n{output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_snippet_of_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for kind, _, body, output in snippets(page):
        if kind.startswith("file "):
            path = tmp_path / kind.removeprefix("file ")
            path.parent.mkdir(exist_ok=True)
            path.write_text(body, "utf-8")
        elif kind == "run":
            (tmp_path / "snippet.py").write_text(body, "utf-8")
            assert shell(f"{shlex.quote(sys.executable)} snippet.py", tmp_path) == output
        elif kind == "transcript":
            replay(body, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_snippet_escapes_the_tests(page: Path) -> None:
    assert [body for kind, language, body, _ in snippets(page) if language in EXECUTABLE and not kind] == []


def test_a_page_that_lies_is_caught(tmp_path: Path) -> None:
    replay("$ echo one; echo two 2\none\n...\n", tmp_path)
    replay("$ echo took 5 ms\ntook … ms\n", tmp_path)
    with pytest.raises(AssertionError, match="echo one"):
        replay("$ echo one\ntwo\n", tmp_path)


def test_the_error_index_lists_every_code_once() -> None:
    from plugbay.model.errors import CODES

    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "errors.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(CODES)


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
            assert "://" in target or (page.parent / target).exists(), f"{page.name}: {target}"
