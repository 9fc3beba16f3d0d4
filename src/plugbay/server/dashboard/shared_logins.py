"""`SharedLogins`: links and sessions of the dashboard that every gateway of a database knows.

A link that one gateway made logs in at another one, once; a session, its notice and its new keys are the same at all of
them. The database has digests of links and cookies; all else is sealed with the key of the gateways.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from plugbay.server.domain.clock import Clock
from plugbay.server.domain.secrets import Keyring, KeysUnusable, Sealed
from plugbay.store import logins as rows
from plugbay.store.database import Database


class SharedLink(msgspec.Struct, frozen=True):
    """A link: the token whose rights it gives."""

    token: str


class SharedSession(msgspec.Struct, frozen=True):
    """A session, with all that its next page shows."""

    token: bytes
    """Digest."""
    notice: tuple[str, str, str] | None = None
    unshown: dict[str, str] = {}


V = TypeVar("V", SharedLink, SharedSession)

_KINDS = {SharedLink: rows.LINK, SharedSession: rows.BROWSER}


class SharedLogins:
    """The logins of one database."""

    def __init__(self, database: Database, keyring: Keyring, clock: Clock) -> None:
        self._database = database
        self._keyring = keyring
        self._clock = clock

    async def put(self, digest: bytes, value: SharedLink | SharedSession, ends_at: float) -> None:
        """Store or replace a link or a session."""
        sealed = self._keyring.seal(msgspec.json.encode(value).decode(), digest.hex())
        async with self._database.transaction() as tx:
            await rows.put(tx, digest, _KINDS[type(value)], msgspec.json.encode(sealed), ends_at)

    async def find(self, digest: bytes, kind: type[V]) -> tuple[V, float] | None:
        """The value and its end; None if there is none."""
        async with self._database.reading() as tx:
            return self._open(digest, kind, await rows.find(tx, digest, _KINDS[kind], self._clock.now()))

    async def take(self, digest: bytes, kind: type[V]) -> tuple[V, float] | None:
        """The same, once."""
        async with self._database.transaction() as tx:
            found = await rows.take(tx, digest, _KINDS[kind], self._clock.now())
        return self._open(digest, kind, found)

    async def remove(self, digest: bytes) -> None:
        """End it; idempotent."""
        async with self._database.transaction() as tx:
            await rows.remove(tx, digest, self._clock.now())

    def _open(self, digest: bytes, kind: type[V], found: tuple[bytes, float] | None) -> tuple[V, float] | None:
        if found is None:
            return None
        try:
            text = self._keyring.open(msgspec.json.decode(found[0], type=Sealed), digest.hex())
            return msgspec.json.decode(text, type=kind), found[1]
        except (KeysUnusable, msgspec.MsgspecError):
            return None  # sealed with a key that is gone
