"""The values of an invocation: its terms (permissions, execution class, limits), its context and its token.

Pure: clock and randomness come from the caller. A manifest only requests: the permissions of an invocation are
requested ∩ granted ∩ policy ∩ those of its caller, and a policy can never widen anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from plugbay.host.ports import InvocationRecord
from plugbay.host.recording.redaction import SHORTEST
from plugbay.host.request import Policy
from plugbay.model.guarded import Guarded
from plugbay.model.spec import Export, PluginSpec, SettingsSpec

ISOLATED = "isolated"
CLASSES = ("inline", "worker", ISOLATED)
"""Execution classes, from the least to the most isolated."""

LONGEST = 3_600_000
"""Milliseconds; the longest timeout of any invocation."""

NO_ACCESS, SCRATCH = "none", "scratch"

FILESYSTEMS = (NO_ACCESS, "assets_ro", SCRATCH)
"""Access to files, from the least to the most: an invocation with a scratch directory reads its package too."""

TRACE_PREFIX = "tr_"

_W3C_TRACE = re.compile(f"{TRACE_PREFIX}([0-9a-f]{{32}})", re.ASCII)


def w3c_trace_id(trace_id: str) -> str | None:
    """The hex digits of a trace id in the W3C format; None when it has another format."""
    found = _W3C_TRACE.fullmatch(trace_id)
    return None if found is None or set(found[1]) == {"0"} else found[1]


# Permissions.


class Permissions(msgspec.Struct, frozen=True):
    """The permissions of one invocation."""

    network: str = NO_ACCESS
    filesystem: str = NO_ACCESS
    gateway_api_scopes: tuple[str, ...] = ()
    secret_slots: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.network,
            "filesystem": self.filesystem,
            "gateway_api_scopes": list(self.gateway_api_scopes),
            "secret_slots": list(self.secret_slots),
        }


def requested(export: Export) -> Permissions:
    """The permissions that the manifest requests."""
    asked = export.facts.get("permissions") or {}
    return Permissions(
        network=asked.get("network", NO_ACCESS),
        filesystem=asked.get("filesystem", NO_ACCESS),
        gateway_api_scopes=tuple(asked.get("gateway_api_scopes", ())),
        secret_slots=tuple(asked.get("secret_slots", ())),
    )


def effective(export: Export, granted: Iterable[str], policy: Policy, scopes: Iterable[str] | None) -> Permissions:
    """The effective permissions. Without the network the gateway is out of reach, so its scopes are dropped too."""
    asked, given = requested(export), frozenset(granted)
    online = asked.network != NO_ACCESS and "network" in given and policy.network != NO_ACCESS
    may = [scope for scope in asked.gateway_api_scopes if f"scope={scope}" in given] if online else []
    for narrower in (policy.gateway_api_scopes, scopes):
        may = may if narrower is None else [scope for scope in may if scope in frozenset(narrower)]
    slots = [slot for slot in asked.secret_slots if f"secret={slot}" in given]
    files = asked.filesystem if f"filesystem={asked.filesystem}" in given else NO_ACCESS
    return Permissions(
        network=asked.network if online else NO_ACCESS,
        filesystem=narrow_filesystem(files, policy.filesystem),
        gateway_api_scopes=tuple(may),
        secret_slots=tuple(slot for slot in slots if policy.secret_slots is None or slot in policy.secret_slots),
    )


def narrow_filesystem(asked: str, allowed: str | None) -> str:
    """The lesser of two kinds of access to files; None allows any."""
    return asked if allowed is None else min(asked, allowed, key=FILESYSTEMS.index)


def narrow_limits(limits: Mapping[str, Any], narrower: Mapping[str, Any]) -> dict[str, Any]:
    """Limits with the lesser of both values for each name: the smaller number, or False."""
    given = {name: value for name, value in limits.items() if isinstance(value, int)}
    return {**limits, **{name: min(given.get(name, value), value) for name, value in narrower.items()}}


def execution_class(*classes: str | None) -> str:
    """The most isolated of these: a manifest cannot choose less isolation than its operator requires."""
    return max((name for name in classes if name is not None), key=CLASSES.index)


class Terms(msgspec.Struct, frozen=True):
    """The terms of all invocations of one export under one policy, for callers with the same scopes."""

    permissions: Permissions
    permissions_json: dict[str, Any]
    narrowed: bool
    """Whether the manifest requests more."""
    execution_class: str
    max_concurrency: int | None
    """Concurrent invocations of the export for one org; of an isolated export, processes at work. None: unlimited."""
    seconds: float
    """The shortest of the time limits of host, manifest and binding."""

    def allowed_seconds(self, caller: float | None) -> float:
        """The same with the limit of the caller."""
        return self.seconds if caller is None else max(0.0, min(self.seconds, caller))


def terms(
    export: Export, granted: Iterable[str], policy: Policy, scopes: Iterable[str] | None, time_factor: float = 1.0
) -> Terms:
    """The terms of an invocation; `time_factor` lengthens the time that the manifest gives it."""
    permissions = effective(export, granted, policy, scopes)
    isolation = execution_class(export.facts.get("execution_class"), policy.execution_class)
    timeout_ms = export.facts.get("timeout_ms")
    limits = (LONGEST, None if timeout_ms is None else timeout_ms * time_factor, policy.timeout_ms)
    return Terms(
        permissions,
        permissions.to_json(),
        permissions != requested(export),
        isolation,
        export.facts.get("max_concurrency"),
        min(ms / 1000 for ms in limits if ms is not None),
    )


def moment(epoch_seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(math.floor(epoch_seconds * 1000) / 1000, UTC)
    return at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


# The context object and the token.

TOKEN_EXTRA = 30.0
"""Seconds a token is valid beyond the deadline: longer than the grace period of a plugin."""

CLAIMS = tuple(
    "invocation_id trace_id binding_id package_id export_kind export_id org_id project_id session_id chain_id run_id "
    "execution_id".split()
)
"""The claims copied from the record; scopes, policy and times are added."""


def claims(
    record: InvocationRecord, scopes: Iterable[str], limits: Mapping[str, Any], now: float, ends: float
) -> dict[str, Any]:
    """The claims of an invocation's token."""
    times = {"issued_at": moment(now), "expires_at": moment(ends + TOKEN_EXTRA)}
    of_record = {name: getattr(record, name) for name in CLAIMS}
    return {**of_record, "scopes": list(scopes), "policy": dict(limits), **times}


