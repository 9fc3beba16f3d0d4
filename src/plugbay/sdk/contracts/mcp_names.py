"""What a plugin and its tools are called under MCP.

    example.weather     example-weather     in a client's configuration, and as what the server calls itself
    sky map/now         sky_map_now         a tool: letters, digits, `_`, `-` and `.`, at most 128 of them

Refuses to know the wire, and what is offered beside a name.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from plugbay.sdk.types.handlers import Tool

    class Named(Protocol):
        """What has names on the wire."""

        @property
        def id(self) -> str: ...
        @property
        def tools(self) -> Mapping[str, Tool]: ...


LONGEST = 128
"""Characters of a tool's name."""

_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def server_name(id: str) -> str:
    """An id as clients take it for the name of a server: `-` for what is neither letter, digit, `_` nor `-`."""
    return "".join(char if char in _LETTERS else "-" for char in id)


def tool_name(name: str) -> str:
    """The name of a tool, with `_` for what is not in MCP's alphabet."""
    return "".join(char if char in _LETTERS or char == "." else "_" for char in name)[:LONGEST]


def offered(plugin: Named) -> dict[str, Tool]:
    """Every tool by its name on the wire; raises ValueError when two have one."""
    tools = {tool_name(tool.name): tool for tool in plugin.tools.values()}
    if len(tools) < len(plugin.tools):
        raise ValueError(f"two tools of {plugin.id} have one name in MCP's alphabet: {', '.join(plugin.tools)}")
    return tools
