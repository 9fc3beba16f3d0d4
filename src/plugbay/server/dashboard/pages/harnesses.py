"""Pages of executions of harnesses: list, budgets and outcome of one, cancel, resume."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.lists import RecordList, endpoints_of, load_by_org
from plugbay.server.dashboard.tables import NextStep
from plugbay.server.dashboard.views.conversations import HARNESS_COLUMNS, budgets_of, harness_row
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.dashboard.views.work import WORK_STATUSES, cancellation, json_parts, work_values
from plugbay.server.domain.errors import GatewayError

HARNESSES = RecordList(
    "Harnesses",
    "executions and their budgets, newest first",
    "/harnesses",
    HARNESS_COLUMNS,
    harness_row,
    NextStep(
        "No executions yet",
        "A harness works on a session by itself, within a budget. Programs start them over the API:",
        'plugbay harness create bind_1 --trigger-input "Take stock" --policy-max-child-runs 4 --wait',
        "See the harnesses",
        "/bindings?kind=harness",
    ),
    load_by_org(lambda gateway: gateway.harnesses, WORK_STATUSES),
)

show_harnesses, follow_harnesses = endpoints_of(HARNESSES)


@require_session(ANY_PERSON)
async def show_harness(visit: Visit) -> Response:
    return await _harness_page(visit)


@require_session("operator")
async def cancel_harness(visit: Visit) -> Response:
    """Cancel an execution, after a confirmation."""
    id = visit.request.path_params["execution_id"]
    execution, _ = await visit.gateway.harnesses.get(visit.principal, id)
    if not is_confirmed(visit):
        text = "It may be resumed later, if its harness has stored a checkpoint."
        return confirm(visit, Question(f"Cancel {id}?", text, "Cancel it", f"/harnesses/{id}"))
    await visit.gateway.harnesses.cancel(visit.principal, id)
    return visit.redirect(f"/harnesses/{id}", Notice(GOOD, cancellation(execution.status)))


@require_session("operator")
async def resume_harness(visit: Visit) -> Response:
    id = visit.request.path_params["execution_id"]
    try:
        await visit.gateway.harnesses.resume(visit.principal, id)
    except GatewayError as error:
        if error.status != 409:
            raise
        return await _harness_page(visit, error)
    return visit.redirect(f"/harnesses/{id}", Notice(GOOD, "It is resumed."))


async def _harness_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    harnesses, id = visit.gateway.harnesses, visit.request.path_params["execution_id"]
    execution, checkpoint = await harnesses.get(visit.principal, id)
    return visit.page(
        "harness.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        execution=execution,
        budgets=budgets_of(execution.policy, await harnesses.spent(visit.principal, id)),
        parts=json_parts(("Summary", execution.summary), ("Checkpoint", checkpoint), ("Trigger", execution.trigger)),
        **work_values(execution, visit.now),
    )
