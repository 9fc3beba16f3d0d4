"""What the edge takes."""

from __future__ import annotations

from plugbay.packages.rules import Limits
from plugbay.server.settings import EdgeSettings


def test_only_this_machine_may_ask_unless_told_otherwise_and_a_package_fits() -> None:
    settings = EdgeSettings()
    assert settings.hosts == ("127.0.0.1", "localhost", "[::1]", "::1")
    assert settings.max_json < Limits().packed <= settings.max_upload
