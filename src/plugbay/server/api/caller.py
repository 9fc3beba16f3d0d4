"""Authentication, authorization and rate limits: `Caller` for a handler, `needs` for a route.

    @router.get("/v1/sessions", **needs("sessions:read"))
    async def sessions(caller: Caller, gateway: TheGateway) -> ...

The permissions of a route are also in its OpenAPI operation (`x-plugbay-needs`), so tests can check every route.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from plugbay.host.limits import TokenBucket
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import too_many, unauthenticated
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import Principal
from plugbay.store.connections import EVERY_ORG, ORG

NEEDS = "x-plugbay-needs"
NEEDS_ONE = "x-plugbay-needs-one"

LONGEST_TOKEN = 512
"""Characters; ours have less than 100."""


def gateway_of(request: Request) -> Gateway:
    """The gateway behind this server."""
    gateway = request.app.state.gateway
    assert isinstance(gateway, Gateway)
    return gateway


async def authenticate(request: Request) -> Principal:
    """Authenticate the caller, once per request. Raises for unknown callers and exceeded rates."""
    known = getattr(request.state, "principal", None)
    if isinstance(known, Principal):
        return known
    return await admit(request, bearer_token(request))


async def admit(request: Request, token: str) -> Principal:
    """Make the owner of this token the caller of this request; raises as `authenticate` does."""
    return admit_principal(request, await gateway_of(request).authenticate(token))


def admit_principal(request: Request, principal: Principal) -> Principal:
    """Make this the caller of this request; raises when the rate is exceeded.

    From here on, PostgreSQL shows the request of an org only the rows of that org.
    """
    request.state.principal = principal
    ORG.set(principal.org_id or EVERY_ORG)
    request.app.state.rates.take(principal)
    return principal


def bearer_token(request: Request) -> str:
    """The bearer token of a request; raises if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise unauthenticated("auth.missing", "send the header Authorization: Bearer KEY")
    if len(token) > LONGEST_TOKEN:
        raise unauthenticated("auth.key_unknown", "this key is unknown")
    return token


async def _gateway(request: Request) -> Gateway:
    """Async on purpose: FastAPI runs a sync dependency in a thread, which costs more than the rest."""
    return gateway_of(request)


Caller = Annotated[Principal, Depends(authenticate)]
TheGateway = Annotated[Gateway, Depends(_gateway)]


def needs(*all_of: str, any_of: Sequence[str] = ()) -> dict[str, Any]:
    """Permissions of a route: all of these roles and scopes, and one of `any_of` if given.

    A role is `viewer`, `operator` or `admin`; a route that names only roles is closed to plugins. People have scopes
    too: every viewer those to read, every operator all others.
    """
    written: dict[str, Any] = {NEEDS: list(all_of)}
    if any_of:
        written[NEEDS_ONE] = list(any_of)
    return {"dependencies": [Depends(_check(all_of, tuple(any_of)))], "openapi_extra": written}


def _check(all_of: tuple[str, ...], any_of: tuple[str, ...]) -> Callable[[Principal], Coroutine[Any, Any, None]]:
    async def check(caller: Caller) -> None:
        refusal = caller.lacks(all_of, any_of)
        if refusal is not None:
            raise refusal

    return check


MAX_CALLERS = 10_000
"""Callers kept; an evicted caller starts with a full bucket."""


LEAST_BURST = 10
"""Requests that a caller may send at once to each of several gateways; a page of the dashboard needs some."""


class RateLimits:
    """A bucket for each caller. Of several gateways, each has its share of the rate."""

    def __init__(self, clock: Clock, per_second: float, burst: float, gateways: Callable[[], int] = lambda: 1) -> None:
        """`gateways` is the number of those that share the rate."""
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._gateways = gateways
        self._shares = 1
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """Count one request; raises when the rate is exceeded."""
        shares = self._gateways()
        if shares != self._shares:
            self._shares = shares
            self._buckets.clear()
        id = principal.id
        bucket = self._buckets.get(id)
        if bucket is None:
            burst = self._burst if shares == 1 else max(self._burst / shares, min(LEAST_BURST, self._burst))
            bucket = self._buckets[id] = TokenBucket(self._per_second / shares, burst)
        self._buckets.move_to_end(id)
        while len(self._buckets) > MAX_CALLERS:
            self._buckets.popitem(last=False)
        if not bucket.take(self._clock.monotonic()):
            text = f"more than {self._per_second:g} requests a second"
            raise too_many(text, retry_after=shares / self._per_second)
