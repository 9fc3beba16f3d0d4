"""The prose of the docs and the texts of the program: no long lines, and none of the words that hide who is meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "plugbay"
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "examples/*/*.md") for page in ROOT.glob(pattern)
)
COLUMNS = 120
BANNED = re.compile(r"\b(somebody|whoever|nobody)\b", re.IGNORECASE)
UNBREAKABLE = re.compile(r"\s*(\||!\[|<)|    ")
"""Table rows, pictures, HTML and indented code, which Markdown cannot wrap."""


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of code blocks and comments, with their numbers."""
    fence, comment = "", False
    for number, line in enumerate(text.splitlines(), 1):
        start = re.match(r"\s*(```|~~~)", line)
        if start and fence in ("", start[1]):
            fence = "" if fence else start[1]
            continue
        comment = comment or line.lstrip().startswith("<!--")
        if not fence and not comment:
            yield number, line
        comment = comment and "-->" not in line


def long_lines(text: str) -> list[int]:
    return [number for number, line in prose(text) if len(line) > COLUMNS and not UNBREAKABLE.match(line)]


def banned_in_prose(text: str) -> list[str]:
    return [f"{number}: {line.strip()}" for number, line in prose(text) if BANNED.search(line)]


def banned_in_texts(source: str) -> list[str]:
    """Strings of several words that are not docstrings and have a banned word."""
    tree = ast.parse(source)
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, described)]
    silent = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in silent]
    texts = [(node.lineno, node.value) for node in constants if isinstance(node.value, str)]
    return [f"{line}: {text}" for line, text in texts if " " in text and BANNED.search(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_short_lines_and_plain_words(page: Path) -> None:
    text = page.read_text("utf-8")
    assert long_lines(text) == []
    assert banned_in_prose(text) == []


def test_the_program_has_short_lines() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in SOURCE.rglob("*.py")
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert long == []


def test_texts_of_the_program_have_plain_words() -> None:
    modules = {file: file.read_text("utf-8") for file in SOURCE.rglob("*.py") if "bad_plugins" not in file.parts}
    suspects = {file: text for file, text in modules.items() if BANNED.search(text)}
    assert {str(file): found for file, text in suspects.items() if (found := banned_in_texts(text))} == {}
    templates = [file for file in SOURCE.rglob("*.html") if BANNED.search(file.read_text("utf-8"))]
    assert templates == []


def test_a_long_line_and_a_banned_word_are_found() -> None:
    page = "\n".join(["# Page", "word " * 30, "```", "nobody " * 30, "```", "| " + "cell " * 40 + "|", "Nobody knows."])
    assert long_lines(page) == [2]
    assert banned_in_prose(page) == ["7: Nobody knows."]
    assert banned_in_texts('"""Nobody."""\nTEXT = f"{1} whoever"\n') == ["2:  whoever"]
