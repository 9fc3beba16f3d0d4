"""`Orgs`: tenants and their projects, and the rights to create and see them. An org's policy limits its bindings."""

from __future__ import annotations

from typing import Any

from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import conflict, denied, not_found
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.policy import validate_policy
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.store import orgs as rows
from plugbay.store.database import Database, Tx
from plugbay.store.orgs import Org, Project
from plugbay.store.pages import Page, Part
from plugbay.store.rows import Tenant


def tenant(caller: Principal) -> Tenant:
    """The tenant filter of a caller's lists."""
    return Tenant(caller.org_id, caller.project_id)


class Orgs:
    """All orgs and projects."""

    def __init__(self, database: Database, audit: Audit, clock: Clock, ids: Ids = new_id) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock
        self._ids = ids

    async def create(self, caller: Principal, name: str, policy: dict[str, Any], id: str | None = None) -> Org:
        """Create an org; only for the operator of all orgs."""
        require_operator_of_all(caller, "creates orgs")
        now = self._clock.now()
        org = Org(id or self._ids("org_"), name, validate_policy(policy), now, now)
        async with self._database.transaction() as tx:
            if not await rows.insert(tx, org):
                raise conflict("org.exists", f"org {org.id!r} already exists", "id")
            await self._audit.record(tx, caller, "org.create", "org", org.id, org_id=org.id)
        return org

    async def get(self, caller: Principal, id: str) -> Org:
        async with self._database.reading() as tx:
            return await self.existing(tx, caller, id)

    async def page(self, caller: Principal, page: Page, search: str | None = None) -> Part[Org]:
        """Orgs visible to the caller; `search` is part of an id or a name."""
        async with self._database.reading() as tx:
            return await rows.page(tx, page, id=caller.org_id, search=search)

    async def change(self, caller: Principal, id: str, **values: Any) -> Org:
        """Update name or policy."""
        if "policy" in values:
            values["policy"] = validate_policy(values["policy"])
        async with self._database.transaction() as tx:
            await self.existing(tx, caller, id)
            if caller.project_id is not None:
                raise denied("auth.role_denied", "a key of one project cannot change its org", required=["org key"])
            changed = await rows.change(tx, id, **values, updated_at=self._clock.now())
            assert changed is not None
            await self._audit.record(tx, caller, "org.update", "org", id, org_id=id, fields=sorted(values))
        return changed

    async def existing(self, tx: Tx, caller: Principal, id: str) -> Org:
        """The org, within a transaction; raises `not_found`."""
        found = await rows.get(tx, id)
        if found is None or not caller.sees(id):
            raise not_found("org", id)
        return found

    # Projects.

    async def create_project(self, caller: Principal, org_id: str, name: str, id: str | None = None) -> Project:
        now = self._clock.now()
        project = Project(id or self._ids("proj_"), org_id, name, now, now)
        async with self._database.transaction() as tx:
            await self.existing(tx, caller, org_id)
            if caller.project_id is not None:
                raise denied("auth.role_denied", "a key of one project cannot create projects", required=["org key"])
            if not await rows.insert_project(tx, project):
                raise conflict("project.exists", f"project {project.id!r} already exists", "id")
            await self._audit.record(
                tx, caller, "project.create", "project", project.id, org_id=org_id, project_id=project.id
            )
        return project

    async def project(self, caller: Principal, org_id: str, id: str) -> Project:
        async with self._database.reading() as tx:
            return await self.existing_project(tx, caller, org_id, id)

    async def projects(self, caller: Principal, org_id: str, page: Page, search: str | None = None) -> Part[Project]:
        """Projects visible to the caller; `search` is part of an id or a name."""
        async with self._database.reading() as tx:
            await self.existing(tx, caller, org_id)
            return await rows.page_of_projects(tx, org_id, page, id=caller.project_id, search=search)

    async def change_project(self, caller: Principal, org_id: str, id: str, name: str) -> Project:
        async with self._database.transaction() as tx:
            await self.existing_project(tx, caller, org_id, id)
            changed = await rows.change_project(tx, id, name=name, updated_at=self._clock.now())
            assert changed is not None
            await self._audit.record(tx, caller, "project.update", "project", id, org_id=org_id, project_id=id)
        return changed

    async def existing_project(self, tx: Tx, caller: Principal, org_id: str, id: str) -> Project:
        """The project, within a transaction; raises `not_found`."""
        found = await rows.get_project(tx, id)
        if found is None or found.org_id != org_id or not caller.sees(org_id, id):
            raise not_found("project", id)
        return found

    async def scope(self, tx: Tx, caller: Principal, org_id: str, project_id: str | None) -> None:
        """Raises `not_found` unless the caller sees this org and project."""
        if project_id is None:
            await self.existing(tx, caller, org_id)
        else:
            await self.existing_project(tx, caller, org_id, project_id)
