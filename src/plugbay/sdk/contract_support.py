"""Which contract supports which declaration of a plugin.

    unsupported_reason(plugin, "ainb")     why there is no manifest for this contract; empty if there is one
    unsupported_declarations(plugin, "rune")    ["hooks before_message", "compactor shorten"]

For manifest writers; a plugin that serves never loads it.
"""

from __future__ import annotations

from plugbay.sdk.contracts.kaged import HOOKS as KAGED_HOOKS
from plugbay.sdk.contracts.nexo import nexo_id
from plugbay.sdk.io.detect import AINB, KAGED, MCP, NEXO, RUNE, VAI

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from plugbay.sdk.plugin import Plugin

CONTRACTS = (RUNE, NEXO, KAGED, AINB, VAI, MCP)

NEXO_HOOKS = ("before_message", "after_message", "before_tool_call", "after_tool_call")
"""The moments at which a host of nexo asks its hooks."""

SUPPORTED = {
    RUNE: ("tools",),
    NEXO: ("tools", "hooks", "channels", "LLM providers", "vector backends", "event handlers"),
    KAGED: ("tools", "methods", "hooks", "compactor", "notifications", "knobs", "config", "secrets"),
    AINB: ("tools", "screens", "command lines", "actions", "commands", "snapshots", "publications", "knobs"),
    VAI: ("tools", "hooks", "compactor", "harnesses", "config", "secrets"),
    MCP: ("tools",),
}
"""By contract, the kinds of declarations that it supports."""

SUFFICIENT = {
    RUNE: ("tools",),
    NEXO: SUPPORTED[NEXO],
    KAGED: ("tools", "methods", "hooks", "compactor"),
    AINB: ("tools", "screens", "command lines", "actions", "commands", "snapshots", "publications"),
    VAI: ("tools", "hooks", "compactor", "harnesses"),
    MCP: ("tools",),
}
"""Of those, any one of which makes a plugin."""


def declarations_of(plugin: Plugin) -> dict[str, list[str]]:
    """The names of everything that was declared, by kind; a kind without a name of its own has its field's."""
    return {
        "tools": [*plugin.tools],
        "methods": [*plugin.methods],
        "hooks": [*plugin.hooks],
        "compactor": [] if plugin.compaction is None else [plugin.compaction.name],
        "harnesses": [*plugin.harnesses],
        "channels": [*plugin.channels],
        "LLM providers": [*plugin.llm_providers],
        "vector backends": [*plugin.vector_backends],
        "event handlers": [pattern or "*" for pattern, _ in plugin.events],
        "notifications": [*plugin.notifications],
        "screens": [*plugin.screens],
        "command lines": [*plugin.clis],
        "actions": [*plugin.actions],
        "commands": [*plugin.commands],
        "snapshots": [topic or "*" for topic, _ in plugin.snapshots],
        "publications": [*plugin.topics],
        "knobs": [*plugin.knobs],
        "config": [*(plugin.config_schema or {}).get("properties", ())],
        "secrets": [*(plugin.secrets_schema or {}).get("properties", ())],
    }


def supports(contract: str, kind: str, name: str, id: str) -> bool:
    """Whether this contract supports one declaration."""
    if kind not in SUPPORTED[contract]:
        return False
    if kind == "hooks":
        return _HOOKS[contract](name)
    if kind == "event handlers":
        return receives_event(name, id)
    return True


_HOOKS: dict[str, Callable[[str], bool]] = {
    NEXO: lambda event: event in NEXO_HOOKS,
    KAGED: lambda event: event in KAGED_HOOKS,
    VAI: lambda event: "." in event,
}


def receives_event(pattern: str, id: str) -> bool:
    """Whether a nexo plugin receives the topics of a pattern: the events of channels, and its own."""
    return pattern == "*" or pattern.startswith(("plugin.outbound.", f"plugin.{nexo_id(id)}."))


def unsupported_declarations(plugin: Plugin, contract: str) -> list[str]:
    """The declarations that this contract does not support, in words, in the order of `declared`."""
    missing = {
        kind: [name for name in names if not supports(contract, kind, name, plugin.id)]
        for kind, names in declarations_of(plugin).items()
    }
    return [f"{kind} {', '.join(names)}" for kind, names in missing.items() if names]


def unsupported_reason(plugin: Plugin, contract: str) -> str:
    """Why there is nothing to say about this plugin under a contract; empty when there is."""
    if contract == RUNE and "/" in plugin.id:
        return f"an id of rune has no slash, as {plugin.id!r} has"
    found = declarations_of(plugin)
    enough = [
        kind for kind in SUFFICIENT[contract] if any(supports(contract, kind, it, plugin.id) for it in found[kind])
    ]
    return "" if enough else f"it declares nothing that {contract} supports: {', '.join(SUFFICIENT[contract])}"
