"""Policies of orgs and bindings. Pure.

A manifest requests permissions; org policy and binding policy each narrow them and never add any. A policy that asks
for more than the manifest is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plugbay.contracts.vai.permissions import SCOPES
from plugbay.host.confinement.reach import Reach
from plugbay.host.invocations.context import (
    CLASSES,
    FILESYSTEMS,
    LONGEST,
    NO_ACCESS,
    SCRATCH,
    Permissions,
    execution_class,
    narrow_filesystem,
    narrow_limits,
    requested,
)
from plugbay.host.request import Policy as HostPolicy
from plugbay.model.addresses import clean_host
from plugbay.model.spec import Export
from plugbay.server.domain.errors import unprocessable

MAX_DOMAINS = 100
MAX_CONCURRENCY = 1024
MAX_SLOTS = 100

LIMITS = ("max_depth", "max_child_runs", "allow_compaction")
"""The fields of a policy that limit what a plugin may start through the gateway."""


def _domain(text: str) -> str:
    host = clean_host(text)
    if host is None:
        raise ValueError(f"{text!r} is not a name of a host")
    return host


def _scope(text: str) -> str:
    if text not in SCOPES:
        raise ValueError(f"there is no scope {text!r}")
    return text


Domain = Annotated[str, Field(max_length=253), AfterValidator(_domain)]
Scope = Annotated[str, Field(max_length=64), AfterValidator(_scope)]
Slot = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class PolicyDocument(BaseModel):
    """A policy document; missing fields restrict nothing."""

    model_config = ConfigDict(extra="forbid", strict=True)

    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST)] | None = Field(
        None, title="Timeout", description="Milliseconds that one invocation may take."
    )
    network: Literal["none", "egress"] | None = Field(None, title="Network", description="none: no connections.")
    egress_domains: Annotated[list[Domain], Field(max_length=MAX_DOMAINS)] | None = Field(
        None, title="Hosts", description='Hosts that may be reached: ["api.example"].'
    )
    filesystem: Literal["none", "assets_ro", "scratch"] | None = Field(
        None, title="Files", description="none, the files of the package, or also a scratch folder."
    )
    gateway_api_scopes: Annotated[list[Scope], Field(max_length=len(SCOPES))] | None = Field(
        None, title="API scopes", description='Parts of this API that its token may use: ["sessions:read"].'
    )
    secret_slots: Annotated[list[Slot], Field(max_length=MAX_SLOTS)] | None = Field(
        None, title="Secrets", description='Slots that get their secret: ["token"].'
    )
    execution_class: Literal["inline", "worker", "isolated"] | None = Field(
        None, title="Isolation", description="The minimum isolation of its process."
    )
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = Field(
        None, title="At once", description="Invocations at the same time."
    )
    max_depth: Annotated[int, Field(ge=0, le=64)] | None = Field(
        None, title="Depth", description="Runs within runs that it may start."
    )
    max_child_runs: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None, title="Runs", description="Runs that one execution may start."
    )
    allow_compaction: bool | None = Field(None, title="Compaction", description="Whether it may compact conversations.")


class Policy(msgspec.Struct, frozen=True):
    """Restrictions; None: unrestricted."""

    timeout_ms: int | None = None
    network: str | None = None
    egress_domains: frozenset[str] | None = None
    filesystem: str | None = None
    gateway_api_scopes: frozenset[str] | None = None
    secret_slots: frozenset[str] | None = None
    execution_class: str | None = None
    max_concurrency: int | None = None
    max_depth: int | None = None
    max_child_runs: int | None = None
    allow_compaction: bool | None = None

    def reach(self) -> Reach:
        """The access that it leaves the sandbox."""
        scratch = self.filesystem in (None, SCRATCH)
        if self.network == NO_ACCESS:
            return Reach((), scratch)
        return Reach(None if self.egress_domains is None else tuple(sorted(self.egress_domains)), scratch)

    def limits(self) -> dict[str, Any]:
        """The limits that it sets on the work a plugin starts through the gateway."""
        return {name: value for name in LIMITS if (value := getattr(self, name)) is not None}

    def for_host(self, default_limits: Mapping[str, Any] | None = None) -> HostPolicy:
        """The part the host enforces; the sandbox enforces the rest.

        `default_limits` are those of an export whose requests name none, so a policy cannot exceed them.
        """
        return HostPolicy(
            timeout_ms=self.timeout_ms,
            network=self.network,
            gateway_api_scopes=_sorted(self.gateway_api_scopes),
            execution_class=self.execution_class,
            max_concurrency=self.max_concurrency,
            filesystem=self.filesystem,
            secret_slots=_sorted(self.secret_slots),
            limits=narrow_limits(default_limits or {}, self.limits()),
        )


def validate_policy(value: Mapping[str, Any]) -> dict[str, Any]:
    """Validate a policy document for storing; raises `policy.invalid` with all problems."""
    try:
        found = PolicyDocument.model_validate(dict(value))
    except ValidationError as error:
        problems = [
            {"path": ".".join(map(str, item["loc"])), "problem": item["msg"]}
            for item in error.errors(include_url=False)
        ]
        first = problems[0]
        text = f"the policy cannot be used: {first['path']}: {first['problem']}"
        raise unprocessable("policy.invalid", text, f"policy.{first['path']}", problems=problems) from None
    return found.model_dump(exclude_none=True)


def parse_policy(value: Mapping[str, Any]) -> Policy:
    """A stored policy. Unknown fields are ignored."""
    known = {name: value[name] for name in PolicyDocument.model_fields if value.get(name) is not None}
    for name in ("egress_domains", "gateway_api_scopes", "secret_slots"):
        if name in known:
            known[name] = frozenset(known[name])
    return Policy(**known)


def intersect_policies(*policies: Policy) -> Policy:
    """The intersection of policies."""
    return Policy(
        timeout_ms=_smallest(policy.timeout_ms for policy in policies),
        network=NO_ACCESS if any(policy.network == NO_ACCESS for policy in policies) else _first_network(policies),
        egress_domains=_intersection(policy.egress_domains for policy in policies),
        filesystem=_least_filesystem(policy.filesystem for policy in policies),
        gateway_api_scopes=_intersection(policy.gateway_api_scopes for policy in policies),
        secret_slots=_intersection(policy.secret_slots for policy in policies),
        execution_class=_strictest_class(policy.execution_class for policy in policies),
        max_concurrency=_smallest(policy.max_concurrency for policy in policies),
        max_depth=_smallest(policy.max_depth for policy in policies),
        max_child_runs=_smallest(policy.max_child_runs for policy in policies),
        allow_compaction=_smallest(policy.allow_compaction for policy in policies),
    )


def find_widened(policy: Policy, export: Export) -> list[tuple[str, str]]:
    """Fields in which a binding's policy exceeds the manifest, with reasons."""
    asked, found = requested(export), []
    if policy.network not in (None, NO_ACCESS) and asked.network == NO_ACCESS:
        found.append(("network", "the manifest asks for no network"))
    if policy.egress_domains and asked.network == NO_ACCESS:
        found.append(("egress_domains", "the manifest asks for no network"))
    if policy.filesystem is not None and narrow_filesystem(asked.filesystem, policy.filesystem) != policy.filesystem:
        found.append(("filesystem", f"the manifest asks for {asked.filesystem}"))
    slots = sorted((policy.secret_slots or frozenset()) - set(asked.secret_slots))
    if slots:
        found.append(("secret_slots", f"the manifest has no slot {', '.join(slots)}"))
    more = sorted((policy.gateway_api_scopes or frozenset()) - set(asked.gateway_api_scopes))
    if more:
        found.append(("gateway_api_scopes", f"the manifest does not ask for {', '.join(more)}"))
    declared = export.facts.get("execution_class")
    if policy.execution_class and declared and CLASSES.index(policy.execution_class) < CLASSES.index(declared):
        found.append(("execution_class", f"the manifest wants {declared}, which is more isolated"))
    longest = export.facts.get("timeout_ms")
    if policy.timeout_ms is not None and longest is not None and policy.timeout_ms > longest:
        found.append(("timeout_ms", f"the manifest allows {longest}"))
    return found


