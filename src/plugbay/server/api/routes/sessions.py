"""Routes of sessions and chains: create, list, read, update, branch, fork."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    Metadata,
    ModelName,
    Paging,
    PathId,
    Time,
    example,
    listing,
    one_of,
)
from plugbay.server.domain.run_loop import LONGEST_MS, MOST_TOKENS, MOST_TOOL_CALLS, MOST_TURNS
from plugbay.server.domain.sessions import MAX_BLOCKS

chains_router = Router(tags=["chains"])

MOST_BLOCKS = 1000
"""Blocks in one answer."""

Text = Annotated[str, StringConstraints(max_length=200)]
ToolName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tools = Annotated[list[ToolName], Field(max_length=256)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Blocks = Annotated[list[dict[str, Any]], Field(max_length=MAX_BLOCKS)]


class SessionIn(Body):
    model_config = example(project_id="shop", external_session_id="ticket-7", metadata={"team": "tea"})

    org_id: ChosenId | None = Field(default=None, description="For an operator of all orgs.")
    project_id: ChosenId | None = None
    external_session_id: Text | None = None
    metadata: Metadata = Field(default_factory=dict)


class SessionPatch(Body):
    model_config = example(metadata={"team": "coffee"})

    external_session_id: Text | None = None
    metadata: Metadata | None = None


class BranchIn(Body):
    model_config = example(chain_id="ch_1", metadata={"attempt": 2})

    chain_id: ChosenId | None = Field(default=None, description="The chain to copy; default: the latest.")
    metadata: Metadata = Field(default_factory=dict)


class SessionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    external_session_id: str | None
    metadata: dict[str, Any]
    latest_chain_id: str | None
    parent_session_id: str | None
    created_at: Time
    updated_at: Time


class LimitsIn(Body):
    max_turns: Annotated[int, Field(ge=1, le=MOST_TURNS)] | None = None
    max_tool_calls: Annotated[int, Field(ge=0, le=MOST_TOOL_CALLS)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST_MS)] | None = None


class Defaults(Body):
    """Defaults for runs on a chain."""

    model: ModelName | None = None
    tools: Tools | None = None
    limits: LimitsIn | None = None
    temperature: Temperature | None = None


class ChainIn(Body):
    model_config = example(
        session_id="sess_1",
        blocks=[{"kind": "system", "content": [{"type": "text", "text": "You keep a tea shop."}]}],
        defaults={"model": "local/any", "limits": {"max_turns": 4}},
        metadata={"topic": "menu"},
    )

    session_id: ChosenId
    blocks: Blocks = Field(default_factory=list)
    defaults: Defaults = Field(default_factory=Defaults)
    metadata: Metadata = Field(default_factory=dict)


class ChainPatch(Body):
    model_config = example(defaults={"model": "local/any", "temperature": 0.2}, metadata={"topic": "menu"})

    defaults: Defaults | None = None
    metadata: Metadata | None = None
    status: Literal["idle", "closed"] | None = None


class ForkIn(Body):
    model_config = example(run_id="run_1", metadata={"attempt": 2})

    sequence: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(default=None, description="The last block.")
    run_id: ChosenId | None = Field(default=None, description="Up to the end of this run.")
    metadata: Metadata | None = None


class ChainOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    status: Annotated[str, one_of("idle", "running", "closed")]
    chain_version: int
    parent_chain_id: str | None
    forked_from_run_id: str | None
    created_by_compaction_id: str | None
    message_count_cached: int = Field(validation_alias="block_count")
    token_estimate_cached: int = Field(validation_alias="token_estimate")
    digest: str = Field(description="Covers every block, in order: equal digests, equal bytes.")
    defaults: dict[str, Any]
    metadata: dict[str, Any]
    created_at: Time
    updated_at: Time


class BranchOut(Answer):
    session: SessionOut
    chain: ChainOut


class ContextOut(Answer):
    chain: ChainOut
    blocks: list[dict[str, Any]]
    next_sequence: int | None = Field(description="`after` for the next page; null: no more blocks.")


@chains_router.post("/v1/chains", status_code=201, **needs("chains:write"))
async def create_chain(body: ChainIn, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Create a chain with these blocks."""
    return ChainOut.model_validate(
        await gateway.chains.create(
            caller,
            body.session_id,
            blocks=body.blocks,
            defaults=body.defaults.model_dump(exclude_none=True),
            metadata=body.metadata,
        )
    )


