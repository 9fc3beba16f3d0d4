"""The facts that every plugin of rune shares."""

from __future__ import annotations

from plugbay.contracts.rune.spec import FILE_NAME, TIMEOUTS


def test_the_manifest_and_the_four_timeouts_are_those_of_the_contract() -> None:
    assert FILE_NAME == "rterm-plugin.json"
    assert (TIMEOUTS.launch, TIMEOUTS.handshake, TIMEOUTS.call, TIMEOUTS.teardown) == (2.0, 2.0, 5.0, 0.5)
