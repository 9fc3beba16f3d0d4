"""The link is where event loops differ: its tests run on both."""

from __future__ import annotations

import pytest

from tests.support.loops import LOOPS, Run, run_on


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Run:
    return run_on(request.param)
