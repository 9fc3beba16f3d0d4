"""What these tests share: databases of both kinds, and one kind of loop: the one that servers run on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import KINDS, database, sqlite_url
from tests.support.loops import Run, run_on

__all__ = ["run", "sqlite_url"]


@pytest.fixture(params=KINDS)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database of each kind; where they differ is this package's to know."""
    with database(request.param, tmp_path) as url:
        yield url


@pytest.fixture
def run() -> Run:
    return run_on("uvloop")
