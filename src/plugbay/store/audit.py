"""The audit log: changes, with actor and request. Append-only, in one hash chain for each org and one for the operator.

    await append(tx, [entry])                 adds entries at the ends of their chains
    reports = await verify(tx, org_id="org_1")

Each entry has a position, the hash of the entry before it, and its own hash, which covers all its fields. `audit_heads`
has the end of each chain, and the last entry that retention removed. A transaction appends last, in the order of the
orgs: it then waits for no other lock, so two transactions cannot wait for each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Self

import msgspec
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, Row, bindparam, insert, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from plugbay.store.metadata import MICROSECONDS
from plugbay.store.pages import Page, Part, matching, select_page
from plugbay.store.statements import Prepared, insert_missing
from plugbay.store.tables import AUDIT, AUDIT_HEADS

OPERATOR = "*"
"""The name of the chain of entries without an org; no org has this id."""

FIRST = "0" * 64
"""The hash before the first entry of a chain."""

FORMAT = "plugbay.audit.v1"
"""The first item of the hashed list. Another format needs another name and a migration."""

BATCH = 1_000
"""Entries that `verify` reads at once."""

_HEAD = Prepared(select(AUDIT_HEADS).where(AUDIT_HEADS.c.chain == bindparam("of")).with_for_update())
_INSERT = Prepared(insert(AUDIT))
_MOVE = Prepared(update(AUDIT_HEADS).where(AUDIT_HEADS.c.chain == bindparam("of")), sets=("position", "hash", "at"))


class Entry(msgspec.Struct, frozen=True):
    """One change. `append` sets its place in the chain."""

    id: str
    at: float
    org_id: str | None
    project_id: str | None
    actor_kind: str
    actor_id: str
    action: str
    subject_kind: str
    subject_id: str
    request_id: str | None
    details: dict[str, Any]
    position: int = 0
    previous_hash: str = ""
    hash: str = ""

    @property
    def chain(self) -> str:
        """The name of its chain."""
        return self.org_id or OPERATOR

    def placed_after(self, position: int, hash: str) -> Entry:
        """The entry with its place after the entry with this position and hash."""
        placed = replace(self, position=position + 1, previous_hash=hash, hash="")
        return replace(placed, hash=placed.compute_hash())

    def compute_hash(self) -> str:
        """SHA-256 of all fields but the hash, as sorted JSON."""
        values = asdict(self)
        del values["hash"]
        values["at"] = round(self.at * MICROSECONDS)
        return hashlib.sha256(msgspec.json.encode([FORMAT, values], order="sorted")).hexdigest()


class Head(msgspec.Struct, frozen=True):
    """The end of a chain at one moment: `chain:position:hash`. An operator keeps it outside of the database."""

    chain: str
    position: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """The head of a text; raises `ValueError`."""
        chain, position, hash = text.rsplit(":", 2)
        if not chain or not position.isascii() or not position.isdigit() or len(hash) != len(FIRST):
            raise ValueError(text)
        return cls(chain, int(position), hash)

    def __str__(self) -> str:
        return f"{self.chain}:{self.position}:{self.hash}"


class Broken(msgspec.Struct, frozen=True):
    """The first entry of a chain that is not as it was written."""

    kind: str
    """`changed`, `removed`, `inserted` or `cut`."""
    position: int
    entry_id: str | None
    """None: the entry is gone."""
    message: str


class Report(msgspec.Struct, frozen=True):
    """The result of the check of one chain."""

    chain: str
    entries: int
    removed: int
    """Entries that retention has removed, from the beginning."""
    head: Head
    broken: Broken | None


def to_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The public form of a check of the log."""
    chains = [{**msgspec.to_builtins(report), "head": str(report.head)} for report in reports]
    return {"valid": all(report.broken is None for report in reports), "chains": chains}


