"""`Principal`: the caller: the operator of all orgs, a key of one org, or a plugin with a delegated token.

Decides what a caller may see and do. Ids of other tenants are answered as not found, so their existence does not leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from plugbay.host.invocations.kinds import supports
from plugbay.server.domain.errors import GatewayError, denied, not_found

Kind = Literal["operator", "key", "delegated"]
Role = Literal["viewer", "operator", "admin"]

ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""Ascending: each role includes those before it."""


HOST = "host"
"""Permission for the operator's plugins: only the operator of all orgs has it."""


class Principal(msgspec.Struct, frozen=True):
    """The caller of a request."""

    kind: Kind
    org_id: str | None = None
    """None: all orgs. Only an operator has this."""
    project_id: str | None = None
    """None: all projects of the org."""
    role: Role | None = None
    """The role of a person; a plugin has scopes instead."""
    scopes: frozenset[str] = frozenset()
    key_id: str | None = None
    invocation_id: str | None = None
    claims: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Claims of a delegated token: lineage and budget."""

    @property
    def id(self) -> str:
        """The caller's id in audit log and rate limits."""
        return self.key_id or self.invocation_id or self.kind

    def sees(self, org_id: str | None, project_id: str | None = None) -> bool:
        """Whether the caller may see objects of this org and project. Objects without an org are the operator's."""
        if self.org_id is None:
            return self.kind == "operator"
        if org_id != self.org_id:
            return False
        return self.project_id is None or project_id is None or project_id == self.project_id

    def must_see(self, kind: str, id: str, org_id: str | None, project_id: str | None = None) -> None:
        """Raises `not_found` if the caller may not see it."""
        if not self.sees(org_id, project_id):
            raise not_found(kind, id)

    def supports(self, feature: str) -> bool:
        """Whether the caller may use a feature that harnesses declare; a harness that lists some has only those."""
        return supports((self.claims.get("policy") or {}).get("supports") or (), feature)

    def must_support(self, feature: str) -> None:
        """Raises `policy.not_supported` if the caller is a harness that lists others in its manifest's `supports`."""
        if not self.supports(feature):
            listed = list(self.claims["policy"]["supports"])
            text = f"the manifest of this harness supports {', '.join(listed)}, not {feature}"
            raise denied("policy.not_supported", text, required=feature, supports=listed)

    def has_role(self, role: Role) -> bool:
        """Whether the caller has at least this role."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    def lacks(self, needs: Iterable[str], any_of: Iterable[str] = ()) -> GatewayError | None:
        """The error if the caller lacks one of `needs`, or all of `any_of`; None if it is allowed."""
        wanted, choice = tuple(needs), tuple(any_of)
        for need in wanted:
            if not self._has(need):
                return self._refusal(need, wanted)
        if choice and not any(map(self._has, choice)):
            return self._refusal(choice[0], choice)
        return None

    def _has(self, need: str) -> bool:
        """Whether the caller has a role or scope: viewers have all read scopes, operators all others."""
        if need == HOST:
            return self.kind == "operator"
        if need in ROLES:
            return self.has_role(need)
        if self.kind == "delegated":
            return need in self.scopes
        return self.has_role("viewer" if need.endswith(":read") else "operator")

    def _refusal(self, need: str, wanted: tuple[str, ...]) -> GatewayError:
        if self.kind == "delegated":
            return denied("auth.scope_denied", f"this token has no right to {need}", required=list(wanted))
        if need == HOST:
            text = "only the operator of all orgs may manage the plugins of the host"
            return denied("auth.role_denied", text, required=list(wanted))
        return denied("auth.role_denied", f"the role {self.role} is not enough for {need}", required=list(wanted))


OPERATOR = Principal("operator", role="admin")
"""The owner of the operator token."""


def require_operator_of_all(caller: Principal, act: str) -> None:
    """Raises unless the caller is the operator of all orgs; `act` completes the sentence of the refusal."""
    if caller.org_id is not None or caller.kind != "operator":
        raise denied("auth.role_denied", f"only the operator of all orgs {act}", required=["operator of all"])
