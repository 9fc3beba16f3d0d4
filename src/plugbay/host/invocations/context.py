"""What an invocation is done with: who asks for it, how its export is bound, what it may do, until when.

Pure: bindings and orders in, values out; clock and randomness come from the caller. A manifest only requests: what an
invocation may do is requested ∩ granted ∩ policy ∩ what its caller may, and a policy can never widen anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plugbay.host.ports import DEFAULT_ORG, InvocationRecord
from plugbay.model.errors import Code, Failure
from plugbay.model.spec import Export

CLASSES = ("inline", "worker", "isolated")
"""Execution classes, from the least to the most isolated."""

LONGEST = 3_600_000
"""Milliseconds; the host's ceiling for every invocation, whatever anybody asks for."""

ID_BYTES = 10
"""80 random bits."""

MAX_ID = 200
"""Characters of an id that somebody else made."""

NO_ACCESS = "none"

TRACE_PREFIX = "tr_"

_W3C_TRACE = re.compile(f"{TRACE_PREFIX}([0-9a-f]{{32}})", re.ASCII)


def trace_digits(trace_id: str) -> str | None:
    """The hex digits of a trace id that is one of W3C's too; None: it is somebody else's kind of id."""
    found = _W3C_TRACE.fullmatch(trace_id)
    return None if found is None or set(found[1]) == {"0"} else found[1]


def new_id(prefix: str, entropy: bytes) -> str:
    """`inv_`, `tr_` and the like, with the hex of ten random bytes."""
    return f"{prefix}_{entropy.hex()}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What a binding narrows; None: nothing."""

    timeout_ms: int | None = None
    network: str | None = None
    gateway_api_scopes: tuple[str, ...] | None = None
    execution_class: str | None = None
    max_concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class ExportBinding:
    """One export attached to an org or a project. Secrets are values here: whoever binds has resolved them."""

    binding_id: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    policy: Policy = field(default_factory=Policy)
    org_id: str = DEFAULT_ORG
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """What a caller says beside the input. Ids it leaves out are null for the plugin, or made up where work needs one.

    `execution_id` is the id of the logical work, the same over all attempts: the tool_execution_id, delivery_id,
    compaction_id or execution_id of the four kinds.
    """

    org_id: str | None = None
    project_id: str | None = None
    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    execution_id: str | None = None
    attempt: int = 1
    """Of a hook's delivery, from 1."""
    scopes: tuple[str, ...] | None = None
    """Gateway scopes the caller has itself; None: it does not narrow them."""
    binding: ExportBinding | None = field(default=None, repr=False)
    """None: as the operator bound the export in plugbay.toml."""
    opened: Callable[[InvocationRecord], None] | None = field(default=None, compare=False, repr=False)
    """Told of each attempt once its record is open, before anything is started. Must not raise."""
    stays: bool = False
    """Whether a caller that is cancelled cancels the work and then waits for its end, instead of going at once."""
    records: list[InvocationRecord] = field(default_factory=list, compare=False, repr=False)
    """Filled by the engine: one for each attempt, as it ended."""


_IDS = ("org_id", "project_id", "session_id", "chain_id", "run_id", "trace_id", "execution_id")
_SAME = {"tool_execution_id": "execution_id", "delivery_id": "execution_id", "compaction_id": "execution_id"}


def order_of(context: Mapping[str, Any]) -> Order | Failure:
    """The order in the `context` of a plain call: ids, and the `attempt` of a delivery."""
    said = {_SAME.get(name, name): value for name, value in context.items() if value is not None}
    unknown = next((name for name in said if name not in (*_IDS, "attempt")), None)
    if unknown is not None:
        return _refused(unknown, f"is not one of {', '.join((*_IDS, *_SAME, 'attempt'))}")
    return Order(**said)


def order_problem(order: Order) -> Failure | None:
    """What is wrong with an order."""
    if type(order.attempt) is not int or order.attempt < 1:
        return _refused("attempt", "must be a whole number from 1")
    for name in _IDS:
        value = getattr(order, name)
        problem = None if value is None else id_problem(value)
        if problem is not None:
            return _refused(name, problem)
    return None


def id_problem(value: Any) -> str | None:
    """Why a value cannot be an id: ids stand in paths and URLs."""
    if not isinstance(value, str) or not value or len(value) > MAX_ID:
        return f"must be a text of 1 to {MAX_ID} characters"
    if value in (".", "..") or any(char in "/:\\" or not char.isprintable() or char.isspace() for char in value):
        return "must have no slash, colon, space or control character"
    return None


def _refused(name: str, why: str) -> Failure:
    return Failure(Code.INVALID_INPUT, f"the context cannot be used: {name} {why}", detail={"path": f"context.{name}"})


# What it may do.


@dataclass(frozen=True, slots=True)
class Permissions:
    """What one invocation may do."""

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
    """What the manifest asks for."""
    asked = export.facts.get("permissions") or {}
    return Permissions(
        network=asked.get("network", NO_ACCESS),
        filesystem=asked.get("filesystem", NO_ACCESS),
        gateway_api_scopes=tuple(asked.get("gateway_api_scopes", ())),
        secret_slots=tuple(asked.get("secret_slots", ())),
    )


def effective(export: Export, granted: Iterable[str], policy: Policy, scopes: Iterable[str] | None) -> Permissions:
    """What this invocation may really do. Without the network a gateway cannot be reached, so its scopes go too."""
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
    """The most isolated of these: a manifest cannot grant itself less isolation than its operator wants."""
    return max((name for name in classes if name is not None), key=CLASSES.index)


# Until when.


def allowed_seconds(export: Export, policy: Policy, caller: float | None) -> float:
    """The least of what the binding, the manifest, the caller and the host allow."""
    limits = [LONGEST, export.facts.get("timeout_ms"), policy.timeout_ms]
    seconds = [ms / 1000 for ms in limits if ms is not None]
    return max(0.0, min(seconds if caller is None else [*seconds, caller]))


def moment(epoch_seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    at = datetime.fromtimestamp(math.floor(epoch_seconds * 1000) / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


# What the plugin is told.

TOKEN_EXTRA = 30.0
"""Seconds a token outlives the deadline: as long as the plugin may take to stop in good order, and more."""

CLAIMS = tuple(
    "invocation_id trace_id binding_id package_id export_kind export_id org_id project_id session_id chain_id run_id "
    "execution_id".split()
)
"""What a token says about its invocation; its scopes, the limits of its work and its times come on top."""


def claims(
    record: InvocationRecord, scopes: Iterable[str], limits: Mapping[str, Any], now: float, ends: float
) -> dict[str, Any]:
    """What the token of an invocation stands for."""
    times = {"issued_at": moment(now), "expires_at": moment(ends + TOKEN_EXTRA)}
    of_record = {name: getattr(record, name) for name in CLAIMS}
    return {**of_record, "scopes": list(scopes), "policy": dict(limits), **times}


@dataclass(frozen=True, slots=True)
class Delegation:
    """The way to the gateway for one invocation."""

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
