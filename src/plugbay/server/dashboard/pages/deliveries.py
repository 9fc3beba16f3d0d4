"""Pages of deliveries of events to hooks: list, attempts of one, replay, test."""

from __future__ import annotations

from typing import get_args

from starlette.responses import Response

from plugbay.server.api.routes.deliveries import DeliveryTestIn, Status
from plugbay.server.dashboard.actions import failed, parse_body
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.lists import Loaded, RecordList, endpoints_of
from plugbay.server.dashboard.tables import Filter, NextStep
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.dashboard.views.work import (
    DELIVERY_COLUMNS,
    attempt_span,
    delivery_row,
    stored_failure_view,
    timeline_of,
    tone_of,
    words,
)
from plugbay.server.domain.deliveries import DeliveryTest
from plugbay.server.domain.errors import GatewayError
from plugbay.store.deliveries import DELIVERED, ENDED
from plugbay.store.pages import Page

STATUSES = get_args(Status)


async def _load(visit: Visit, page: Page) -> Loaded:
    search, status, binding = (visit.query(name) for name in ("search", "status", "binding"))
    filters = (
        Filter("search", "Search", search, hint="part of an id or error"),
        Filter("status", "Status", status, STATUSES),
        Filter("binding", "Binding", binding, hint="id", scope=True),
    )
    part = await visit.gateway.deliveries.page(
        visit.principal, page, search=search, status=status or None, binding_id=binding or None
    )
    return part, filters


DELIVERIES = RecordList(
    "Deliveries",
    "events on their way to hooks, newest first",
    "/deliveries",
    DELIVERY_COLUMNS,
    delivery_row,
    NextStep(
        "No deliveries yet",
        "Events of runs and chains are delivered to bound hooks. Bind a hook, and send it a test:",
        "plugbay binding test bind_1 --wait",
        "See the hooks",
        "/bindings?kind=hook",
    ),
    _load,
)

show_deliveries, follow_deliveries = endpoints_of(DELIVERIES)


@require_session(ANY_PERSON)
async def show_delivery(visit: Visit) -> Response:
    return await _delivery_page(visit)


@require_session("operator")
async def replay_delivery(visit: Visit) -> Response:
    """Deliver again, with a full number of attempts."""
    id = visit.request.path_params["delivery_id"]
    try:
        await visit.gateway.deliveries.replay(visit.principal, id)
    except GatewayError as error:
        if error.status != 409:
            raise
        return await _delivery_page(visit, error)
    return visit.redirect(f"/deliveries/{id}", Notice(GOOD, "It is delivered again."))


@require_session("operator")
async def send_test(visit: Visit) -> Response:
    """Deliver a made-up event to a bound hook, marked as a test."""
    gateway, id = visit.gateway, visit.request.path_params["binding_id"]
    binding = await gateway.bindings.get(visit.principal, id)
    body = parse_body(DeliveryTestIn, {"type": visit.field("type")})
    delivery = await gateway.deliveries.send_test(visit.principal, binding, DeliveryTest(body.type))
    return visit.redirect(f"/deliveries/{delivery.id}", Notice(GOOD, "The test is on its way."))


async def _delivery_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    delivery, event, attempts = await visit.gateway.deliveries.get(
        visit.principal, visit.request.path_params["delivery_id"]
    )
    last = next((each.failure for each in reversed(attempts) if each.failure), None)
    return visit.page(
        "delivery.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        delivery=delivery,
        event=event,
        summary=as_json(event.summary),
        state=words(delivery.status),
        tone=tone_of(delivery.status),
        is_over=delivery.status in ENDED,
        may_replay=delivery.status in ENDED and delivery.status != DELIVERED,
        timeline=timeline_of(delivery.created_at, [attempt_span(each) for each in attempts], visit.now),
        failure=stored_failure_view(last),
    )