class Delegation(Guarded, msgspec.Struct, frozen=True):
    """Access to the gateway for one invocation."""

    HIDDEN = ("token",)
    base_url: str | None = None
    token: str | None = None
    scopes: tuple[str, ...] = ()


def context_object(
    record: InvocationRecord, permissions: Permissions, deadline_at: str, scratch: str | None, delegation: Delegation
) -> dict[str, Any]:
    """The `context` of a request. Every key is always there, null where it does not apply."""
    return {
        "invocation_id": record.invocation_id,
        "trace_id": record.trace_id,
        "org_id": record.org_id,
        "project_id": record.project_id,
        "session_id": record.session_id,
        "chain_id": record.chain_id,
        "run_id": record.run_id,
        "deadline_at": deadline_at,
        "scratch_dir": scratch,
        "gateway": {
            "base_url": delegation.base_url,
            "delegation_token": delegation.token,
            "scopes": list(delegation.scopes),
        },
        "permissions": {"network": permissions.network, "filesystem": permissions.filesystem},
    }


# Settings per export.


def settings_of(spec: PluginSpec) -> SettingsSpec:
    """The settings of a plugin: those of its manifest, and those of its exports where they have their own.

    Each export has its part of the plugin's config under its own name:

        [plugins."acme/devkit"]
        config = { jira_search = { base_url = "https://acme.example" } }

    All exports share the plugin's secrets. Each secret must be long enough to be redacted from output.
    """
    configs = {
        export.name: export.facts["config_schema"]
        for export in spec.exports
        if export.facts.get("config_schema") is not None
    }
    slots = dict.fromkeys(slot for export in spec.exports for slot in requested(export).secret_slots)
    known = spec.settings
    return SettingsSpec(
        config_schema=_object(configs) if configs else known.config_schema,
        secrets_schema=_object({slot: {"type": "string", "minLength": SHORTEST} for slot in slots})
        if slots
        else known.secrets_schema,
        knobs=known.knobs,
    )


def _object(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "additionalProperties": False}
