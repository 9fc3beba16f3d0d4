"""The page of the audit log: who changed what, and whether its hash chains are whole."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.models import parse_page
from plugbay.server.dashboard.authentication import Visit, require_session
from plugbay.server.dashboard.tables import SHOWN, Filter, NextStep, table_of
from plugbay.server.dashboard.views.work import AUDIT_COLUMNS, audit_row
from plugbay.store.audit import Report


@require_session("admin")
async def show_audit(visit: Visit) -> Response:
    """The audit log, newest first; with `verify`, the state of its hash chains."""
    names = ("search", "org", "action", "subject")
    asked, cursor = {name: visit.query(name) for name in names}, visit.query("cursor")
    part = await visit.gateway.audit.page(
        visit.principal,
        parse_page(SHOWN, cursor or None),
        subject_id=asked["subject"] or None,
        action=asked["action"] or None,
        org_id=asked["org"] or None,
        search=asked["search"],
    )
    filters = [Filter("search", "Search", asked["search"], hint="part of an action, subject or actor")]
    if visit.principal.org_id is None:
        filters.append(Filter("org", "Org", asked["org"], hint="id", scope=True))
    filters += [
        Filter("action", "Action", asked["action"], hint="binding.create"),
        Filter("subject", "Subject", asked["subject"], hint="id"),
    ]
    empty = NextStep("No entries yet", "The log has every change of the control plane.", "plugbay audit list")
    table = table_of("Audit log", "/audit", AUDIT_COLUMNS, part, audit_row, filters=filters, empty=empty, cursor=cursor)
    reports: list[Report] | None = None
    if visit.query("verify"):
        reports = await visit.gateway.audit.verify(visit.principal)
    return visit.page("audit.html", table=table, reports=reports, may_verify=visit.principal.project_id is None)
