"""Pages of compactions: list, both chains and the outcome of one."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.dashboard.authentication import ANY_PERSON, Visit, require_session
from plugbay.server.dashboard.pages.lists import RecordList, endpoints_of, load_by_org
from plugbay.server.dashboard.tables import NextStep
from plugbay.server.dashboard.views.conversations import COMPACTION_COLUMNS, compaction_row
from plugbay.server.dashboard.views.work import WORK_STATUSES, json_parts, work_values

COMPACTIONS = RecordList(
    "Compactions",
    "shorter chains made from long ones, newest first",
    "/compactions",
    COMPACTION_COLUMNS,
    compaction_row,
    NextStep(
        "No compactions yet",
        "A compaction makes a shorter chain from a long one. Programs start them over the API:",
        "plugbay compaction create chain_1 --target-max-input-tokens 4000 --wait",
        "See the compactors",
        "/bindings?kind=compactor",
    ),
    load_by_org(lambda gateway: gateway.compactions, WORK_STATUSES),
)

show_compactions, follow_compactions = endpoints_of(COMPACTIONS)


@require_session(ANY_PERSON)
async def show_compaction(visit: Visit) -> Response:
    compaction = await visit.gateway.compactions.get(visit.principal, visit.request.path_params["compaction_id"])
    return visit.page(
        "compaction.html",
        compaction=compaction,
        parts=json_parts(
            ("Summary", compaction.summary),
            ("Diagnostics", compaction.diagnostics),
            ("Target", compaction.target),
            ("Policy", compaction.policy),
        ),
        **work_values(compaction, visit.now),
    )
