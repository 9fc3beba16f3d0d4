"""`Principal`: who asks. An operator of all orgs, a key of one, or a plugin with what its invocation was given.

Decides with values what a principal may see and do. Another tenant's ids are not found, so that they do not leak.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from plugbay.server.domain.errors import GatewayError, denied, not_found

Kind = Literal["operator", "key", "delegated"]
Role = Literal["viewer", "operator", "admin"]

ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""From the least to the most: each may do what those before it may."""


HOST = "host"
"""What is needed for the plugins in the host's own folders: they are nobody's but the operator's of all orgs."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks, and as what."""

    kind: Kind
    org_id: str | None = None
    """None: all orgs. Only an operator has this."""
    project_id: str | None = None
    """None: all projects of the org."""
    role: Role | None = None
    """Of people; a plugin has scopes instead."""
    scopes: frozenset[str] = frozenset()
    key_id: str | None = None
    invocation_id: str | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    """What a delegated token stands for beside this: its lineage and its budget."""

    @property
    def id(self) -> str:
        """Who it is in the audit log and in limits."""
        return self.key_id or self.invocation_id or self.kind

    def sees(self, org_id: str | None, project_id: str | None = None) -> bool:
        """Whether something of this org and project is there for the caller. What is nobody's is the operator's."""
        if self.org_id is None:
            return self.kind == "operator"
        if org_id != self.org_id:
            return False
        return self.project_id is None or project_id is None or project_id == self.project_id

    def must_see(self, kind: str, id: str, org_id: str | None, project_id: str | None = None) -> None:
        """Raises `not_found` for what is not there for the caller."""
        if not self.sees(org_id, project_id):
            raise not_found(kind, id)

    def has_role(self, role: Role) -> bool:
        """Whether a person may do what this role may."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    def lacks(self, needs: Iterable[str], any_of: Iterable[str] = ()) -> GatewayError | None:
        """Why the caller may not do what needs all of these roles and scopes, and one of `any_of` if there are any."""
        wanted, choice = tuple(needs), tuple(any_of)
        for need in wanted:
            if not self._has(need):
                return self._refusal(need, wanted)
        if choice and not any(map(self._has, choice)):
            return self._refusal(choice[0], choice)
        return None

    def _has(self, need: str) -> bool:
        """A role, or a scope: of people who reads may read, and who operates may write."""
        if need == HOST:
            return self.kind == "operator"
        if need in ROLES:
            return self.has_role(need)
        if self.kind == "delegated":
            return need in self.scopes
        return self.has_role("viewer" if need.endswith(":read") else "operator")

    def _refusal(self, need: str, wanted: tuple[str, ...]) -> GatewayError:
        if self.kind == "delegated":
            return denied("auth.scope_denied", f"this token does not have {need}", required=list(wanted))
        if need == HOST:
            text = "the plugins of the host are the operator's of all orgs"
            return denied("auth.role_denied", text, required=list(wanted))
        return denied("auth.role_denied", f"the role {self.role} is not enough for {need}", required=list(wanted))


OPERATOR = Principal("operator", role="admin")
"""Whoever has the token that was made when the gateway first started."""
