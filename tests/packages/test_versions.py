"""Which version is newer."""

from __future__ import annotations

import itertools

import pytest

from plugbay.packages.versions import is_older

SEMVER = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
ORDER = ["0", "0.0.1", "0.9", *SEMVER, "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2", "1.10.0", "2", "10.0.0", "20261115.1"]


def test_versions_have_the_order_of_semver_and_of_common_sense() -> None:
    for older, newer in itertools.combinations(ORDER, 2):
        assert is_older(older, newer), (older, newer)
        assert not is_older(newer, older), (older, newer)


@pytest.mark.parametrize(
    "pair", [("1.0.0", "1.0.0"), ("1.0.0+a", "1.0.0+b"), ("1", "1.0.0"), ("v1.2", "1.2"), ("1.02", "1.2")]
)
def test_these_are_equally_old(pair: tuple[str, str]) -> None:
    assert not is_older(*pair) and not is_older(*reversed(pair))


def test_words_and_very_long_numbers_have_an_order_too() -> None:
    assert is_older("1.0a", "1.0b")
    assert is_older("9" * 5000, "1" + "0" * 5000)
