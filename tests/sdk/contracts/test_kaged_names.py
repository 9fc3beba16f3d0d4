"""A plugin's names under kaged, and what of it that contract carries."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.kaged_names import carried_capabilities, carried_hooks, is_own_method, kaged_name
from tests.support.requirements import requirement


@requirement("kaged:sdk-name")
@pytest.mark.parametrize(
    ("id", "mapped"), [("memory", "memory"), ("example.weather", "example-weather"), ("My_Plugin 2", "my-plugin-2")]
)
def test_an_id_is_mapped_to_the_alphabet(id: str, mapped: str) -> None:
    assert kaged_name(id) == mapped


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("a-b.echo", True),
        ("index.rebuild", True),
        ("a.b.echo", False),
        ("a-b.other", False),
        ("a-b", False),
        ("echo", False),
    ],
)
def test_a_plugin_knows_what_only_a_daemon_would_ask_for(method: str, own: bool) -> None:
    plugin = Plugin("a.b")
    plugin.tool("echo")(lambda: 1)
    plugin.method("index.rebuild")(lambda: 1)
    assert is_own_method(plugin, method) is own


@requirement("kaged:sdk-what-is-not-carried")
def test_hooks_and_capabilities_of_other_contracts_are_left_out() -> None:
    def handler(event: Any) -> None: ...

    plugin = Plugin("p")
    for hook in ("post_compact", "before_message", "on_session_start"):
        plugin.hook(hook)(handler)
    assert carried_hooks(plugin) == ("on_session_start", "post_compact")
    plugin.compactor(handler)
    assert carried_hooks(plugin) == ("on_session_start", "pre_compact", "post_compact")
    capabilities = ("filesystem.read", "net:[]", "kaged:storage:read", "read:fs:/a", "network")
    assert carried_capabilities(capabilities) == ("net:[]", "kaged:storage:read", "read:fs:/a")
