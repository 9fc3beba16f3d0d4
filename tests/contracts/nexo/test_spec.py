"""The facts that every plugin of nexo shares."""

from __future__ import annotations

from plugbay.contracts.nexo.spec import FILE_NAME, TIMEOUTS


def test_a_plugin_has_five_seconds_to_greet_five_for_its_farewell_and_one_to_be_gone() -> None:
    assert FILE_NAME == "nexo-plugin.toml"
    assert (TIMEOUTS.handshake, TIMEOUTS.farewell, TIMEOUTS.teardown) == (5.0, 5.0, 1.0)
