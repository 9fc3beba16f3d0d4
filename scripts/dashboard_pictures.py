"""Takes a picture of each page of the dashboard: a real server, real plugins, Debian's chromium.

    .venv/bin/python scripts/dashboard_pictures.py docs/images/dashboard [NAME…]

Each page is taken 1280 pixels wide, the first also 390 wide and dark. Names of `tests/support/showcase.py` narrow it.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import logged_in, open_browser  # noqa: E402
from tests.support.showcase import CLUSTER_PAGES, PAGES, cluster_showcase, showcase  # noqa: E402

WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
NARROW: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}


def main(folder: Path, names: list[str]) -> None:
    unknown = set(names) - set(PAGES)
    if unknown:
        sys.exit(f"There is no page {', '.join(sorted(unknown))}. The pages are: {', '.join(PAGES)}.")
    wanted = [(name, name, WIDE) for name in names or PAGES]
    if not names:
        first = next(iter(PAGES))
        wanted += [(f"{first}-narrow", first, NARROW), (f"{first}-dark", first, {**WIDE, "color_scheme": "dark"})]
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        plain, clustered = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        shown, cluster = stack.enter_context(showcase(plain)), stack.enter_context(cluster_showcase(clustered))
        browser = stack.enter_context(open_browser())
        for picture, name, look in wanted:
            of = cluster if name in CLUSTER_PAGES else shown
            with logged_in(browser, of.server, **look) as window:
                window.open(of.pages[name])
                window.page.screenshot(path=folder / f"{picture}.png")
                print(folder / f"{picture}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
