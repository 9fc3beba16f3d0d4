"""Three minutes of mixed load leave a server as it was; `make soak` takes two hours."""

from __future__ import annotations

from pathlib import Path

from tests.soak.soak import soak
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

SECONDS = 180.0


@exhaustive
@requirement("vai:control-soak")
def test_nothing_grows_nothing_is_lost_and_nothing_is_left(tmp_path: Path) -> None:
    assert soak(tmp_path, SECONDS) == []
