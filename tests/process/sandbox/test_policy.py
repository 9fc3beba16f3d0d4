"""What a policy shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.process.sandbox.policy import Door, Network, Policy, Reach


@pytest.mark.parametrize(
    ("network", "text", "proxied"),
    [
        (Network(), "none", False),
        (Network(Reach.LISTED), "none", False),
        (Network(Reach.LISTED, (Door("a.example", 443), Door("::1"))), "a.example:443, [::1]:*", True),
        (Network(Reach.ANY), "any public address", True),
        (Network(Reach.HOST), "the machine's own, unchecked", False),
    ],
)
def test_a_network_is_shown_in_words_and_knows_whether_the_host_stands_between(
    network: Network, text: str, proxied: bool
) -> None:
    assert (str(network), network.proxied) == (text, proxied)


def test_a_policy_that_says_nothing_allows_nothing() -> None:
    shown = Policy(Path("/plugin")).to_json()
    assert (shown["read"], shown["write"], shown["run"], shown["state"]) == ([], [], [], None)
    assert shown["network"] == {"reach": "none", "doors": [], "private": []}
    assert all(amount > 0 for amount in shown["limits"].values())
