"""The four kinds of exports: what each may say of itself, and what holds where it says nothing.

Owns the tables `[exports.harness|tool|hook|compactor]` and the defaults by kind. Where the contract only shows words
and closes no list, a word it does not show is warned about.
"""

from __future__ import annotations

from typing import Any

from plugbay.contracts.vai.parts import Part
from plugbay.contracts.vai.sections import Entry
from plugbay.contracts.validation import suggestion

KINDS = ("harness", "tool", "hook", "compactor")

CLASSES = ("inline", "worker", "isolated")
"""How an export is run, the least isolated first."""

USUAL_CLASS = {"harness": "isolated", "tool": "isolated", "hook": "worker", "compactor": "worker"}

USUAL_TIMEOUT_MS = {"harness": 1_800_000, "tool": 20_000, "hook": 15_000, "compactor": 120_000}
"""The contract wants a timeout and names none; these are the ones it shows."""

EFFECTS = ("read_only", "idempotent_write", "non_idempotent_write", "unknown")
FIDELITIES = ("lossless", "checkpoint", "prompt_replay", "summary_reseed")

MODES = ("composite",)
SUPPORTS = ("continue", "branch_session", "compact", "tool")
EVENTS = ("run.completed", "run.failed", "run.cancelled", "chain.compacted")
"""The words that the contract shows where it gives no list; and two more ways in which a run may end."""

_SCOPE_FOR = {"compact": "compactions:write", "branch_session": "chains:write"}
"""What a harness cannot do without."""

_FILES = {"input_schema", "output_schema"}
"""Fields that say where something else is, which is read and kept in their place."""


def check(export: Part) -> None:
    """Every rule that depends on the kind of one export."""
    kind = export.text("kind")
    if kind is None:
        return
    if kind not in KINDS:
        text = f"must be one of {', '.join(KINDS)}, got {kind!r:.60}{suggestion(kind, KINDS)}"
        export.error("unknown_kind", text, "kind")
        return
    if kind not in export:
        export.error("missing_kind_table", f"a {kind} needs a table [exports.{kind}]")
    for other in KINDS:
        if other in export and other != kind:
            export.error("unexpected_kind_table", f"this export is a {kind}", other)
    _CHECKS[kind](export, export.part(kind))


def facts(entry: Entry) -> dict[str, Any]:
    """What the table of its kind says."""
    own = getattr(entry, entry.kind).model_dump()
    return {name: _distinct(value) for name, value in own.items() if name not in _FILES}


def _distinct(value: Any) -> Any:
    """A list without repeats; anything else as it is."""
    return list(dict.fromkeys(value)) if isinstance(value, list) else value


def _harness(export: Part, own: Part) -> None:
    own.one_of("fidelity", FIDELITIES)
    mode = own.text("mode")
    if mode is not None and mode not in MODES:
        own.warn("unknown_mode", f"the contract has no mode {mode!r:.60}", "mode")
    scopes = {scope for _, scope in export.part("permissions").texts("gateway_api_scopes")}
    for at, name in own.texts("supports"):
        needed = _SCOPE_FOR.get(name)
        if name not in SUPPORTS:
            own.warn("unknown_support", f"{name!r:.60} is not in the contract{suggestion(name, SUPPORTS)}", *_at(at))
        elif needed and needed not in scopes:
            own.warn("supports_without_scope", f"{name!r} cannot work without the scope {needed}", *_at(at))


def _at(place: int) -> tuple[str, int]:
    return "supports", place


def _tool(export: Part, own: Part) -> None:
    own.one_of("effect_class", EFFECTS)


def _hook(export: Part, own: Part) -> None:
    if own.value("subscribes_to") == []:
        own.error("no_subscriptions", "a hook that hears of nothing is never called", "subscribes_to")
    seen: set[str] = set()
    for at, name in own.texts("subscribes_to"):
        if name in seen:
            own.warn("duplicate", f"{name!r:.60} is there twice", "subscribes_to", at)
        elif name not in EVENTS:
            own.warn("unknown_event", f"{name!r:.60} never happens{suggestion(name, EVENTS)}", "subscribes_to", at)
        seen.add(name)


def _compactor(export: Part, own: Part) -> None:
    asked = export.part("permissions")
    if asked.value("filesystem") != "scratch":
        text = 'without filesystem = "scratch" a long conversation cannot be handed over in a file'
        export.warn("inline_projection_only", text, "permissions")


_CHECKS = {"harness": _harness, "tool": _tool, "hook": _hook, "compactor": _compactor}
