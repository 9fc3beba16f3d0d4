"""Routes of compactions: create, list, read."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.conversation_models import CompactionIn, CompactionOut, TraceParent
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Listing, Paging, PathId, listing
from plugbay.server.domain.clock import maybe_stamp, stamp
from plugbay.server.domain.compactions import CompactionRequest
from plugbay.server.domain.ids import parse_traceparent
from plugbay.store.compactions import Compaction

router = Router(tags=["compactions"])

OWN = {"any_of": ("compactions:read", "compactions:write")}
"""A caller that may only write still reads its own compactions."""


@router.post("/v1/compactions", status_code=202, **needs("compactions:write"))
async def create_compaction(
    body: CompactionIn, caller: Caller, gateway: TheGateway, traceparent: TraceParent = None
) -> CompactionOut:
    """Create a shorter chain from a long one, which stays unchanged. Poll until it has ended."""
    wanted = CompactionRequest(
        chain_id=body.chain_id,
        target=body.target.model_dump(exclude_none=True),
        policy=body.policy.model_dump(),
        binding_id=body.compactor.binding_id,
        pinned=body.pinned_items,
        compaction_id=body.compaction_id,
        trace_id=parse_traceparent(traceparent),
    )
    return _compaction_out(await gateway.compactions.create(caller, wanted))


@router.get("/v1/compactions", **needs(**OWN))
async def list_compactions(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    chain_id: Annotated[str | None, Query(max_length=64)] = None,
    status: Annotated[str | None, Query(max_length=32)] = None,
) -> Listing[CompactionOut]:
    return listing(await gateway.compactions.page(caller, page, chain_id=chain_id, status=status), _compaction_out)


@router.get("/v1/compactions/{compaction_id}", **needs(**OWN))
async def get_compaction(compaction_id: PathId, caller: Caller, gateway: TheGateway) -> CompactionOut:
    return _compaction_out(await gateway.compactions.get(caller, compaction_id))


def _compaction_out(compaction: Compaction) -> CompactionOut:
    return CompactionOut(
        id=compaction.id,
        org_id=compaction.org_id,
        project_id=compaction.project_id,
        session_id=compaction.session_id,
        chain_id=compaction.chain_id,
        new_chain_id=compaction.new_chain_id,
        binding_id=compaction.binding_id,
        status=compaction.status,
        target=compaction.target,
        policy=compaction.policy,
        source_digest=compaction.source_digest,
        summary=compaction.summary,
        diagnostics=compaction.diagnostics,
        error=compaction.error,
        created_by_run_id=compaction.created_by_run_id,
        created_at=stamp(compaction.created_at),
        started_at=maybe_stamp(compaction.started_at),
        completed_at=maybe_stamp(compaction.completed_at),
    )
