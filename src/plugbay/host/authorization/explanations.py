"""What a capability allows and how much it risks, in plain words for the operator who grants it. Pure.

The words come from the access that the host enforces (`model.spec.Access`), whatever the contract's own name for it is.
A capability that the host does not know is only declared by the plugin, and its explanation says so.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plugbay.model.spec import Access, PluginSpec

LOW, MEDIUM, HIGH = "low", "medium", "high"
"""Risks."""


class Explanation(msgspec.Struct, frozen=True):
    """One capability in plain words."""

    allows: str
    """What the plugin may do with it: `read files below /srv/notes`."""
    risk: str
    """`low`, `medium` or `high`."""
    why: str
    """The reason of the risk."""


_SEES = "it can read everything in these files"
_SENDS = "it can send its data to this address"

_NAMED = {
    "memory.recall": Explanation("search the memory of agents", MEDIUM, "it reads the memories of agents"),
    "llm.complete": Explanation(
        "ask your language models", MEDIUM, "an answer may cost money; the plugin sees the text"
    ),
    "elicitation": Explanation("ask the person at the client questions", LOW, "the person decides on each answer"),
    "roots": Explanation("learn which folders the client works in", LOW, "it learns paths, not contents"),
    "event_bus": Explanation("read and publish snapshots of any topic", MEDIUM, "it sees snapshots of other plugins"),
    "read_sessions": Explanation("read recorded agent sessions", MEDIUM, _SEES),
    "filesystem=assets_ro": Explanation("read the files of its package", LOW, "they came with the plugin"),
}
"""Capabilities with a meaning of their own in the host."""

_DECLARED = Explanation(
    "the host does nothing with it; it only refuses calls that need it without the grant",
    MEDIUM,
    "the plugin defines its meaning; read its documentation",
)


def explain(spec: PluginSpec, capability: str) -> Explanation:
    """A capability of this plugin in plain words."""
    found = [item for item in spec.access if item.capability == capability]
    if found:
        return _joined([_ACCESS[item.kind](item) for item in found])
    name, narrowed, entry = capability.partition("=")
    if narrowed and name == "scope":
        risk = HIGH if entry.endswith(":write") else MEDIUM
        return Explanation(f"use {entry} of the control plane's API", risk, "it acts for the org that invoked it")
    if narrowed and name == "secret":
        return Explanation(f"get the secret {entry}", MEDIUM, "it can send the secret to all addresses it may reach")
    return _NAMED.get(capability, _DECLARED)


def _joined(parts: list[Explanation]) -> Explanation:
    """Several kinds of access behind one capability; the worst risk counts."""
    worst = max(parts, key=lambda part: (LOW, MEDIUM, HIGH).index(part.risk))
    return Explanation(" and ".join(dict.fromkeys(part.allows for part in parts)), worst.risk, worst.why)


def _reads(item: Access) -> Explanation:
    everything = item.target in ("", "/", "~", "~/")
    return Explanation(f"read files below {item.target or '/'}", HIGH if everything else MEDIUM, _SEES)


def _writes(item: Access) -> Explanation:
    return Explanation(
        f"change and delete files below {item.target or '/'}", HIGH, "changes and deletions there are final"
    )


def _own(item: Access) -> Explanation:
    return Explanation("keep files in a folder of its own", LOW, "no other plugin reaches it")


def _scratch(item: Access) -> Explanation:
    return Explanation("use a temporary folder for each invocation", LOW, "it is removed afterwards")


def _runs(item: Access) -> Explanation:
    what = f"start {item.target}" if item.target else "start programs"
    return Explanation(what, HIGH, "a program can do everything that the plugin may do, for any time")


def _network(item: Access) -> Explanation:
    if not item.target:
        return Explanation("reach any address on the network", HIGH, "it can send its data to any server")
    port = f", port {item.port}" if item.port is not None else ", any port"
    return Explanation(f"reach {item.target}{port}", MEDIUM, _SENDS)


def _no_network(item: Access) -> Explanation:
    return Explanation("nothing: it gives up the network, and needs no grant for that", LOW, "it allows nothing")


def _storage_read(item: Access) -> Explanation:
    return Explanation("read its own storage in the host", LOW, "other plugins have their own")


def _storage_write(item: Access) -> Explanation:
    return Explanation(
        "change its own storage in the host", LOW, "other plugins have their own, and its size is limited"
    )


def _topic(item: Access) -> Explanation:
    if not item.target:
        return _NAMED["event_bus"]
    return Explanation(f"read and publish snapshots of {item.target}", LOW, "other plugins use the same topic")


_ACCESS: dict[str, Callable[[Access], Explanation]] = {
    "read_path": _reads,
    "write_path": _writes,
    "own_path": _own,
    "scratch": _scratch,
    "run": _runs,
    "network": _network,
    "no_network": _no_network,
    "storage_read": _storage_read,
    "storage_write": _storage_write,
    "topic": _topic,
}
"""By kind of access."""
