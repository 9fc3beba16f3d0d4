"""Routes of runs: create, stream, list, read, cancel, regenerate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query, Request
from starlette.responses import StreamingResponse

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.conversation_models import (
    RegenerateIn,
    RunAnywhereIn,
    RunIn,
    RunOut,
    TimelineEntry,
    TimelineOut,
    ToolExecutionOut,
    TraceParent,
    Usage,
    Wrong,
)
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Listing, Paging, PathId, listing
from plugbay.server.api.sse import STREAM, Event, event_stream
from plugbay.server.domain.clock import maybe_stamp, stamp
from plugbay.server.domain.errors import invalid
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.ids import new_id, parse_traceparent
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import NewRun, RunOptions
from plugbay.store.runs import Run, ToolExecution

router = Router(tags=["runs"])

OWN = {"any_of": ("runs:read", "runs:write")}
"""A caller that may only write still reads its own runs."""

Status = Literal["queued", "running", "completed", "cancelled", "failed", "timed_out"]


@router.post("/v1/chains/{chain_id}/runs", status_code=201, **needs("runs:write"))
async def create_run(
    chain_id: PathId, body: RunIn, caller: Caller, gateway: TheGateway, traceparent: TraceParent = None
) -> RunOut:
    """Start a run; poll it, or use `runs:stream`."""
    return _run_out(await gateway.runs.create(caller, chain_id, _new_run(body, traceparent)))


@router.post(
    "/v1/chains/{chain_id}/runs:stream", response_class=StreamingResponse, responses=STREAM, **needs("runs:write")
)
@long_running
async def stream_run(
    request: Request,
    chain_id: PathId,
    body: RunIn,
    caller: Caller,
    gateway: TheGateway,
    traceparent: TraceParent = None,
) -> StreamingResponse:
    """Create a run and stream its events. The run continues if the client disconnects."""
    run_id = new_id("run_")
    feed = gateway.runs.feeds.subscribe(run_id)
    pieces = feed.__enter__()
    try:
        run = await gateway.runs.create(caller, chain_id, _new_run(body, traceparent, run_id))
    except BaseException:
        feed.__exit__(None, None, None)
        raise

    async def events() -> AsyncIterator[Event]:
        try:
            yield Event({"type": "run.queued", "run": _run_out(run).model_dump()}, "run.queued")
            async for piece in pieces:
                yield Event(piece, piece["type"])
        finally:
            feed.__exit__(None, None, None)

    return event_stream(request, events())


@router.post("/v1/runs", status_code=201, **needs("runs:write"))
async def create_run_anywhere(
    body: RunAnywhereIn, caller: Caller, gateway: TheGateway, traceparent: TraceParent = None
) -> RunOut:
    """Start a run on the chain in the body, or on the latest chain of a session."""
    chain_id = body.chain_id or await _chain_of(gateway, caller, body.session_id)
    return _run_out(await gateway.runs.create(caller, chain_id, _new_run(body, traceparent)))


@router.get("/v1/chains/{chain_id}/runs", **needs(**OWN))
async def list_runs_of_chain(chain_id: PathId, caller: Caller, gateway: TheGateway, page: Paging) -> Listing[RunOut]:
    return listing(await gateway.runs.page(caller, page, chain_id=chain_id), _run_out)


@router.get("/v1/runs", **needs(**OWN))
async def list_runs(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    session_id: Annotated[str | None, Query(max_length=64)] = None,
    execution_id: Annotated[str | None, Query(max_length=64)] = None,
    status: Annotated[Status | None, Query()] = None,
) -> Listing[RunOut]:
    filters = {"session_id": session_id, "execution_id": execution_id, "status": status}
    return listing(await gateway.runs.page(caller, page, **filters), _run_out)


@router.get("/v1/runs/{run_id}", **needs(**OWN))
async def get_run(run_id: PathId, caller: Caller, gateway: TheGateway) -> RunOut:
    return _run_out(await gateway.runs.get(caller, run_id))


@router.get("/v1/runs/{run_id}/timeline", **needs(**OWN))
async def get_run_timeline(
    run_id: PathId,
    caller: Caller,
    gateway: TheGateway,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The sequence of the last event seen.")] = 0,
) -> TimelineOut:
    """Events of a run so far, and its tool calls."""
    run, events, tools = await gateway.runs.timeline(caller, run_id, after=after)
    entries = [
        TimelineEntry(sequence=each.sequence, type=each.type, data=each.data, created_at=stamp(each.created_at))
        for each in events
    ]
    return TimelineOut(run=_run_out(run), events=entries, tool_executions=[_tool_out(tool) for tool in tools])


@router.get("/v1/runs/{run_id}/effective-request", **needs(**OWN))
async def get_effective_request(run_id: PathId, caller: Caller, gateway: TheGateway) -> dict[str, Any]:
    """The first model request, as resolved."""
    return await gateway.runs.effective_request(caller, run_id)


@router.post("/v1/runs/{run_id}:cancel", **needs("runs:write"))
async def cancel_run(run_id: PathId, caller: Caller, gateway: TheGateway) -> RunOut:
    """Cancel a run; an ended one stays unchanged."""
    return _run_out(await gateway.runs.cancel(caller, run_id))


@router.post("/v1/runs/{run_id}:regenerate", status_code=201, **needs("runs:write"))
async def regenerate_run(
    run_id: PathId, body: RegenerateIn, caller: Caller, gateway: TheGateway, traceparent: TraceParent = None
) -> RunOut:
    """Run the same input again, on a fork of the chain."""
    asked = NewRun(wanted=RunOptions(model=body.model), metadata=body.metadata, trace_id=parse_traceparent(traceparent))
    return _run_out(await gateway.runs.regenerate(caller, run_id, asked))


async def _chain_of(gateway: Gateway, caller: Principal, session_id: str | None) -> str:
    if session_id is None:
        raise invalid("run.no_chain", "say which chain, or which session", "chain_id")
    session = await gateway.sessions.get(caller, session_id)
    return session.latest_chain_id or (await gateway.chains.create(caller, session_id)).id


def _new_run(body: RunIn, traceparent: str | None, run_id: str | None = None) -> NewRun:
    wanted = RunOptions(
        model=body.model or body.routing.model,
        tools=body.tools,
        limits=body.limits.model_dump(exclude_none=True),
        temperature=body.temperature,
    )
    trace_id = parse_traceparent(traceparent)
    return NewRun(body.blocks, wanted, body.metadata, body.parent_run_id, trace_id, run_id)


def _run_out(run: Run) -> RunOut:
    total = run.input_tokens + run.output_tokens
    return RunOut(
        id=run.id,
        org_id=run.org_id,
        project_id=run.project_id,
        chain_id=run.chain_id,
        session_id=run.session_id,
        parent_run_id=run.parent_run_id,
        rerun_of_run_id=run.rerun_of_run_id,
        execution_id=run.execution_id,
        model=run.model,
        status=run.status,
        stop_reason=run.stop_reason,
        error=None if run.error is None else Wrong(**run.error),
        turn_count=run.turn_count,
        tool_count=run.tool_count,
        usage=Usage(input_tokens=run.input_tokens, output_tokens=run.output_tokens, total_tokens=total),
        trace_id=run.trace_id,
        metadata=run.metadata,
        created_at=stamp(run.created_at),
        started_at=maybe_stamp(run.started_at),
        completed_at=maybe_stamp(run.completed_at),
    )


def _tool_out(tool: ToolExecution) -> ToolExecutionOut:
    return ToolExecutionOut(
        id=tool.id,
        turn=tool.turn,
        position=tool.position,
        tool_call_id=tool.tool_call_id,
        name=tool.name,
        binding_id=tool.binding_id,
        status=tool.status,
        execution_outcome=tool.execution_outcome,
        error_code=tool.error_code,
        attempts=tool.attempts,
        input=msgspec.json.decode(tool.input),
        result=None if tool.result is None else msgspec.json.decode(tool.result),
        started_at=stamp(tool.started_at),
        ended_at=maybe_stamp(tool.ended_at),
    )
