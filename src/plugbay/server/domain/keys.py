"""`Keys`: API keys of orgs, with roles; and the one token that is there from the first start.

Owns who is behind a key. A key is shown once, when it is made; after that only its SHA-256 is known here.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from functools import partial
from pathlib import Path

from plugbay.model.errors import PlugbayError
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import denied, invalid, not_found, unauthenticated
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import OPERATOR, ROLES, Principal, Role
from plugbay.store import keys as rows
from plugbay.store.database import Database, RowCache
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page, Part

PREFIX = "pb_sk_"
SECRET_BYTES = 32
SHOWN = 4
"""Characters of a key that stay known."""

REMEMBERED = 10_000
"""Keys that were used lately: with each comes somebody who asks again soon."""

TOKEN_FILE = "operator.token"
"""In the data directory, readable by nobody else: the command line finds it there."""


class Keys:
    """All keys."""

    def __init__(self, database: Database, orgs: Orgs, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self._operator: bytes | None = None
        self._known = RowCache[bytes, ApiKey](database, REMEMBERED)

    def trust(self, operator_token: str) -> None:
        """Whoever has this token is the operator of all orgs."""
        self._operator = digest_of(operator_token)

    async def principal(self, key: str) -> Principal:
        """Who has this key; raises when nobody has, or not any more."""
        digest = digest_of(key)
        if self._operator is not None and hmac.compare_digest(digest, self._operator):
            return OPERATOR
        found = await self._known.get(digest, partial(self._read, digest))
        if found is None:
            raise unauthenticated("auth.key_unknown", "this key is not known here")
        if found.revoked_at is not None:
            raise unauthenticated("auth.key_revoked", "this key was revoked")
        if found.expires_at is not None and found.expires_at <= self._clock.now():
            raise unauthenticated("auth.token_expired", "this key has expired")
        return Principal("key", found.org_id, found.project_id, _role(found.role), key_id=found.id)

    async def _read(self, digest: bytes) -> ApiKey | None:
        async with self._database.reading() as tx:
            return await rows.by_digest(tx, digest)

    async def create(
        self,
        caller: Principal,
        org_id: str,
        name: str,
        role: Role,
        project_id: str | None = None,
        expires_at: float | None = None,
    ) -> tuple[ApiKey, str]:
        """A new key, and the key itself: nobody will ever see it again."""
        if not caller.has_role(role):
            raise denied("auth.role_denied", "nobody gives more than they have", required=[role])
        now = self._clock.now()
        if expires_at is not None and expires_at <= now:
            raise invalid("key.expired", "the key would have expired already", "expires_at")
        key = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
        made = ApiKey(self._ids("key_"), org_id, project_id, name, role, key[-SHOWN:], now, expires_at, None)
        async with self._database.transaction() as tx:
            await self._orgs.scope(tx, caller, org_id, project_id)
            if caller.project_id is not None and project_id is None:
                raise denied("auth.role_denied", "a key of one project makes no keys for its org", required=["org key"])
            await rows.insert(tx, made, digest_of(key))
            await self._audit.record(
                tx, caller, "key.create", "key", made.id, org_id=org_id, project_id=project_id, role=role
            )
        return made, key

    async def get(self, caller: Principal, id: str) -> ApiKey:
        async with self._database.reading() as tx:
            found = await rows.get(tx, id)
        return _seen(caller, id, found)

    async def page(self, caller: Principal, page: Page, org_id: str | None = None) -> Part[ApiKey]:
        """The keys that the caller can see, of this org if one is named."""
        async with self._database.reading() as tx:
            if org_id is not None:
                await self._orgs.existing(tx, caller, org_id)
            return await rows.page(tx, page, org_id=org_id or caller.org_id, project_id=caller.project_id)

    async def revoke(self, caller: Principal, id: str) -> ApiKey:
        """It is of no use from now on. Doing so twice changes nothing."""
        async with self._database.transaction() as tx:
            found = _seen(caller, id, await rows.get(tx, id))
            if await rows.revoke(tx, id, self._clock.now()):
                await self._audit.record(
                    tx, caller, "key.revoke", "key", id, org_id=found.org_id, project_id=found.project_id
                )
            changed = await rows.get(tx, id)
        assert changed is not None
        return changed


def _seen(caller: Principal, id: str, found: ApiKey | None) -> ApiKey:
    """A key of one project does not see the keys of the whole org."""
    if found is None or not caller.sees(found.org_id, found.project_id):
        raise not_found("key", id)
    if caller.project_id is not None and found.project_id is None:
        raise not_found("key", id)
    return found


def _role(text: str) -> Role:
    return next(role for role in ROLES if role == text)


def digest_of(token: str) -> bytes:
    """What is kept of a token. A text that cannot be one has a digest too, which nobody has."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def operator_token(data: Path) -> tuple[str, bool]:
    """The token of the operator, and whether it was made just now; it is kept in the data directory."""
    path = data / TOKEN_FILE
    if path.exists():
        return read_token(path), False
    fresh = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    # Linked into its place when it is whole: a kill in between leaves no empty file.
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
    """A token from a file of its own, which nobody else may read; raises `PlugbayError`."""
    with open(path, encoding="utf-8", errors="replace") as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise PlugbayError(f"{path} can be read by others; chmod 600 it, and have another token made")
        text = file.read(4096).strip()
    if not text:
        raise PlugbayError(f"{path} is empty; remove it to have another token made at the next start")
    return text
