"""Lock files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plugbay.store.locks import InUse, locked


def test_a_file_that_is_let_go_of_can_be_locked_again(tmp_path: Path) -> None:
    for _ in range(2):
        with (
            locked(tmp_path / "lock", "it"),
            pytest.raises(InUse, match=rf"it is in use .* process {os.getpid()}"),
            locked(tmp_path / "lock", "it"),
        ):
            raise AssertionError("two have it")
