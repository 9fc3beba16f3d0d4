"""What a host in memory knows beforehand: the manifest, what is granted and what is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay import ConfigInvalid
from plugbay.sdk import Plugin, manifests, testing
from plugbay.sdk.testing.spec import spec_of
from tests.support.authored import everything


@pytest.mark.parametrize("contract", ["rune", "nexo", "kaged", "ainb", "vai"])
def test_the_spec_is_what_the_contract_reads_of_the_generated_manifest(contract: str) -> None:
    spec = spec_of(everything()[0], contract)
    assert (spec.contract, spec.version) == (contract, "1.2.3") and spec.exports


@pytest.mark.parametrize("contract", ["kaged", "vai"])
def test_settings_reach_the_plugin_with_their_defaults(contract: str) -> None:
    plugin, _ = everything()
    with testing.host(plugin, contract, secrets={"shop_token": "s3cret"}, config={"low": 7}) as host:
        assert host.call("settings") == {"config": {"low": 7}, "secrets": ["shop_token"]}
    with testing.host(plugin, contract, config=None if contract == "kaged" else {"low": 2}) as host:
        assert host.call("settings") == {"config": {"low": 2}, "secrets": []}


def test_settings_that_break_their_schema_are_refused_and_no_secret_is_shown() -> None:
    plugin, _ = everything()
    with pytest.raises(ConfigInvalid, match="low: 0 is less than the minimum of 1"):
        testing.host(plugin, "kaged", config={"low": 0})
    with pytest.raises(ConfigInvalid, match="the settings of local/pantry"):
        testing.host(plugin, "vai", config={"low": 0})
    with pytest.raises(ConfigInvalid) as caught:
        testing.host(plugin, "kaged", secrets={"shop_token": "xy"})
    assert "minLength" in str(caught.value) and "xy" not in str(caught.value)


def test_a_secret_that_is_missing_is_named() -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
    plugin = Plugin("p", secrets_schema=schema)
    plugin.tool("t")(lambda: 1)
    with pytest.raises(ConfigInvalid, match="key is required, and is not set"):
        testing.host(plugin, "kaged")


def test_a_tool_whose_capability_is_not_granted_is_not_called() -> None:
    plugin = Plugin("guarded", capabilities=["tool.execute"])
    plugin.tool("t", capabilities=["tool.execute"])(lambda: 1)
    with testing.host(plugin, "rune") as host:
        assert host.call("t") == 1
    with (
        testing.host(plugin, "rune", grants=[]) as host,
        pytest.raises(testing.CallFailed, match=r"needs tool\.execute, which is not granted"),
    ):
        host.call("t")


def test_a_handwritten_manifest_counts_if_its_folder_is_given(tmp_path: Path) -> None:
    plugin = Plugin("byhand")
    plugin.tool("t", input_schema={"type": "object"})(lambda **given: given)
    text = manifests.kaged_manifest(plugin, ["python3", "plugin.py"]).replace(
        'parameters_schema:\n      type: "object"', 'parameters_schema:\n      type: "object"\n      maxProperties: 0'
    )
    assert "maxProperties" in text
    (tmp_path / "kaged-plugin.yaml").write_text(text)
    with testing.host(plugin, "kaged", folder=tmp_path) as host, pytest.raises(testing.CallFailed, match="schema"):
        host.call("t", {"a": 1})
    with testing.host(plugin, "kaged") as host:
        assert host.call("t", {"a": 1}) == {"a": 1}
    with pytest.raises(FileNotFoundError, match=r"there is no nexo-plugin.toml in"):
        testing.host(plugin, "nexo", folder=tmp_path)
