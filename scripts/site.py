"""Builds the documentation site: `make docs` calls it with the interpreter that has the extra `docs`.

    python scripts/site.py [SITE]     writes SITE/<version>/, SITE/versions.json and SITE/index.html; SITE is `site`

The pages are copied to `build/site` first. A link to a Markdown file outside `docs/` (ARCHITECTURE.md, the README of an
example) leads to a copy of it below `repository/`; a link to another file of the repository becomes plain text. The
build is strict: a warning of the generator, or a page that loads anything from another site, fails it.

Versions: each build replaces the folder of its own version and leaves the others. The theme reads `versions.json`, in
the format of mike, for its menu of versions; `index.html` leads to the newest version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.links import COPIES, EXTERNAL, FENCE  # noqa: E402

VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]+\bsrc=\"?(?:https?:)?//[^>]*>|<link[^>]+\bhref=\"?(?:https?:)?//[^>]*>"
)
CANONICAL = re.compile(r"rel=\"?canonical")
BESIDE = ("ARCHITECTURE.md",)
"""Files outside docs/ that the navigation has."""
REDIRECT = (
    '<!doctype html><meta charset="utf-8"><title>plugbay</title><meta http-equiv="refresh" content="0; url={0}/">\n'
)


class Stage:
    """A copy of the pages in which each link leads to a page of the site."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self._copied: set[Path] = set()

    def fill(self) -> None:
        """Copy the files of docs/, and each Markdown file that they lead to."""
        for source in [*sorted((self.root / "docs").rglob("*")), *(self.root / name for name in BESIDE)]:
            if source.is_file() and source not in self._copied:
                self._copy(source)

    def _copy(self, source: Path) -> None:
        self._copied.add(source)
        target = self.folder / self._place(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(self._linked(source), "utf-8")
        else:
            shutil.copyfile(source, target)

    def _place(self, source: Path) -> Path:
        """The path of a file in the site's folder of pages."""
        docs = self.root / "docs"
        return source.relative_to(docs) if source.is_relative_to(docs) else COPIES / source.relative_to(self.root)

    def _linked(self, page: Path) -> str:
        text = page.read_text("utf-8")
        parts, at = [], 0
        for fence in FENCE.finditer(text):
            parts += [self._relink(page, text[at : fence.start()]), fence[0]]
            at = fence.end()
        return "".join([*parts, self._relink(page, text[at:])])

    def _relink(self, page: Path, text: str) -> str:
        docs = self.root / "docs"

        def replace(found: re.Match[str]) -> str:
            image, label, link = found.groups()
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve()
            is_page = target.is_relative_to(docs)
            if EXTERNAL.match(link) or not name or (is_page and page.is_relative_to(docs)):
                return found[0]
            if not is_page and not (target.is_file() and (image or target.suffix == ".md")):
                return str(label)
            if target not in self._copied:
                self._copy(target)
            path = os.path.relpath(self.folder / self._place(target), (self.folder / self._place(page)).parent)
            return f"{image}[{label}]({path}{'#' if anchor else ''}{anchor})"

        return LINK.sub(replace, text)


def loaded_from_elsewhere(site: Path) -> list[str]:
    """What the pages of a site load from other sites."""
    return [
        f"{page.relative_to(site)}: {found[0]}"
        for page in sorted(site.rglob("*.html"))
        for found in LOADED.finditer(page.read_text("utf-8"))
        if not CANONICAL.search(found[0])
    ]


def newest_first(versions: list[str]) -> list[str]:
    return sorted(versions, key=lambda version: [int(n) for n in re.findall(r"\d+", version)], reverse=True)


def publish(built: Path, site: Path, version: str) -> None:
    """Put a built site into the folder of its version, and list all versions."""
    site.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.move(built, site / version)
    versions = newest_first([path.parent.name for path in site.glob("*/index.html")])
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == versions[0] else []} for name in versions
    ]
    (site / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", "utf-8")
    (site / "index.html").write_text(REDIRECT.format(versions[0]), "utf-8")


def main(site: Path) -> int:
    build = ROOT / "build" / "site"
    shutil.rmtree(build, ignore_errors=True)
    Stage(ROOT, build / "docs").fill()
    shutil.copyfile(ROOT / "zensical.toml", build / "zensical.toml")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=build, env={**os.environ, "NO_COLOR": "1"}, check=False)
    if done.returncode:
        return done.returncode
    if found := loaded_from_elsewhere(build / "site"):
        print("pages load from other sites:", *found, sep="\n", file=sys.stderr)
        return 1
    version = VERSION.search((ROOT / "src/plugbay/__init__.py").read_text("utf-8"))
    assert version is not None
    publish(build / "site", site, version[1])
    print(f"the site is in {site / version[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()))
