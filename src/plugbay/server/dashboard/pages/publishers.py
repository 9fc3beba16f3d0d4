"""Pages of trusted publishers: keys by fingerprint, trusted and revoked after a confirmation that shows it.

For the operator of all orgs.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from plugbay.packages.trust import TrustedKey
from plugbay.server.api.models import MOST, parse_page
from plugbay.server.api.routes.trust import TrustedKeyIn, parse_public_key
from plugbay.server.dashboard.actions import Question, confirm, failed, is_confirmed, parse_body
from plugbay.server.dashboard.authentication import Notice, Visit, require_session, require_token_again
from plugbay.server.dashboard.tables import SHOWN, Cell, Filter, NextStep, table_of
from plugbay.server.dashboard.views.tones import GOOD, OFF
from plugbay.server.domain.errors import GatewayError, not_found, unprocessable
from plugbay.server.domain.principal import HOST
from plugbay.server.domain.trust import Consequences
from plugbay.store.pages import Page, Part

COLUMNS = ("Publisher", "Fingerprint", "Status", "Also signs", "Until", "Revoke")

OTHERS = (
    ("refuse", "refuse this one"),
    ("keep", "keep both"),
    ("replace", "replace it: its packages are quarantined, their bindings disabled"),
)
"""What to do if the publisher has another key."""

FIELDS = ("publisher", "public_key", "other_keys")


@require_session(HOST)
async def show_publishers(visit: Visit) -> Response:
    return await _publishers_page(visit)


@require_session(HOST)
async def trust_publisher(visit: Visit) -> Response:
    """Trust a key, after a confirmation that shows its fingerprint and the keys that it replaces.

    Packages that it signs are code that runs here, so the answer needs the operator token.
    """
    try:
        body = parse_body(TrustedKeyIn, {name: visit.field(name).strip() for name in FIELDS})
        public = parse_public_key(body.public_key)
        question = await _question(visit, _key(public, body.publisher), body.other_keys)
        if not is_confirmed(visit):
            return confirm(visit, question)
        try:
            await require_token_again(visit)
        except GatewayError as error:
            return confirm(visit, question, error)
        key, done = await visit.gateway.trusted_publishers.add(
            visit.principal, public, body.publisher, body.packages, body.not_after, body.other_keys
        )
    except GatewayError as error:
        return await _publishers_page(visit, error)
    return visit.redirect("/publishers", Notice(GOOD, f"{key.publisher} is trusted.", _consequences(done)))


@require_session(HOST)
async def revoke_publisher(visit: Visit) -> Response:
    """Revoke a key for ever, after a confirmation."""
    key_id = visit.request.path_params["key_id"]
    key = next((each for each in await _keys(visit) if each.key_id == key_id), None)
    if key is None:
        raise not_found("trusted_key", key_id)
    if not is_confirmed(visit):
        text = "Its packages are quarantined and their active bindings disabled. A revoked key is never trusted again."
        facts = (("publisher", key.publisher), ("fingerprint", key_id))
        title = f"Revoke the key of {key.publisher}?"
        return confirm(visit, Question(title, text, "Revoke", "/publishers", facts, "installing.html"))
    _, done = await visit.gateway.trusted_publishers.remove(visit.principal, key_id)
    return visit.redirect("/publishers", Notice(GOOD, f"The key {key_id} is revoked.", _consequences(done)))


def _key(public: bytes, publisher: str) -> TrustedKey:
    try:
        return TrustedKey(public, publisher)
    except ValueError as error:
        raise unprocessable("trust.invalid_publisher", str(error), "publisher") from None


async def _keys(visit: Visit) -> list[TrustedKey]:
    keys: list[TrustedKey] = []
    page: Page | None = Page(MOST)
    while page is not None:
        part = await visit.gateway.trusted_publishers.page(visit.principal, page)
        keys += part.items
        page = None if part.after is None else Page(MOST, part.after)
    return keys


async def _question(visit: Visit, key: TrustedKey, others: str) -> Question:
    known = [each.key_id for each in await _keys(visit) if each.publisher == key.publisher and not each.revoked]
    facts, label = [("publisher", key.publisher), ("fingerprint", key.key_id)], "Trust this key"
    replaced = [id for id in known if id != key.key_id]
    if replaced:
        does = {"replace": "replaces", "keep": "beside"}.get(others, "refused because of")
        facts.append((does, ", ".join(replaced)))
        label = "Replace the key" if others == "replace" else label
    text = (
        "Compare the fingerprint with the one that the publisher has published elsewhere. "
        "The owner of the private key can sign packages, which orgs can then bind."
    )
    return Question(f"Trust {key.publisher}?", text, label, "/publishers", tuple(facts), "installing.html", token=True)


def _consequences(done: Consequences) -> str:
    if not done.packages:
        return ""
    return f"Quarantined packages: {len(done.packages)}; disabled bindings: {len(done.bindings)}."


async def _publishers_page(visit: Visit, problem: GatewayError | None = None) -> Response:
    search, cursor = visit.query("search"), visit.query("cursor")
    if search:
        words = search.lower()
        found: Part[Any] = Part(
            tuple(key for key in await _keys(visit) if words in f"{key.publisher} {key.key_id}".lower())
        )
    else:
        found = await visit.gateway.trusted_publishers.page(visit.principal, parse_page(SHOWN, cursor or None))
    empty = NextStep(
        "No trusted publishers",
        "Packages are quarantined until a key of their publisher is trusted. Trust one above, or with a command:",
        "plugbay publisher trust --public-key @acme.pub --publisher acme",
    )
    filters = (Filter("search", "Search", search, hint="part of a publisher or fingerprint"),)
    return visit.page(
        "publishers.html",
        200 if problem is None else problem.status,
        None if problem is None else failed(problem),
        table=table_of(
            "Publishers", "/publishers", COLUMNS, found, key_row, filters=filters, empty=empty, cursor=cursor
        ),
        typed={name: visit.field(name) for name in FIELDS},
        others=OTHERS,
        problem=problem,
    )


def key_row(key: TrustedKey) -> tuple[Cell, ...]:
    revoked = Cell("revoked", tone=OFF) if key.revoked else Cell("trusted", tone=GOOD)
    until = "" if key.not_after is None else key.not_after.isoformat()
    button = Cell() if key.revoked else Cell("Revoke…", act=f"/publishers/{key.key_id}:revoke")
    return (
        Cell(key.publisher),
        Cell(key.key_id, mono=True),
        revoked,
        Cell(", ".join(key.packages)),
        Cell(until),
        button,
    )
