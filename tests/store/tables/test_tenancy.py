"""The tables hold what must be so whoever writes: references, and one key for each digest."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from plugbay.store.database import Database
from plugbay.store.keys import ApiKey, insert
from plugbay.store.orgs import Org, Project, insert_project
from plugbay.store.orgs import insert as insert_org
from tests.support.loops import Run

KEY = ApiKey("key_1", "org_1", None, "CI", "admin", "abcd", 1.0, None, None)


def test_a_project_of_no_org_cannot_be_kept(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await insert_project(tx, Project("proj_1", "org_1", "Shop", 1.0, 1.0))
        await database.close()

    run(main)


def test_two_keys_never_have_the_same_digest(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await insert_org(tx, Org("org_1", "Acme", {}, 1.0, 1.0))
                await insert(tx, KEY, b"\x01" * 32)
                await insert(tx, ApiKey("key_2", *[getattr(KEY, name) for name in REST]), b"\x01" * 32)
        await database.close()

    run(main)


REST = ("org_id", "project_id", "name", "role", "hint", "created_at", "expires_at", "revoked_at")
