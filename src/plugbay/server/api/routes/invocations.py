"""Routes of invocations: create, watch, cancel, list, read, fetch artifacts.

An artifact is a plugin's file: it is always an attachment, of a type that no browser runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Depends, Header, Query, Request
from msgspec.structs import replace
from pydantic import AwareDatetime, Field, StringConstraints, ValidationError, model_validator
from starlette.responses import FileResponse, Response

from plugbay.host.invocations.context import LONGEST, TOKEN_EXTRA
from plugbay.host.ports import InvocationRecord
from plugbay.host.request import CallRequest, CallResult
from plugbay.model.errors import Code, Failure
from plugbay.server.api.caller import Caller, TheGateway, authenticate, gateway_of, needs
from plugbay.server.api.direct import direct
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.middleware import JsonBody
from plugbay.server.api.models import (
    Answer,
    Body,
    ChosenId,
    FailureOut,
    Listing,
    Paging,
    PathId,
    example,
    listing,
    to_seconds,
)
from plugbay.server.api.routes.bindings import Kind, Scope
from plugbay.server.api.routes.harnesses import harness_request
from plugbay.server.api.sse import STREAM, Event, event_stream
from plugbay.server.domain.bindings import ResolvedBinding
from plugbay.server.domain.clock import moment
from plugbay.server.domain.errors import conflict, denied, failure_json, invalid, not_found, unavailable
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.harnesses import ExecutionWatch
from plugbay.server.domain.ids import format_traceparent, new_trace_id, parse_traceparent
from plugbay.server.domain.invocations import ENDED, InvocationEvent, Subscription, check_queue, refusal_error
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.runs import ConversationIds
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import NO_OUTCOME, Outcome, Wanted
from plugbay.store.pages import Page

router = Router(tags=["invocations"])

MAY_INVOKE = ("operator", "runs:write")
"""A person, or a harness for the tools that it was given."""

FOR_PLUGINS = ("plugin_code", "execution_outcome")
"""Details of a tool's failure that a harness reads. Only the operator reads stderr and causes."""

NOWHERE = ConversationIds()

FILE = {"type": "string", "format": "binary"}

LONGEST_PARENT = 512
"""Characters of a `traceparent`; today's have 55."""

Status = Literal["succeeded", "failed", "cancelled", "retryable_failure"]
Filter = Annotated[str | None, Query(max_length=200)]
Export = Annotated[
    str, StringConstraints(max_length=200, pattern=r"^([a-z0-9._-]+/[a-z0-9._-]+/)?[a-z][a-z0-9_]{0,63}$")
]


class InvocationIn(Body):
    """By one binding, or by the binding that serves an export for a scope."""

    model_config = example(
        binding_id="bind_1", input={"query": "tea"}, session_id="sess_1", timeout_ms=10_000, wait=True
    )

    binding_id: ChosenId | None = None
    export: Export | None = Field(default=None, description="`search`, or `acme/devkit/search`.")
    kind: Kind | None = None
    scope: Scope | None = Field(default=None, description="Org and project, with `export`.")
    input: dict[str, Any] = Field(default_factory=dict)
    session_id: ChosenId | None = None
    chain_id: ChosenId | None = None
    run_id: ChosenId | None = None
    execution_id: ChosenId | None = Field(default=None, description="Id of the work, shared by all attempts.")
    timeout_ms: Annotated[int, Field(ge=1, le=LONGEST)] | None = None
    wait: bool = Field(default=True, description="False: answer once it has started.")

    @model_validator(mode="after")
    def _either(self) -> InvocationIn:
        if (self.binding_id is None) == (self.export is None):
            raise ValueError("name a binding_id, or an export")
        if self.binding_id is not None and self.scope is not None:
            raise ValueError("a binding already has its scope")
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
    permissions: dict[str, Any] = Field(description="Effective permissions of manifest, org, binding and caller.")
    narrowed: bool = Field(description="Whether the manifest requests more.")
    request_bytes: int
    event_count: int
    node: str | None = Field(description="The node of a cluster that carried it out; null: the server's machine.")


class InvocationDetail(InvocationOut):
    result: Any = Field(
        default=None,
        description="Present after the end, up to 1 MiB; for a failure, the data that the plugin returned.",
    )
    result_bytes: int | None = Field(
        default=None, description="Size of the result in bytes, also if it is too large to be stored."
    )
    failure: FailureOut | None = None


class OutcomeOut(Answer):
    invocation: InvocationOut = Field(description="The last attempt.")
    status: Status | None
    result: Any = None
    failure: FailureOut | None = None
    attempts: list[str] = Field(description="The ids of all attempts.")


