"""Pages of runs: list, timeline and events of one, cancel."""

from __future__ import annotations

from typing import get_args

from starlette.responses import Response

from plugbay.server.api.routes.runs import Status
from plugbay.server.dashboard.actions import Question, confirm, is_confirmed
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.lists import RecordList, endpoints_of, load_by_org
from plugbay.server.dashboard.tables import NextStep
from plugbay.server.dashboard.views.conversations import RUN_COLUMNS, event_rows, run_row, run_spans
from plugbay.server.dashboard.views.tones import GOOD
from plugbay.server.dashboard.views.work import cancellation, work_values

RUNS = RecordList(
    "Runs",
    "answers of models, newest first",
    "/runs",
    RUN_COLUMNS,
    run_row,
    NextStep(
        "No runs yet",
        "A run is the answer of a model on a chain, with the tools it calls. Programs start them over the API:",
        'plugbay runs create --session sess_1 --model local/any --blocks "Which tea is left?" --wait',
    ),
    load_by_org(lambda gateway: gateway.runs, get_args(Status)),
)

show_runs, follow_runs = endpoints_of(RUNS)


@require_session(ANY_PERSON)
async def show_run(visit: Visit) -> Response:
    run, events, tools = await visit.gateway.runs.timeline(visit.principal, visit.request.path_params["run_id"])
    return visit.page(
        "run.html",
        run=run,
        events=event_rows(events),
        **work_values(run, visit.now, run_spans(run, tools)),
    )


@require_session("operator")
async def cancel_run(visit: Visit) -> Response:
    """Cancel a run, after a confirmation."""
    run = await visit.gateway.runs.get(visit.principal, visit.request.path_params["run_id"])
    if not is_confirmed(visit):
        text = "The model and its running tool calls stop. Their effects so far are not undone."
        return confirm(
            visit, Question(f"Cancel {run.id}?", text, "Cancel it", f"/runs/{run.id}", (("model", run.model),))
        )
    await visit.gateway.runs.cancel(visit.principal, run.id)
    return visit.redirect(f"/runs/{run.id}", Notice(GOOD, cancellation(run.status)))
