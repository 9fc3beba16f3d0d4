"""Routes of compactions: create, list, read."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field, StringConstraints

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import (
    Answer,
    Body,
    ChosenId,
    IdFilter,
    Listing,
    ModelName,
    Paging,
    PathId,
    Time,
    TraceId,
    WorkStatus,
    example,
    listing,
)
from plugbay.server.domain.compactions import CompactionRequest

router = Router(tags=["compactions"])

OWN = {"any_of": ("compactions:read", "compactions:write")}
"""A caller that may only write still reads its own compactions."""


class CompactorRef(Body):
    binding_id: ChosenId | None = None


class Target(Body):
    max_input_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)]
    target_model: ModelName | None = None
    target_context: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="The kind of conversation, such as `coding`; the compactor must be for it."
    )


class CompactionPolicy(Body):
    retain_system: bool = True
    retain_open_tasks: bool = True


class CompactionIn(Body):
    model_config = example(
        chain_id="ch_1",
        target={"max_input_tokens": 32_000, "target_model": "local/any", "target_context": "coding"},
        compactor={"binding_id": "bind_1"},
        policy={"retain_system": True, "retain_open_tasks": True},
        pinned_items=[],
    )

    chain_id: ChosenId
    target: Target
    compactor: CompactorRef = Field(default_factory=CompactorRef)
    policy: CompactionPolicy = Field(default_factory=CompactionPolicy)
    pinned_items: Annotated[list[ChosenId], Field(max_length=200)] = Field(
        default_factory=list, description="Ids of blocks that must be in the new chain."
    )
    compaction_id: ChosenId | None = Field(
        default=None, description="A second request with this id returns the same compaction."
    )


class CompactionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    new_chain_id: str | None
    binding_id: str
    status: WorkStatus
    target: dict[str, Any]
    policy: dict[str, Any]
    source_digest: str
    summary: Any
    diagnostics: Any
    error: dict[str, Any] | None
    created_by_run_id: str | None
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


@router.post("/v1/compactions", status_code=202, **needs("compactions:write"))
async def create_compaction(
    body: CompactionIn, caller: Caller, gateway: TheGateway, trace_id: TraceId
) -> CompactionOut:
    """Create a shorter chain from a long one, which stays unchanged. Poll until it has ended."""
    wanted = CompactionRequest(
        chain_id=body.chain_id,
        target=body.target.model_dump(exclude_none=True),
        policy=body.policy.model_dump(),
        binding_id=body.compactor.binding_id,
        pinned=body.pinned_items,
        compaction_id=body.compaction_id,
        trace_id=trace_id,
    )
    return CompactionOut.model_validate(await gateway.compactions.create(caller, wanted))


@router.get("/v1/compactions", **needs(**OWN))
async def list_compactions(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    chain_id: IdFilter = None,
    status: Annotated[str | None, Query(max_length=32)] = None,
) -> Listing[CompactionOut]:
    return listing(
        await gateway.compactions.page(caller, page, chain_id=chain_id, status=status), CompactionOut.model_validate
    )


@router.get("/v1/compactions/{compaction_id}", **needs(**OWN))
async def get_compaction(compaction_id: PathId, caller: Caller, gateway: TheGateway) -> CompactionOut:
    return CompactionOut.model_validate(await gateway.compactions.get(caller, compaction_id))