async def _bind(request: Request) -> tuple[InvocationIn, Principal, Gateway, str | None] | None:
    """The arguments of `invoke`."""
    traceparent, json = request.headers.get("traceparent"), request.receive
    if not isinstance(json, JsonBody) or len(traceparent or "") > LONGEST_PARENT:
        return None
    caller = await authenticate(request)
    refused = caller.lacks((), MAY_INVOKE)
    if refused is not None:
        raise refused
    try:
        body = InvocationIn.model_validate(json.value)
    except ValidationError:
        return None
    return body, caller, gateway_of(request), traceparent


@router.post(
    "/v1/plugin-invocations",
    response_model=OutcomeOut,
    responses={202: {"model": OutcomeOut, "description": "Started in the background."}},
    **needs(any_of=MAY_INVOKE),
)
@long_running
@direct(_bind)
async def invoke(
    body: InvocationIn,
    caller: Caller,
    gateway: TheGateway,
    traceparent: Annotated[str | None, Header(max_length=LONGEST_PARENT, description="W3C trace context.")] = None,
) -> Response:
    """Invoke a bound export; a harness invokes the tools that it was given, and waits for them.

    The answer contains the outcome, also when the plugin failed.
    """
    trace_id = parse_traceparent(traceparent) or new_trace_id()
    try:
        if caller.kind == "delegated":
            return await _invoke_given_tool(body, caller, gateway)
        request, kind = await _request_of(body, caller, gateway, trace_id)
        if kind != "harness" and body.wait:
            request = replace(request, queue_seconds=gateway.settings.queue_seconds)
            result = await gateway.invocations.invoke(request)
            check_queue(result, gateway.meters)
            return _result_response(result)
        if kind != "harness":
            begun = await gateway.invocations.begin(request)
            return _outcome_response(begun, 202, attempts=[begun.invocation_id])
    except StoreUnavailable as error:  # not recorded, so not started: the request was refused
        raise unavailable("store.unavailable", str(error), retry_after=error.retry_after) from None
    return await _harness(body, caller, gateway, request)


def _result_response(result: CallResult, shown: dict[str, Any] | None = None) -> Response:
    """The response for a result; `shown` replaces the failure."""
    invocations, failure = result.invocations, result.record.failure
    if not invocations:
        raise refusal_error(result)
    output = None if result.output is None else msgspec.Raw(result.output)
    shown = shown if shown is not None or failure is None else failure_json(failure)
    ids = [each.invocation_id for each in invocations]
    return _outcome_response(invocations[-1], 200, result=output, failure=shown, attempts=ids)


async def _invoke_given_tool(body: InvocationIn, caller: Principal, gateway: Gateway) -> Response:
    """Invoke a tool for a harness: in its session, within its deadline, and without a token of the tool's own.

    Work that such a token would start could not be charged to the harness.
    """
    given = {tool.binding_id for tool in await gateway.harnesses.tools(caller)}
    if not body.wait:
        raise invalid("request.invalid", "a harness must wait for its tools", "wait")
    claims = caller.claims
    if body.session_id is None and body.chain_id is None and body.run_id is None:
        body = body.model_copy(update={"session_id": claims["session_id"], "chain_id": claims["chain_id"]})
    request, _ = await _request_of(body, caller, gateway, claims["trace_id"])
    if request.binding_id not in given:
        text = f"this harness may not use {body.export or body.binding_id}"
        raise denied("policy.tool_not_given", text, tool=body.export or body.binding_id)
    left = moment(claims["expires_at"]) - TOKEN_EXTRA - gateway.clock.now()
    seconds = left if request.timeout is None else min(left, request.timeout)
    request = replace(request, scopes=frozenset(), timeout=max(0.0, seconds))
    result = await gateway.invocations.invoke(request)
    shown = None if result.failure is None else failure_json(result.failure)
    if shown is not None:
        shown["detail"] = {name: value for name, value in shown["detail"].items() if name in FOR_PLUGINS}
    return _result_response(result, shown)


