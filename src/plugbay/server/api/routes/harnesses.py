"""Routes of harness executions: create, list, read, cancel, resume. Closed to plugins."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from msgspec.structs import asdict
from pydantic import Field, StringConstraints, ValidationError

from plugbay.host.request import CallRequest
from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.errors import validation_problems
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import (
    Answer,
    Body,
    ChosenId,
    IdFilter,
    Listing,
    Paging,
    PathId,
    Time,
    TraceId,
    WorkStatus,
    example,
    listing,
    one_of,
)
from plugbay.server.domain.credentials import LIMITS
from plugbay.server.domain.errors import unprocessable
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.store.harnesses import HarnessExecution

router = Router(tags=["harnesses"])

MAX_TOOLS = 128
"""Tools that a harness may be given by name."""

ExportName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class TriggerIn(Body):
    type: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "user_request"
    input: Annotated[list[dict[str, Any]], Field(max_length=64)] = Field(default_factory=list)


class HarnessPolicy(Body):
    """Limits that the gateway enforces on a harness."""

    max_depth: Annotated[int, Field(ge=0, le=64)] = LIMITS["max_depth"]
    max_child_runs: Annotated[int, Field(ge=0, le=100_000)] = LIMITS["max_child_runs"]
    allow_compaction: bool = LIMITS["allow_compaction"]
    tools: Annotated[list[ExportName], Field(max_length=MAX_TOOLS)] | None = Field(
        default=None,
        description="The tools that the harness and its runs may use; default: all active tools of the scope.",
    )


class TargetIn(Body):
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    execution_id: ChosenId | None = None


class HarnessInput(Body):
    """The `input` of a harness started as an invocation: same fields and limits as an execution."""

    mode: Literal["start"] = Field(default="start", description="To resume, use `harness-executions/ID:resume`.")
    target: TargetIn = Field(default_factory=TargetIn)
    trigger: TriggerIn = Field(default_factory=TriggerIn)
    policy: HarnessPolicy = Field(default_factory=HarnessPolicy)


class ExecutionIn(Body):
    model_config = example(
        binding_id="bind_1",
        chain_id="ch_1",
        trigger={"type": "user_request", "input": [{"type": "text", "text": "Investigate the bug and fix it"}]},
        policy={"max_depth": 4, "max_child_runs": 12, "allow_compaction": True},
    )

    binding_id: ChosenId
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    org_id: ChosenId | None = Field(default=None, description="For an operator of all orgs.")
    project_id: ChosenId | None = None
    trigger: TriggerIn = Field(default_factory=TriggerIn)
    policy: HarnessPolicy = Field(default_factory=HarnessPolicy)


class ExecutionOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    session_id: str
    chain_id: str
    binding_id: str
    status: WorkStatus
    mode: Annotated[str, one_of("start", "resume")]
    trigger: dict[str, Any]
    policy: dict[str, Any]
    summary: Any
    artifacts: list[Any]
    checkpoint: dict[str, Any] | None
    error: dict[str, Any] | None
    resumes: int
    trace_id: str
    created_at: Time
    started_at: Time | None
    completed_at: Time | None


@router.post("/v1/harness-executions", status_code=202, **needs("operator"))
async def create_harness_execution(
    body: ExecutionIn, caller: Caller, gateway: TheGateway, trace_id: TraceId
) -> ExecutionOut:
    """Run a harness on a chain, or on a new one. Poll until it has ended."""
    request = HarnessRequest(
        binding_id=body.binding_id,
        trigger=body.trigger.model_dump(),
        policy=body.policy.model_dump(exclude_none=True),
        session_id=body.session_id,
        chain_id=body.chain_id,
        org_id=body.org_id,
        project_id=body.project_id,
        trace_id=trace_id,
    )
    return _execution_out(await gateway.harnesses.create(caller, request))


@router.get("/v1/harness-executions", **needs("viewer"))
async def list_harness_executions(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    binding_id: IdFilter = None,
    session_id: IdFilter = None,
    status: Annotated[str | None, Query(max_length=32)] = None,
) -> Listing[ExecutionOut]:
    """Executions without checkpoints; read one to get its checkpoint."""
    filters = {"binding_id": binding_id, "session_id": session_id, "status": status}
    return listing(await gateway.harnesses.page(caller, page, **filters), _execution_out)


@router.get("/v1/harness-executions/{execution_id}", **needs("viewer"))
async def get_harness_execution(execution_id: PathId, caller: Caller, gateway: TheGateway) -> ExecutionOut:
    return _execution_out(*await gateway.harnesses.get(caller, execution_id))


@router.post("/v1/harness-executions/{execution_id}:cancel", **needs("operator"))
async def cancel_harness_execution(execution_id: PathId, caller: Caller, gateway: TheGateway) -> ExecutionOut:
    """Cancel an execution; an ended one stays unchanged."""
    return _execution_out(await gateway.harnesses.cancel(caller, execution_id))


@router.post("/v1/harness-executions/{execution_id}:resume", status_code=202, **needs("operator"))
async def resume_harness_execution(execution_id: PathId, caller: Caller, gateway: TheGateway) -> ExecutionOut:
    """Resume from the last checkpoint."""
    return _execution_out(await gateway.harnesses.resume(caller, execution_id))


def harness_request(request: CallRequest) -> HarnessRequest:
    """The harness request in an invocation of a harness; raises for an invalid input."""
    try:
        given = HarnessInput.model_validate(request.input)
    except ValidationError as error:
        problems = validation_problems(error.errors())
        text = f"input.{problems[0]['path']}: {problems[0]['problem']}"
        raise unprocessable("invocation.invalid_input", text, "input", problems=problems) from None
    return HarnessRequest(
        binding_id=str(request.binding_id),
        trigger=given.trigger.model_dump(),
        policy=given.policy.model_dump(exclude_none=True),
        session_id=request.session_id,
        chain_id=request.chain_id,
        run_id=request.run_id,
        org_id=request.org_id,
        project_id=request.project_id,
        trace_id=request.trace_id,
        execution_id=request.execution_id or given.target.execution_id,
        timeout=request.timeout,
    )


def _execution_out(execution: HarnessExecution, checkpoint: dict[str, Any] | None = None) -> ExecutionOut:
    return ExecutionOut.model_validate({**asdict(execution), "checkpoint": checkpoint})
