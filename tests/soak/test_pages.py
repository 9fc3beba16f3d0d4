"""Ninety seconds of page views leave server and browser as they were; `make soak PAGES=1` takes an hour."""

from __future__ import annotations

from pathlib import Path

from tests.soak.pages import view_pages
from tests.support.tiers import exhaustive

SECONDS = 90.0


@exhaustive
def test_page_views_leave_server_and_browser_as_they_were(tmp_path: Path) -> None:
    assert view_pages(tmp_path, SECONDS) == []