async def append(tx: AsyncConnection, entries: Iterable[Entry]) -> None:
    """Add entries to their chains, at the end of the transaction.

    The time of an entry is later than that of the entry before it, so removing by age always removes a beginning.
    """
    ordered = sorted(entries, key=lambda entry: entry.chain)  # stable: a chain keeps the order of its entries
    for chain, added in groupby(ordered, key=lambda entry: entry.chain):
        head = await _lock_head(tx, chain)
        for entry in added:
            at = max(round(entry.at * MICROSECONDS), round(head["at"] * MICROSECONDS) + 1) / MICROSECONDS
            # Hash the details as they are read back.
            details = msgspec.json.decode(msgspec.json.encode(entry.details))
            placed = replace(entry, at=at, details=details).placed_after(head["position"], head["hash"])
            await _INSERT.run(tx, asdict(placed))
            head = {"position": placed.position, "hash": placed.hash, "at": placed.at}
        await _MOVE.run(tx, {"of": chain, **head})


async def _lock_head(tx: AsyncConnection, chain: str) -> dict[str, Any]:
    """The end of a chain, locked until the transaction ends."""
    found = (await _HEAD.run(tx, {"of": chain})).first
    if found is None:
        await insert_missing(tx, AUDIT_HEADS, [new_head(chain)])
        found = (await _HEAD.run(tx, {"of": chain})).first
        assert found is not None
    return {name: found[name] for name in ("position", "hash", "at")}


def new_head(chain: str) -> dict[str, Any]:
    """The row of a chain without entries."""
    removed = {"removed_position": 0, "removed_hash": FIRST}
    return {"chain": chain, "position": 0, "hash": FIRST, "at": 0.0, **removed}


async def note_removal(tx: AsyncConnection, ids: Sequence[str]) -> None:
    """Note the last of these entries of each chain; retention is about to delete them."""
    last: dict[str, tuple[int, str]] = {}
    query = select(AUDIT.c.org_id, AUDIT.c.position, AUDIT.c.hash).where(AUDIT.c.id.in_(ids))
    for org_id, position, hash in (await tx.execute(query)).all():
        chain = org_id or OPERATOR
        last[chain] = max(last.get(chain, (0, "")), (position, hash))
    for chain, (position, hash) in sorted(last.items()):
        values = {"removed_position": position, "removed_hash": hash}
        await tx.execute(update(AUDIT_HEADS).where(AUDIT_HEADS.c.chain == chain).values(values))


async def page(
    tx: AsyncConnection,
    page: Page,
    *,
    org_id: str | None = None,
    project_id: str | None = None,
    subject_id: str | None = None,
    action: str | None = None,
    search: str | None = None,
) -> Part[Entry]:
    """Entries that match all given filters; `search` is part of an action, a subject or an actor."""
    found = matching(search, AUDIT.c.action, AUDIT.c.subject_id, AUDIT.c.actor_id)
    wanted = {"org_id": org_id, "project_id": project_id, "subject_id": subject_id, "action": action}
    exact = [AUDIT.c[name] == value for name, value in wanted.items() if value is not None]
    query = select(AUDIT).where(*exact, *found)
    return await select_page(tx, query, AUDIT.c.at, AUDIT.c.id, page, _entry)


def _entry(row: Row[Any]) -> Entry:
    return Entry(**row._mapping)


# Verification.


async def verify(tx: AsyncConnection, org_id: str | None = None, known: Sequence[Head] = ()) -> list[Report]:
    """Check every entry of the chain of an org, or of all chains (None), against heads that the operator has kept.

    In one read view: entries and heads then belong together.
    """
    heads = {row.chain: dict(row._mapping) for row in (await tx.execute(select(AUDIT_HEADS))).all()}
    if org_id is not None:
        chains = {org_id}
    else:
        owners = (await tx.execute(select(AUDIT.c.org_id).distinct())).scalars()
        chains = {*heads, *(owner or OPERATOR for owner in owners), *(head.chain for head in known)}
    reports = []
    for chain in sorted(chains):
        walk = _Walk(chain, heads.get(chain), [head for head in known if head.chain == chain])
        async for entry in _entries(tx, chain):
            walk.take(entry)
        reports.append(walk.finish())
    return reports


