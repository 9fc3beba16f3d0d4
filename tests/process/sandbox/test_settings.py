"""The operator's general settings and what they are when nothing is said."""

from __future__ import annotations

from plugbay.process.sandbox.settings import UIDS, SandboxSettings


def test_without_a_word_plugins_have_a_large_range_and_nothing_more_to_read() -> None:
    settings = SandboxSettings()
    assert (settings.uids, settings.read, settings.require_limits) == (UIDS, (), False)
    # Above what adduser, systemd's dynamic users and containers' subordinate ids take, and below the sign bit.
    assert 1_879_048_192 <= UIDS[0] < UIDS[1] < 2**31
