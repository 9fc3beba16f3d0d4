"""Routes of events and hook deliveries: list, read, replay, test. Closed to plugins."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import Query
from msgspec.structs import asdict
from pydantic import Field, StringConstraints

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import (
    Answer,
    Body,
    FailureOut,
    IdFilter,
    Listing,
    Paging,
    PathId,
    Time,
    TraceId,
    example,
    listing,
    one_of,
)
from plugbay.server.domain.deliveries import DeliveryTest
from plugbay.store.deliveries import Delivery
from plugbay.store.events import Event

router = Router(tags=["hooks"])

Status = Literal["pending", "delivering", "delivered", "failed", "dead_letter", "dropped"]


class Subject(Answer):
    kind: str
    id: str


class EventOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    type: str
    occurred_at: Time
    subject: Subject
    summary: dict[str, Any]
    session_id: str | None
    chain_id: str | None
    run_id: str | None
    trace_id: str
    cause_depth: int


class AttemptOut(Answer):
    attempt: int
    outcome: str | None
    error_code: str | None
    invocation_id: str | None
    failure: FailureOut | None = Field(description="With the message of the hook, also of an exception.")
    started_at: Time
    ended_at: Time | None


class DeliveryTestIn(Body):
    model_config = example(type="run.completed", summary={"note": "does it arrive?"})

    type: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = Field(
        default=None, description="An event that the hook subscribes to; the first one unless given."
    )
    summary: dict[str, Any] = Field(default_factory=dict, description="Added to the summary of the event.")


FIRST_EVENT = DeliveryTestIn()


class DeliveryOut(Answer):
    id: str
    event_id: str
    binding_id: str
    org_id: str
    project_id: str | None
    test: bool = Field(description="Whether an operator sent it as a test.")
    status: Annotated[str, one_of(*get_args(Status))]
    reason: str | None
    attempts: int
    interruptions: int = Field(description="Attempts that ended with their server; they do not count as failures.")
    next_attempt_at: Time | None
    error_code: str | None
    invocation_id: str | None
    created_at: Time
    completed_at: Time | None


class DeliveryDetail(DeliveryOut):
    event: EventOut
    history: list[AttemptOut]


@router.get("/v1/events", **needs("viewer"))
async def list_events(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    type: IdFilter = None,
    session_id: IdFilter = None,
    chain_id: IdFilter = None,
    run_id: IdFilter = None,
) -> Listing[EventOut]:
    """Events that hooks can subscribe to."""
    filters = {"type": type, "session_id": session_id, "chain_id": chain_id, "run_id": run_id}
    return listing(await gateway.events.page(caller, page, **filters), _event_out)


@router.get("/v1/hook-deliveries", **needs("viewer"))
async def list_deliveries(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    status: Annotated[Status | None, Query()] = None,
    binding_id: IdFilter = None,
    event_id: IdFilter = None,
    test: bool | None = None,
) -> Listing[DeliveryOut]:
    """Deliveries visible to the caller, newest first."""
    part = await gateway.deliveries.page(
        caller, page, status=status, binding_id=binding_id, event_id=event_id, test=test
    )
    return listing(part, _delivery_out)


@router.get("/v1/hook-deliveries/{delivery_id}", **needs("viewer"))
async def get_delivery(delivery_id: PathId, caller: Caller, gateway: TheGateway) -> DeliveryDetail:
    """A delivery with its event and all attempts."""
    delivery, event, attempts = await gateway.deliveries.get(caller, delivery_id)
    return DeliveryDetail(
        **_delivery_out(delivery).model_dump(),
        event=_event_out(event),
        history=[AttemptOut.model_validate(each) for each in attempts],
    )


@router.post("/v1/hook-deliveries/{delivery_id}:replay", status_code=202, **needs("operator"))
async def replay_delivery(delivery_id: PathId, caller: Caller, gateway: TheGateway) -> DeliveryOut:
    """Deliver again under the same id; not allowed for a delivered one."""
    return _delivery_out(await gateway.deliveries.replay(caller, delivery_id))


@router.post("/v1/plugin-bindings/{binding_id}:test-delivery", status_code=202, **needs("operator"))
async def send_test_delivery(
    binding_id: PathId, caller: Caller, gateway: TheGateway, trace_id: TraceId, body: DeliveryTestIn = FIRST_EVENT
) -> DeliveryOut:
    """Deliver a made-up event to a bound hook, as durably as any other. It is marked as a test."""
    binding = await gateway.bindings.get(caller, binding_id)
    test = DeliveryTest(body.type, body.summary, trace_id)
    return _delivery_out(await gateway.deliveries.send_test(caller, binding, test))


def _event_out(event: Event) -> EventOut:
    subject = Subject(kind=event.subject_kind, id=event.subject_id)
    return EventOut.model_validate({**asdict(event), "subject": subject})


def _delivery_out(delivery: Delivery) -> DeliveryOut:
    due = delivery.due_at if delivery.status == "pending" else None
    return DeliveryOut.model_validate({**asdict(delivery), "next_attempt_at": due})
