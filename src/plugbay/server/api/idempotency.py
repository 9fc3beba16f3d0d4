"""A request with an `Idempotency-Key` is carried out once: one mechanism for all routes that change anything.

    router = Router()

    @router.post("/v1/orgs", …)          in one transaction: the change, its audit, and what was answered
    async def create(…): …

    @router.post("/v1/plugin-invocations", …)
    @apart                               waits for more than the database, so its change is not one transaction
    async def invoke(…): …

    @router.post("/v1/keys", …)
    @shown_once("key")                   what a repetition is not told again
    async def create_key(…): …

Whose request it is, which path, and the key make one claim; another body under the same claim is a conflict. Bodies
that are no JSON are uploads, which are the same when their contents are: no key is looked at for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse

from plugbay.server.api.caller import authenticate, gateway_of
from plugbay.server.api.errors import ERRORS
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.idempotency import KEPT_CREATES, KEPT_UPDATES, LOST, REFUSED, Answered, Outcome
from plugbay.store.idempotency import Repeat

HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
LONGEST_KEY = 255
MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def apart(endpoint: Endpoint) -> Endpoint:
    """The handler waits for more than the database: its claim is kept apart from what it changes."""
    endpoint.__dict__["apart"] = True
    return endpoint


def shown_once(*fields: str) -> Callable[[Endpoint], Endpoint]:
    """These fields of the answer are null when it is repeated, because they are not kept."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["shown_once"] = fields
        return endpoint

    return mark


class Once(APIRoute):
    """A route whose requests can be repeated."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()
        if MUTATING.isdisjoint(self.methods or ()):
            return handler
        marks = getattr(self.endpoint, "__dict__", {})
        hidden: tuple[str, ...] = marks.get("shown_once", ())
        carry_out = _apart if marks.get("apart") else _within

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or not await _is_json(request):
                return await handler(request)
            claim = _Claim(await _claimed(request, key), await _digest(request), _kept(request), hidden)
            return await carry_out(gateway_of(request), claim, handler, request)

        return once


class Router(APIRouter):
    """Routes of one area, complete: an application takes them as they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            route_class=Once,
            responses=ERRORS,
            generate_unique_id_function=lambda route: route.name,
            **options,
        )


class _Claim(msgspec.Struct, frozen=True):
    key: bytes
    digest: bytes
    kept: float
    hidden: tuple[str, ...]


class _Refused(Exception):
    """The handler answered with an error: what it changed is taken back."""

    def __init__(self, response: Response) -> None:
        self.response = response


async def _within(gateway: Gateway, claim: _Claim, handler: Handler, request: Request) -> Response:
    """Claim, change and answer in one transaction: after a crash there is all of it or nothing."""
    try:
        async with gateway.database.transaction():
            before = await gateway.repeats.begin(claim.key, claim.digest, claim.kept)
            if before is not None:
                return _replayed(before)
            response = await handler(request)
            if response.status_code >= 400:
                raise _Refused(response)
            await gateway.repeats.finish(claim.key, _answered(claim, response))
            return response
    except _Refused as refused:
        return refused.response


async def _apart(gateway: Gateway, claim: _Claim, handler: Handler, request: Request) -> Response:
    """Claim first, then the work. Every path settles the claim: with the answer, as lost where the outcome is
    unknown, or as free again where the request was refused or may be retried."""
    before = await gateway.repeats.claim(claim.key, claim.digest, claim.kept)
    if before is not None:
        return _replayed(before)
    outcome: Outcome = LOST
    try:
        response = await handler(request)
        outcome = REFUSED if response.status_code >= 400 else _answered(claim, response)
        return response
    except GatewayError as error:
        if error.status < 500 or error.retryable:
            outcome = REFUSED
        raise
    finally:
        await gateway.repeats.settle(claim.key, outcome)


def _answered(claim: _Claim, response: Response) -> Outcome:
    if isinstance(response, StreamingResponse):
        return LOST
    body = bytes(response.body)
    if claim.hidden:
        shown = msgspec.json.decode(body)
        body = msgspec.json.encode({**shown, **dict.fromkeys(claim.hidden)})
    kept = {name: value for name, value in response.headers.items() if name in ("content-type", "location")}
    return Answered(response.status_code, kept, body)


def _replayed(before: Repeat) -> Response:
    return Response(before.body, before.status or 200, {**(before.headers or {}), REPLAYED: "true"})


async def _is_json(request: Request) -> bool:
    """A request without a body is as good as one with JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json") or not await request.body()


async def _claimed(request: Request, key: str) -> bytes:
    """Whose request it is, and which."""
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        text = f"an Idempotency-Key has 1 to {LONGEST_KEY} printable ASCII characters"
        raise invalid("idempotency.invalid_key", text, "Idempotency-Key")
    caller = await authenticate(request)
    whose = [caller.org_id, caller.kind, caller.id, request.method, request.url.path, key]
    return hashlib.sha256(msgspec.json.encode(whose)).digest()


async def _digest(request: Request) -> bytes:
    """Of what is asked, however its keys are ordered."""
    body = await request.body()
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(body), order="sorted") if body else b""
    except msgspec.DecodeError:
        canonical = body
    return hashlib.sha256(request.url.query.encode() + b"\n" + canonical).digest()


def _kept(request: Request) -> float:
    return KEPT_CREATES if request.method == "POST" else KEPT_UPDATES