async def _entries(tx: AsyncConnection, chain: str) -> AsyncIterator[Entry]:
    """All entries of a chain by position."""
    own: ColumnElement[bool] = AUDIT.c.org_id.is_(None) if chain == OPERATOR else AUDIT.c.org_id == chain
    order = (AUDIT.c.position, AUDIT.c.id)
    query = select(AUDIT).where(own).order_by(*order).limit(BATCH)
    after: tuple[int, str] | None = None
    while True:
        part = query if after is None else query.where(tuple_(*order) > after)
        found = [_entry(row) for row in (await tx.execute(part)).all()]
        for entry in found:
            yield entry
        if len(found) < BATCH:
            return
        after = found[-1].position, found[-1].id


class _Walk:
    """Compares the entries of one chain with their hashes, in their order; remembers the first that is broken."""

    def __init__(self, chain: str, head: Mapping[str, Any] | None, known: Sequence[Head]) -> None:
        self._chain = chain
        self._head = head
        self._known: dict[int, set[str]] = {}
        for each in known:
            self._known.setdefault(each.position, set()).add(each.hash)
        self._removed = 0 if head is None else head["removed_position"]
        self._last = Head(chain, self._removed, FIRST if head is None else head["removed_hash"])
        self._last_id: str | None = None
        self._entries = 0
        self._broken = self._check_known(self._last.position, self._last.hash, None)

    def take(self, entry: Entry) -> None:
        """Check the next entry."""
        self._entries += 1
        if self._broken is None:
            self._broken = self._check(entry)
            self._last, self._last_id = Head(self._chain, entry.position, entry.hash), entry.id

    def _check(self, entry: Entry) -> Broken | None:
        expected = self._last.position + 1
        if entry.hash != entry.compute_hash():
            text = f"{entry.id} was changed: its hash does not match its fields"
            return Broken("changed", entry.position, entry.id, text)
        if entry.position > expected:
            text = f"{_name_entries(expected, entry.position - 1)} removed; {entry.id} follows"
            return Broken("removed", expected, None, text)
        if entry.position < expected:
            return Broken("inserted", entry.position, entry.id, f"{entry.id} was inserted: its position is used twice")
        if entry.previous_hash != self._last.hash:
            position, id = (expected, entry.id) if self._last_id is None else (self._last.position, self._last_id)
            return Broken("changed", position, id, f"{id} was changed: the next entry has a different hash for it")
        return self._check_known(entry.position, entry.hash, entry.id)

    def _check_known(self, position: int, hash: str, id: str | None) -> Broken | None:
        """Compare an entry with the heads that the operator has kept."""
        if self._known.get(position, {hash}) == {hash}:
            return None
        text = f"the entry {position} does not match the head that you kept: it or an earlier entry was changed"
        return Broken("changed", position, id, text)

    def finish(self) -> Report:
        """The report, after the last entry."""
        if self._broken is None:
            self._broken = self._check_end()
        end = self._last if self._head is None else Head(self._chain, self._head["position"], self._head["hash"])
        return Report(self._chain, self._entries, self._removed, end, self._broken)

    def _check_end(self) -> Broken | None:
        last, head = self._last, self._head
        furthest = max([0 if head is None else head["position"], *self._known])
        if furthest > last.position:
            text = f"{_name_entries(last.position + 1, furthest)} removed from the end"
            return Broken("cut", last.position + 1, None, text)
        if head is None:
            return Broken("changed", last.position, self._last_id, "the head of the chain was removed")
        if head["position"] < last.position:
            text = f"{self._last_id} was inserted: the chain ends at {head['position']}"
            return Broken("inserted", last.position, self._last_id, text)
        if head["hash"] != last.hash:
            text = f"{self._last_id} was changed: the head of the chain has a different hash for it"
            return Broken("changed", last.position, self._last_id, text)
        return None


def _name_entries(first: int, last: int) -> str:
    """`the entry 3 was`, or `the entries 3 to 5 were`."""
    return f"the entry {first} was" if first == last else f"the entries {first} to {last} were"
