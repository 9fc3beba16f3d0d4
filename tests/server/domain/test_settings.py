"""Paths of a gateway."""

from __future__ import annotations

from pathlib import Path

from plugbay.server.domain.settings import GatewaySettings


def test_the_embedded_database_is_in_the_data_directory(tmp_path: Path) -> None:
    assert GatewaySettings(tmp_path).database_url == f"sqlite+aiosqlite:///{tmp_path}/plugbay.db"
    assert GatewaySettings(Path("data")).database_url == f"sqlite+aiosqlite:///{Path.cwd()}/data/plugbay.db"
