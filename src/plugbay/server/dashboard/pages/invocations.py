"""Pages of invocations: list, timeline and outcome of one, cancel."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from plugbay.host.ports import InvocationRecord
from plugbay.server.api.models import MOST
from plugbay.server.dashboard.actions import Question, confirm, is_confirmed
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.bindings import KINDS
from plugbay.server.dashboard.pages.lists import Loaded, RecordList, endpoints_of, org_filter
from plugbay.server.dashboard.tables import Filter, NextStep
from plugbay.server.dashboard.text import as_json
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.dashboard.views.work import (
    INVOCATION_COLUMNS,
    RUNNING,
    Timeline,
    invocation_row,
    invocation_span,
    stored_failure_view,
    timeline_of,
    tone_of,
    took,
    words,
)
from plugbay.server.domain.errors import GatewayError
from plugbay.store.invocations import Wanted
from plugbay.store.pages import Page

STATUSES = (RUNNING, "succeeded", "failed", "cancelled", "retryable_failure")
PERIODS = {"last hour": 3_600.0, "last day": 86_400.0, "last week": 7 * 86_400.0}

MAX_RESULT = 64 << 10
"""Characters of a result on a page."""


async def _load(visit: Visit, page: Page) -> Loaded:
    names = ("search", "org", "status", "kind", "binding", "since")
    asked = {name: visit.query(name) for name in names}
    exact = {"export_kind": asked["kind"], "binding_id": asked["binding"]}
    period = PERIODS.get(asked["since"])
    wanted = Wanted(
        {name: value for name, value in exact.items() if value},
        asked["status"] or None,
        None if period is None else visit.now - period,
        search=asked["search"],
    )
    filters = [
        Filter("search", "Search", asked["search"], hint="part of an export, package, id or error"),
        *org_filter(visit),
        Filter("status", "Status", asked["status"], STATUSES),
        Filter("kind", "Kind", asked["kind"], KINDS),
        Filter("binding", "Binding", asked["binding"], hint="id", scope=True),
        Filter("since", "Since", asked["since"], tuple(PERIODS)),
    ]
    return await visit.gateway.invocations.page(visit.principal, page, wanted, asked["org"] or None), filters


INVOCATIONS = RecordList(
    "Invocations",
    "calls of bound exports, newest first",
    "/invocations",
    INVOCATION_COLUMNS,
    invocation_row,
    NextStep(
        "No invocations yet",
        "An invocation is one call of a bound export. Programs start them over the API:",
        "plugbay invocation create --binding bind_1 --input city=Lima",
        "See the bindings",
        "/bindings",
    ),
    _load,
)

show_invocations, follow_invocations = endpoints_of(INVOCATIONS)


@require_session(ANY_PERSON)
async def show_invocation(visit: Visit) -> Response:
    """One invocation: when it was queued, started, tried again and finished, and its outcome."""
    record, outcome = await visit.gateway.invocations.outcome(
        visit.principal, visit.request.path_params["invocation_id"]
    )
    result = None if outcome.result is None else msgspec.json.decode(outcome.result)
    return visit.page(
        "invocation.html",
        record=record,
        state=words(record.status),
        tone=tone_of(record.status),
        took=took(record),
        timeline=await _timeline(visit, record),
        has_result=outcome.result is not None,
        result=as_json(result, most=MAX_RESULT),
        result_bytes=outcome.result_bytes,
        failure=stored_failure_view(outcome.failure),
        cause=_cause(record),
    )


@require_session("operator")
async def cancel_invocation(visit: Visit) -> Response:
    """Cancel an invocation, after a confirmation."""
    id = visit.request.path_params["invocation_id"]
    record = await visit.gateway.invocations.get(visit.principal, id)
    if not is_confirmed(visit):
        text = "The plugin gets a grace period to stop. Its effects so far are not undone."
        facts = (("invocation", id), ("package", f"{record.package_id} {record.package_version}"))
        return confirm(visit, Question(f"Cancel {record.export_id}?", text, "Cancel it", f"/invocations/{id}", facts))
    await visit.gateway.invocations.cancel(visit.principal, id)
    done = "The invocation had ended already." if record.status else "The invocation is being cancelled."
    return visit.redirect(f"/invocations/{id}", Notice(GOOD, done))


async def _timeline(visit: Visit, record: InvocationRecord) -> Timeline:
    """All attempts of the same execution, and when it was queued."""
    same = Wanted({"execution_id": record.execution_id})
    part = await visit.gateway.invocations.page(visit.principal, Page(MOST), same, record.org_id)
    return timeline_of(await _queued(visit, record), [invocation_span(each) for each in part.items], visit.now)


async def _queued(visit: Visit, record: InvocationRecord) -> float | None:
    """When the delivery, compaction or execution was created that this is an attempt of; None for other work."""
    gateway, id = visit.gateway, record.execution_id
    try:
        if record.export_kind == "hook":
            return (await gateway.deliveries.get(visit.principal, id))[0].created_at
        if record.export_kind == "harness":
            return (await gateway.harnesses.get(visit.principal, id))[0].created_at
        if record.export_kind == "compactor":
            return (await gateway.compactions.get(visit.principal, id)).created_at
    except GatewayError as error:
        if error.status != 404:
            raise
    return None


def _cause(record: InvocationRecord) -> tuple[tuple[str, str, str], ...]:
    """What it belongs to: label, id and page."""
    found = (
        ("binding", record.binding_id, "/bindings/{}"),
        ("delivery", record.execution_id if record.export_kind == "hook" else None, "/deliveries/{}"),
        ("execution", record.execution_id if record.export_kind == "harness" else None, "/harnesses/{}"),
        ("compaction", record.execution_id if record.export_kind == "compactor" else None, "/compactions/{}"),
        ("session", record.session_id, "/sessions/{}"),
        ("chain", record.chain_id, "/chains/{}"),
        ("run", record.run_id, "/runs/{}"),
    )
    return tuple((label, id, page.format(id)) for label, id, page in found if id)
