"""Settings of one plugin: changed as a whole, reset, and never with a secret in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plugbay.host.admin.plugin_settings import PluginSettings
from plugbay.host.bindings import Bindings, Options
from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.model.errors import CallFailed
from tests.cli.test_config import SETTINGS
from tests.support.kaged import write_kaged_plugin


@pytest.fixture
def target(tmp_path: Path) -> PluginSettings:
    write_kaged_plugin(tmp_path, "p", **SETTINGS)
    (found,) = [item.spec for item in discover([tmp_path]) if item.spec]
    state = tmp_path / "state"
    return PluginSettings(found, Bindings(Config(), Options(), state), state)


def saved(tmp_path: Path, kind: str = "config") -> object:
    return json.loads((tmp_path / f"state/{kind}/p.json").read_text())


def test_a_change_is_saved_as_a_whole_or_not_at_all(target: PluginSettings, tmp_path: Path) -> None:
    assert target.change({"limit": "7", "pace": "fast", "words": ["a"]}) == {}
    assert saved(tmp_path) == {"limit": 7, "mode": "fast", "words": ["a"]} and target.saved() == {
        "limit",
        "mode",
        "words",
    }
    failures = target.change({"limit": 2, "pace": "never", "colour": 1})
    assert set(failures) == {"pace", "colour"} and failures["pace"].plugin == "p"
    assert saved(tmp_path) == {"limit": 7, "mode": "fast", "words": ["a"]}


def test_a_reset_forgets_a_change(target: PluginSettings, tmp_path: Path) -> None:
    target.change({"limit": 7, "pace": "fast"})
    target.reset(["pace"])
    assert saved(tmp_path) == {"limit": 7} and target.describe()["config"]["mode"] == "slow"
    assert target.field_of("pace") == "mode" and target.field_of("words") == "words"


def test_a_secret_is_kept_apart_and_not_described(target: PluginSettings, tmp_path: Path) -> None:
    with pytest.raises(CallFailed, match="there is no secret 'kay'"):
        target.require_secret("kay")
    target.require_secret("key")
    with pytest.raises(CallFailed, match="key cannot be saved"):
        target.set_secret("key", "xy")
    target.set_secret("key", "open sesame")
    assert saved(tmp_path, "secrets") == {"key": "open sesame"} and "sesame" not in str(target.describe())
    target.set_secret("key", None)
    assert saved(tmp_path, "secrets") == {}
