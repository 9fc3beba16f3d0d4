"""Invocations: begun, watched, called off, listed, read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Header, Query, Request
from pydantic import AwareDatetime, Field, StringConstraints, ValidationError, model_validator
from starlette.responses import Response

from plugbay.host.calls.invocation_result import InvocationResult
from plugbay.host.invocations.context import LONGEST
from plugbay.host.ports import InvocationRecord
from plugbay.model.errors import Code, Failure
from plugbay.server.api.caller import Caller, TheGateway, authenticate, gateway_of, needs
from plugbay.server.api.idempotency import HEADER, Router, apart
from plugbay.server.api.models import Answer, Body, ChosenId, Listing, Paging, PathId, listing
from plugbay.server.api.routes.bindings import Kind, Scope
from plugbay.server.api.routes.harnesses import errand_of
from plugbay.server.api.sse import STREAM, Event, event_stream
from plugbay.server.domain.errors import conflict, invalid, not_found, unavailable
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import Watched
from plugbay.server.domain.ids import format_traceparent, new_trace_id, parse_traceparent
from plugbay.server.domain.invocations import ENDED, InvocationEvent, Subscription, Work, refusal
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import Place
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page

router = Router(tags=["invocations"])

INVOKE = "/v1/plugin-invocations"
MAY_INVOKE = "operator"

LONGEST_PARENT = 512
"""Characters of a `traceparent`; those of today have 55."""

Status = Literal["succeeded", "failed", "cancelled", "retryable_failure"]
Filter = Annotated[str | None, Query(max_length=200)]
Export = Annotated[
    str, StringConstraints(max_length=200, pattern=r"^([a-z0-9._-]+/[a-z0-9._-]+/)?[a-z][a-z0-9_]{0,63}$")
]


class InvocationIn(Body):
    """By one binding, or by whichever serves an export for a scope."""

    binding_id: ChosenId | None = None
    export: Export | None = Field(default=None, description="`search`, or `acme/devkit/search`.")
    kind: Kind | None = None
    scope: Scope | None = Field(default=None, description="With `export`: for whom.")
    input: dict[str, Any] = Field(default_factory=dict)
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    run_id: ChosenId | None = None
    execution_id: ChosenId | None = Field(default=None, description="Of the work, the same over all attempts.")
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    wait: bool = Field(default=True, description="False: answer once it has begun.")

    @model_validator(mode="after")
    def _either(self) -> InvocationIn:
        if (self.binding_id is None) == (self.export is None):
            raise ValueError("name a binding_id, or an export")
        if self.binding_id is not None and self.scope is not None:
            raise ValueError("a binding has its scope already")
        return self


class InvocationOut(Answer):
    invocation_id: str
    trace_id: str
    export_kind: Kind
    export_id: str
    package_id: str
    package_version: str
    binding_id: str | None
    execution_class: str
    org_id: str
    project_id: str | None
    session_id: str | None
    chain_id: str | None
    run_id: str | None
    execution_id: str
    retry_count: int
    started_at: str
    ended_at: str | None
    status: Status | None = Field(description="Null while it runs.")
    status_reason: str | None
    error_code: str | None
    permissions: dict[str, Any] = Field(description="What it may do: manifest, org, binding and caller together.")
    narrowed: bool = Field(description="Whether the manifest asks for more.")
    request_bytes: int
    event_count: int


class FailureOut(Answer):
    code: str
    origin: str
    message: str
    retryable: bool
    retry_after_ms: int | None


class OutcomeOut(Answer):
    invocation: InvocationOut = Field(description="The last attempt.")
    status: Status | None
    result: Any = None
    failure: FailureOut | None = None
    attempts: list[str] = Field(description="The ids of all attempts.")


@router.post(
    INVOKE,
    response_model=OutcomeOut,
    responses={202: {"model": OutcomeOut, "description": "It has begun, and nobody waits for it."}},
    **needs(MAY_INVOKE),
)
@apart
async def invoke(
    body: InvocationIn,
    caller: Caller,
    gateway: TheGateway,
    traceparent: Annotated[str | None, Header(max_length=LONGEST_PARENT, description="W3C trace context.")] = None,
) -> Response:
    """Have a bound export do its work. What the plugin makes of it is in the answer, failures too."""
    trace_id = parse_traceparent(traceparent) or new_trace_id()
    try:
        work, kind = await _work(body, caller, gateway, trace_id)
        if kind != "harness":
            return await _invoked(body, gateway, work)
    except StoreUnavailable as error:  # what cannot be written down is not begun: the request was refused
        raise unavailable("store.unavailable", str(error), retry_after=error.retry_after) from None
    return await _harness(body, caller, gateway, work)


async def _invoked(body: InvocationIn, gateway: Gateway, work: Work) -> Response:
    if not body.wait:
        begun = await gateway.invocations.begin(work)
        return _answer(begun, 202, attempts=[begun.invocation_id])
    return _outcome(await gateway.invocations.invoke(work))


def _outcome(result: InvocationResult) -> Response:
    if result.record is None:
        raise refusal(result)
    ids = [each.invocation_id for each in result.records]
    return _answer(result.record, 200, result=result.value(), failure=_failure(result.failure), attempts=ids)


async def _harness(body: InvocationIn, caller: Principal, gateway: Gateway, work: Work) -> Response:
    """A harness is an execution however it is started: with a session, limits and a record that can be resumed."""
    watched = Watched()
    execution = await gateway.harnesses.create(caller, errand_of(work), watched)
    if not body.wait:
        either: set[asyncio.Future[Any]] = {watched.began, watched.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if watched.began.done():
            begun = watched.began.result()
            return _answer(begun, 202, attempts=[begun.invocation_id])
    came = await watched.ended
    if came.refused is not None:
        raise conflict(came.refused.code, came.refused.message)
    if came.invoked is not None:
        return _outcome(came.invoked)
    of_execution = Wanted({"execution_id": execution.id})
    attempts = (await gateway.invocations.page(caller, Page(), of_execution, work.org_id)).items
    if not attempts:
        raise conflict("harness.cancelled", f"{execution.id} was cancelled before it began")
    failure = Failure(Code.CANCELLED, "it was cancelled")
    return _answer(
        attempts[0], 200, failure=_failure(failure), attempts=[each.invocation_id for each in attempts][::-1]
    )


async def straight(request: Request, value: Any) -> Response | None:
    """The same without FastAPI, which is asked where it would find fault, or a key to remember the answer by."""
    traceparent = request.headers.get("traceparent")
    if HEADER in request.headers or len(traceparent or "") > LONGEST_PARENT:
        return None
    caller = await authenticate(request)
    refused = caller.lacks([MAY_INVOKE])
    if refused is not None:
        raise refused
    try:
        body = InvocationIn.model_validate(value)
    except ValidationError:
        return None
    return await invoke(body, caller, gateway_of(request), traceparent)


async def _work(body: InvocationIn, caller: Principal, gateway: Gateway, trace_id: str) -> tuple[Work, str]:
    """What is wanted, and the kind of export that does it."""
    org_id, project_id = await _scope(body, caller, gateway)
    work = Work(
        org_id=org_id,
        project_id=project_id,
        input=body.input,
        binding_id=body.binding_id,
        export=body.export,
        kind=body.kind,
        session_id=body.session_id,
        chain_id=body.chain_id,
        run_id=body.run_id,
        trace_id=trace_id,
        execution_id=body.execution_id,
        timeout=None if body.timeout_ms is None else body.timeout_ms / 1000,
    )
    binding_id = await gateway.invocations.binding_of(work)
    bound = await gateway.bindings.bound(binding_id)
    if bound is None:
        raise not_found("binding", binding_id)
    kind = bound.export.kind
    named = _named(body, kind)
    place = named if named == Place() else await gateway.runs.place(caller, org_id, project_id, named)
    return replace(work, binding_id=binding_id, **place._asdict()), kind


def _named(body: InvocationIn, kind: str) -> Place:
    """Where the work belongs, as the request says; a harness and a compactor are told so in their input as well."""
    part = body.input.get({"harness": "target", "compactor": "source"}.get(kind, ""))
    said = part if isinstance(part, dict) else {}
    inside = [said.get(name) for name in ("session_id", "chain_id")]
    session_id, chain_id = [each if isinstance(each, str) else None for each in inside]
    return Place(body.session_id or session_id, body.chain_id or chain_id, body.run_id)


async def _scope(body: InvocationIn, caller: Principal, gateway: Gateway) -> tuple[str, str | None]:
    """For whom it is done: as the binding says, or the body, or the caller's key."""
    if body.binding_id is not None:
        bound = await gateway.bindings.bound(body.binding_id)
        if bound is None or not caller.sees(bound.row.org_id, bound.row.project_id):
            raise not_found("binding", body.binding_id)
        return bound.row.org_id, bound.row.project_id or caller.project_id
    if body.scope is not None:
        org_id, project_id = body.scope.org_id, body.scope.project_id
        async with gateway.database.reading() as tx:
            await gateway.orgs.scope(tx, caller, org_id, project_id)
        return org_id, project_id or caller.project_id
    if caller.org_id is None:
        raise invalid("request.invalid", "say for which org", "scope")
    return caller.org_id, caller.project_id


