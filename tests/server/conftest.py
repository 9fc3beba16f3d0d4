"""What these tests share: databases, and one kind of loop: the one that servers run on."""

from __future__ import annotations

import pytest

from tests.support.databases import database_url, sqlite_url
from tests.support.loops import Run, run_on

__all__ = ["database_url", "run", "sqlite_url"]


@pytest.fixture
def run() -> Run:
    return run_on("uvloop")
