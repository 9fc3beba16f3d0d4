"""Pages of the control plane: orgs, packages, projects, bindings. They list what the API lists for the same token."""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.models import MOST, listing, parse_page
from plugbay.server.dashboard.authentication import ANY_PERSON, Visit, require_session
from plugbay.server.dashboard.views import BAD, GOOD, OFF, WARN
from plugbay.store.pages import Page

STATUS_TONES = {"active": GOOD, "draft": WARN, "disabled": OFF, "available": GOOD, "quarantined": BAD}
"""Of bindings and packages, by their status."""


@require_session(ANY_PERSON)
async def show_orgs(visit: Visit) -> Response:
    """The orgs and packages that the visitor can see."""
    page = parse_page(MOST, visit.query("cursor") or None)
    found = listing(await visit.gateway.orgs.page(visit.principal, page), _identity)
    packages = await visit.gateway.packages.page(visit.principal, Page(MOST))
    return visit.page(
        "orgs.html", orgs=found.items, older=found.next_cursor or "", packages=packages, tones=STATUS_TONES
    )


@require_session(ANY_PERSON)
async def show_org(visit: Visit) -> Response:
    """One org: its projects and bindings."""
    org_id = visit.request.path_params["org_id"]
    org = await visit.gateway.orgs.get(visit.principal, org_id)
    projects = await visit.gateway.orgs.projects(visit.principal, org_id, Page(MOST))
    bindings = await visit.gateway.bindings.page(visit.principal, Page(MOST), org_id=org_id)
    return visit.page("org.html", org=org, projects=projects, bindings=bindings, tones=STATUS_TONES)


def _identity(item: object) -> object:
    return item