def _answer(record: InvocationRecord, status: int, **outcome: Any) -> Response:
    """An `OutcomeOut`, written as what it is: to make one and take it apart again takes longer than the rest."""
    said = format_traceparent(record.trace_id, record.invocation_id)
    headers = {} if said is None else {"traceparent": said}
    told = {"invocation": record, "status": record.status, "result": None, "failure": None, **outcome}
    return Response(msgspec.json.encode(told), status, headers, "application/json")


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "code": str(failure.detail.get("plugin_code") or failure.code),
        "origin": failure.origin,
        "message": failure.message,
        "retryable": failure.retryable,
        "retry_after_ms": failure.retry_after_ms,
    }


async def _wanted(
    status: Literal["running", "succeeded", "failed", "cancelled", "retryable_failure"] | None = None,
    export_id: Filter = None,
    export_kind: Kind | None = None,
    binding_id: Filter = None,
    package_id: Filter = None,
    package_version: Filter = None,
    project_id: Filter = None,
    session_id: Filter = None,
    chain_id: Filter = None,
    run_id: Filter = None,
    trace_id: Filter = None,
    execution_id: Filter = None,
    since: Annotated[AwareDatetime | None, Query(description="Begun at this moment or later.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Begun before this moment.")] = None,
) -> Wanted:
    """What a list is narrowed by."""
    said = {
        "export_id": export_id,
        "export_kind": export_kind,
        "binding_id": binding_id,
        "package_id": package_id,
        "package_version": package_version,
        "project_id": project_id,
        "session_id": session_id,
        "chain_id": chain_id,
        "run_id": run_id,
        "trace_id": trace_id,
        "execution_id": execution_id,
    }
    times = [None if moment is None else moment.timestamp() for moment in (since, until)]
    return Wanted({name: value for name, value in said.items() if value is not None}, status, *times)


