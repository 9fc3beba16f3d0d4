"""Each tutorial works from a clean state: an empty folder, an empty home, and no checkout beside it.

Its fences are marked `test: step` (commands) and `test: step file PATH`; they are followed in the order of the page.
The page says how many commands and minutes it takes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_control_plane_page import Shell, bash, commands
from tests.docs.test_snippets import ROOT, pattern, snippets
from tests.support.tiers import exhaustive

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PROMISE = re.compile(r"^\*\*(\d+) commands, about (\d+) minutes\.\*\*", re.MULTILINE)
STEP, FILE = "step", "step file "


def walk(page: Path, folder: Path, shell: Shell) -> int:
    """Follow a tutorial, and compare each output with the page; the number of commands."""
    count = 0
    for kind, _, body, _ in snippets(page):
        if kind.startswith(FILE):
            path = folder / kind.removeprefix(FILE)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, "utf-8")
        for command, expected in commands(body) if kind == STEP else ():
            said = shell.run(command)
            assert re.fullmatch(pattern(expected) + r"\s*", said), f"$ {command}\n{said}"
            count += 1
    return count


def test_there_is_a_tutorial_for_authors_embedders_and_operators() -> None:
    assert [page.stem for page in TUTORIALS] == ["author", "embedder", "operator"]


@exhaustive
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_works_from_a_clean_state_with_as_many_commands_as_it_says(page: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)  # as a reader's own folder is: a confined plugin runs as another user
    folder = tmp_path / "work"
    (tmp_path / "home").mkdir()
    folder.mkdir()
    promise = PROMISE.search(page.read_text("utf-8"))
    assert promise is not None
    with bash(tmp_path) as shell:
        shell.run("cd work")
        assert walk(page, folder, shell) == int(promise[1])


def test_a_tutorial_that_lies_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    file, step = "<!-- test: step file a/b.txt -->\n```text\n", "<!-- test: step -->\n```console\n$ cat a/b.txt\n"
    good = f"{file}yes\n```\n\n{step}yes\n```\n"
    page.write_text(good)
    with bash(tmp_path) as shell:
        assert walk(page, tmp_path, shell) == 1
        page.write_text(good.replace("\nyes\n```\n\n", "\nno\n```\n\n"))
        with pytest.raises(AssertionError, match=r"cat a/b\.txt"):
            walk(page, tmp_path, shell)
