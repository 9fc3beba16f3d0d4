"""Routes of events and hook deliveries: list, read, replay. Closed to plugins."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import Query
from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, Listing, Paging, PathId, listing
from plugbay.server.domain.clock import maybe_stamp, stamp
from plugbay.store.deliveries import Attempt, Delivery
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
    occurred_at: str
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
    started_at: str
    ended_at: str | None


class DeliveryOut(Answer):
    id: str
    event_id: str
    binding_id: str
    org_id: str
    project_id: str | None
    status: Annotated[str, Field(json_schema_extra={"enum": list(get_args(Status))})]
    reason: str | None
    attempts: int
    interruptions: int = Field(description="Attempts that ended with their server; they do not count as failures.")
    next_attempt_at: str | None
    error_code: str | None
    invocation_id: str | None
    created_at: str
    completed_at: str | None


class DeliveryDetail(DeliveryOut):
    event: EventOut
    history: list[AttemptOut]


@router.get("/v1/events", **needs("viewer"))
async def list_events(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    type: Annotated[str | None, Query(max_length=64)] = None,
    session_id: Annotated[str | None, Query(max_length=64)] = None,
    chain_id: Annotated[str | None, Query(max_length=64)] = None,
    run_id: Annotated[str | None, Query(max_length=64)] = None,
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
    binding_id: Annotated[str | None, Query(max_length=64)] = None,
    event_id: Annotated[str | None, Query(max_length=64)] = None,
) -> Listing[DeliveryOut]:
    filters = {"status": status, "binding_id": binding_id, "event_id": event_id}
    return listing(await gateway.deliveries.page(caller, page, **filters), _delivery_out)


@router.get("/v1/hook-deliveries/{delivery_id}", **needs("viewer"))
async def get_delivery(delivery_id: PathId, caller: Caller, gateway: TheGateway) -> DeliveryDetail:
    """A delivery with its event and all attempts."""
    delivery, event, attempts = await gateway.deliveries.get(caller, delivery_id)
    return DeliveryDetail(
        **_delivery_out(delivery).model_dump(),
        event=_event_out(event),
        history=[_attempt_out(each) for each in attempts],
    )


@router.post("/v1/hook-deliveries/{delivery_id}:replay", status_code=202, **needs("operator"))
async def replay_delivery(delivery_id: PathId, caller: Caller, gateway: TheGateway) -> DeliveryOut:
    """Deliver again under the same id; not allowed for a delivered one."""
    return _delivery_out(await gateway.deliveries.replay(caller, delivery_id))


def _event_out(event: Event) -> EventOut:
    return EventOut(
        id=event.id,
        org_id=event.org_id,
        project_id=event.project_id,
        type=event.type,
        occurred_at=stamp(event.occurred_at),
        subject=Subject(kind=event.subject_kind, id=event.subject_id),
        summary=event.summary,
        session_id=event.session_id,
        chain_id=event.chain_id,
        run_id=event.run_id,
        trace_id=event.trace_id,
        cause_depth=event.cause_depth,
    )


def _attempt_out(attempt: Attempt) -> AttemptOut:
    return AttemptOut(
        attempt=attempt.attempt,
        outcome=attempt.outcome,
        error_code=attempt.error_code,
        invocation_id=attempt.invocation_id,
        started_at=stamp(attempt.started_at),
        ended_at=maybe_stamp(attempt.ended_at),
    )


def _delivery_out(delivery: Delivery) -> DeliveryOut:
    return DeliveryOut(
        id=delivery.id,
        event_id=delivery.event_id,
        binding_id=delivery.binding_id,
        org_id=delivery.org_id,
        project_id=delivery.project_id,
        status=delivery.status,
        reason=delivery.reason,
        attempts=delivery.attempts,
        interruptions=delivery.interruptions,
        next_attempt_at=stamp(delivery.due_at) if delivery.status == "pending" else None,
        error_code=delivery.error_code,
        invocation_id=delivery.invocation_id,
        created_at=stamp(delivery.created_at),
        completed_at=maybe_stamp(delivery.completed_at),
    )
