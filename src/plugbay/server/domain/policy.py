"""Policies of orgs and bindings. Pure.

A manifest requests permissions; org policy and binding policy each narrow them and never add any. A policy that asks
for more than the manifest is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from plugbay.contracts.vai.permissions import SCOPES
from plugbay.host.invocations.context import CLASSES, LONGEST, NO_ACCESS, Permissions, execution_class, requested
from plugbay.host.request import Policy as HostPolicy
from plugbay.model.addresses import clean_host
from plugbay.model.spec import Export
from plugbay.server.domain.errors import unprocessable

MAX_DOMAINS = 100
MAX_CONCURRENCY = 1024


def _domain(text: str) -> str:
    host = clean_host(text)
    if host is None:
        raise ValueError(f"{text!r} is no name of a host")
    return host


def _scope(text: str) -> str:
    if text not in SCOPES:
        raise ValueError(f"no gateway has the scope {text!r}")
    return text


Domain = Annotated[str, Field(max_length=253), AfterValidator(_domain)]
Scope = Annotated[str, Field(max_length=64), AfterValidator(_scope)]


class PolicyDocument(BaseModel):
    """A policy document; missing fields restrict nothing."""

    model_config = ConfigDict(extra="forbid", strict=True)

    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    network: Literal["none", "egress"] | None = None
    egress_domains: Annotated[list[Domain], Field(max_length=MAX_DOMAINS)] | None = None
    gateway_api_scopes: Annotated[list[Scope], Field(max_length=len(SCOPES))] | None = None
    execution_class: Literal["inline", "worker", "isolated"] | None = None
    max_concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = None


class Reach(NamedTuple):
    """Network hosts a plugin may reach: None is all, empty is none."""

    domains: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Restrictions; None: unrestricted."""

    timeout_ms: int | None = None
    network: str | None = None
    egress_domains: frozenset[str] | None = None
    gateway_api_scopes: frozenset[str] | None = None
    execution_class: str | None = None
    max_concurrency: int | None = None

    def reach(self) -> Reach:
        """The network hosts that it leaves."""
        if self.network == NO_ACCESS:
            return Reach(())
        return Reach(None if self.egress_domains is None else tuple(sorted(self.egress_domains)))

    def for_host(self) -> HostPolicy:
        """The part the host enforces; the sandbox enforces the rest."""
        scopes = None if self.gateway_api_scopes is None else tuple(sorted(self.gateway_api_scopes))
        return HostPolicy(self.timeout_ms, self.network, scopes, self.execution_class, self.max_concurrency)


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
    for name in ("egress_domains", "gateway_api_scopes"):
        if name in known:
            known[name] = frozenset(known[name])
    return Policy(**known)


def intersect_policies(*policies: Policy) -> Policy:
    """The intersection of policies."""
    return Policy(
        timeout_ms=_smallest(policy.timeout_ms for policy in policies),
        network=NO_ACCESS if any(policy.network == NO_ACCESS for policy in policies) else _first_network(policies),
        egress_domains=_intersection(policy.egress_domains for policy in policies),
        gateway_api_scopes=_intersection(policy.gateway_api_scopes for policy in policies),
        execution_class=_strictest_class(policy.execution_class for policy in policies),
        max_concurrency=_smallest(policy.max_concurrency for policy in policies),
    )


def find_widened(policy: Policy, export: Export) -> list[tuple[str, str]]:
    """Fields in which a binding's policy exceeds the manifest, with reasons."""
    asked, found = requested(export), []
    if policy.network not in (None, NO_ACCESS) and asked.network == NO_ACCESS:
        found.append(("network", "the manifest asks for no network"))
    if policy.egress_domains and asked.network == NO_ACCESS:
        found.append(("egress_domains", "the manifest asks for no network"))
    more = sorted((policy.gateway_api_scopes or frozenset()) - set(asked.gateway_api_scopes))
    if more:
        found.append(("gateway_api_scopes", f"the manifest does not ask for {', '.join(more)}"))
    declared = export.facts.get("execution_class")
    if policy.execution_class and declared and CLASSES.index(policy.execution_class) < CLASSES.index(declared):
        found.append(("execution_class", f"the manifest wants {declared}, which is more apart"))
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
        filesystem=asked.filesystem,
        gateway_api_scopes=tuple(scope for scope in asked.gateway_api_scopes if scope in may),
        secret_slots=asked.secret_slots,
    )


def _smallest(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _first_network(policies: Iterable[Policy]) -> str | None:
    return next((policy.network for policy in policies if policy.network is not None), None)


def _intersection(sets: Iterable[frozenset[str] | None]) -> frozenset[str] | None:
    given = [each for each in sets if each is not None]
    return frozenset.intersection(*given) if given else None


def _strictest_class(classes: Iterable[str | None]) -> str | None:
    given = [each for each in classes if each is not None]
    return execution_class(*given) if given else None
