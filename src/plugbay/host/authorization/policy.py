"""Decides whether a plugin may start and whether a call of it is allowed. Pure.

Deny by default: effective = requested ∩ granted. A manifest only requests; the operator grants. A handshake may request
more (rune): such a plugin has every grant that is its own. Requests of plugins are checked in `model.gate`.
"""

from __future__ import annotations

import msgspec

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.gate import grant, how_to_grant, refuse_call, renounced
from plugbay.model.spec import Export, PluginSpec


class Decision(msgspec.Struct, frozen=True):
    """The operator's decision about one plugin."""

    enabled: bool = True
    grants: frozenset[str] | None = None
    """None: undecided, so a plugin that requests capabilities is pending."""
    for_others: frozenset[str] = frozenset()
    """Grants that are for the plugins whose manifests request them."""
    grant_all: bool = False
    """Grant everything requested; for one-off runs from a terminal."""
    approved: bool = True
    """False: the plugin declares its exports only at run time, and they are not approved yet."""


def effective(spec: PluginSpec, decision: Decision) -> tuple[str, ...]:
    """The effective capabilities of the plugin: the requested ones in their order, then the optional ones."""
    if decision.grant_all:
        return grant(spec, None)
    granted = decision.grants or frozenset()
    if spec.requests_at_run_time:  # any name may be its own, except those that others request
        granted -= decision.for_others.difference(spec.capabilities)
    return grant(spec, granted)


def admit(spec: PluginSpec, decision: Decision) -> Failure | None:
    """Why the plugin must not be started; None if it may."""
    if not decision.enabled:
        return _denied(spec, Code.UNAVAILABLE, "the operator has disabled this plugin", "enable it in plugbay.toml")
    if not decision.approved and not decision.grant_all:
        text = "pending: its exports must be approved before it may run"
        hint = f"plugbay mcp approve {spec.id} shows its exports and asks; --grant-all approves them for this run"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, hint)
    wanted = missing(spec, decision)
    if wanted:
        text = f"pending: it requests {', '.join(wanted)}, which is not granted yet"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, how_to_grant(spec, wanted))
    return None


def missing(spec: PluginSpec, decision: Decision) -> tuple[str, ...]:
    """The requested capabilities about which the operator has not decided; the plugin waits for them."""
    if decision.grants is not None or decision.grant_all:
        return ()
    return tuple(name for name in spec.capabilities if name not in renounced(spec))


def is_pending(spec: PluginSpec, decision: Decision) -> bool:
    """Whether the plugin may not run before the operator grants or approves something."""
    return decision.enabled and admit(spec, decision) is not None


def authorize(spec: PluginSpec, export: Export, decision: Decision) -> Failure | None:
    """Why the call is not allowed; None if it is."""
    refusal = admit(spec, decision)
    if refusal is not None:
        return refusal
    if not export.capabilities:
        return None
    return refuse_call(spec, export, effective(spec, decision))


def _denied(spec: PluginSpec, code: str, message: str, hint: str) -> Failure:
    return Failure(code, message, origin=Origin.POLICY, plugin=spec.id, detail={"hint": hint})
