"""Pages of sessions, and of their chains as conversations."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from plugbay.server.api.models import parse_page
from plugbay.server.dashboard.authentication import ANY_PERSON, Visit, require_session
from plugbay.server.dashboard.pages.lists import RecordList, endpoints_of, load_by_org
from plugbay.server.dashboard.tables import SHOWN, Filter, NextStep, Table, table_of
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.views.conversations import (
    CHAIN_COLUMNS,
    CHAIN_TONES,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    chain_row,
    message_of,
    run_row,
    session_row,
)
from plugbay.server.dashboard.views.work import words
from plugbay.store.pages import Page, Part

MESSAGES = 100
"""Blocks of a chain on one page."""

SESSIONS = RecordList(
    "Sessions",
    "conversations, each with one or more chains",
    "/sessions",
    SESSION_COLUMNS,
    session_row,
    NextStep(
        "No sessions yet",
        "A session is a conversation. Programs start them over the API:",
        "plugbay session create --org tea",
    ),
    load_by_org(lambda gateway: gateway.sessions),
)

show_sessions, follow_sessions = endpoints_of(SESSIONS)


@require_session(ANY_PERSON)
async def show_session(visit: Visit) -> Response:
    """One session: its chains, the newest as a conversation."""
    gateway, id = visit.gateway, visit.request.path_params["session_id"]
    session = await gateway.sessions.get(visit.principal, id)
    latest = await _messages(visit, session.latest_chain_id) if session.latest_chain_id else None
    return visit.page(
        "session.html",
        session=session,
        table=await _chains(visit, id),
        chain_id=session.latest_chain_id or "",
        messages=latest or ([], 0),
        metadata=as_json(session.metadata) if session.metadata else "",
    )


async def _chains(visit: Visit, session_id: str) -> Table:
    search, cursor = visit.query("search"), visit.query("cursor")
    part = await visit.gateway.chains.page(
        visit.principal, parse_page(SHOWN, cursor or None), session_id=session_id, search=search
    )
    empty = NextStep(
        "No chains yet", "A chain has the messages of a conversation.", f"plugbay chain create {session_id}"
    )
    filters = (Filter("search", "Search", search, hint="part of an id"),)
    path = f"/sessions/{session_id}"
    return table_of("Chains", path, CHAIN_COLUMNS, part, chain_row, filters=filters, empty=empty, cursor=cursor)


@require_session(ANY_PERSON)
async def show_chain(visit: Visit) -> Response:
    """One chain as a conversation, with its runs."""
    gateway, id = visit.gateway, visit.request.path_params["chain_id"]
    chain = await gateway.chains.get(visit.principal, id)
    runs = await gateway.runs.page(visit.principal, Page(SHOWN), chain_id=id)
    none = NextStep("No runs yet", "A run lets a model answer.", f'plugbay chain run {id} --blocks "Hello" --wait')
    return visit.page(
        "chain.html",
        chain=chain,
        state=words(chain.status),
        tone=CHAIN_TONES.get(chain.status, "calm"),
        messages=await _messages(visit, id),
        before=_after(visit),
        table=table_of("Runs", "/runs", RUN_COLUMNS, Part(runs.items), run_row, filters=(), empty=none),
        more_runs=runs.after is not None,
    )


async def _messages(visit: Visit, chain_id: str) -> tuple[list[Any], int]:
    """Messages of a chain from the asked one on, and the position after them; 0: there are no more."""
    after = _after(visit)
    _, blocks = await visit.gateway.chains.context(visit.principal, chain_id, after=after, limit=MESSAGES + 1)
    shown = [message_of(block) for block in blocks[:MESSAGES]]
    return shown, after + MESSAGES if len(blocks) > MESSAGES else 0


def _after(visit: Visit) -> int:
    text = visit.query("after", 9)
    return int(text) if text.isascii() and text.isdigit() else 0
