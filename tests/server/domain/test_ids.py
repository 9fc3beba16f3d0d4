"""Ids."""

from __future__ import annotations

import re

import pytest

from plugbay.server.domain.ids import is_id, new_id


def test_an_id_has_its_prefix_and_80_random_bits() -> None:
    made = {new_id("bind_") for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"bind_[0-9a-f]{20}", each) and is_id(each) for each in made)


@pytest.mark.parametrize("text", ["", "a/b", "a:b", "a b", "é", "-a", "a" * 65, "a\n"])
def test_what_cannot_be_an_id_is_none(text: str) -> None:
    assert not is_id(text)
