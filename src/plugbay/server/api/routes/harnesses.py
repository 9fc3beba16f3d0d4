"""Routes of harness executions: create, list, read, cancel, resume. Closed to plugins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import ValidationError

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.conversation_models import ExecutionIn, ExecutionOut, HarnessInput, TraceParent
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Listing, Paging, PathId, listing
from plugbay.server.domain.clock import maybe_stamp, stamp
from plugbay.server.domain.errors import unprocessable
from plugbay.server.domain.harnesses import HarnessRequest
from plugbay.server.domain.ids import parse_traceparent
from plugbay.server.domain.invocations import Work
from plugbay.store.harnesses import HarnessExecution

router = Router(tags=["harnesses"])


@router.post("/v1/harness-executions", status_code=202, **needs("operator"))
async def create_harness_execution(
    body: ExecutionIn, caller: Caller, gateway: TheGateway, traceparent: TraceParent = None
) -> ExecutionOut:
    """Run a harness on a chain, or on a new one. Poll until it has ended."""
    request = HarnessRequest(
        binding_id=body.binding_id,
        trigger=body.trigger.model_dump(),
        policy=body.policy.model_dump(),
        session_id=body.session_id,
        chain_id=body.chain_id,
        org_id=body.org_id,
        project_id=body.project_id,
        trace_id=parse_traceparent(traceparent),
    )
    return _execution_out(await gateway.harnesses.create(caller, request))


@router.get("/v1/harness-executions", **needs("viewer"))
async def list_harness_executions(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    binding_id: Annotated[str | None, Query(max_length=64)] = None,
    session_id: Annotated[str | None, Query(max_length=64)] = None,
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


def harness_request(work: Work) -> HarnessRequest:
    """The harness request in an invocation of a harness; raises for an invalid input."""
    try:
        given = HarnessInput.model_validate(work.input)
    except ValidationError as error:
        problems = [{"path": ".".join(map(str, each["loc"])), "problem": each["msg"]} for each in error.errors()]
        text = f"input.{problems[0]['path']}: {problems[0]['problem']}"
        raise unprocessable("invocation.invalid_input", text, "input", problems=problems) from None
    return HarnessRequest(
        binding_id=str(work.binding_id),
        trigger=given.trigger.model_dump(),
        policy=given.policy.model_dump(),
        session_id=work.session_id,
        chain_id=work.chain_id,
        run_id=work.run_id,
        org_id=work.org_id,
        project_id=work.project_id,
        trace_id=work.trace_id,
        execution_id=work.execution_id or given.target.execution_id,
        timeout=work.timeout,
    )


def _execution_out(execution: HarnessExecution, checkpoint: dict[str, Any] | None = None) -> ExecutionOut:
    return ExecutionOut(
        id=execution.id,
        org_id=execution.org_id,
        project_id=execution.project_id,
        session_id=execution.session_id,
        chain_id=execution.chain_id,
        binding_id=execution.binding_id,
        status=execution.status,
        mode=execution.mode,
        trigger=execution.trigger,
        policy=execution.policy,
        summary=execution.summary,
        artifacts=execution.artifacts,
        checkpoint=checkpoint,
        error=execution.error,
        resumes=execution.resumes,
        trace_id=execution.trace_id,
        created_at=stamp(execution.created_at),
        started_at=maybe_stamp(execution.started_at),
        completed_at=maybe_stamp(execution.completed_at),
    )
