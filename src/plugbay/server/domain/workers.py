"""`Workers`: how conversations find and run bound exports; `BoundWorkers` implements it with bindings and invocations.

Conversations depend on the protocol only and know a binding by its id; tests replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from plugbay.host.ports import InvocationRecord
from plugbay.host.request import CallResult
from plugbay.model.errors import Failure
from plugbay.server.domain.bindings import ACTIVE, Bindings, ResolvedBinding
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.invocations import Invocations, Work
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Tx
from plugbay.store.failures import StoreUnavailable


@dataclass(frozen=True, slots=True)
class BoundExport:
    """One bound export."""

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
    """Work for a plugin."""

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
    """Scopes of the caller; None: all."""
    on_progress: Callable[[Any], None] | None = field(default=None, repr=False)
    opened: Callable[[InvocationRecord], None] | None = field(default=None, repr=False)
    """Called for each attempt once its record is open."""


class WorkRefused(Exception):
    """A job was not started. `inactive`: its binding is not active; otherwise it may work later."""

    def __init__(self, code: str, message: str, *, inactive: bool = False) -> None:
        self.code = code
        self.message = message
        self.inactive = inactive
        super().__init__(f"{code}: {message}")


class Workers(Protocol):
    """Finds and runs bound exports."""

    async def serving(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[BoundExport]:
        """The bound exports of a kind, selected for a key such as a session; for hooks: those subscribed to `event`."""
        ...

    async def bound(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, binding_id: str
    ) -> BoundExport | None:
        """An active binding of this kind at this scope; None if there is none."""
        ...

    async def do(self, job: Job) -> CallResult:
        """Run a job; raises `WorkRefused`. When cancelled, returns only after the job has ended."""
        ...


class Budgets(Protocol):
    """Budgets of plugins with delegated tokens."""

    async def spend(self, principal: Principal, what: Literal["child_run", "compaction"], *, depth: int = 1) -> None:
        """Spend one unit of the budget; raises `policy.limit_exceeded`. People have no limits."""
        ...


def error_code(failure: Failure) -> str:
    """The plugin's own error code if it gave one, else the host's."""
    return str(failure.detail.get("plugin_code") or failure.code)


GONE = frozenset({"binding.not_found", "binding.not_active"})
"""Codes of `invocations` that mean the binding is inactive."""


class BoundWorkers:
    """`Workers` over the bindings of one gateway."""

    def __init__(self, bindings: Bindings, invocations: Invocations) -> None:
        self._bindings = bindings
        self._invocations = invocations

    async def serving(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[BoundExport]:
        found = await self._bindings.serving(org_id, project_id, kind, key)
        wanted = [each for each in found if event is None or event in each.export.facts.get("subscribes_to", ())]
        return [_bound(each) for each in wanted]

    async def bound(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, binding_id: str
    ) -> BoundExport | None:
        found = await self._bindings.bound(binding_id)
        if found is None or found.row.org_id != org_id or found.row.project_id not in (None, project_id):
            return None
        if found.row.status != ACTIVE or found.row.export_kind != kind:
            return None
        return _bound(found)

    async def do(self, job: Job) -> CallResult:
        work = Work(
            org_id=job.org_id,
            input=job.input,
            project_id=job.project_id,
            binding_id=job.binding_id,
            kind=job.kind,
            session_id=job.session_id,
            chain_id=job.chain_id,
            run_id=job.run_id,
            trace_id=job.trace_id,
            execution_id=job.execution_id,
            attempt=job.attempt,
            timeout=job.timeout,
            scopes=job.scopes,
        )
        try:
            return await self._invocations.invoke(work, job.on_progress, job.opened)
        except StoreUnavailable as error:
            raise WorkRefused("store.unavailable", str(error)) from None
        except GatewayError as error:
            raise WorkRefused(error.code, error.message, inactive=error.code in GONE) from None


def _bound(found: ResolvedBinding) -> BoundExport:
    export = found.export
    return BoundExport(
        binding_id=found.row.id,
        package_id=found.row.package_id,
        export_id=found.row.export_id,
        kind=export.kind,
        description=export.description,
        input_schema=export.input_schema,
        facts=export.facts,
    )
