"""API keys."""

from __future__ import annotations

from plugbay.store import keys, orgs
from plugbay.store.database import Database
from plugbay.store.keys import ApiKey
from plugbay.store.pages import Page
from tests.support.loops import Run

KEY = ApiKey("key_1", "org_1", None, "CI", "admin", "abcd", 1.0, 9.0, None)
DIGEST = b"\x01" * 32


def test_a_key_is_found_by_its_digest_and_revoked_once(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await orgs.insert(tx, orgs.Org("org_1", "Acme", {}, 1.0, 1.0))
            await keys.insert(tx, KEY, DIGEST)
            assert await keys.by_digest(tx, DIGEST) == KEY == await keys.get(tx, "key_1")
            assert await keys.by_digest(tx, b"\x02" * 32) is None
            assert await keys.revoke(tx, "key_1", 5.0)
            assert not await keys.revoke(tx, "key_1", 6.0)
            found = await keys.get(tx, "key_1")
            assert found is not None and found.revoked_at == 5.0
            assert (await keys.page(tx, Page(), org_id="org_2")).items == ()
            assert (await keys.page(tx, Page(), org_id="org_1", project_id="proj_1")).items == ()
            assert (await keys.page(tx, Page(), org_id=None)).items == (found,)
        await database.close()

    run(main)