@chains_router.get("/v1/chains", **needs("chains:read"))
async def list_chains(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    session_id: IdFilter = None,
    status: Annotated[Literal["idle", "running", "closed"] | None, Query()] = None,
) -> Listing[ChainOut]:
    return listing(
        await gateway.chains.page(caller, page, session_id=session_id, status=status), ChainOut.model_validate
    )


@chains_router.get("/v1/chains/{chain_id}", **needs("chains:read"))
async def get_chain(chain_id: PathId, caller: Caller, gateway: TheGateway) -> ChainOut:
    return ChainOut.model_validate(await gateway.chains.get(caller, chain_id))


@chains_router.get("/v1/chains/{chain_id}/context", **needs("chains:read"))
async def get_chain_context(
    chain_id: PathId,
    caller: Caller,
    gateway: TheGateway,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The sequence of the last block seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_BLOCKS)] = MOST_BLOCKS,
) -> ContextOut:
    """The blocks of a chain: the input of its next run."""
    chain, blocks = await gateway.chains.context(caller, chain_id, after=after, limit=limit)
    more = bool(blocks) and blocks[-1]["sequence"] < chain.block_count
    return ContextOut(
        chain=ChainOut.model_validate(chain), blocks=blocks, next_sequence=blocks[-1]["sequence"] if more else None
    )


@chains_router.patch("/v1/chains/{chain_id}", **needs("chains:write"))
async def update_chain(chain_id: PathId, body: ChainPatch, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Change the given fields; missing fields and null stay unchanged. Blocks never change."""
    values = body.model_dump(exclude_none=True)
    return ChainOut.model_validate(await gateway.chains.change(caller, chain_id, **values))


@chains_router.post("/v1/chains/{chain_id}:fork", status_code=201, **needs("chains:write"))
async def fork_chain(chain_id: PathId, body: ForkIn, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Fork a chain in its session, up to a block or the end of a run."""
    return ChainOut.model_validate(
        await gateway.chains.fork(caller, chain_id, through=body.sequence, run_id=body.run_id, metadata=body.metadata)
    )


router = Router(tags=["sessions"])


@router.post("/v1/sessions", status_code=201, **needs("sessions:write"))
async def create_session(body: SessionIn, caller: Caller, gateway: TheGateway) -> SessionOut:
    return SessionOut.model_validate(
        await gateway.sessions.create(
            caller,
            org_id=body.org_id,
            project_id=body.project_id,
            external_session_id=body.external_session_id,
            metadata=body.metadata,
        )
    )


@router.get("/v1/sessions", **needs("sessions:read"))
async def list_sessions(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    external_session_id: Annotated[str | None, Query(max_length=200)] = None,
) -> Listing[SessionOut]:
    """Sessions visible to the caller; for a plugin: its own and those branched from it."""
    return listing(
        await gateway.sessions.page(caller, page, external_session_id=external_session_id), SessionOut.model_validate
    )


@router.get("/v1/sessions/{session_id}", **needs("sessions:read"))
async def get_session(session_id: PathId, caller: Caller, gateway: TheGateway) -> SessionOut:
    return SessionOut.model_validate(await gateway.sessions.get(caller, session_id))


@router.patch("/v1/sessions/{session_id}", **needs("sessions:write"))
async def update_session(session_id: PathId, body: SessionPatch, caller: Caller, gateway: TheGateway) -> SessionOut:
    """Change the given fields; missing fields and null stay unchanged."""
    return SessionOut.model_validate(
        await gateway.sessions.change(caller, session_id, **body.model_dump(exclude_none=True))
    )


@router.get("/v1/sessions/{session_id}/chains", **needs("chains:read"))
async def list_chains_of_session(
    session_id: PathId, caller: Caller, gateway: TheGateway, page: Paging
) -> Listing[ChainOut]:
    return listing(await gateway.chains.page(caller, page, session_id=session_id), ChainOut.model_validate)


@router.post("/v1/sessions/{session_id}:branch", status_code=201, **needs("sessions:read", "chains:write"))
async def branch_session(session_id: PathId, body: BranchIn, caller: Caller, gateway: TheGateway) -> BranchOut:
    """Create a session that starts with the same bytes."""
    session, chain = await gateway.chains.branch(caller, session_id, chain_id=body.chain_id, metadata=body.metadata)
    return BranchOut(session=SessionOut.model_validate(session), chain=ChainOut.model_validate(chain))
