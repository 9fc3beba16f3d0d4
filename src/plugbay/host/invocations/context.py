"""The values of an invocation: the request, the binding of its export, its permissions, its time limit, its context.

Pure: clock and randomness come from the caller. A manifest only requests: the permissions of an invocation are
requested ∩ granted ∩ policy ∩ those of its caller, and a policy can never widen anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plugbay.host.ports import DEFAULT_ORG, InvocationRecord
from plugbay.host.recording.redaction import SHORTEST
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export, PluginSpec, SettingsSpec

CLASSES = ("inline", "worker", "isolated")
"""Execution classes, from the least to the most isolated."""

LONGEST = 3_600_000
"""Milliseconds; the longest timeout of any invocation."""

ID_BYTES = 10
"""80 random bits."""

MAX_ID = 200
"""Characters of an id that a caller supplies."""

NO_ACCESS = "none"

TRACE_PREFIX = "tr_"

_W3C_TRACE = re.compile(f"{TRACE_PREFIX}([0-9a-f]{{32}})", re.ASCII)


def w3c_trace_id(trace_id: str) -> str | None:
    """The hex digits of a trace id in the W3C format; None when it has another format."""
    found = _W3C_TRACE.fullmatch(trace_id)
    return None if found is None or set(found[1]) == {"0"} else found[1]


def new_id(prefix: str, entropy: bytes) -> str:
    """`inv_`, `tr_` and the like, with the hex of ten random bytes."""
    return f"{prefix}_{entropy.hex()}"


@dataclass(frozen=True, slots=True)
class Policy:
    """The restrictions of a binding; None restricts nothing."""

    timeout_ms: int | None = None
    network: str | None = None
    gateway_api_scopes: tuple[str, ...] | None = None
    execution_class: str | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class ExportBinding:
    """One export attached to an org or a project. Secrets are resolved values here."""

    binding_id: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    policy: Policy = field(default_factory=Policy)
    org_id: str = DEFAULT_ORG
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class InvocationRequest:
    """The caller's part of an invocation besides the input. Ids that are missing are null for the plugin, or generated.

    `execution_id` is the same over all attempts: the tool_execution_id, delivery_id, compaction_id or execution_id of
    the four kinds.
    """

    org_id: str | None = None
    project_id: str | None = None
    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    attempt: int = 1
    """The number of a hook's delivery attempt, from 1."""
    scopes: tuple[str, ...] | None = None
    """Gateway scopes the caller has itself; None: it does not narrow them."""
    binding: ExportBinding | None = field(default=None, repr=False)
    """None: as the operator bound the export in plugbay.toml."""
    opened: Callable[[InvocationRecord], None] | None = field(default=None, compare=False, repr=False)
    """Called with the record of each attempt when it is open, before a process is started. Must not raise."""
    stays: bool = False
    """Whether a cancelled caller waits until the cancelled execution has ended, instead of returning at once."""
    records: list[InvocationRecord] = field(default_factory=list, compare=False, repr=False)
    """Filled by the host: the final record of each attempt."""


_IDS = ("org_id", "project_id", "session_id", "chain_id", "run_id", "trace_id", "execution_id")
_ALIASES = {"tool_execution_id": "execution_id", "delivery_id": "execution_id", "compaction_id": "execution_id"}


def request_from_context(context: Mapping[str, Any]) -> InvocationRequest | Failure:
    """The request in the `context` of a plain call: ids, and the `attempt` of a delivery."""
    given = {_ALIASES.get(name, name): value for name, value in context.items() if value is not None}
    unknown = next((name for name in given if name not in (*_IDS, "attempt")), None)
    if unknown is not None:
        return _invalid_field(unknown, f"is not one of {', '.join((*_IDS, *_ALIASES, 'attempt'))}")
    return InvocationRequest(**given)


def request_problem(request: InvocationRequest) -> Failure | None:
    """Why a request cannot be used."""
    if type(request.attempt) is not int or request.attempt < 1:
        return _invalid_field("attempt", "must be a whole number from 1")
    for name in _IDS:
        value = getattr(request, name)
        problem = None if value is None else id_problem(value)
        if problem is not None:
            return _invalid_field(name, problem)
    return None


def id_problem(value: Any) -> str | None:
    """Why a value cannot be an id: ids are used in paths and URLs."""
    if not isinstance(value, str) or not value or len(value) > MAX_ID:
        return f"must be a text of 1 to {MAX_ID} characters"
    if value in (".", "..") or any(char in "/:\\" or not char.isprintable() or char.isspace() for char in value):
        return "must have no slash, colon, space or control character"
    return None


def _invalid_field(name: str, why: str) -> Failure:
    return Failure(Code.INVALID_INPUT, f"the context cannot be used: {name} {why}", detail={"path": f"context.{name}"})


# Permissions.


@dataclass(frozen=True, slots=True)
class Permissions:
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
    return Permissions(
        network=asked.network if online else NO_ACCESS,
        filesystem=asked.filesystem if f"filesystem={asked.filesystem}" in given else NO_ACCESS,
        gateway_api_scopes=tuple(may),
        secret_slots=tuple(slot for slot in asked.secret_slots if f"secret={slot}" in given),
    )


def execution_class(*classes: str | None) -> str:
    """The most isolated of these: a manifest cannot choose less isolation than its operator requires."""
    return max((name for name in classes if name is not None), key=CLASSES.index)


# Time limits.


def allowed_seconds(export: Export, policy: Policy, caller: float | None) -> float:
    """The shortest of the limits of the binding, the manifest, the caller and the host."""
    limits = [LONGEST, export.facts.get("timeout_ms"), policy.timeout_ms]
    seconds = [ms / 1000 for ms in limits if ms is not None]
    return max(0.0, min(seconds if caller is None else [*seconds, caller]))


def moment(epoch_seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(math.floor(epoch_seconds * 1000) / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


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


@dataclass(frozen=True, slots=True)
class Delegation:
    """Access to the gateway for one invocation."""

    base_url: str | None = None
    token: str | None = field(default=None, repr=False)
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
