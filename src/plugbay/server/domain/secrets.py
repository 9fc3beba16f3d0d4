"""`Secrets`: values that go in and never come out, but to the plugins they are bound to.

Owns who may set them, and that a new value counts from the next invocation on. What is kept is sealed by the `Keyring`;
nothing here is logged, and no error quotes a value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import denied, not_found, unavailable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.keyring import Keyring, KeysUnusable, Sealed
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.references import SecretRef, parse
from plugbay.store import secrets as rows
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.secrets import SecretRow

AT_ONCE = 100
"""Secrets that are sealed anew in one transaction when the key is changed."""


@dataclass(frozen=True, slots=True)
class SecretScope:
    """Whose secret: an org's, or one project's."""

    org_id: str
    project_id: str | None = None

    @property
    def name(self) -> str:
        """What a reference to it begins with."""
        return self.project_id or self.org_id


class Secrets:
    """All secrets of all orgs."""

    def __init__(
        self, database: Database, orgs: Orgs, audit: Audit, keyring: Keyring, clock: Clock, ids: Ids = new_id
    ) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._keyring = keyring
        self._clock = clock
        self._ids = ids
        self._rotating = asyncio.Lock()
        """One at a time: the end of a rotation forgets every key but the newest."""

    async def put(self, caller: Principal, scope: SecretScope, name: str, value: str) -> tuple[SecretRow, bool]:
        """Set a secret; and whether it was not there before."""
        now = self._clock.now()
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            before = await rows.get(tx, scope.org_id, scope.name, name)
            version = 1 if before is None else before.version + 1
            sealed = self._keyring.seal(value, _bound(scope.org_id, scope.name, name, version))
            row = SecretRow(
                id=self._ids("sec_") if before is None else before.id,
                org_id=scope.org_id,
                scope=scope.name,
                name=name,
                version=version,
                key_id=sealed.key_id,
                nonce=sealed.nonce,
                sealed=sealed.data,
                created_at=now if before is None else before.created_at,
                updated_at=now,
            )
            await rows.put(tx, row)
            await self._note(tx, caller, "secret.put", scope, name, version=version)
        return row, before is None

    async def delete(self, caller: Principal, scope: SecretScope, name: str) -> None:
        """It is gone; invocations that need it fail from now on."""
        async with self._database.transaction() as tx:
            await self._require(tx, caller, scope)
            if not await rows.remove(tx, scope.org_id, scope.name, name):
                raise not_found("secret", name)
            await self._note(tx, caller, "secret.delete", scope, name)

    async def page(self, caller: Principal, page: Page, org_id: str | None, project_id: str | None) -> Part[SecretRow]:
        """Names and versions of what the caller can see."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        async with self._database.reading() as tx:
            if org is not None:
                await self._orgs.scope(tx, caller, org, project)
            return await rows.select_part(tx, org, None if project is None else (project,), page)

    async def missing(self, tx: Tx, org_id: str, wanted: Mapping[str, SecretRef]) -> list[str]:
        """The slots whose secret is not there."""
        found = {slot: await rows.get(tx, org_id, ref.scope, ref.name) for slot, ref in wanted.items()}
        return [slot for slot, row in found.items() if row is None]

    async def values(self, tx: Tx, org_id: str, references: Mapping[str, str]) -> dict[str, str]:
        """The secrets of one invocation, by slot. One that is not there is left out: the binding is judged for that."""
        found: dict[str, str] = {}
        for slot, text in references.items():
            ref = parse(text)
            row = None if ref is None else await rows.get(tx, org_id, ref.scope, ref.name)
            if row is not None:
                found[slot] = self._opened(row)
        return found

    async def rotate_key(self, caller: Principal) -> int:
        """Make a new key, seal everything with it, and forget the old ones; how many secrets that were.

        Killed in between, it is done by the next call: what is not yet sealed anew is still opened by its own key.
        """
        if caller.org_id is not None:
            raise denied(
                "auth.role_denied", "only the operator of all orgs changes the key", required=["operator of all"]
            )
        async with self._rotating:
            count = await self._rotated()
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, "secret.rotate_key", "key", self._keyring.current, secrets=count)
        return count

    async def _rotated(self) -> int:
        try:
            self._keyring.add_key()
        except KeysUnusable as error:
            raise unavailable("secret.key_not_ours", str(error)) from None
        async with self._database.transaction() as tx:
            await rows.settle(tx)  # what is just being set was sealed with the key before
        count = 0
        while changed := await self._reseal():
            count += changed
        self._keyring.forget_others()
        return count

    async def _reseal(self) -> int:
        """Some of what other keys have sealed is sealed by the current one; how many."""
        async with self._database.transaction() as tx:
            found = await rows.encrypted_with_other_key(tx, self._keyring.current, AT_ONCE)
            for row in found:
                bound = _bound(row.org_id, row.scope, row.name, row.version)
                again = self._keyring.seal(self._opened(row), bound)
                fresh = {"key_id": again.key_id, "nonce": again.nonce, "sealed": again.data}
                await rows.put(tx, _replaced(row, fresh))
            return len(found)

    def _opened(self, row: SecretRow) -> str:
        bound = _bound(row.org_id, row.scope, row.name, row.version)
        try:
            return self._keyring.open(Sealed(row.key_id, row.nonce, row.sealed), bound)
        except KeysUnusable as error:
            raise unavailable("secret.unreadable", f"the secret {row.name} cannot be read: {error}") from None

    async def _require(self, tx: Tx, caller: Principal, scope: SecretScope) -> None:
        await self._orgs.scope(tx, caller, scope.org_id, scope.project_id)
        if caller.project_id is not None and scope.project_id is None:
            raise denied("auth.role_denied", "a key of one project sets no secrets of its org", required=["org key"])

    async def _note(
        self, tx: Tx, caller: Principal, action: str, scope: SecretScope, name: str, **details: int
    ) -> None:
        await self._audit.record(
            tx, caller, action, "secret", name, org_id=scope.org_id, project_id=scope.project_id, **details
        )


def _bound(org_id: str, scope: str, name: str, version: int) -> str:
    """What a sealed value belongs to. None of these has a slash in it."""
    return f"{org_id}/{scope}/{name}/{version}"


def _replaced(row: SecretRow, fresh: Mapping[str, object]) -> SecretRow:
    return SecretRow(**{**{field: getattr(row, field) for field in SecretRow.__slots__}, **fresh})
