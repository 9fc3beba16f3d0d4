"""Orgs and their projects."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Row, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.statements import insert_new
from plugbay.store.tables import ORGS, PROJECTS


class Org(msgspec.Struct, frozen=True):
    """A tenant."""

    id: str
    name: str
    policy: dict[str, Any]
    """Upper limit of the grants of all bindings; empty: no limit."""
    created_at: float
    updated_at: float


class Project(msgspec.Struct, frozen=True):
    """A project of an org."""

    id: str
    org_id: str
    name: str
    created_at: float
    updated_at: float


async def insert(tx: AsyncConnection, org: Org) -> bool:
    """Insert; False when the id exists already."""
    values = {
        "id": org.id,
        "name": org.name,
        "policy": org.policy,
        "created_at": org.created_at,
        "updated_at": org.updated_at,
    }
    return await insert_new(tx, ORGS, values)


async def get(tx: AsyncConnection, id: str) -> Org | None:
    row = (await tx.execute(select(ORGS).where(ORGS.c.id == id))).first()
    return None if row is None else _org(row)


async def change(tx: AsyncConnection, id: str, **values: Any) -> Org | None:
    """Update; None when there is no such org."""
    row = (await tx.execute(update(ORGS).where(ORGS.c.id == id).values(values).returning(ORGS))).first()
    return None if row is None else _org(row)


async def page(tx: AsyncConnection, page: Page, *, id: str | None = None, search: str | None = None) -> Part[Org]:
    """All orgs, or only this one; `search` is part of an id or a name."""
    query = select(ORGS).where(*matching(search, ORGS.c.id, ORGS.c.name))
    query = query if id is None else query.where(ORGS.c.id == id)
    return await select_page(tx, query, ORGS.c.created_at, ORGS.c.id, page, _org)


async def insert_project(tx: AsyncConnection, project: Project) -> bool:
    """Insert; False when the id exists already."""
    values = {
        "id": project.id,
        "org_id": project.org_id,
        "name": project.name,
        "created_at": project.created_at,
        "updated_at": project.updated_at,
    }
    return await insert_new(tx, PROJECTS, values)


async def get_project(tx: AsyncConnection, id: str) -> Project | None:
    row = (await tx.execute(select(PROJECTS).where(PROJECTS.c.id == id))).first()
    return None if row is None else _project(row)


async def change_project(tx: AsyncConnection, id: str, **values: Any) -> Project | None:
    """Update; None when there is no such project."""
    row = (await tx.execute(update(PROJECTS).where(PROJECTS.c.id == id).values(values).returning(PROJECTS))).first()
    return None if row is None else _project(row)


async def page_of_projects(
    tx: AsyncConnection, org_id: str, page: Page, *, id: str | None = None, search: str | None = None
) -> Part[Project]:
    """Projects of an org, or only this one; `search` is part of an id or a name."""
    found = matching(search, PROJECTS.c.id, PROJECTS.c.name)
    query = select(PROJECTS).where(PROJECTS.c.org_id == org_id, *found)
    if id is not None:
        query = query.where(PROJECTS.c.id == id)
    return await select_page(tx, query, PROJECTS.c.created_at, PROJECTS.c.id, page, _project)


def _org(row: Row[Any]) -> Org:
    return Org(row.id, row.name, row.policy, row.created_at, row.updated_at)


def _project(row: Row[Any]) -> Project:
    return Project(row.id, row.org_id, row.name, row.created_at, row.updated_at)
