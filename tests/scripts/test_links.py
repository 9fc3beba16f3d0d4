"""The link check finds a link without a file and an anchor without a heading, and reads no code as a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.links import broken, navigation_faults, slug
from tests.architecture import write_tree

GUIDE = '# Guide\n\n## Options, and `plugbay.toml`\n\n## Twice\n\n## Twice\n\n<a id="old"></a>\n'


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    assert broken() == []
    assert navigation_faults() == []


def test_the_navigation_has_each_page_once(tmp_path: Path) -> None:
    nav = '[project]\nnav = [{ "A" = [{ "B" = "a.md" }, "none.md"] }, "twice.md", "twice.md", "repository/README.md"]\n'
    files = dict.fromkeys(("docs/a.md", "docs/b/lost.md", "docs/twice.md", "README.md"), "# A\n")
    write_tree(tmp_path, {"zensical.toml": nav, **files})
    assert navigation_faults(tmp_path) == [
        "zensical.toml: docs/none.md: there is no such page",
        "zensical.toml: docs/b/lost.md is not in the navigation",
        "zensical.toml: docs/twice.md is there twice",
    ]


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/guide.md)",
        "[a](docs/guide.md#options-and-plugbaytoml)",
        "[a](docs/guide.md#old)",
        "[a](docs/guide.md#twice)",
        "[a](#top)",
        "[a](docs)",
        "[a](https://example.com/none)",
        '![a](docs/a.svg "a title")',
        "`[a](none.md)`",
        "```text\n[a](none.md)\n```",
        "<!-- [a](none.md) -->",
    ],
)
def test_a_link_that_leads_somewhere_is_no_fault(tmp_path: Path, link: str) -> None:
    write_tree(tmp_path, {"README.md": f"# Top\n\n{link}\n", "docs/guide.md": GUIDE, "docs/a.svg": "<svg/>"})
    assert broken(tmp_path) == []


@pytest.mark.parametrize(
    ("link", "fault"),
    [
        ("[a](docs/none.md)", "docs/none.md: there is no such file"),
        ("![a](docs/none.svg)", "docs/none.svg: there is no such file"),
        ("[a](docs/guide.md#none)", "docs/guide.md#none: the page has no such anchor"),
        ("[a](docs/guide.md#twice-1)", "docs/guide.md#twice-1: the page has no such anchor"),
        ("[a](#none)", "#none: the page has no such anchor"),
        ('<img src="none.png">', "none.png: there is no such file"),
        ("[a]: none.md", "none.md: there is no such file"),
    ],
)
def test_a_broken_link_and_a_broken_anchor_are_reported_with_their_line(tmp_path: Path, link: str, fault: str) -> None:
    write_tree(tmp_path, {"README.md": f"# Top\n\n```text\ncode\n```\n\n{link}\n", "docs/guide.md": GUIDE})
    assert broken(tmp_path) == [f"README.md:7: {fault}"]


def test_a_page_that_the_code_names_must_exist(tmp_path: Path) -> None:
    code = '"""See docs/guide.md#old."""\n\nHINT = "docs/guide.md#none"\nPAGE = "docs/none.md"\n'
    write_tree(tmp_path, {"src/a.py": code, "docs/guide.md": GUIDE})
    assert broken(tmp_path) == [
        "src/a.py:3: docs/guide.md#none: the page has no such anchor",
        "src/a.py:4: docs/none.md: there is no such file",
    ]


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("What's new?", "whats-new"),
        ("`plugbay.toml` and more", "plugbaytoml-and-more"),
        ("A — B", "a--b"),
        ("**Bold** [link](a.md)", "bold-link"),
        ("snake_case", "snake_case"),
    ],
)
def test_an_anchor_is_made_as_forges_make_it(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor
