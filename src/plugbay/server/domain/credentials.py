"""`Keys`: API keys of orgs, and the operator token. `Credentials`: delegated tokens of plugins, and their budgets.

Only SHA-256 digests are stored; a key is shown once, when it is created. A delegated token belongs to one invocation,
and ends with it, with its binding, or with a restart of the gateway. Budgets are shared by all attempts of one
execution and kept in the database, so two concurrent requests cannot both spend the last unit.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from plugbay.host.disk.secret_files import others_can_read
from plugbay.host.records import TOKEN_BYTES, TOKEN_PREFIX
from plugbay.model.errors import PlugbayError
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock, moment
from plugbay.server.domain.errors import GatewayError, denied, invalid, not_found, unauthenticated
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import OPERATOR, ROLES, Principal, Role
from plugbay.store import bindings as binding_rows
from plugbay.store import invocations as invocation_rows
from plugbay.store import keys as key_rows
from plugbay.store import tokens as token_rows
from plugbay.store.database import Database, RowCache, Tx
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page, Part
from plugbay.store.tokens import TokenRow

API_KEY_PREFIX = "pb_sk_"
API_KEY_BYTES = 32
HINT_LENGTH = 4
"""Characters of a key kept as a hint."""

CACHED_KEYS = 10_000
"""Recently used keys kept in memory."""

TOKEN_FILE = "operator.token"
"""In the data directory with mode 600; the command line reads it there."""


class Keys:
    """All keys."""

    def __init__(self, database: Database, orgs: Orgs, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._operator: bytes | None = None
        self._known = RowCache[bytes, ApiKey](database, CACHED_KEYS)

    def trust(self, operator_token: str) -> None:
        """Accept this token as the operator of all orgs."""
        self._operator = digest_of(operator_token)

    async def principal(self, key: str) -> Principal:
        """The owner of this key; raises if it is unknown, revoked or expired."""
        return await self.principal_of(digest_of(key))

    async def principal_of(self, digest: bytes) -> Principal:
        """The owner of the key with this digest; raises as `principal` does."""
        if self._operator is not None and hmac.compare_digest(digest, self._operator):
            return OPERATOR
        found = await self._known.get(digest, partial(self._read, digest))
        if found is None:
            raise unauthenticated("auth.key_unknown", "this key is unknown")
        if found.revoked_at is not None:
            raise unauthenticated("auth.key_revoked", "this key was revoked")
        if found.expires_at is not None and found.expires_at <= self._clock.now():
            raise unauthenticated("auth.token_expired", "this key has expired")
        return Principal("key", found.org_id, found.project_id, _role(found.role), key_id=found.id)

    async def _read(self, digest: bytes) -> ApiKey | None:
        async with self._database.reading() as tx:
            return await key_rows.by_digest(tx, digest)

    async def create(
        self,
        caller: Principal,
        org_id: str,
        name: str,
        role: Role,
        project_id: str | None = None,
        expires_at: float | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key; returns its record and the key itself, which is not stored."""
        if not caller.has_role(role):
            raise denied("auth.role_denied", "a key cannot have a higher role than its creator", required=[role])
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise invalid("key.expired", "the expiry of the key is in the past", "expires_at")
        key = API_KEY_PREFIX + secrets.token_urlsafe(API_KEY_BYTES)
        made = ApiKey(self._ids("key_"), org_id, project_id, name, role, key[-HINT_LENGTH:], now, expires_at, None)
        async with self._database.transaction() as tx:
            await self._orgs.scope(tx, caller, org_id, project_id)
            if caller.project_id is not None and project_id is None:
                raise denied(
                    "auth.role_denied", "a key of one project cannot make keys of its org", required=["org key"]
                )
            await key_rows.insert(tx, made, digest_of(key))
            await self._audit.record(
                tx, caller, "key.create", "key", made.id, org_id=org_id, project_id=project_id, role=role
            )
        return made, key

    async def get(self, caller: Principal, id: str) -> ApiKey:
        async with self._database.reading() as tx:
            found = await key_rows.get(tx, id)
        return _visible_key(caller, id, found)

    async def page(
        self, caller: Principal, page: Page, org_id: str | None = None, search: str | None = None
    ) -> Part[ApiKey]:
        """Keys visible to the caller, of this org if given; `search` is part of an id, a name or a hint."""
        async with self._database.reading() as tx:
            if org_id is not None:
                await self._orgs.existing(tx, caller, org_id)
            owner = org_id or caller.org_id
            return await key_rows.page(tx, page, org_id=owner, project_id=caller.project_id, search=search)

    async def revoke(self, caller: Principal, id: str) -> ApiKey:
        """Revoke a key; idempotent."""
        async with self._database.transaction() as tx:
            found = _visible_key(caller, id, await key_rows.get(tx, id))
            if await key_rows.revoke(tx, id, self._clock.now()):
                await self._audit.record(
                    tx, caller, "key.revoke", "key", id, org_id=found.org_id, project_id=found.project_id
                )
            changed = await key_rows.get(tx, id)
        assert changed is not None
        return changed


def _visible_key(caller: Principal, id: str, found: ApiKey | None) -> ApiKey:
    """A key of one project does not see the keys of the whole org."""
    if found is None or not caller.sees(found.org_id, found.project_id):
        raise not_found("key", id)
    if caller.project_id is not None and found.project_id is None:
        raise not_found("key", id)
    return found


def _role(text: str) -> Role:
    return next(role for role in ROLES if role == text)


