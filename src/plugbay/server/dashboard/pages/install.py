"""Pages of the marketplace: cards, and installing one after its signature and permissions were shown.

The form names the digest that the page has shown: a package that changed since then is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from plugbay.server.api.models import MOST, parse_page
from plugbay.server.api.routes.marketplace import InstallIn
from plugbay.server.dashboard.actions import failed, offer_orgs, parse_body
from plugbay.server.dashboard.authentication import ANY_PERSON, Notice, Visit, require_session
from plugbay.server.dashboard.pages.binding_forms import SLOT
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, table_of
from plugbay.server.dashboard.views.tones import BAD, CALM, GOOD, OFF, WARN
from plugbay.server.domain.errors import GatewayError, conflict, invalid
from plugbay.server.domain.secrets import parse_reference
from plugbay.store.pages import Page, Part

SIGNATURES = {"verified": GOOD, "untrusted": WARN, "missing": OFF, "invalid": BAD}
COLUMNS = ("Card", "Kind", "Publisher", "Signature", "Can be installed")

CardOut = Mapping[str, Any]
"""A card as the API shows it."""


@require_session(ANY_PERSON)
async def show_cards(visit: Visit) -> Response:
    """The cards of the marketplace; a search looks at all of them."""
    search, cursor = visit.query("search"), visit.query("cursor")
    if search:
        found: Part[Any] = Part(tuple(card for card in await _all_cards(visit) if _matches(card, search)))
    else:
        found = await visit.gateway.marketplace.page(parse_page(SHOWN, cursor or None))
    empty = NextStep("No cards", "The marketplace of this server is empty.", "plugbay marketplace list")
    filters = (Filter("search", "Search", search, hint="part of a name or package"),)
    table = table_of("Cards", "/install", COLUMNS, found, card_row, filters=filters, empty=empty, cursor=cursor)
    return visit.page("install.html", table=table)


async def _all_cards(visit: Visit) -> list[CardOut]:
    cards: list[CardOut] = []
    page: Page | None = Page(MOST)
    while page is not None:
        part = await visit.gateway.marketplace.page(page)
        cards += part.items
        page = None if part.after is None else Page(MOST, part.after)
    return cards


def _matches(card: CardOut, search: str) -> bool:
    text = " ".join(str(card[name]) for name in ("id", "name", "description", "package_id"))
    return search.lower() in text.lower()


def card_row(card: CardOut) -> tuple[Cell, ...]:
    signature, policy = card["signature"]["status"], card["install_policy"]
    why = "yes" if policy["installable"] else policy["reasons"][0]["message"]
    return (
        Cell(card["name"], card["id"], f"/install/{card['id']}"),
        Cell(card["kind"]),
        Cell(card["publisher"]["name"]),
        Cell(signature, tone=SIGNATURES.get(signature, CALM)),
        Cell(why),
    )


@require_session(ANY_PERSON)
async def show_card(visit: Visit) -> Response:
    return await _card_page(visit)


@require_session("operator")
async def install_card(visit: Visit) -> Response:
    """Install the card that was shown, for an org that consents to what it asks for."""
    card = await visit.gateway.marketplace.card(visit.request.path_params["card_id"])
    try:
        if visit.field("consent") != "yes":
            raise invalid("request.invalid", "confirm the permissions of the package", "consent")
        if visit.field("digest") != (card["oci"]["digest"] or ""):
            text = "the package changed since the page showed it; check it again"
            raise conflict("marketplace.not_installable", text)
        slots = {slot: visit.field(SLOT + slot).strip() for slot in _slots(card)}
        scope = {"org_id": visit.field("org"), "project_id": visit.field("project").strip() or None}
        body = parse_body(InstallIn, {"scope": scope, "secrets": {slot: text for slot, text in slots.items() if text}})
        _, binding = await visit.gateway.marketplace.install(
            visit.principal, card["id"], body.scope.org_id, body.scope.project_id, body.config, dict(body.secrets)
        )
    except GatewayError as error:
        return await _card_page(visit, error)
    text = f"{card['name']} is installed and bound for {binding.org_id}."
    return visit.redirect(f"/bindings/{binding.id}", Notice(GOOD, text))


def _slots(card: CardOut) -> tuple[str, ...]:
    return tuple((card["contract"].get("permissions") or {}).get("secret_slots") or ())


async def _card_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    card = await visit.gateway.marketplace.card(visit.request.path_params["card_id"])
    asked: Mapping[str, Any] = card["contract"].get("permissions") or {}
    typed = [(slot, visit.field(SLOT + slot)) for slot in _slots(card)]
    return visit.page(
        "card.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        card=card,
        tone=SIGNATURES.get(card["signature"]["status"], CALM),
        asks=(
            ("network", str(asked.get("network", "none"))),
            ("files", str(asked.get("filesystem", "none"))),
            ("API scopes", ", ".join(asked.get("gateway_api_scopes") or ()) or "none"),
            ("secrets", ", ".join(_slots(card)) or "none"),
            ("isolation", str(card["contract"].get("execution_class", "isolated"))),
        ),
        slots=[(slot, text if parse_reference(text) else "") for slot, text in typed],
        offer=await offer_orgs(visit, visit.field("org") or visit.principal.org_id or ""),
        project=visit.field("project") or visit.principal.project_id or "",
        problem=problem,
    )