def effective_permissions(export: Export, policy: Policy, scopes: Iterable[str] | None = None) -> Permissions:
    """The permissions of an invocation under a policy, for a caller with these scopes (None: all)."""
    asked = requested(export)
    online = asked.network != NO_ACCESS and policy.network != NO_ACCESS
    may = set(asked.gateway_api_scopes) if online else set()
    for narrower in (policy.gateway_api_scopes, None if scopes is None else frozenset(scopes)):
        may = may if narrower is None else may & narrower
    return Permissions(
        network=asked.network if online else NO_ACCESS,
        filesystem=narrow_filesystem(asked.filesystem, policy.filesystem),
        gateway_api_scopes=tuple(scope for scope in asked.gateway_api_scopes if scope in may),
        secret_slots=tuple(
            slot for slot in asked.secret_slots if policy.secret_slots is None or slot in policy.secret_slots
        ),
    )


def effective_limits(export: Export, policy: Policy) -> dict[str, Any]:
    """The limits of all invocations of an export under a policy; None: only the request limits it."""
    longest = _smallest((LONGEST, export.facts.get("timeout_ms"), policy.timeout_ms))
    most = _smallest((export.facts.get("max_concurrency"), policy.max_concurrency))
    return {"timeout_ms": longest, "max_concurrency": most, **{name: getattr(policy, name) for name in LIMITS}}


def _sorted(names: frozenset[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(sorted(names))


_T = TypeVar("_T", int, bool)


def _smallest(values: Iterable[_T | None]) -> _T | None:
    return min((value for value in values if value is not None), default=None)


def _least_filesystem(values: Iterable[str | None]) -> str | None:
    return min((value for value in values if value is not None), key=FILESYSTEMS.index, default=None)


def _first_network(policies: Iterable[Policy]) -> str | None:
    return next((policy.network for policy in policies if policy.network is not None), None)


def _intersection(sets: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    given = [each for each in sets if each is not None]
    return frozenset.intersection(*given) if given else None


def _strictest_class(classes: Iterable[str | None]) -> str | None:
    given = [each for each in classes if each is not None]
    return execution_class(*given) if given else None
