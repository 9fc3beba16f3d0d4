"""Every change is recorded with its actor, in its own transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugbay.server.domain.ids import REQUEST_ID
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.server.domain.test_orgs import MINE, OTHER
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.requirements import requirement


@requirement("vai:control-audit")
def test_every_change_names_actor_subject_and_request(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            await make_org(gateway)
            REQUEST_ID.set("req_1")
            made, key = await gateway.keys.create(MINE, "org_1", "CI", "viewer")
            await gateway.keys.revoke(MINE, made.id)
            await gateway.keys.revoke(MINE, made.id)  # changes nothing
            entries = (await gateway.audit.page(MINE, Page())).items
            assert [entry.action for entry in entries] == ["key.revoke", "key.create", "project.create", "org.create"]
            last = entries[0]
            assert (last.actor_kind, last.actor_id, last.subject_id, last.request_id) == (
                "key",
                "key_1",
                made.id,
                "req_1",
            )
            assert key not in repr(entries)
            assert (await gateway.audit.page(OTHER, Page())).items == ()
            only = await gateway.audit.page(OPERATOR, Page(), subject_id=made.id, action="key.create")
            assert [entry.action for entry in only.items] == ["key.create"]

    run(main)


@requirement("vai:control-audit")
def test_a_change_that_does_not_happen_is_not_written_down(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            with pytest.raises(LookupError):
                async with gateway.database.transaction():
                    await make_org(gateway)
                    raise LookupError
            assert (await gateway.audit.page(OPERATOR, Page())).items == ()

    run(main)
