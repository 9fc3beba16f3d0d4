"""Takes a picture of each page of the dashboard: a real server, real plugins, Debian's chromium.

    .venv/bin/python scripts/dashboard_pictures.py docs/images/dashboard [NAME…]

Each page is taken 1280 pixels wide, the first also 390 wide and dark. Names of `tests/support/showcase.py` narrow it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.browser import logged_in, open_browser  # noqa: E402
from tests.support.showcase import PAGES, showcase  # noqa: E402

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
    with tempfile.TemporaryDirectory() as place, showcase(Path(place)) as shown, open_browser() as browser:
        for picture, name, look in wanted:
            with logged_in(browser, shown.server, **look) as window:
                window.open(shown.pages[name])
                window.page.screenshot(path=folder / f"{picture}.png")
                print(folder / f"{picture}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
