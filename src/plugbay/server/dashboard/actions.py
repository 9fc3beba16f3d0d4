"""What the forms of the control plane share: input checked as the API checks it, and confirmations without a script.

body = parse_body(OrgIn, {"name": visit.field("name")})
if not is_confirmed(visit):
    return confirm(visit, Question(...))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from plugbay.server.api.errors import as_gateway_error
from plugbay.server.api.middleware import parse_json
from plugbay.server.dashboard.authentication import Notice, Visit
from plugbay.server.dashboard.text import sentence
from plugbay.server.dashboard.views.tones import BAD
from plugbay.server.domain.errors import GatewayError
from plugbay.store.pages import Page

B = TypeVar("B", bound=BaseModel)

MAX_CHOICES = 200
"""Orgs or projects that a form offers; more are typed."""


def parse_body(model: type[B], values: Mapping[str, Any]) -> B:
    """The body of the request of the API that does the same; raises `request.invalid`. Empty texts are left out."""
    given = {name: value for name, value in values.items() if value not in ("", None)}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise as_gateway_error(RequestValidationError(error.errors())) from None


def check_document(value: Any) -> Any:
    """A JSON value from a form, if the API would take it; raises `request.invalid_json`."""
    return parse_json(json.dumps(value).encode())


def failed(error: GatewayError) -> Notice:
    """The notice of a refused action. Refusals that a list of problems explains name all of them."""
    found = error.details.get("errors") or error.details.get("problems") or ()
    others = [str(each.get("message") or each.get("problem") or "") for each in found if isinstance(each, Mapping)]
    more = "; ".join(text for text in others[1:] if text)
    return Notice(BAD, sentence(error.message), f"Also: {more}." if more else "")


ANSWERED = {"form_key", "confirm", "token"}
"""Fields of the answer itself."""


class Question(msgspec.Struct, frozen=True):
    """What a destructive action will do, before it is done."""

    title: str
    text: str
    label: str
    """Of the button that does it."""
    back: str
    """The page without doing it."""
    facts: tuple[tuple[str, str], ...] = ()
    layout: str = "control.html"
    """The template with the navigation around it."""
    token: bool = False
    """Whether the answer needs the operator token, which `require_token_again` checks."""


def is_confirmed(visit: Visit) -> bool:
    return visit.field("confirm") == "yes"


def confirm(visit: Visit, question: Question, problem: GatewayError | None = None) -> Response:
    """Ask before acting; the answer sends the same form again, with `confirm`."""
    sent = [(name, value) for name, values in visit.form.items() if name not in ANSWERED for value in values]
    status, notice = (200, None) if problem is None else (problem.status, failed(problem))
    return visit.page("confirm.html", status, notice, question=question, sent=sent, problem=problem)


class OrgChoice(msgspec.Struct, frozen=True):
    """The orgs that a form offers."""

    ids: tuple[str, ...]
    names: tuple[str, ...]
    chosen: str
    all: bool
    """Whether there are no others."""


async def offer_orgs(visit: Visit, chosen: str = "") -> OrgChoice:
    """The orgs that the visitor sees; a single one is chosen."""
    part = await visit.gateway.orgs.page(visit.principal, Page(MAX_CHOICES))
    ids = tuple(org.id for org in part.items)
    only = ids[0] if len(ids) == 1 else ""
    return OrgChoice(ids, tuple(org.name for org in part.items), chosen or only, part.after is None)
