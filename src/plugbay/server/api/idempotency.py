"""`Router`: the routes of one area, with `Idempotency-Key` for all routes that change something.

    router = Router()

    @router.post("/v1/orgs", …)          one transaction: the change, its audit entry, and the stored answer
    async def create(…): …

    @router.post("/v1/plugin-invocations", …)
    @long_running                        waits for more than the database, so it claims the key in its own transaction
    async def invoke(…): …

    @router.post("/v1/keys", …)
    @shown_once("key")                   this field is null in a replayed answer
    async def create_key(…): …

Caller, path and key identify a request; a different body under the same key is a conflict. Uploads (bodies that are not
JSON) ignore the key: packages are identified by their content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response, StreamingResponse

from plugbay.server.api.caller import authenticate, gateway_of
from plugbay.server.api.errors import ERRORS
from plugbay.server.api.queries import Handler, refuse_unknown_parameters
from plugbay.server.domain.errors import GatewayError, invalid
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.idempotency import KEPT_CREATES, KEPT_UPDATES, LOST, REFUSED, Completed, Outcome
from plugbay.store.idempotency import Repeat

HEADER = "idempotency-key"
REPLAYED = "idempotency-replayed"
LONGEST_KEY = 255
MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def long_running(endpoint: Endpoint) -> Endpoint:
    """Mark a handler that waits for more than the database: the claim is not in the transaction of its changes."""
    endpoint.__dict__["apart"] = True
    return endpoint


def shown_once(*fields: str) -> Callable[[Endpoint], Endpoint]:
    """Mark fields that are not stored: a replayed answer has null for them."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["shown_once"] = fields
        return endpoint

    return mark


class IdempotentRoute(APIRoute):
    """A route that honours `Idempotency-Key` and refuses unknown query parameters."""

    def get_route_handler(self) -> Handler:
        return refuse_unknown_parameters(self, self._once_handler(super().get_route_handler()))

    def _once_handler(self, handler: Handler) -> Handler:
        if MUTATING.isdisjoint(self.methods or ()):
            return handler
        marks = getattr(self.endpoint, "__dict__", {})
        hidden: tuple[str, ...] = marks.get("shown_once", ())
        carry_out = _run_with_claim if marks.get("apart") else _run_in_transaction

        async def once(request: Request) -> Response:
            key = request.headers.get(HEADER)
            if key is None or not await _is_json(request):
                return await handler(request)
            claim = _Claim(await _claim_key(request, key), await _request_digest(request), _retention(request), hidden)
            return await carry_out(gateway_of(request), claim, handler, request)

        return once


class Router(APIRouter):
    """The routes of one area, complete: the application takes them without copying."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            route_class=IdempotentRoute,
            responses=ERRORS,
            generate_unique_id_function=lambda route: route.name,
            **options,
        )


class _Claim(msgspec.Struct, frozen=True):
    key: bytes
    digest: bytes
    kept: float
    hidden: tuple[str, ...]


class _RolledBack(Exception):
    """The handler answered with an error: roll back its changes."""

    def __init__(self, response: Response) -> None:
        self.response = response


async def _run_in_transaction(gateway: Gateway, claim: _Claim, handler: Handler, request: Request) -> Response:
    """Claim, change and answer in one transaction: a crash leaves all of it or nothing."""
    try:
        async with gateway.database.transaction():
            before = await gateway.idempotency.begin(claim.key, claim.digest, claim.kept)
            if before is not None:
                return _replay_response(before)
            response = await handler(request)
            if response.status_code >= 400:
                raise _RolledBack(response)
            await gateway.idempotency.finish(claim.key, _completed(claim, response))
            return response
    except _RolledBack as refused:
        return refused.response


async def _run_with_claim(gateway: Gateway, claim: _Claim, handler: Handler, request: Request) -> Response:
    """Claim first, then the work. Every path settles the claim: with the answer, as lost where the outcome is
    unknown, or as free again where the request was refused or may be retried."""
    before = await gateway.idempotency.claim(claim.key, claim.digest, claim.kept)
    if before is not None:
        return _replay_response(before)
    outcome: Outcome = LOST
    try:
        response = await handler(request)
        outcome = REFUSED if response.status_code >= 400 else _completed(claim, response)
        return response
    except GatewayError as error:
        if error.status < 500 or error.retryable:
            outcome = REFUSED
        raise
    finally:
        await gateway.idempotency.settle(claim.key, outcome)


def _completed(claim: _Claim, response: Response) -> Outcome:
    if isinstance(response, StreamingResponse):
        return LOST
    body = bytes(response.body)
    if claim.hidden:
        shown = msgspec.json.decode(body)
        body = msgspec.json.encode({**shown, **dict.fromkeys(claim.hidden)})
    kept = {name: value for name, value in response.headers.items() if name in ("content-type", "location")}
    return Completed(response.status_code, kept, body)


def _replay_response(before: Repeat) -> Response:
    return Response(before.body, before.status or 200, {**(before.headers or {}), REPLAYED: "true"})


async def _is_json(request: Request) -> bool:
    """A request without a body counts as JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json") or not await request.body()


async def _claim_key(request: Request, key: str) -> bytes:
    """The claim key: caller, method, path and key."""
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        text = f"an Idempotency-Key has 1 to {LONGEST_KEY} printable ASCII characters"
        raise invalid("idempotency.invalid_key", text, "Idempotency-Key")
    caller = await authenticate(request)
    whose = [caller.org_id, caller.kind, caller.id, request.method, request.url.path, key]
    return hashlib.sha256(msgspec.json.encode(whose)).digest()


async def _request_digest(request: Request) -> bytes:
    """The digest of query and body, independent of key order."""
    body = await request.body()
    try:
        canonical = msgspec.json.encode(msgspec.json.decode(body), order="sorted") if body else b""
    except msgspec.DecodeError:
        canonical = body
    return hashlib.sha256(request.url.query.encode() + b"\n" + canonical).digest()


def _retention(request: Request) -> float:
    return KEPT_CREATES if request.method == "POST" else KEPT_UPDATES
