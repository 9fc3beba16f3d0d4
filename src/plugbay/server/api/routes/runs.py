"""Routes of runs: create, stream, list, read, cancel, regenerate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal, get_args

import msgspec
from fastapi import Query, Request
from msgspec.structs import asdict
from pydantic import Field
from starlette.responses import StreamingResponse

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
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
    TraceId,
    example,
    listing,
    one_of,
)
from plugbay.server.api.routes.sessions import Blocks, LimitsIn, Temperature, Tools
from plugbay.server.api.sse import STREAM, Event, event_stream
from plugbay.server.domain.errors import invalid
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.ids import new_id
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import NewRun, RunOptions
from plugbay.store.runs import Run, ToolExecution

router = Router(tags=["runs"])

OWN = {"any_of": ("runs:read", "runs:write")}
"""A caller that may only write still reads its own runs."""

Status = Literal["queued", "running", "completed", "cancelled", "failed", "timed_out"]


class Routing(Body):
    model: ModelName | None = None


class RunIn(Body):
    model_config = example(
        blocks=[{"kind": "input", "content": [{"type": "text", "text": "What is new?"}]}],
        model="local/any",
        tools=[],
        limits={"max_turns": 4},
    )

    blocks: Blocks = Field(default_factory=list, description="The input for the model.")
    model: ModelName | None = Field(default=None, description="`provider/model`.")
    routing: Routing = Field(default_factory=Routing)
    tools: Tools | None = Field(default=None, description="Names of tools; default: all bound tools.")
    limits: LimitsIn = Field(default_factory=LimitsIn)
    temperature: Temperature | None = None
    parent_run_id: ChosenId | None = None
    metadata: Metadata = Field(default_factory=dict)


class RunAnywhereIn(RunIn):
    model_config = example(
        chain_id="ch_1",
        blocks=[{"kind": "input", "content": [{"type": "text", "text": "What is new?"}]}],
        model="local/any",
        tools=[],
    )

    chain_id: ChosenId | None = None
    session_id: ChosenId | None = Field(default=None, description="Its latest chain, or a new one.")


class RegenerateIn(Body):
    model_config = example(model="local/any", metadata={"attempt": 2})

    model: ModelName | None = None
    metadata: Metadata = Field(default_factory=dict)


class Usage(Answer):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Wrong(Answer):
    code: str
    message: str


class RunOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    chain_id: str
    session_id: str
    parent_run_id: str | None
    rerun_of_run_id: str | None
    execution_id: str | None
    model: str
    status: Annotated[str, one_of(*get_args(Status))]
    stop_reason: str | None
    error: Wrong | None
    turn_count: int
    tool_count: int
    usage: Usage
    trace_id: str
    metadata: dict[str, Any]
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


class TimelineEntry(Answer):
    sequence: int
    type: str
    data: dict[str, Any]
    created_at: Time


class ToolExecutionOut(Answer):
    id: str
    turn: int
    position: int
    tool_call_id: str
    name: str
    binding_id: str | None
    status: str | None
    execution_outcome: str | None
    error_code: str | None
    attempts: int
    input: Any
    result: Any
    started_at: Time
    ended_at: Time | None


class TimelineOut(Answer):
    run: RunOut
    events: list[TimelineEntry]
    tool_executions: list[ToolExecutionOut]


@router.post("/v1/chains/{chain_id}/runs", status_code=201, **needs("runs:write"))
async def create_run(chain_id: PathId, body: RunIn, caller: Caller, gateway: TheGateway, trace_id: TraceId) -> RunOut:
    """Start a run; poll it, or use `runs:stream`."""
    return _run_out(await gateway.runs.create(caller, chain_id, _new_run(body, trace_id)))


@router.post(
    "/v1/chains/{chain_id}/runs:stream", response_class=StreamingResponse, responses=STREAM, **needs("runs:write")
)
@long_running
async def stream_run(
    request: Request, chain_id: PathId, body: RunIn, caller: Caller, gateway: TheGateway, trace_id: TraceId
) -> StreamingResponse:
    """Create a run and stream its events. The run continues if the client disconnects."""
    run_id = new_id("run_")
    feed = gateway.runs.feeds.subscribe(run_id)  # before the run starts, so no event is missed
    try:
        run = await gateway.runs.create(caller, chain_id, _new_run(body, trace_id, run_id))
    except BaseException:
        feed.close()
        raise

    async def events() -> AsyncIterator[Event]:
        with feed:
            yield Event({"type": "run.queued", "run": _run_out(run).model_dump()}, "run.queued")
            async for event in feed:
                yield Event(event, event["type"])

    return event_stream(request, events())


@router.get("/v1/runs/{run_id}/events", response_class=StreamingResponse, responses=STREAM, **needs(**OWN))
async def watch_run(request: Request, run_id: PathId, caller: Caller, gateway: TheGateway) -> StreamingResponse:
    """One run: its record, then its events until its end. `lost`: see the timeline for the rest."""
    feed = gateway.runs.feeds.subscribe(run_id)  # before the run is read, so its end is not missed
    try:
        run = await gateway.runs.get(caller, run_id)
    except BaseException:
        feed.close()
        raise
    feed.org_id = run.org_id

    async def events() -> AsyncIterator[Event]:
        async with gateway.live.watching(feed):
            yield Event({"type": "run", "run": _run_out(run).model_dump()}, "run")
            if run.completed_at is not None:
                return
            async for event in feed:
                yield Event(event, event["type"])

    return event_stream(request, events())


@router.post("/v1/runs", status_code=201, **needs("runs:write"))
async def create_run_anywhere(body: RunAnywhereIn, caller: Caller, gateway: TheGateway, trace_id: TraceId) -> RunOut:
    """Start a run on the chain in the body, or on the latest chain of a session."""
    chain_id = body.chain_id or await _chain_of(gateway, caller, body.session_id)
    return _run_out(await gateway.runs.create(caller, chain_id, _new_run(body, trace_id)))


@router.get("/v1/chains/{chain_id}/runs", **needs(**OWN))
async def list_runs_of_chain(chain_id: PathId, caller: Caller, gateway: TheGateway, page: Paging) -> Listing[RunOut]:
    return listing(await gateway.runs.page(caller, page, chain_id=chain_id), _run_out)


@router.get("/v1/runs", **needs(**OWN))
async def list_runs(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    session_id: IdFilter = None,
    execution_id: IdFilter = None,
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
    entries = [TimelineEntry.model_validate(event) for event in events]
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
    run_id: PathId, body: RegenerateIn, caller: Caller, gateway: TheGateway, trace_id: TraceId
) -> RunOut:
    """Run the same input again, on a fork of the chain."""
    asked = NewRun(wanted=RunOptions(model=body.model), metadata=body.metadata, trace_id=trace_id)
    return _run_out(await gateway.runs.regenerate(caller, run_id, asked))


async def _chain_of(gateway: Gateway, caller: Principal, session_id: str | None) -> str:
    if session_id is None:
        raise invalid("run.no_chain", "chain_id or session_id is required", "chain_id")
    session = await gateway.sessions.get(caller, session_id)
    return session.latest_chain_id or (await gateway.chains.create(caller, session_id)).id


def _new_run(body: RunIn, trace_id: str | None, run_id: str | None = None) -> NewRun:
    wanted = RunOptions(
        model=body.model or body.routing.model,
        tools=body.tools,
        limits=body.limits.model_dump(exclude_none=True),
        temperature=body.temperature,
    )
    return NewRun(body.blocks, wanted, body.metadata, body.parent_run_id, trace_id, run_id)


def _run_out(run: Run) -> RunOut:
    total = run.input_tokens + run.output_tokens
    usage = Usage(input_tokens=run.input_tokens, output_tokens=run.output_tokens, total_tokens=total)
    return RunOut.model_validate({**asdict(run), "usage": usage})


def _tool_out(tool: ToolExecution) -> ToolExecutionOut:
    result = None if tool.result is None else msgspec.json.decode(tool.result)
    decoded = {"input": msgspec.json.decode(tool.input), "result": result}
    return ToolExecutionOut.model_validate({**asdict(tool), **decoded})
