"""The pages of the control plane, to be read: orgs, their projects, what is bound there, the packages there are.

What a visitor sees is what the API would list for the same token; nothing is changed from here.
"""

from __future__ import annotations

from starlette.responses import Response

from plugbay.server.api.paging import MOST, listing, page_of
from plugbay.server.dashboard.door import AS_PERSON, Visit, visitors
from plugbay.server.dashboard.views import BAD, GOOD, OFF, WARN
from plugbay.store.pages import Page

TONES = {"active": GOOD, "draft": WARN, "disabled": OFF, "available": GOOD, "quarantined": BAD}
"""Of bindings and packages, by their status."""


@visitors(AS_PERSON)
async def show_orgs(visit: Visit) -> Response:
    """The orgs and packages that the visitor can see."""
    page = page_of(MOST, visit.asked("cursor") or None)
    found = listing(await visit.gateway.orgs.page(visit.principal, page), _same)
    packages = await visit.gateway.packages.page(visit.principal, Page(MOST))
    return visit.page("orgs.html", orgs=found.items, older=found.next_cursor or "", packages=packages, tones=TONES)


@visitors(AS_PERSON)
async def show_org(visit: Visit) -> Response:
    """One org: its projects, and what is bound in it."""
    org_id = visit.request.path_params["org_id"]
    org = await visit.gateway.orgs.get(visit.principal, org_id)
    projects = await visit.gateway.orgs.projects(visit.principal, org_id, Page(MOST))
    bindings = await visit.gateway.bindings.page(visit.principal, Page(MOST), org_id=org_id)
    return visit.page("org.html", org=org, projects=projects, bindings=bindings, tones=TONES)


def _same(item: object) -> object:
    return item
