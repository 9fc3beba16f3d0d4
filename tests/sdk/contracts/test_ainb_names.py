"""What of one source ainb carries, and under which names."""

from __future__ import annotations

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.ainb_names import ainb_name, carried_capabilities, manifest_of, subscribed, tool_namespaces
from tests.support.requirements import requirement


@requirement("ainb:sdk-name")
@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("burndown", "burndown"),
        ("example.weather", "example.weather"),
        ("../x", "-x"),
        ("a/b\\c", "a-b-c"),
        ("a\n", "a-"),
    ],
)
def test_a_name_can_be_that_of_a_folder(id: str, name: str) -> None:
    assert ainb_name(id) == name


@requirement("ainb:sdk-what-is-not-carried")
@pytest.mark.parametrize(
    ("capabilities", "grants"),
    [
        ([], {}),
        (["event_bus"], {"event_bus": True}),
        (["network=a.b", "network=c.d:8080", "network=a.b"], {"network": ["a.b", "c.d:8080"]}),
        (["network=a.b", "network", "network=c.d"], {"network": True}),
        (["read_paths=~/a=b"], {"read_paths": ["~/a=b"]}),
        (["secrets:read=key", "net:[]", "kaged:storage:read", "filesystem.read"], {"secrets:read": ["key"]}),
    ],
)
def test_capabilities_become_grants_and_those_of_others_are_left_out(
    capabilities: list[str], grants: dict[str, object]
) -> None:
    assert carried_capabilities(capabilities) == grants


@requirement("ainb:sdk-what-is-not-carried")
def test_what_ainb_has_no_word_for_is_not_in_the_manifest() -> None:
    plugin = Plugin("p", "1.0.0", capabilities=["net:[]"])
    plugin.hook("on_session_start")(print)
    plugin.knob("speed", type="range", label="Speed", min=0, max=1)
    assert manifest_of(plugin) == {"plugin": {"name": "p", "version": "1.0.0", "abi_version": 2}}


def test_tools_are_behind_one_command_line_unless_its_name_is_taken() -> None:
    plugin = Plugin("-example.the shop")
    assert tool_namespaces(plugin) == []
    plugin.tool("quote")(lambda: 1)
    plugin.tool("sell")(lambda: 1)
    assert tool_namespaces(plugin) == ["example.the-shop"]
    assert manifest_of(plugin)["provides"] == {"cli_namespaces": ["example.the-shop"]}
    plugin.cli("example.the-shop")(print)
    assert tool_namespaces(plugin) == []


@requirement("ainb:sdk-subscriptions")
def test_topics_with_handlers_are_subscribed_to_once() -> None:
    plugin = Plugin("p")
    for topic in ("b", "a", None, "b"):
        plugin.on_snapshot(topic)(print)
    assert subscribed(plugin) == ["b", "a"]


@requirement("ainb:sdk-actions")
def test_an_action_is_found_among_the_command_lines() -> None:
    plugin = Plugin("p")
    plugin.cli("usage")(print)
    plugin.action("usage")(print)
    plugin.action("usage.total")(print)
    assert manifest_of(plugin)["provides"] == {"cli_namespaces": ["usage", "usage.total"]}
