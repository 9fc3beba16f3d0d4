"""What conversations need of plugins, as a small protocol: who is bound where, and having one of them do its work.

Owns no rule. Bindings, rollout, credentials and processes are behind it; conversations know a binding by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from plugbay.host.calls.calls import InvocationResult
from plugbay.host.ports import InvocationRecord
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Tx


@dataclass(frozen=True, slots=True)
class Bound:
    """One export as it is bound now."""

    binding_id: str
    package_id: str
    export_id: str
    kind: str
    description: str = ""
    input_schema: Any = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The table of its kind in the manifest: effect class, subscriptions, fidelity."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a plugin is to do, and on whose behalf."""

    binding_id: str
    kind: str
    input: Any
    org_id: str
    project_id: str | None
    execution_id: str
    trace_id: str
    session_id: str | None = None
    chain_id: str | None = None
    run_id: str | None = None
    attempt: int = 1
    timeout: float | None = None
    scopes: frozenset[str] | None = None
    """What whoever asked may do itself; None: everything."""
    on_progress: Callable[[Any], None] | None = field(default=None, repr=False)
    opened: Callable[[InvocationRecord], None] | None = field(default=None, repr=False)
    """Told of each attempt once its record is open."""


class WorkRefused(Exception):
    """A job was not even begun. `inactive`: its binding is not active any more, or not there; else it may be later."""

    def __init__(self, code: str, message: str, *, inactive: bool = False) -> None:
        self.code = code
        self.message = message
        self.inactive = inactive
        super().__init__(f"{code}: {message}")


class Workers(Protocol):
    """Plugins that are bound."""

    async def serving(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[Bound]:
        """The exports of a kind that serve a project for a key such as a session; hooks: those that want an event."""
        ...

    async def bound(self, tx: Tx, kind: str, org_id: str, project_id: str | None, binding_id: str) -> Bound | None:
        """An active binding of this kind at this scope; None: there is no such one."""
        ...

    async def do(self, job: Job) -> InvocationResult:
        """Have it done; raises `WorkRefused`. Cancelled, it ends when nothing of the job works any more."""
        ...


class Budgets(Protocol):
    """What a plugin with a token may still do."""

    async def spend(self, principal: Principal, what: Literal["child_run", "compaction"], *, depth: int = 1) -> None:
        """Use one of what its policy allows; raises `policy.limit_exceeded`. Others than plugins have no limit."""
        ...