def digest_of(token: str) -> bytes:
    """The stored digest of a token; any text has one."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


TOKEN_VARIABLE = "PLUGBAY_OPERATOR_TOKEN_FILE"
"""Names a mounted file with the operator token, the same for several gateways."""


def token_file(data: Path) -> Path:
    """Where the operator token is."""
    return Path(os.environ.get(TOKEN_VARIABLE) or data / TOKEN_FILE)


def operator_token(data: Path) -> tuple[str, bool]:
    """The operator token of the data directory, and whether it was created just now."""
    if os.environ.get(TOKEN_VARIABLE):
        return read_token(token_file(data)), False
    path = data / TOKEN_FILE
    if path.exists():
        return read_token(path), False
    fresh = API_KEY_PREFIX + secrets.token_urlsafe(API_KEY_BYTES)
    # Linked after it is complete: a kill in between leaves no empty file.
    draft = path.with_name(f".{TOKEN_FILE}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(fresh + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        return read_token(path), False
    finally:
        draft.unlink()
    return fresh, True


def read_token(path: Path) -> str:
    """Read a token from a file that others cannot read; raises `PlugbayError`."""
    with open(path, encoding="utf-8", errors="replace") as file:
        if others_can_read(os.fstat(file.fileno())):
            raise PlugbayError(f"other users can read {path}; remove it, and the next start makes a new token")
        text = file.read(4096).strip()
    if not text:
        raise PlugbayError(f"{path} is empty; remove it, and the next start makes a new token")
    return text


CHILD_RUN, COMPACTION = "child_run", "compaction"

KEPT_EXPIRED = 24 * 3600.0
"""Seconds for which an expired token is reported as expired; afterwards it is unknown."""

Spending = Literal["child_run", "compaction"]

LIMITS: Mapping[str, Any] = {"max_depth": 4, "max_child_runs": 12, "allow_compaction": True}
"""Default budget of one execution of a harness, tool, hook or compactor."""

_LIMITS = {CHILD_RUN: "max_child_runs", COMPACTION: "max_compactions"}


class InvocationClosed(Exception):
    """The invocation of a requested token has ended, or its binding is inactive."""


class Credentials:
    """Issues delegated tokens for the host (`TokenIssuer`) and resolves them."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.holders: set[str] = set()
        """Invocations that may have a valid token; the others have nothing to revoke when they end."""

    # For the host.

    async def issue(self, claims: Mapping[str, Any]) -> str:
        """Issue a token for an open invocation; raises if it was closed meanwhile, so no token outlives it."""
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
        self.holders.add(row.invocation_id)  # before the transaction: a close from here on revokes it
        async with self._database.transaction() as tx:
            if not await invocation_rows.is_open(tx, row.invocation_id):
                self.holders.discard(row.invocation_id)
                raise InvocationClosed(row.invocation_id)
            if not await _is_active(tx, row.binding_id):
                raise InvocationClosed(row.invocation_id)
            await token_rows.add(tx, row)
        return token

    async def revoke(self, token: str) -> None:
        """Revoke a token."""
        async with self._database.transaction() as tx:
            await token_rows.revoke(tx, digest_of(token), self._clock.now())

    # For the gateway.

    async def principal(self, token: str) -> Principal:
        """The owner of this token; raises if it is unknown, revoked or expired."""
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
        """The claims of a token; raises if it is unknown, revoked or expired."""
        async with self._database.reading() as tx:
            found = await token_rows.get(tx, digest_of(token))
        if found is None:
            raise unauthenticated("auth.key_unknown", "this token is unknown")
        if found.revoked_at is not None:
            raise unauthenticated("auth.token_revoked", "this token belongs to an invocation that has ended")
        if found.expires_at <= self._clock.now():
            raise unauthenticated("auth.token_expired", "this token has expired")
        return found.claims

    async def spend(self, principal: Principal, what: Spending, *, depth: int = 1) -> None:
        """Charge a run or compaction that a plugin starts at this depth; raises `policy.limit_exceeded`.

        Part of the caller's transaction if there is one: what is not done is not spent. People have no limits here.
        """
        if principal.kind != "delegated":
            return
        limits = limits_of(principal.claims.get("policy"))
        if what == COMPACTION and limits.get("allow_compaction") is False:
            raise _limit_exceeded("allow_compaction", False)
        deepest = _number(limits.get("max_depth"))
        if what == CHILD_RUN and deepest is not None and depth > deepest:
            raise _limit_exceeded("max_depth", deepest)
        name = _LIMITS[what]
        limit = _number(limits.get(name))
        org_id, execution_id = principal.claims["org_id"], principal.claims["execution_id"]
        async with self._database.transaction() as tx:
            if await token_rows.spend(tx, org_id, execution_id, what, limit, self._clock.now()) is None:
                raise _limit_exceeded(name, limit)


def limits_of(policy: Mapping[str, Any] | None) -> dict[str, Any]:
    """The budget in a policy, with defaults."""
    return {**LIMITS, **{name: value for name, value in (policy or {}).items() if value is not None}}


async def _is_active(tx: Tx, binding_id: str | None) -> bool:
    """Whether the binding is active, or there is none."""
    return binding_id is None or await binding_rows.is_active(tx, binding_id)


def _number(value: Any) -> int | None:
    return value if type(value) is int else None


def _limit_exceeded(limit: str, most: int | bool | None) -> GatewayError:
    text = f"this execution has reached its limit {limit}"
    return denied("policy.limit_exceeded", text, limit=limit, max=most)
