"""Which topics of the bus a nexo plugin hears, and which it may publish to.

Owns the patterns a manifest yields. The contract derives them from the registered channels alone; later hosts let
`capabilities.broker` add to them. A plugin never grants itself anything, so what it adds stays within its own names.
Matching a topic against a pattern is the bus's work.
"""

from __future__ import annotations

from collections.abc import Iterable

from plugbay.contracts.draft import Draft
from plugbay.contracts.nexo.sections import Plugin

OUTBOUND = "plugin.outbound"
"""Host to plugin."""

INBOUND = "plugin.inbound"
"""Plugin to host."""


def subscribes(plugin: Plugin) -> tuple[str, ...]:
    """The patterns of what the plugin is told."""
    return _patterns(plugin, OUTBOUND, plugin.capabilities.broker.subscribe)


def publishes(plugin: Plugin) -> tuple[str, ...]:
    """The patterns of what the plugin may say."""
    return _patterns(plugin, INBOUND, plugin.capabilities.broker.publish)


def check(draft: Draft) -> None:
    """Warn about patterns that are not honoured, and about channels that no event would ever reach."""
    id = draft.text("id") or ""
    for key, direction in (("subscribe", OUTBOUND), ("publish", INBOUND)):
        for path, pattern in draft.texts("capabilities", "broker", key):
            if not _allowed(pattern, direction, id):
                text = f"not honoured: {pattern!r} is neither within '{direction}' nor within 'plugin.{id}'"
                draft.warn("topic_not_allowed", path, text)
    heard = {str(channel.get("kind")) for _, channel in draft.tables("channels", "register")}
    added = {pattern for _, pattern in draft.texts("capabilities", "broker", "subscribe")}
    for path, kind in draft.texts("extends", "channels"):
        if kind not in heard and f"{OUTBOUND}.{kind}" not in added:
            text = f"hears no events: add [[plugin.channels.register]] with kind = '{kind}'"
            draft.warn("channel_not_registered", path, text)


def _patterns(plugin: Plugin, direction: str, added: Iterable[str]) -> tuple[str, ...]:
    kinds = [entry.kind for entry in plugin.channels.entries]
    derived = [pattern for kind in kinds for pattern in (f"{direction}.{kind}", f"{direction}.{kind}.>")]
    allowed = [pattern for pattern in added if _allowed(pattern, direction, plugin.id)]
    return tuple(dict.fromkeys((*derived, *allowed)))


def _allowed(pattern: str, direction: str, id: str) -> bool:
    """Whether a pattern can match something, and only events of channels or of this plugin."""
    segments = pattern.split(".")
    if not all(segments) or ">" in segments[:-1]:
        return False
    return pattern.startswith((f"{direction}.", f"plugin.{id}."))
