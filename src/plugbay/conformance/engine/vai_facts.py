"""Named values for the scenarios of vai: its hello, and the context, config, secrets and odd inputs of each export."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from plugbay.conformance.engine import inputs
from plugbay.contracts.vai.messages import HOOK, PROTOCOL
from plugbay.model.errors import Outcome
from plugbay.model.spec import Export, PluginSpec

SECRET = "plugbay-conformance-f3b1c7d2e9a8"
"""In the value of every secret, and nowhere else."""

DEADLINE_SECONDS = 120
"""Until the deadline that a plugin is told: longer than any scenario takes."""

HELLO = {"protocol": PROTOCOL, "type": "hello", "role": "host", "host": {"name": "conformance", "version": "1.0.0"}}

_PREFIXES = {"invocation": "inv", "trace": "tr", "project": "proj", "session": "sess", "chain": "ch"}
IDS = {
    f"{name}_id": f"{_PREFIXES.get(name, name)}_conformance"
    for name in "invocation trace org project session chain run".split()
}

NO_GATEWAY: dict[str, Any] = {"base_url": None, "delegation_token": None, "scopes": []}

ODD: dict[str, dict[str, Any]] = {
    "tool": {"input": {"plugbay_conformance": [None]}},
    "hook": {"event": {"type": "plugbay.conformance", "summary": {}}},
    "compactor": {
        "source": {
            "chain_id": "ch_conformance",
            "projection": {
                "transport": "artifact",
                "artifact": {"path": "nothing.json", "media_type": "x/y", "size_bytes": 1, "sha256": "0" * 64},
                "token_estimate": 1,
            },
        }
    },
    "harness": {"mode": "resume", "checkpoint": {"kind": "plugbay_conformance", "data": None}},
}
"""By kind, an input that a handler can hardly use: a meaningless value, a missing file."""


def facts(spec: PluginSpec) -> Mapping[str, Any]:
    """Named values of every conversation with this plugin."""
    compactors = [export for export in spec.exports if export.kind == "compactor"]
    return {
        "hello": HELLO,
        "secret": SECRET,
        "secret_slots": sorted({slot for export in spec.exports for slot in _permissions(export)["secret_slots"]}),
        "schemas": [export.name for export in spec.exports if export.output_schema is not None],
        "scratch": [export.name for export in compactors if _permissions(export)["filesystem"] == "scratch"],
    }


def about(export: Export | None, place: str) -> Mapping[str, Any]:
    """Named values of a conversation about this export."""
    if export is None:
        return {"beside": {}, "event_type": "", "output_schema": {}, "statuses": [], "odd": {}, "other_op": ""}
    acknowledged = ["ack"] if export.kind == HOOK else []
    return {
        "beside": _common_keys(export, place),
        "event_type": next(iter(export.facts.get("subscribes_to", ())), ""),
        "output_schema": {} if export.output_schema is None else export.output_schema,
        "statuses": [*acknowledged, *_OUTCOMES],
        "other_op": "tool.invoke" if export.kind != "tool" else "hook.handle",
        # An export that changes state is called only with inputs that its author wrote down.
        "odd": ODD[export.kind] if inputs.is_harmless(export) else {},
    }


_OUTCOMES = (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.RETRYABLE_FAILURE)


def _common_keys(export: Export, place: str) -> dict[str, Any]:
    """The keys that the bodies of all requests have."""
    asked, schema = _permissions(export), export.facts["config_schema"]
    permissions = {name: asked[name] for name in ("network", "filesystem")}
    deadline = datetime.fromtimestamp(time.time() + DEADLINE_SECONDS, UTC)
    context = {
        **IDS,
        "deadline_at": deadline.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "scratch_dir": place if asked["filesystem"] == "scratch" else None,
        "gateway": NO_GATEWAY,
        "permissions": permissions,
    }
    return {
        "export_id": export.name,
        "context": context,
        "config": {} if schema is None else inputs.value_for(schema),
        "secrets": {slot: f"{SECRET}-{slot}" for slot in asked["secret_slots"]},
    }


def _permissions(export: Export) -> Mapping[str, Any]:
    permissions: Mapping[str, Any] = export.facts["permissions"]
    return permissions
