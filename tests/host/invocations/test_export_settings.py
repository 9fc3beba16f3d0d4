"""What an operator can set where exports are bound one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plugbay.host.config import settings
from plugbay.host.invocations.export_settings import settings_of
from plugbay.model.spec import Export, PluginSpec, SettingsSpec

SCHEMA = {"type": "object", "required": ["base_url"], "properties": {"base_url": {"type": "string"}}}


def spec(*exports: Export, **more: Any) -> PluginSpec:
    return PluginSpec("acme/p", "1.0.0", "vai", Path("/"), ("run",), exports=exports, **more)


def export(name: str, slots: list[str] | None = None, schema: Any = None) -> Export:
    facts = {"execution_class": "worker", "permissions": {"secret_slots": slots or []}, "config_schema": schema}
    return Export("tool", name, facts=facts)


def test_each_export_has_its_part_of_the_config_under_its_name() -> None:
    known = settings_of(spec(export("search", schema=SCHEMA), export("other")))
    assert settings.check_config(known, {}) == []
    assert settings.check_config(known, {"search": {"base_url": "https://a.example"}}) == []
    assert settings.check_config(known, {"search": {}})[0].path == "search"
    assert settings.check_config(known, {"other": {}})


def test_all_exports_share_the_secrets_which_have_a_least_length() -> None:
    known = settings_of(spec(export("a", ["token"]), export("b", ["token", "key"])))
    assert settings.check_secrets(known, {"token": "long enough", "key": "sixsix"}) == []
    assert settings.check_secrets(known, {"token": "five5"})[0].code == "minLength"
    assert settings.check_secrets(known, {"unknown": "long enough"})


def test_a_plugin_without_such_exports_has_what_its_manifest_says() -> None:
    own = SettingsSpec(config_schema=SCHEMA, secrets_schema={"type": "object"})
    assert settings_of(spec(Export("tool", "t"), settings=own)) == own
