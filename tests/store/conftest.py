"""Shared fixtures: databases of both kinds, on the event loop that servers use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import KINDS, database, sqlite_url
from tests.support.loops import Run, run_on

__all__ = ["run", "sqlite_url"]


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database of each kind."""
    with database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def run() -> Run:
    return run_on("uvloop")
