"""Routes of sessions and chains: create, list, read, update, branch, fork."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.conversation_models import (
    BranchIn,
    BranchOut,
    ChainIn,
    ChainOut,
    ChainPatch,
    ContextOut,
    ForkIn,
    SessionIn,
    SessionOut,
    SessionPatch,
)
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Listing, Paging, PathId, listing
from plugbay.server.domain.clock import stamp
from plugbay.store.chains import Chain
from plugbay.store.sessions import Session

chains_router = Router(tags=["chains"])

MOST_BLOCKS = 1000
"""Blocks in one answer."""


@chains_router.post("/v1/chains", status_code=201, **needs("chains:write"))
async def create_chain(body: ChainIn, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Create a chain with these blocks."""
    return chain_out(
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
    session_id: Annotated[str | None, Query(max_length=64)] = None,
    status: Annotated[Literal["idle", "running", "closed"] | None, Query()] = None,
) -> Listing[ChainOut]:
    return listing(await gateway.chains.page(caller, page, session_id=session_id, status=status), chain_out)


@chains_router.get("/v1/chains/{chain_id}", **needs("chains:read"))
async def get_chain(chain_id: PathId, caller: Caller, gateway: TheGateway) -> ChainOut:
    return chain_out(await gateway.chains.get(caller, chain_id))


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
    return ContextOut(chain=chain_out(chain), blocks=blocks, next_sequence=blocks[-1]["sequence"] if more else None)


@chains_router.patch("/v1/chains/{chain_id}", **needs("chains:write"))
async def update_chain(chain_id: PathId, body: ChainPatch, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Change the given fields; missing fields and null stay unchanged. Blocks never change."""
    values = body.model_dump(exclude_none=True)
    return chain_out(await gateway.chains.change(caller, chain_id, **values))


@chains_router.post("/v1/chains/{chain_id}:fork", status_code=201, **needs("chains:write"))
async def fork_chain(chain_id: PathId, body: ForkIn, caller: Caller, gateway: TheGateway) -> ChainOut:
    """Fork a chain in its session, up to a block or the end of a run."""
    return chain_out(
        await gateway.chains.fork(caller, chain_id, through=body.sequence, run_id=body.run_id, metadata=body.metadata)
    )


def chain_out(chain: Chain) -> ChainOut:
    return ChainOut(
        id=chain.id,
        org_id=chain.org_id,
        project_id=chain.project_id,
        session_id=chain.session_id,
        status=chain.status,
        chain_version=chain.chain_version,
        parent_chain_id=chain.parent_chain_id,
        forked_from_run_id=chain.forked_from_run_id,
        created_by_compaction_id=chain.created_by_compaction_id,
        message_count_cached=chain.block_count,
        token_estimate_cached=chain.token_estimate,
        digest=chain.digest,
        defaults=chain.defaults,
        metadata=chain.metadata,
        created_at=stamp(chain.created_at),
        updated_at=stamp(chain.updated_at),
    )


router = Router(tags=["sessions"])


@router.post("/v1/sessions", status_code=201, **needs("sessions:write"))
async def create_session(body: SessionIn, caller: Caller, gateway: TheGateway) -> SessionOut:
    return _session_out(
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
    return listing(await gateway.sessions.page(caller, page, external_session_id=external_session_id), _session_out)


@router.get("/v1/sessions/{session_id}", **needs("sessions:read"))
async def get_session(session_id: PathId, caller: Caller, gateway: TheGateway) -> SessionOut:
    return _session_out(await gateway.sessions.get(caller, session_id))


@router.patch("/v1/sessions/{session_id}", **needs("sessions:write"))
async def update_session(session_id: PathId, body: SessionPatch, caller: Caller, gateway: TheGateway) -> SessionOut:
    """Change the given fields; missing fields and null stay unchanged."""
    return _session_out(await gateway.sessions.change(caller, session_id, **body.model_dump(exclude_none=True)))


@router.get("/v1/sessions/{session_id}/chains", **needs("chains:read"))
async def list_chains_of_session(
    session_id: PathId, caller: Caller, gateway: TheGateway, page: Paging
) -> Listing[ChainOut]:
    return listing(await gateway.chains.page(caller, page, session_id=session_id), chain_out)


@router.post("/v1/sessions/{session_id}:branch", status_code=201, **needs("sessions:read", "chains:write"))
async def branch_session(session_id: PathId, body: BranchIn, caller: Caller, gateway: TheGateway) -> BranchOut:
    """Create a session that starts with the same bytes."""
    session, chain = await gateway.chains.branch(caller, session_id, chain_id=body.chain_id, metadata=body.metadata)
    return BranchOut(session=_session_out(session), chain=chain_out(chain))


def _session_out(session: Session) -> SessionOut:
    return SessionOut(
        id=session.id,
        org_id=session.org_id,
        project_id=session.project_id,
        external_session_id=session.external_session_id,
        metadata=session.metadata,
        latest_chain_id=session.latest_chain_id,
        parent_session_id=session.parent_session_id,
        created_at=stamp(session.created_at),
        updated_at=stamp(session.updated_at),
    )