@router.get("/v1/plugin-invocations", **needs("viewer"))
async def list_invocations(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    wanted: Annotated[Wanted, Depends(_wanted)],
    org_id: Filter = None,
) -> Listing[InvocationOut]:
    """Invocations that the caller can see, the newest first."""
    return listing(await gateway.invocations.page(caller, page, wanted, org_id), _shown)


@router.get("/v1/plugin-invocations:events", responses=STREAM, response_class=Response, **needs("viewer"))
async def watch_all(request: Request, caller: Caller, gateway: TheGateway) -> Response:
    """What happens from now on in all invocations that the caller can see: `started`, `event`, `ended`, `lost`."""
    watch = _watched(gateway, lambda event: _sees(caller, event.record))
    return event_stream(request, _events(watch, None))


@router.get("/v1/plugin-invocations/{invocation_id}", **needs("viewer"))
async def get_invocation(invocation_id: PathId, caller: Caller, gateway: TheGateway) -> InvocationOut:
    return _shown(await gateway.invocations.get(caller, invocation_id))


@router.get(
    "/v1/plugin-invocations/{invocation_id}/events", responses=STREAM, response_class=Response, **needs("viewer")
)
async def watch_invocation(request: Request, invocation_id: PathId, caller: Caller, gateway: TheGateway) -> Response:
    """One invocation: as it is now, then what it says, until it has `ended`."""
    watch = _watched(gateway, lambda event: event.record is not None and event.record.invocation_id == invocation_id)
    try:
        record = await gateway.invocations.get(caller, invocation_id)
    except BaseException:
        watch.close()
        raise
    return event_stream(request, _events(watch, record))


@router.post("/v1/plugin-invocations/{invocation_id}:cancel", status_code=202, **needs("operator"))
async def cancel_invocation(invocation_id: PathId, caller: Caller, gateway: TheGateway) -> InvocationOut:
    """Call it off. The plugin has its grace; one that has ended stays as it is."""
    return _shown(await gateway.invocations.cancel(caller, invocation_id))


def _watched(gateway: Gateway, wanted: Callable[[InvocationEvent], bool]) -> Subscription:
    watch = gateway.live.watch(wanted)
    if watch is None:
        raise unavailable("quota.too_many_watchers", "too many watch already", retry_after=5.0)
    return watch


def _sees(caller: Principal, record: InvocationRecord | None) -> bool:
    return record is None or caller.sees(record.org_id, record.project_id)


async def _events(watch: Subscription, record: InvocationRecord | None) -> AsyncGenerator[Event, None]:
    """What a watch tells; of one invocation its record first, and nothing after its end."""
    try:
        if record is not None:
            ended = record.status is not None
            yield Event({"invocation": record.to_json(), "data": None}, ENDED if ended else "invocation")
            if ended:
                return
        async for event in watch:
            about = None if event.record is None else event.record.to_json()
            yield Event({"invocation": about, "data": event.data}, event.type)
            if record is not None and event.type == ENDED:
                return
    finally:
        watch.close()


def _shown(record: InvocationRecord) -> InvocationOut:
    return InvocationOut.model_validate(record.to_json())
