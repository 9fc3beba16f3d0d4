"""Sessions: making, reading, changing and branching them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.conversation_models import BranchIn, BranchOut, ChainOut, SessionIn, SessionOut, SessionPatch
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Listing, PathId
from plugbay.server.api.paging import Paging, listing
from plugbay.server.api.routes.chains import shown_chain
from plugbay.server.domain.clock import stamp
from plugbay.store.sessions import Session

router = Router(tags=["sessions"])


@router.post("/v1/sessions", status_code=201, **needs("sessions:write"))
async def create_session(body: SessionIn, caller: Caller, gateway: TheGateway) -> SessionOut:
    return _shown(
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
    """Sessions that the caller can see; a plugin: its own and those branched from it."""
    return listing(await gateway.sessions.page(caller, page, external_session_id=external_session_id), _shown)


@router.get("/v1/sessions/{session_id}", **needs("sessions:read"))
async def get_session(session_id: PathId, caller: Caller, gateway: TheGateway) -> SessionOut:
    return _shown(await gateway.sessions.get(caller, session_id))


@router.patch("/v1/sessions/{session_id}", **needs("sessions:write"))
async def update_session(session_id: PathId, body: SessionPatch, caller: Caller, gateway: TheGateway) -> SessionOut:
    """Change what is given; what is not given, or null, stays."""
    return _shown(await gateway.sessions.change(caller, session_id, **body.model_dump(exclude_none=True)))


@router.get("/v1/sessions/{session_id}/chains", **needs("chains:read"))
async def list_chains_of_session(
    session_id: PathId, caller: Caller, gateway: TheGateway, page: Paging
) -> Listing[ChainOut]:
    return listing(await gateway.chains.page(caller, page, session_id=session_id), shown_chain)


@router.post("/v1/sessions/{session_id}:branch", status_code=201, **needs("sessions:read", "chains:write"))
async def branch_session(session_id: PathId, body: BranchIn, caller: Caller, gateway: TheGateway) -> BranchOut:
    """Another session that begins with the same bytes."""
    session, chain = await gateway.chains.branch(caller, session_id, chain_id=body.chain_id, metadata=body.metadata)
    return BranchOut(session=_shown(session), chain=shown_chain(chain))


def _shown(session: Session) -> SessionOut:
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
