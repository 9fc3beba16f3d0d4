"""Decides whether a plugin may start and whether a call of it is allowed. Pure.

Deny by default: effective = requested ∩ granted. A manifest only requests; the operator grants. Requests of plugins are
checked in `model.gate`.
"""

from __future__ import annotations

from dataclasses import dataclass

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.gate import grant, how_to_grant, refuse_call, renounced
from plugbay.model.spec import Export, PluginSpec


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
    """The effective capabilities of the plugin: the requested ones in their order, then the optional ones."""
    return grant(spec, None if decision.grant_all else decision.grants or ())


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
        text = f"pending: it requests {', '.join(wanted)}, which is not granted yet"
        return _denied(spec, Code.CAPABILITY_NOT_ALLOWED, text, how_to_grant(spec, wanted))
    return None


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
