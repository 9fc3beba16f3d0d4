"""The facts that every plugin of kaged shares."""

from __future__ import annotations

from plugbay.contracts.kaged.spec import FILE_NAMES, timeouts


def test_the_shutdown_timeout_is_for_answer_and_exit_together() -> None:
    assert FILE_NAMES == ("kaged-plugin.yaml", "manifest.yaml")
    assert (timeouts(7).farewell, timeouts(7).teardown) == (7.0, 0.0)
