"""`Credentials`: the tokens with which plugins come back to the gateway, what they stand for, and what they may spend.

A token is made for one invocation, is known here by its SHA-256 only, and is worth nothing once its invocation has
ended or was cancelled, its binding was disabled, or the gateway was started anew. Limits hold over all attempts at one
piece of work, and are kept in the database, where two requests at the same moment cannot both have the last of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Literal

from plugbay.host.records import TOKEN_BYTES, TOKEN_PREFIX
from plugbay.server.domain.clock import Clock, moment
from plugbay.server.domain.errors import GatewayError, denied, unauthenticated
from plugbay.server.domain.keys import digest_of
from plugbay.server.domain.principal import Principal
from plugbay.store import bindings as binding_rows
from plugbay.store import invocations as invocation_rows
from plugbay.store import tokens as rows
from plugbay.store.database import Database, Tx
from plugbay.store.tokens import TokenRow

CHILD_RUN, COMPACTION = "child_run", "compaction"

KEPT_EXPIRED = 24 * 3600.0
"""Seconds for which it is known of a token that it has expired; after that nobody has heard of it."""

Spending = Literal["child_run", "compaction"]

LIMITS: Mapping[str, Any] = {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}
"""What one piece of work may start where nobody says so: a harness, and a tool, a hook or a compactor as well."""

_LIMITS = {CHILD_RUN: "max_child_runs", COMPACTION: "max_compactions"}


class NotOpen(Exception):
    """A token is asked for by an invocation that has ended, or whose binding is not active any more."""


class Credentials:
    """All tokens. Makes them for the host (`TokenIssuer`), and says who comes with one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    # For the host.

    async def issue(self, claims: Mapping[str, Any]) -> str:
        """A token for an invocation that is open. One that was closed meanwhile gets none, so none outlives it."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        row = TokenRow(
            digest=digest_of(token),
            invocation_id=claims["invocation_id"],
            binding_id=claims["binding_id"],
            org_id=claims["org_id"],
            execution_id=claims["execution_id"],
            claims=dict(claims),
            issued_at=moment(claims["issued_at"]),
            expires_at=moment(claims["expires_at"]),
        )
        async with self._database.transaction() as tx:
            if not await invocation_rows.is_open(tx, row.invocation_id) or not await _is_active(tx, row.binding_id):
                raise NotOpen(row.invocation_id)
            await rows.add(tx, row)
        return token

    async def revoke(self, token: str) -> None:
        """It is worth nothing any more."""
        async with self._database.transaction() as tx:
            await rows.revoke(tx, digest_of(token), self._clock.now())

    # For the gateway.

    async def principal(self, token: str) -> Principal:
        """Who comes with this token; raises when it is worth nothing."""
        claims = await self.claims(token)
        return Principal(
            "delegated",
            claims["org_id"],
            claims["project_id"],
            scopes=frozenset(claims["scopes"]),
            invocation_id=claims["invocation_id"],
            claims=claims,
        )

    async def claims(self, token: str) -> dict[str, Any]:
        """What this token stands for; raises when it stands for nothing, or not any more."""
        async with self._database.reading() as tx:
            found = await rows.get(tx, digest_of(token))
        if found is None:
            raise unauthenticated("auth.key_unknown", "this token is not known here")
        if found.revoked_at is not None:
            raise unauthenticated("auth.token_revoked", "this token was of one invocation, which is over")
        if found.expires_at <= self._clock.now():
            raise unauthenticated("auth.token_expired", "this token has expired")
        return found.claims

    async def spend(self, principal: Principal, what: Spending, *, depth: int = 1) -> None:
        """A plugin starts a run or a compaction, `depth` steps below its own; raises `policy.limit_exceeded`.

        Part of the caller's transaction if there is one: what is not done is not spent. People have no limits here.
        """
        if principal.kind != "delegated":
            return
        limits = limits_of(principal.claims.get("policy"))
        if what == COMPACTION and limits.get("allow_compaction") is False:
            raise _exceeded("allow_compaction", False)
        deepest = _number(limits.get("max_depth"))
        if what == CHILD_RUN and deepest is not None and depth > deepest:
            raise _exceeded("max_depth", deepest)
        name = _LIMITS[what]
        limit = _number(limits.get(name))
        org_id, execution_id = principal.claims["org_id"], principal.claims["execution_id"]
        async with self._database.transaction() as tx:
            if await rows.spend(tx, org_id, execution_id, what, limit, self._clock.now()) is None:
                raise _exceeded(name, limit)


def limits_of(policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """The limits of a piece of work: what its policy says, and the usual ones for the rest."""
    return {**LIMITS, **{name: value for name, value in (policy or {}).items() if value is not None}}


async def _is_active(tx: Tx, binding_id: str | None) -> bool:
    """Whether the binding still is; what runs without one has nothing that could be disabled."""
    return binding_id is None or await binding_rows.is_active(tx, binding_id)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _exceeded(limit: str, most: int | bool | None) -> GatewayError:
    text = f"the limit {limit} of this execution is reached"
    return denied("policy.limit_exceeded", text, limit=limit, max=most)
