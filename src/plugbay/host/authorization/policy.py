"""Decides whether a plugin may start, whether a call is allowed, and what a plugin's grants cover. Pure.

Deny by default: effective = requested ∩ granted. A manifest only requests; the operator grants. Network addresses are
checked in `model.addresses`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from os.path import normpath
from pathlib import PurePosixPath

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import Access, Export, PluginSpec
from plugbay.model.topics import covers


@dataclass(frozen=True, slots=True)
class Decision:
    """The operator's decision about one plugin."""

    enabled: bool = True
    grants: frozenset[str] | None = None
    """None: undecided, so a plugin that requests capabilities is pending."""
    grant_all: bool = False
    """Grant everything requested; for one-off runs from a terminal."""
    approved: bool = True
    """False: the plugin declares its exports only at run time, and they are not approved yet."""


def effective(spec: PluginSpec, decision: Decision) -> tuple[str, ...]:
    """The effective capabilities of the plugin: the requested ones in their order, then the optional ones.

    Granting `network` grants every `network=HOST` that was requested, and no more than these.
    """
    possible = tuple(dict.fromkeys((*spec.capabilities, *spec.optional_capabilities)))
    if decision.grant_all:
        return possible
    granted = (decision.grants or frozenset()) | renounced(spec)
    return tuple(name for name in possible if name in granted or name.partition("=")[0] in granted)


def renounced(spec: PluginSpec) -> frozenset[str]:
    """Capabilities that renounce access, such as kaged's `net:[]`. They need no grant."""
    return frozenset(item.capability for item in spec.access if item.kind == "no_network")


def access(spec: PluginSpec, granted: tuple[str, ...]) -> tuple[Access, ...]:
    """The access that the granted capabilities allow."""
    return tuple(item for item in spec.access if item.capability in granted)


def admit(spec: PluginSpec, decision: Decision) -> Failure | None:
    """Why the plugin must not be started; None if it may."""
    if not decision.enabled:
        return _denied(spec, Code.UNAVAILABLE, "the operator has disabled this plugin", "enable it in plugbay.toml")
    if not decision.approved and not decision.grant_all:
        text = "pending: what it offers has to be approved before it may run"
        hint = f"plugbay mcp approve {spec.id} shows what it offers and asks; --grant-all approves it for this run"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, hint)
    undecided = decision.grants is None and not decision.grant_all
    wanted = tuple(name for name in spec.capabilities if name not in renounced(spec)) if undecided else ()
    if wanted:
        text = f"pending: it requests {', '.join(wanted)}, and nobody has granted that yet"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, _how_to_grant(spec, wanted))
    return None


def authorize(spec: PluginSpec, export: Export, decision: Decision) -> Failure | None:
    """Why the call is not allowed; None if it is."""
    refusal = admit(spec, decision)
    if refusal is not None:
        return refusal
    if not export.capabilities:
        return None
    have = effective(spec, decision)
    missing = tuple(name for name in export.capabilities if name in spec.capabilities and name not in have)
    if missing:
        text = f"{export.name} needs {', '.join(missing)}, which is not granted"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, _how_to_grant(spec, missing))
    return None


def _how_to_grant(spec: PluginSpec, names: tuple[str, ...]) -> str:
    words = [shlex.quote(name) for name in names]  # `net:*` is a pattern to a shell
    flags = " ".join(f"--grant {word}" for word in words)
    lasting = (
        f"with grants = [...] in plugbay.toml; on a server: plugbay grant {shlex.quote(spec.id)} {' '.join(words)}"
    )
    return f"grant it for this run with {flags}, or for good {lasting}"


def _denied(spec: PluginSpec, code: str, message: str, hint: str) -> Failure:
    return Failure(code, message, origin=Origin.POLICY, plugin=spec.id, detail={"hint": hint})


def covers_topic(access: Iterable[Access], topic: str) -> bool:
    """Whether snapshots of this topic may be read and published."""
    return any(item.kind == "topic" and covers(item.target, topic) for item in access)


def read_roots(access: Iterable[Access]) -> list[str]:
    """The readable folders and files, `~` not expanded."""
    return [item.target for item in access if item.kind == "read_path"]


def may_spawn(access: Iterable[Access]) -> bool:
    """Whether the plugin may have processes started."""
    return any(item.kind == "run" for item in access)


def capability_for_path(requested: Iterable[Access], path: str, home: str) -> str:
    """The requested capability whose folder holds this path, or else the general one; for the message of a refusal.

    Does not resolve links, because the access was refused already.
    """
    wanted = PurePosixPath(normpath(path))
    for item in requested:
        root = PurePosixPath(home, item.target[2:]) if item.target.startswith("~/") else PurePosixPath(item.target)
        if item.kind == "read_path" and wanted.is_relative_to(root):
            return item.capability.partition("=")[0]
    return "read_paths"


def refuse_capability(capability: str, text: str) -> Failure:
    """A refusal that names the missing capability."""
    return Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail={"capability": capability})
