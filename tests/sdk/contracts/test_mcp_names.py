"""What a plugin and its tools are called under MCP."""

from __future__ import annotations

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.mcp_names import LONGEST, offered, server_name, tool_name


@pytest.mark.parametrize(
    ("id", "name"),
    [("tea-shop", "tea-shop"), ("example.weather", "example-weather"), ("acme/devkit", "acme-devkit"), ("été", "-t-")],
)
def test_a_server_is_called_by_what_clients_take(id: str, name: str) -> None:
    assert server_name(id) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("look", "look"),
        ("admin.tools_List-2", "admin.tools_List-2"),
        ("sky map/now", "sky_map_now"),
        ("x" * 200, "x" * LONGEST),
    ],
)
def test_a_tool_has_its_own_name_as_far_as_mcp_has_the_letters(given: str, name: str) -> None:
    assert tool_name(given) == name


def test_every_tool_is_offered_under_its_name() -> None:
    plugin = Plugin("p")
    plugin.tool("look")(lambda: 1)
    plugin.tool("look up")(lambda: 2)
    assert [(name, tool.name) for name, tool in offered(plugin).items()] == [("look", "look"), ("look_up", "look up")]