async def _harness(body: InvocationIn, caller: Principal, gateway: Gateway, request: CallRequest) -> Response:
    """Run a harness as an execution, so it has a session, limits and a record that can be resumed."""
    watch = ExecutionWatch()
    execution = await gateway.harnesses.create(caller, harness_request(request), watch)
    if not body.wait:
        either: set[asyncio.Future[Any]] = {watch.began, watch.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if watch.began.done():
            begun = watch.began.result()
            return _outcome_response(begun, 202, attempts=[begun.invocation_id])
    outcome = await watch.ended
    if outcome.refused is not None:
        raise conflict(outcome.refused.code, outcome.refused.message)
    if outcome.invoked is not None:
        return _result_response(outcome.invoked)
    of_execution = Wanted({"execution_id": execution.id})
    attempts = (await gateway.invocations.page(caller, Page(), of_execution, request.org_id)).items
    if not attempts:
        raise conflict("harness.cancelled", f"{execution.id} was cancelled before it started")
    failure = Failure(Code.CANCELLED, "it was cancelled")
    return _outcome_response(
        attempts[0], 200, failure=failure_json(failure), attempts=[each.invocation_id for each in attempts][::-1]
    )


async def _request_of(
    body: InvocationIn, caller: Principal, gateway: Gateway, trace_id: str
) -> tuple[CallRequest, str]:
    """The request with its binding, and the kind of the export that serves it."""
    bound, org_id, project_id = await _scope(body, caller, gateway)
    request = CallRequest(
        body.export or "",
        body.input,
        body.kind or "",
        None if body.timeout_ms is None else body.timeout_ms / 1000,
        org_id=org_id,
        project_id=project_id,
        session_id=body.session_id,
        chain_id=body.chain_id,
        run_id=body.run_id,
        trace_id=trace_id,
        execution_id=body.execution_id,
        binding_id=body.binding_id,
    )
    if bound is None:
        binding_id = await gateway.invocations.select_binding(request)
        bound = await gateway.bindings.bound(binding_id)
        if bound is None:
            raise not_found("binding", binding_id)
        request = replace(request, binding_id=binding_id)
    kind = bound.export.kind
    named = _conversation_ids(body, kind)
    if named == NOWHERE:
        return request, kind
    place = await gateway.runs.place(caller, org_id, project_id, named)
    return replace(request, **place._asdict()), kind


def _conversation_ids(body: InvocationIn, kind: str) -> ConversationIds:
    """Session, chain and run named by the request; harness and compactor inputs name them too."""
    part = body.input.get("target" if kind == "harness" else "source" if kind == "compactor" else "")
    if not isinstance(part, dict):
        return ConversationIds(body.session_id, body.chain_id, body.run_id)
    session_id, chain_id = part.get("session_id"), part.get("chain_id")
    return ConversationIds(
        body.session_id or (session_id if isinstance(session_id, str) else None),
        body.chain_id or (chain_id if isinstance(chain_id, str) else None),
        body.run_id,
    )


async def _scope(
    body: InvocationIn, caller: Principal, gateway: Gateway
) -> tuple[ResolvedBinding | None, str, str | None]:
    """The named binding, and the org and project of the invocation: from it, the body, or the caller's key."""
    if body.binding_id is not None:
        bound = await gateway.bindings.bound(body.binding_id)
        if bound is None or not caller.sees(bound.row.org_id, bound.row.project_id):
            raise not_found("binding", body.binding_id)
        return bound, bound.row.org_id, bound.row.project_id or caller.project_id
    if body.scope is not None:
        org_id, project_id = body.scope.org_id, body.scope.project_id
        async with gateway.database.reading() as tx:
            await gateway.orgs.scope(tx, caller, org_id, project_id)
        return None, org_id, project_id or caller.project_id
    if caller.org_id is None:
        raise invalid("request.invalid", "name the org", "scope")
    return None, caller.org_id, caller.project_id


def _outcome_response(record: InvocationRecord, status: int, **outcome: Any) -> Response:
    """An `OutcomeOut`, encoded directly: building the model takes longer than the rest."""
    traceparent = format_traceparent(record.trace_id, record.invocation_id)
    headers = {} if traceparent is None else {"traceparent": traceparent}
    answer = {"invocation": record, "status": record.status, "result": None, "failure": None, **outcome}
    return Response(msgspec.json.encode(answer), status, headers, "application/json")


async def _list_filter(
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
    since: Annotated[AwareDatetime | None, Query(description="Started at this time or later.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Started before this time.")] = None,
) -> Wanted:
    """The filters of a list."""
    filters = {
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
    exact = {name: value for name, value in filters.items() if value is not None}
    return Wanted(exact, status, to_seconds(since), to_seconds(until))


@router.get("/v1/plugin-invocations", **needs("viewer"))
async def list_invocations(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    wanted: Annotated[Wanted, Depends(_list_filter)],
    org_id: Filter = None,
) -> Listing[InvocationOut]:
    """Invocations visible to the caller, newest first."""
    return listing(await gateway.invocations.page(caller, page, wanted, org_id), _invocation_out)


@router.get("/v1/plugin-invocations:events", responses=STREAM, response_class=Response, **needs("viewer"))
async def watch_all(request: Request, caller: Caller, gateway: TheGateway) -> Response:
    """Live events of all invocations visible to the caller: `started`, `event`, `ended` with the result, `lost`.

    `lost` reports events that a slow reader or a lost connection between gateways has cost: their number, if known.
    """
    subscription = _subscribe(gateway, lambda event: _is_visible(caller, event.record))
    subscription.org_id = caller.org_id
    return event_stream(request, _events(gateway, subscription, None))


@router.get("/v1/plugin-invocations/{invocation_id}", **needs("viewer"))
async def get_invocation(invocation_id: PathId, caller: Caller, gateway: TheGateway) -> InvocationDetail:
    """One invocation; after its end with its result or failure."""
    record, outcome = await gateway.invocations.outcome(caller, invocation_id)
    return InvocationDetail.model_validate(
        {
            **record.to_json(),
            "result": None if outcome.result is None else msgspec.json.decode(outcome.result),
            "result_bytes": outcome.result_bytes,
            "failure": outcome.failure,
        }
    )


SAFE_TYPES = frozenset(
    "text/plain text/markdown text/csv application/json application/pdf application/zip image/png image/jpeg image/gif "
    "image/webp".split()
)
"""Media types that are passed on; others may be run by a browser, or are no type at all."""

PLAIN_BYTES = "application/octet-stream"


@router.get(
    "/v1/plugin-invocations/{invocation_id}/artifacts/{asset_id}",
    responses={200: {"description": "The file.", "content": {PLAIN_BYTES: {"schema": FILE}}}},
    response_class=Response,
    **needs("viewer"),
)
async def get_artifact(invocation_id: PathId, asset_id: PathId, caller: Caller, gateway: TheGateway) -> Response:
    """The bytes of an artifact in the result of an invocation, as an attachment."""
    path, ref = await gateway.invocations.artifact(caller, invocation_id, asset_id)
    media_type = ref.get("media_type")
    name = PurePosixPath(str(ref.get("path"))).name
    headers = {"x-content-type-options": "nosniff", "content-security-policy": "sandbox; default-src 'none'"}
    return FileResponse(
        path,
        headers=headers,
        media_type=media_type if media_type in SAFE_TYPES else PLAIN_BYTES,
        filename="".join(char if char.isprintable() and char not in '"\\' else "_" for char in name) or asset_id,
    )


@router.get(
    "/v1/plugin-invocations/{invocation_id}/events", responses=STREAM, response_class=Response, **needs("viewer")
)
async def watch_invocation(request: Request, invocation_id: PathId, caller: Caller, gateway: TheGateway) -> Response:
    """One invocation: its record, then its events until `ended`, which has the result and the failure.

    `lost` reports events that a slow reader or a lost connection between gateways has cost: their number, if known.
    """
    subscription = _subscribe(
        gateway, lambda event: event.record is not None and event.record.invocation_id == invocation_id
    )
    try:
        record, outcome = await gateway.invocations.outcome(caller, invocation_id)
    except BaseException:
        subscription.close()
        raise
    subscription.org_id = record.org_id
    return event_stream(request, _events(gateway, subscription, record, outcome))


@router.post("/v1/plugin-invocations/{invocation_id}:cancel", status_code=202, **needs("operator"))
async def cancel_invocation(invocation_id: PathId, caller: Caller, gateway: TheGateway) -> InvocationOut:
    """Cancel an invocation. The plugin has a grace period; an ended one stays unchanged."""
    return _invocation_out(await gateway.invocations.cancel(caller, invocation_id))


def _subscribe(gateway: Gateway, wanted: Callable[[InvocationEvent], bool]) -> Subscription:
    subscription = gateway.invocation_events.subscribe(wanted)
    if subscription is None:
        raise unavailable("quota.too_many_watchers", "too many open subscriptions", retry_after=5.0)
    return subscription


def _is_visible(caller: Principal, record: InvocationRecord | None) -> bool:
    return record is None or caller.sees(record.org_id, record.project_id)


async def _events(
    gateway: Gateway, subscription: Subscription, record: InvocationRecord | None, outcome: Outcome = NO_OUTCOME
) -> AsyncGenerator[Event, None]:
    """Events of a subscription; for one invocation its record first, and nothing after its end."""
    async with gateway.live.watching(subscription):
        if record is not None and record.status is not None:
            yield _ended(record, outcome)
            return
        if record is not None:
            yield Event({"invocation": record.to_json(), "data": None}, "invocation")
        async for event in subscription:
            yield _shown(event)
            if record is not None and event.type == ENDED:
                return


def _shown(event: InvocationEvent) -> Event:
    if event.type == ENDED and event.record is not None:
        return _ended(event.record, event.outcome)
    about = None if event.record is None else event.record.to_json()
    return Event({"invocation": about, "data": event.data}, event.type)


def _ended(record: InvocationRecord, outcome: Outcome) -> Event:
    result = None if outcome.result is None else msgspec.Raw(outcome.result)
    data = {"invocation": record.to_json(), "data": None, "result": result, "failure": outcome.failure}
    return Event(data, ENDED)


def _invocation_out(record: InvocationRecord) -> InvocationOut:
    return InvocationOut.model_validate(record.to_json())
