"""Pages of conversations: sessions, chains as messages, runs, executions of harnesses with budgets, compactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from starlette.responses import Response

from plugbay.server.api.models import parse_page
from plugbay.server.api.routes.runs import Status as RunStatus
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.lists import Loaded, RecordList, follow_list, load_of_orgs, show_list
from plugbay.server.dashboard.tables import SHOWN, Filter, NextStep, Table, table_of
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.views.conversations import (
    CHAIN_COLUMNS,
    CHAIN_TONES,
    COMPACTION_COLUMNS,
    HARNESS_COLUMNS,
    RUN_COLUMNS,
    SESSION_COLUMNS,
    budgets_of,
    chain_row,
    compaction_row,
    event_rows,
    harness_row,
    message_of,
    run_row,
    run_spans,
    session_row,
)
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.dashboard.views.work import Span, stored_failure_view, timeline_of, tone_of, words
from plugbay.server.domain.errors import GatewayError
from plugbay.store.pages import Page, Part

WORK = ("queued", "running", "succeeded", "failed", "cancelled")
UNFINISHED = ("queued", "running")

MESSAGES = 100
"""Blocks of a chain on one page."""


# Sessions and chains.


async def _load_sessions(visit: Visit, page: Page) -> Loaded:
    return await load_of_orgs(visit, page, visit.gateway.sessions.page)


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
    _load_sessions,
)


@require_session(ANY_PERSON)
async def show_sessions(visit: Visit) -> Response:
    return await show_list(visit, SESSIONS)


@require_session(ANY_PERSON, live=True)
async def follow_sessions(visit: Visit) -> Response:
    return await follow_list(visit, SESSIONS)


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


# Runs.


async def _load_runs(visit: Visit, page: Page) -> Loaded:
    return await load_of_orgs(visit, page, visit.gateway.runs.page, get_args(RunStatus))


RUNS = RecordList(
    "Runs",
    "answers of models, newest first",
    "/runs",
    RUN_COLUMNS,
    run_row,
    NextStep(
        "No runs yet",
        "A run is the answer of a model on a chain, with the tools it calls. Programs start them over the API:",
        'plugbay runs create --session sess_1 --model local/any --blocks "Which tea is left?" --wait',
    ),
    _load_runs,
)


@require_session(ANY_PERSON)
async def show_runs(visit: Visit) -> Response:
    return await show_list(visit, RUNS)


@require_session(ANY_PERSON, live=True)
async def follow_runs(visit: Visit) -> Response:
    return await follow_list(visit, RUNS)


@require_session(ANY_PERSON)
async def show_run(visit: Visit) -> Response:
    run, events, tools = await visit.gateway.runs.timeline(visit.principal, visit.request.path_params["run_id"])
    return visit.page(
        "run.html",
        run=run,
        state=words(run.status),
        tone=tone_of(run.status),
        is_over=run.status not in UNFINISHED,
        timeline=timeline_of(run.created_at, run_spans(run, tools), visit.now),
        events=event_rows(events),
        failure=stored_failure_view(run.error),
    )


@require_session("operator")
async def cancel_run(visit: Visit) -> Response:
    """Cancel a run, after a confirmation."""
    run = await visit.gateway.runs.get(visit.principal, visit.request.path_params["run_id"])
    if not is_confirmed(visit):
        text = "The model stops, and so do the tools it has called. What they did is not undone."
        return confirm(
            visit, Question(f"Cancel {run.id}?", text, "Cancel it", f"/runs/{run.id}", (("model", run.model),))
        )
    await visit.gateway.runs.cancel(visit.principal, run.id)
    return visit.redirect(f"/runs/{run.id}", Notice(GOOD, _cancelled(run.status)))


def _cancelled(status: str) -> str:
    return "It is being cancelled." if status in UNFINISHED else "It had ended already."


# Harnesses.


async def _load_harnesses(visit: Visit, page: Page) -> Loaded:
    return await load_of_orgs(visit, page, visit.gateway.harnesses.page, WORK)


HARNESSES = RecordList(
    "Harnesses",
    "executions and their budgets, newest first",
    "/harnesses",
    HARNESS_COLUMNS,
    harness_row,
    NextStep(
        "No executions yet",
        "A harness works on a session by itself, within a budget. Programs start them over the API:",
        'plugbay harness create bind_1 --trigger-input "Take stock" --policy-max-child-runs 4 --wait',
        "See the harnesses",
        "/bindings?kind=harness",
    ),
    _load_harnesses,
)


@require_session(ANY_PERSON)
async def show_harnesses(visit: Visit) -> Response:
    return await show_list(visit, HARNESSES)


@require_session(ANY_PERSON, live=True)
async def follow_harnesses(visit: Visit) -> Response:
    return await follow_list(visit, HARNESSES)


@require_session(ANY_PERSON)
async def show_harness(visit: Visit) -> Response:
    return await _harness_page(visit)


@require_session("operator")
async def cancel_harness(visit: Visit) -> Response:
    """Cancel an execution, after a confirmation."""
    id = visit.request.path_params["execution_id"]
    execution, _ = await visit.gateway.harnesses.get(visit.principal, id)
    if not is_confirmed(visit):
        text = "It may be resumed later, if its harness has stored a checkpoint."
        return confirm(visit, Question(f"Cancel {id}?", text, "Cancel it", f"/harnesses/{id}"))
    await visit.gateway.harnesses.cancel(visit.principal, id)
    return visit.redirect(f"/harnesses/{id}", Notice(GOOD, _cancelled(execution.status)))


@require_session("operator")
async def resume_harness(visit: Visit) -> Response:
    id = visit.request.path_params["execution_id"]
    try:
        await visit.gateway.harnesses.resume(visit.principal, id)
    except GatewayError as error:
        if error.status != 409:
            raise
        return await _harness_page(visit, error)
    return visit.redirect(f"/harnesses/{id}", Notice(GOOD, "It is resumed."))


async def _harness_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    harnesses, id = visit.gateway.harnesses, visit.request.path_params["execution_id"]
    execution, checkpoint = await harnesses.get(visit.principal, id)
    spans = (
        []
        if execution.started_at is None
        else [Span("started", execution.started_at, execution.completed_at, execution.status)]
    )
    return visit.page(
        "harness.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        execution=execution,
        state=words(execution.status),
        tone=tone_of(execution.status),
        is_over=execution.status not in UNFINISHED,
        budgets=budgets_of(execution.policy, await harnesses.spent(visit.principal, id)),
        timeline=timeline_of(execution.created_at, spans, visit.now),
        failure=stored_failure_view(execution.error),
        parts=_parts(("Summary", execution.summary), ("Checkpoint", checkpoint), ("Trigger", execution.trigger)),
    )


def _parts(*named: tuple[str, Any]) -> Sequence[tuple[str, str]]:
    return [(name, as_json(value)) for name, value in named if value]


# Compactions.


async def _load_compactions(visit: Visit, page: Page) -> Loaded:
    return await load_of_orgs(visit, page, visit.gateway.compactions.page, WORK)


COMPACTIONS = RecordList(
    "Compactions",
    "shorter chains made from long ones, newest first",
    "/compactions",
    COMPACTION_COLUMNS,
    compaction_row,
    NextStep(
        "No compactions yet",
        "A compaction makes a shorter chain from a long one. Programs start them over the API:",
        "plugbay compaction create chain_1 --target-max-input-tokens 4000 --wait",
        "See the compactors",
        "/bindings?kind=compactor",
    ),
    _load_compactions,
)


@require_session(ANY_PERSON)
async def show_compactions(visit: Visit) -> Response:
    return await show_list(visit, COMPACTIONS)


@require_session(ANY_PERSON, live=True)
async def follow_compactions(visit: Visit) -> Response:
    return await follow_list(visit, COMPACTIONS)


@require_session(ANY_PERSON)
async def show_compaction(visit: Visit) -> Response:
    compaction = await visit.gateway.compactions.get(visit.principal, visit.request.path_params["compaction_id"])
    spans = (
        []
        if compaction.started_at is None
        else [Span("started", compaction.started_at, compaction.completed_at, compaction.status)]
    )
    return visit.page(
        "compaction.html",
        compaction=compaction,
        state=words(compaction.status),
        tone=tone_of(compaction.status),
        timeline=timeline_of(compaction.created_at, spans, visit.now),
        failure=stored_failure_view(compaction.error),
        parts=_parts(
            ("Summary", compaction.summary),
            ("Diagnostics", compaction.diagnostics),
            ("Target", compaction.target),
            ("Policy", compaction.policy),
        ),
    )
