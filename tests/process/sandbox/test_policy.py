"""What a policy shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.process.sandbox.policy import UIDS, Endpoint, Network, Policy, Reach, SandboxSettings


@pytest.mark.parametrize(
    ("network", "text", "proxied"),
    [
        (Network(), "none", False),
        (Network(Reach.LISTED), "none", False),
        (Network(Reach.LISTED, (Endpoint("a.example", 443), Endpoint("::1"))), "a.example:443, [::1]:*", True),
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


def test_without_a_word_plugins_have_a_large_range_and_nothing_more_to_read() -> None:
    settings = SandboxSettings()
    assert (settings.uids, settings.read, settings.require_limits) == (UIDS, (), False)
    # Above what adduser, systemd's dynamic users and containers' subordinate ids take, and below the sign bit.
    assert 1_879_048_192 <= UIDS[0] < UIDS[1] < 2**31
