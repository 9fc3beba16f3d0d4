"""Settings of the operator's plugins through the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.cli.test_config import SETTINGS
from tests.support.dashboards import hosting_at
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run


def test_changes_are_validated_and_audited_by_name(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_kaged_plugin(tmp_path / "plugins", "p", **SETTINGS)
    (tmp_path / "plugbay.toml").write_text(f'[host]\nstate_dir = "{tmp_path}/state"\n')

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway:
            settings = gateway.operator_settings
            failures = await settings.change(OPERATOR, "p", {"limit": 4, "pace": "later"})
            assert list(failures) == ["pace"] and (await settings.describe("p"))[1] == frozenset()
            assert await settings.change(OPERATOR, "p", {"limit": 4}) == {}
            described, changed = await settings.describe("p")
            assert described["config"]["limit"] == 4 and changed == {"limit"}
            await settings.reset(OPERATOR, "p", "limit")
            assert (await settings.describe("p"))[1] == frozenset()
            with pytest.raises(GatewayError, match="key cannot be saved") as refused:
                await settings.set_secret(OPERATOR, "p", "key", "ab")
            assert refused.value.code == "plugin.setting_invalid"
            await settings.set_secret(OPERATOR, "p", "key", "open sesame")
            entries = (await gateway.audit.page(OPERATOR, Page())).items
            assert [entry.action for entry in entries] == ["plugin.secret", "plugin.configure", "plugin.configure"]
            assert "sesame" not in str(entries)
            (tmp_path / "state/config/p.json").write_text("[")
            with pytest.raises(GatewayError) as broken:
                await settings.describe("p")
            assert broken.value.code == "plugin.config_invalid"
            with pytest.raises(GatewayError, match=r"plugin\.not_found"):
                settings.of("nobody")

    run(main)
