"""`BoundWorkers`: bindings and invocations as conversations need them.

Translates and decides nothing: what a binding is and how work goes is `bindings`' and `invocations`'.
"""

from __future__ import annotations

from collections.abc import Sequence

from plugbay.host.calls.calls import InvocationResult
from plugbay.server.domain import bindings
from plugbay.server.domain.bindings import ACTIVE, Bindings
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.invocations import Invocations, Work
from plugbay.server.domain.workers import Bound, Job, WorkRefused
from plugbay.store.database import Tx
from plugbay.store.failures import StoreUnavailable

GONE = frozenset({"binding.not_found", "binding.not_active"})
"""Why a binding will not do any work: codes of `invocations`."""


class BoundWorkers:
    """What is bound on one gateway."""

    def __init__(self, bindings: Bindings, invocations: Invocations) -> None:
        self._bindings = bindings
        self._invocations = invocations

    async def serving(
        self, tx: Tx, kind: str, org_id: str, project_id: str | None, key: str, event: str | None = None
    ) -> Sequence[Bound]:
        found = await self._bindings.serving(org_id, project_id, kind, key)
        wanted = [each for each in found if event is None or event in each.export.facts.get("subscribes_to", ())]
        return [_bound(each) for each in wanted]

    async def bound(self, tx: Tx, kind: str, org_id: str, project_id: str | None, binding_id: str) -> Bound | None:
        found = await self._bindings.bound(binding_id)
        if found is None or found.row.org_id != org_id or found.row.project_id not in (None, project_id):
            return None
        if found.row.status != ACTIVE or found.row.export_kind != kind:
            return None
        return _bound(found)

    async def do(self, job: Job) -> InvocationResult:
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


def _bound(found: bindings.Bound) -> Bound:
    export = found.export
    return Bound(
        binding_id=found.row.id,
        package_id=found.row.package_id,
        export_id=found.row.export_id,
        kind=export.kind,
        description=export.description,
        input_schema=export.input_schema,
        facts=export.facts,
    )
