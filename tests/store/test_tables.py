"""Constraints of the tables: foreign keys, uniqueness and states."""

from __future__ import annotations

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from plugbay.store import chains, deliveries, events, runs, sessions
from plugbay.store.database import Database
from plugbay.store.keys import ApiKey
from plugbay.store.keys import insert as insert_key
from plugbay.store.orgs import Org, Project, insert_project
from plugbay.store.orgs import insert as insert_org
from plugbay.store.tables import BINDINGS, BLOCKS, CHAINS, RUNS, SPENDING, TOKENS
from tests.store.conversing_rows import chain, delivery, event, run_row, session
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
                await insert_key(tx, KEY, b"\x01" * 32)
                await insert_key(tx, ApiKey("key_2", *[getattr(KEY, name) for name in KEY_FIELDS]), b"\x01" * 32)
        await database.close()

    run(main)


KEY_FIELDS = ("org_id", "project_id", "name", "role", "hint", "created_at", "expires_at", "revoked_at")


def test_a_token_belongs_to_an_invocation_and_a_binding_to_a_package_that_are_there(
    database_url: str, run: Run
) -> None:
    binding = {
        **dict.fromkeys("package_id package_version export_id export_kind org_id".split(), "x"),
        **{name: {} for name in ("config", "secrets", "policy")},
        **dict.fromkeys("revision created_at updated_at traffic_percent".split(), 1),
    }
    token = {"digest": b"x", "org_id": "o", "execution_id": "e", "claims": {}, "issued_at": 1, "expires_at": 2}

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        for statement in (
            insert(TOKENS).values(**token, invocation_id="inv_none"),
            insert(BINDINGS).values(**binding, id="bind_1", package_row="pkg_none", status="active"),
            insert(BINDINGS).values(**binding, id="bind_1", package_row="pkg_none", status="asleep"),
        ):
            with pytest.raises(IntegrityError):
                async with database.transaction() as tx:
                    await tx.execute(statement)
        async with database.transaction() as tx:  # the counter-check: a valid row
            await tx.execute(insert(SPENDING).values(org_id="o", execution_id="e", what="w", spent=0, updated_at=1))
        await database.close()

    run(main)


def test_two_runs_without_an_end_on_one_chain_are_impossible(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await sessions.insert(tx, session("sess_1"))
            await chains.insert(tx, chain("ch_1"))
            await runs.insert(tx, run_row("run_1", status="completed"))
            await runs.insert(tx, run_row("run_2", status="running"))
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await tx.execute(RUNS.update().where(RUNS.c.id == "run_1").values(status="queued"))
        await database.close()

    run(main)


def test_a_block_belongs_to_a_chain_and_a_chain_to_a_session(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        with pytest.raises(IntegrityError):
            async with database.transaction() as tx:
                await chains.insert(tx, chain("ch_1", session_id="sess_9"))
        await database.close()

    run(main)
    assert [key.target_fullname for key in BLOCKS.c.chain_id.foreign_keys] == [f"{CHAINS.name}.id"]


def test_a_delivery_is_of_an_event_and_has_one_of_six_states(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        async with database.transaction() as tx:
            await events.insert(tx, event("evt_1"))
            assert await deliveries.insert(tx, delivery("del_1"))
        for broken in (delivery("del_2", event_id="evt_9"), delivery("del_3", status="lost")):
            with pytest.raises(IntegrityError):
                async with database.transaction() as tx:
                    await deliveries.insert(tx, broken)
        await database.close()

    run(main)
