"""`Sessions`: groups of chains, and who may see them.

A plugin with a delegated token sees the session it was called for and sessions branched from it; without a session it
sees none.
"""

from __future__ import annotations

from typing import Any

from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import invalid, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import Principal
from plugbay.store import sessions as rows
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant
from plugbay.store.sessions import Session

MAX_LINEAGE = 10_000
"""Sessions in one lineage; a plugin sees no more."""


def tenant(caller: Principal) -> Tenant:
    """The tenant filter for a caller's lists."""
    return Tenant(caller.org_id, caller.project_id)


class Sessions:
    """All sessions."""

    def __init__(self, database: Database, orgs: Orgs, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._orgs = orgs
        self._audit = audit
        self._clock = clock
        self._ids = ids

    async def create(
        self,
        caller: Principal,
        *,
        org_id: str | None = None,
        project_id: str | None = None,
        external_session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Session:
        """Create a session without a chain."""
        async with self._database.transaction() as tx:
            if caller.kind == "delegated":
                raise unprocessable("session.not_in_lineage", "a plugin branches its own session and makes no other")
            org, project = await self._home(tx, caller, org_id, project_id)
            return await self.insert(
                tx, caller, org, project, external_session_id=external_session_id, metadata=metadata or {}
            )

    async def _home(
        self, tx: Tx, caller: Principal, org_id: str | None, project_id: str | None
    ) -> tuple[str, str | None]:
        """Org and project of a new session: as given, or the caller's."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        if org is None:
            raise invalid("session.org_missing", "an operator of all orgs says for which one", "org_id")
        await self._orgs.scope(tx, caller, org, project)
        return org, project

    async def insert(
        self,
        tx: Tx,
        caller: Principal,
        org_id: str,
        project_id: str | None,
        *,
        parent: str | None = None,
        external_session_id: str | None = None,
        metadata: dict[str, Any],
    ) -> Session:
        """A new session, as part of a transaction."""
        now = self._clock.now()
        session = Session(
            id=self._ids("sess_"),
            org_id=org_id,
            project_id=project_id,
            external_session_id=external_session_id,
            metadata=metadata,
            latest_chain_id=None,
            parent_session_id=parent,
            created_at=now,
            updated_at=now,
        )
        await rows.insert(tx, session)
        await self._audit.record(
            tx, caller, "session.create", "session", session.id, org_id=org_id, project_id=project_id
        )
        return session

    async def get(self, caller: Principal, id: str) -> Session:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(self, caller: Principal, part: Page, *, external_session_id: str | None = None) -> Part[Session]:
        async with self._database.reading() as tx:
            only = await self.lineage(tx, caller)
            return await rows.page(tx, part, tenant(caller), only=only, external_session_id=external_session_id)

    async def change(self, caller: Principal, id: str, **values: Any) -> Session:
        """Update metadata or external id."""
        async with self._database.transaction() as tx:
            session = await self.existing(tx, caller, id)
            await rows.change(tx, id, **values, updated_at=self._clock.now())
            await self._audit.record(
                tx,
                caller,
                "session.update",
                "session",
                id,
                org_id=session.org_id,
                project_id=session.project_id,
                fields=sorted(values),
            )
            return await self.existing(tx, caller, id)

    # Within a transaction.

    async def existing(self, tx: Tx, caller: Principal, id: str) -> Session:
        """The session; raises `not_found` if the caller may not see it."""
        session = await rows.find(tx, id)
        if session is None or not caller.sees(session.org_id, session.project_id):
            raise not_found("session", id)
        if not await self.reaches(tx, caller, id):
            raise not_found("session", id)
        return session

    async def reaches(self, tx: Tx, caller: Principal, id: str) -> bool:
        """Whether a plugin's own session is this one or an ancestor of it."""
        if caller.kind != "delegated":
            return True
        root, current = caller.claims.get("session_id"), id
        for _ in range(MAX_LINEAGE):
            if current == root:
                return True
            session = await rows.find(tx, current)
            if session is None or session.parent_session_id is None:
                return False
            current = session.parent_session_id
        return False

    async def lineage(self, tx: Tx, caller: Principal) -> frozenset[str] | None:
        """The sessions a plugin is limited to; None: no limit."""
        if caller.kind != "delegated":
            return None
        root = caller.claims.get("session_id")
        found = latest = frozenset() if root is None else frozenset({root})
        while latest and len(found) < MAX_LINEAGE:
            latest = await rows.children(tx, latest) - found
            found |= latest
        return found
