"""Fixtures of the package tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packages.builders import Bench
from tests.packages.registry_server import serve


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "bench")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real registry; each test uses its own repositories."""
    with serve(tmp_path_factory.mktemp("registry")) as address:
        yield address
