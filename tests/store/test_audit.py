"""The audit log, and its hash chains: every way to tamper with the real database is found and named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import asdict, replace
from sqlalchemy import delete, insert, select, update

from plugbay.store import audit, retention
from plugbay.store.audit import Broken, Entry, Head, Report
from plugbay.store.database import Database, Tx
from plugbay.store.pages import Page
from plugbay.store.tables import AUDIT, AUDIT_HEADS
from tests.support.loops import Run
from tests.support.requirements import requirement
from tests.support.tiers import one_of_each

ENTRY = Entry("aud_1", 1.0, "org_1", None, "key", "key_1", "org.update", "org", "org_1", "req_1", {"fields": ["name"]})


def unplaced(entry: Entry) -> Entry:
    """The entry as it was before it was appended."""
    return replace(entry, position=0, previous_hash="", hash="")


async def fill(database: Database, number: int = 5) -> None:
    """A log of two orgs and the operator."""
    for at in range(1, number + 1):
        async with database.transaction() as tx:
            for owner in ("org_1", "org_2", None):
                entry = replace(ENTRY, id=f"aud_{owner}_{at}", at=float(at), org_id=owner, details={"n": at, "é": 1.5})
                database.before_commit(audit.append, entry)
            del tx


async def check(database: Database, org_id: str | None = None, *known: Head) -> list[Report]:
    async with database.reading() as tx:
        return await audit.verify(tx, org_id, known)


def test_entries_come_back_filtered_and_newest_first(database_url: str, run: Run) -> None:
    async def main() -> None:
        other = replace(ENTRY, id="aud_2", at=2.0, org_id="org_2", subject_id="org_2", action="org.create")
        database = await Database.open(database_url, migrate=False)

        async def found(**filters: str) -> list[Entry]:
            async with database.reading() as tx:
                return [unplaced(entry) for entry in (await audit.page(tx, Page(), **filters)).items]

        async with database.transaction() as tx:
            await audit.append(tx, [ENTRY, other])
        assert await found() == [other, ENTRY]
        assert await found(org_id="org_1") == [ENTRY]
        assert await found(subject_id="org_2") == [other]
        assert await found(action="org.create", org_id="org_1") == []
        await database.close()

    run(main)


@requirement("vai:control-audit-chain")
def test_each_entry_has_its_place_and_the_hash_of_the_entry_before_it(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        await fill(database, 3)
        async with database.reading() as tx:
            entries = [*reversed((await audit.page(tx, Page(), org_id="org_1")).items)]
        assert [entry.position for entry in entries] == [1, 2, 3]
        assert [entry.previous_hash for entry in entries] == [audit.FIRST, entries[0].hash, entries[1].hash]
        assert all(entry.hash == entry.compute_hash() for entry in entries)
        reports = await check(database)
        assert [(report.chain, report.entries, report.broken) for report in reports] == [
            ("*", 3, None),
            ("org_1", 3, None),
            ("org_2", 3, None),
        ]
        assert reports[1].head == Head("org_1", 3, entries[-1].hash)
        assert [report.chain for report in await check(database, "org_1")] == ["org_1"]
        await database.close()

    run(main)


@requirement("vai:control-audit-chain")
def test_concurrent_changes_of_one_org_make_one_chain(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)

        async def change(number: int) -> None:
            # Orgs in both orders: heads that were locked at once could wait for each other.
            owners = ["org_1", "org_2"] if number % 2 else ["org_2", "org_1"]
            async with database.transaction():
                for owner in owners:
                    entry = replace(ENTRY, id=f"aud_{owner}_{number}", at=1.0, org_id=owner)
                    database.before_commit(audit.append, entry)
                    await asyncio.sleep(0)

        await asyncio.gather(*(change(number) for number in range(12)))
        reports = await check(database)
        assert [(report.chain, report.entries, report.broken) for report in reports] == [
            ("org_1", 12, None),
            ("org_2", 12, None),
        ]
        await database.close()

    run(main)


@requirement("vai:control-audit-chain")
def test_times_in_a_chain_increase_though_the_clock_goes_back(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        async with database.transaction() as tx:
            await audit.append(tx, [replace(ENTRY, at=9.0), replace(ENTRY, id="aud_2", at=9.0)])
            await audit.append(tx, [replace(ENTRY, id="aud_3", at=1.0)])
            times = (await tx.execute(select(AUDIT.c.at).order_by(AUDIT.c.position))).scalars().all()
        assert times == [9.0, 9.000001, 9.000002]
        await database.close()

    run(main)


def test_a_write_before_the_commit_needs_a_transaction(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        with pytest.raises(RuntimeError, match="no transaction"):
            database.before_commit(audit.append, ENTRY)
        await database.close()

    run(main)


Tamper = Callable[[Tx], Awaitable[object]]


def at(position: int) -> tuple[object, ...]:
    return (AUDIT.c.org_id == "org_1", AUDIT.c.position == position)


async def entry_at(tx: Tx, position: int) -> Entry:
    return Entry(**(await tx.execute(select(AUDIT).where(*at(position)))).one()._mapping)  # type: ignore[arg-type]


async def rewrite(tx: Tx, position: int, **values: object) -> None:
    """Change an entry and compute its hash anew."""
    entry = replace(await entry_at(tx, position), **values)
    await tx.execute(update(AUDIT).where(*at(position)).values(**values, hash=entry.compute_hash()))  # type: ignore[arg-type]


async def add(tx: Tx, position: int, after: int) -> None:
    """Insert an entry with a valid hash."""
    before = await entry_at(tx, after)
    made = replace(ENTRY, id="aud_new", at=9.0).placed_after(position - 1, before.hash)
    values = asdict(made)
    await tx.execute(insert(AUDIT).values(values))


def change(**values: object) -> Tamper:
    return lambda tx: tx.execute(update(AUDIT).where(*at(3)).values(**values))  # type: ignore[arg-type]


def remove(*positions: int) -> Tamper:
    where = (AUDIT.c.org_id == "org_1", AUDIT.c.position.in_(positions))
    return lambda tx: tx.execute(delete(AUDIT).where(*where))


def head(**values: object) -> Tamper:
    return lambda tx: tx.execute(update(AUDIT_HEADS).where(AUDIT_HEADS.c.chain == "org_1").values(**values))


async def cut_with_head(tx: Tx) -> None:
    """Remove the last entry, and move the head back."""
    last = await entry_at(tx, 4)
    await remove(5)(tx)
    await head(position=4, hash=last.hash)(tx)


async def rewrite_all(tx: Tx) -> None:
    """Change the third entry, and compute all hashes after it anew."""
    previous = (await entry_at(tx, 2)).hash
    for position in (3, 4, 5):
        entry = await entry_at(tx, position)
        made = (replace(entry, actor_id="key_9") if position == 3 else entry).placed_after(position - 1, previous)
        values = {"actor_id": made.actor_id, "previous_hash": previous, "hash": made.hash}
        await tx.execute(update(AUDIT).where(*at(position)).values(values))  # type: ignore[arg-type]
        previous = made.hash
    await head(hash=previous)(tx)


TAMPERED: dict[str, tuple[Tamper, str, int, str | None]] = {
    "an actor": (change(actor_id="key_9"), "changed", 3, "aud_org_1_3"),
    "a detail": (change(details={"n": 4, "é": 1.5}), "changed", 3, "aud_org_1_3"),
    "a time": (change(at=3.5), "changed", 3, "aud_org_1_3"),
    "a project": (change(project_id="proj_1"), "changed", 3, "aud_org_1_3"),
    "the hash before": (change(previous_hash="1" * 64), "changed", 3, "aud_org_1_3"),
    "a hash": (change(hash="1" * 64), "changed", 3, "aud_org_1_3"),
    "an entry with its hash": (lambda tx: rewrite(tx, 3, actor_id="key_9"), "changed", 3, "aud_org_1_3"),
    "the first entry with its hash": (lambda tx: rewrite(tx, 1, actor_id="key_9"), "changed", 1, "aud_org_1_1"),
    "the last entry with its hash": (lambda tx: rewrite(tx, 5, actor_id="key_9"), "changed", 5, "aud_org_1_5"),
    "an entry moved to another org": (change(org_id="org_3"), "removed", 3, None),
    "an entry removed": (remove(3), "removed", 3, None),
    "the first entries removed": (remove(1, 2), "removed", 1, None),
    "the last entries removed": (remove(4, 5), "cut", 4, None),
    "all entries removed": (remove(1, 2, 3, 4, 5), "cut", 1, None),
    "an entry inserted": (lambda tx: add(tx, 3, after=2), "inserted", 3, None),
    "an entry added": (lambda tx: add(tx, 6, after=5), "inserted", 6, "aud_new"),
    "the head removed": (
        lambda tx: tx.execute(delete(AUDIT_HEADS).where(AUDIT_HEADS.c.chain == "org_1")),
        "changed",
        5,
        "aud_org_1_5",
    ),
    "the head changed": (head(hash="1" * 64), "changed", 5, "aud_org_1_5"),
}


@requirement("vai:control-audit-verify")
@pytest.mark.parametrize("name", one_of_each(TAMPERED, lambda name: TAMPERED[name][1]))
def test_the_first_broken_entry_is_named(name: str, database_url: str, run: Run) -> None:
    tamper, kind, position, entry_id = TAMPERED[name]

    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        await fill(database)
        assert all(report.broken is None for report in await check(database)), "the log is sound before"
        async with database.transaction() as tx:
            await tamper(tx)
        broken = {report.chain: report.broken for report in await check(database)}
        found = broken.pop("org_1")
        assert isinstance(found, Broken)
        assert (found.kind, found.position) == (kind, position)
        assert found.entry_id == entry_id if kind != "inserted" else found.entry_id in ("aud_new", "aud_org_1_3")
        assert broken.pop("org_3", None) is None or name == "an entry moved to another org"
        assert set(broken.values()) == {None}, "the other chains are sound"
        await database.close()

    run(main)


@requirement("vai:control-audit-verify")
@pytest.mark.parametrize(
    ("tamper", "kind", "position"), [(cut_with_head, "cut", 5), (rewrite_all, "changed", 5)], ids=["cut", "rewritten"]
)
def test_a_log_that_was_written_anew_is_found_by_the_head_that_the_operator_kept(
    tamper: Tamper, kind: str, position: int, database_url: str, run: Run
) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        await fill(database)
        (before,) = await check(database, "org_1")
        kept = Head.parse(str(before.head))
        assert kept == before.head
        async with database.transaction() as tx:
            await audit.append(tx, [replace(ENTRY, id="aud_more", at=9.0)])
        assert (await check(database, "org_1", kept))[0].broken is None, "the log has grown since"
        async with database.transaction() as tx:
            await remove(6)(tx)
            await head(position=5, hash=kept.hash)(tx)
            await tamper(tx)
        assert (await check(database, "org_1"))[0].broken is None, "the database agrees with itself"
        broken = (await check(database, "org_1", kept))[0].broken
        assert broken is not None and (broken.kind, broken.position) == (kind, position)
        await database.close()

    run(main)


@requirement("vai:control-audit-verify")
@pytest.mark.parametrize("text", ["", "org_1", "org_1:1", "org_1:x:" + "0" * 64, "org_1:1:0", ":1:" + "0" * 64])
def test_a_text_that_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Head.parse(text)


@requirement("vai:control-audit-chain")
def test_entries_that_retention_removed_are_no_break(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        await fill(database)
        (before,) = await check(database, "org_1")
        cutoffs = {"audit": 3.5}
        async with database.transaction() as tx:
            found = await retention.find(tx, "audit", cutoffs, 4)
            assert await retention.remove(tx, "audit", cutoffs, found) == 4
        (report,) = await check(database, "org_1", before.head)
        assert (report.removed, report.entries, report.broken) in [(1, 4, None), (2, 3, None)]
        async with database.transaction() as tx:
            found = await retention.find(tx, "audit", cutoffs, 100)
            await retention.remove(tx, "audit", cutoffs, found)
        reports = await check(database)
        assert [(report.entries, report.removed, report.broken) for report in reports] == [(2, 3, None)] * 3
        async with database.transaction() as tx:
            await remove(4)(tx)
        (report,) = await check(database, "org_1")
        assert report.broken is not None and (report.broken.kind, report.broken.position) == ("removed", 4)
        await database.close()

    run(main)
