"""Fixtures of the cluster tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nodes import Cell, cell


@pytest.fixture(scope="module")
def shared_cell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cell]:
    """A cell for all tests of a module; tests that disturb it start their own."""
    with cell(tmp_path_factory.mktemp("cell")) as made:
        yield made
