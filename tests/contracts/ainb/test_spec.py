"""The facts that every plugin of ainb shares."""

from __future__ import annotations

from plugbay.contracts.ainb.spec import FILE_NAME, IDLE_SECONDS, TIMEOUTS


def test_a_plugin_has_five_seconds_to_leave_and_ten_minutes_without_use() -> None:
    assert FILE_NAME == "manifest.toml"
    assert TIMEOUTS.farewell + TIMEOUTS.teardown == 5.0
    assert IDLE_SECONDS == 600
