"""`Audit`: actor, action, subject and request of each change. Written in the transaction of the change; never modified.

    await audit.record_change(tx, caller, "run.cancel", run)
    await audit.record(tx, caller, "secret.put", "secret", name, org_id=…, project_id=…)

Details contain field names and ids, never config values or secrets. Entries are appended to the hash chain of their
org when the transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import denied, invalid, not_found
from plugbay.server.domain.ids import REQUEST_ID, Ids, new_id
from plugbay.server.domain.principal import Principal
from plugbay.store import audit as rows
from plugbay.store.audit import Entry, Head, Report
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page, Part


class TenantRecord(Protocol):
    """A record of an org, or of one of its projects."""

    @property
    def id(self) -> str: ...
    @property
    def org_id(self) -> str: ...
    @property
    def project_id(self) -> str | None: ...


class Audit:
    """The log of all changes."""

    def __init__(self, database: Database, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids

    async def record_change(
        self, tx: Tx, caller: Principal, action: str, changed: TenantRecord, kind: str | None = None, **details: Any
    ) -> None:
        """Record a change of a record in its transaction; `kind` defaults to the first word of the action."""
        kind = kind or action.partition(".")[0]
        scope = {"org_id": changed.org_id, "project_id": changed.project_id}
        await self.record(tx, caller, action, kind, changed.id, **scope, **details)

    async def record(
        self,
        tx: Tx,
        caller: Principal,
        action: str,
        subject_kind: str,
        subject_id: str,
        *,
        org_id: str | None = None,
        project_id: str | None = None,
        **details: Any,
    ) -> None:
        """Record one change in its transaction."""
        entry = Entry(
            id=self._ids("aud_"),
            at=self._clock.now(),
            org_id=org_id,
            project_id=project_id,
            actor_kind=caller.kind,
            actor_id=caller.id,
            action=action,
            subject_kind=subject_kind,
            subject_id=subject_id,
            request_id=REQUEST_ID.get(),
            details=details,
        )
        self._database.before_commit(rows.append, entry)

    async def page(
        self,
        caller: Principal,
        page: Page,
        *,
        subject_id: str | None = None,
        action: str | None = None,
        org_id: str | None = None,
        search: str | None = None,
    ) -> Part[Entry]:
        """Audit entries visible to the caller; `search` is part of an action, a subject or an actor."""
        if org_id is not None and not caller.sees(org_id):
            raise not_found("org", org_id)
        async with self._database.reading() as tx:
            return await rows.page(
                tx,
                page,
                org_id=caller.org_id or org_id,
                project_id=caller.project_id,
                subject_id=subject_id,
                action=action,
                search=search,
            )

    async def verify(self, caller: Principal, known: Sequence[str] = ()) -> list[Report]:
        """Check the chain of the caller's org, or all chains, also against `known` heads (`chain:position:hash`)."""
        if caller.project_id is not None:
            text = "a key of one project cannot verify the audit log of its org"
            raise denied("auth.role_denied", text, required=["org key"])
        try:
            heads = [Head.parse(text) for text in known]
        except ValueError as error:
            raise invalid("audit.invalid_head", f"{str(error)!r} is not a head: chain:position:hash", "head") from None
        async with self._database.reading() as tx:
            return await rows.verify(tx, caller.org_id, heads)
