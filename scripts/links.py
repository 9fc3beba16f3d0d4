"""Finds links and anchors of the documentation that lead nowhere. `make check` runs it; it needs no site generator.

It reads the pages below `docs/`, the Markdown files of the root, and the READMEs of `examples/` and `bench/`. In the
source code it also checks each page that a comment or a message names, such as `docs/errors.md#exit-statuses`. The
navigation of the site must have each page of `docs/` once.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "examples/**/*.md", "bench/**/*.md")
FENCE = re.compile(r"^( *)(`{3,}|~{3,})[^\n]*\n.*?^\1\2[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|\b(?:href|src)=\"([^\"]+)\"|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE
)
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"|\{\s*#([\w-]+)[^}]*\}")
COPIES = "repository/"
"""Where the site has pages of the repository that are not in docs/: see scripts/site.py."""
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//")
NAMED_IN_CODE = re.compile(r"\bdocs/[\w./-]+\.md(?:#[\w-]+)?")


def blank(found: re.Match[str]) -> str:
    """As many lines, without text, so that line numbers stay."""
    return "\n" * found[0].count("\n")


def without_code(text: str) -> str:
    """The text of a page without comments, fences and code spans."""
    return CODE.sub(blank, COMMENT.sub(blank, FENCE.sub(blank, text)))


def slug(heading: str) -> str:
    """The anchor of a heading, as forges and the site make it."""
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    plain = re.sub(r"(?<!\w)[*_]{1,3}|[*_]{1,3}(?!\w)", "", re.sub(r"<[^>]*>", "", plain))
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page. The second heading of a text has none: forges and the site number it differently."""
    text = COMMENT.sub(blank, FENCE.sub(blank, page.read_text("utf-8")))
    return frozenset(
        [*(slug(heading) for heading in HEADING.findall(text)), *("".join(a) for a in ANCHOR.findall(text))]
    )


def links(text: str) -> Iterator[tuple[int, str]]:
    """The line and the target of each link of a page."""
    plain = without_code(text)
    for found in LINK.finditer(plain):
        yield plain.count("\n", 0, found.start()) + 1, found[1] or found[2] or found[3]


def fault(page: Path, target: str) -> str | None:
    """The reason why a link of a page leads nowhere; None: it leads somewhere, or off this repository."""
    if EXTERNAL.match(target):
        return None
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return f"{target}: there is no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.resolve()):
        return f"{target}: the page has no such anchor"
    return None


def named(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from named(entry)


def navigation_faults(root: Path = ROOT) -> list[str]:
    """Pages that the navigation names and that do not exist, and pages that it lacks or names twice."""
    nav = tomllib.loads((root / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    pages = [f"docs/{name}" if not name.startswith(COPIES) else name.removeprefix(COPIES) for name in named(nav)]
    there = {page.relative_to(root).as_posix() for page in root.glob("docs/**/*.md")}
    faults = [f"zensical.toml: {page}: there is no such page" for page in pages if not (root / page).is_file()]
    faults += [f"zensical.toml: {page} is not in the navigation" for page in sorted(there - {*pages})]
    return [*faults, *(f"zensical.toml: {page} is there twice" for page in sorted({*pages}) if pages.count(page) > 1)]


def broken(root: Path = ROOT) -> list[str]:
    """Each broken link as `file:line: target: reason`."""
    found = []
    for page in sorted({page for pattern in PAGES for page in root.glob(pattern)}):
        for line, target in links(page.read_text("utf-8")):
            if reason := fault(page, target):
                found.append(f"{page.relative_to(root)}:{line}: {reason}")
    for module in sorted(root.glob("src/**/*.py")):
        for number, code in enumerate(module.read_text("utf-8").splitlines(), 1):
            reasons = [fault(root / "README.md", target) for target in NAMED_IN_CODE.findall(code)]
            found += [f"{module.relative_to(root)}:{number}: {reason}" for reason in reasons if reason]
    return found


def main() -> int:
    found = [*broken(), *navigation_faults()]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
