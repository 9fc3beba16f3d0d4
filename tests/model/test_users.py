"""The user numbers inside a sandbox."""

from __future__ import annotations

from plugbay.model.users import NOBODY, SANDBOX_USER


def test_neither_number_is_that_of_root_and_the_usual_one_is_not_nobody() -> None:
    assert 0 not in {SANDBOX_USER, NOBODY} and SANDBOX_USER != NOBODY
