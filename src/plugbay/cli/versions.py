"""How a plugin is named with its version on a page for people.

Owns that a version nobody knows yet is left out: an MCP server says its own when it is greeted, and not before.
"""

from __future__ import annotations

from plugbay.contracts.mcp.spec import UNKNOWN_VERSION


def known(version: str) -> str:
    """The version; nothing when it is not known."""
    return "" if version == UNKNOWN_VERSION else version


def named(name: str, version: str) -> str:
    """`weather 1.0.0`, or `weather`."""
    return f"{name} {known(version)}".rstrip()
