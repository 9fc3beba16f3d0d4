"""`Bindings`: exports attached to orgs and projects, with config, secrets by name, policy, rollout and a status.

Owns their life: made, changed, judged, chosen. What package, export and scope a binding has never changes; its version
may, forwards and backwards, and is judged anew. Whoever disables one is told to `disabled` in the same breath, so that
nothing of it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec

from plugbay.model.spec import Export
from plugbay.server.domain import binding_rules as rules
from plugbay.server.domain import policy as policies
from plugbay.server.domain import rollout
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.binding_rules import Finding, Surroundings, Verdict
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import GatewayError, conflict, denied, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import Packages
from plugbay.server.domain.policy import Policy
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.rollout import Share
from plugbay.server.domain.secrets import Secrets
from plugbay.store import bindings as rows
from plugbay.store import orgs as org_rows
from plugbay.store import packages as package_rows
from plugbay.store import tokens as token_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, RowCache, Tx
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part

ROOM = 16 << 20
"""Bytes of bindings with their packages, as JSON, that are remembered, and once more of lists of bindings: thousands of
usual size. One may have a mebibyte of config, so it is not their number that counts."""

ACTIVE, DISABLED, DRAFT = "active", "disabled", "draft"


@dataclass(frozen=True, slots=True)
class Draft:
    """What a new binding is to be."""

    package_id: str
    package_version: str
    export_id: str
    org_id: str
    project_id: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    status: str = ACTIVE
    traffic_percent: int = rollout.WHOLE


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding, what it is bound to, and what is taken away from that: by its org, by itself, for want of trust."""

    row: BindingRow
    package: PackageRow
    export: Export
    policy: Policy


class Bindings:
    """All bindings."""

    def __init__(
        self,
        database: Database,
        orgs: Orgs,
        packages: Packages,
        secrets: Secrets,
        audit: Audit,
        clock: Clock,
        ids: Ids = new_id,
    ) -> None:
        self._database = database
        self._orgs = orgs
        self._packages = packages
        self._secrets = secrets
        self._audit = audit
        self._clock = clock
        self._ids = ids
        self.disabled: list[Callable[[str], object]] = []
        """Told the id of each binding that is active no more, once that is so."""
        self._bound = RowCache[str, Bound](database, ROOM, lambda bound: _size(bound.row, bound.package))
        self._active = RowCache[tuple[str, str | None], list[BindingRow]](database, ROOM, lambda active: _size(*active))

    # Changing.

    async def create(self, caller: Principal, draft: Draft) -> BindingRow:
        """A new binding; one that is to be active must be valid."""
        now, policy = self._clock.now(), policies.document(draft.policy)
        async with self._database.transaction() as tx:
            await self._require(tx, caller, draft.org_id, draft.project_id)
            package = await self._packages.usable_by(tx, draft.org_id, draft.package_id, draft.package_version)
            export = await self._export(package, draft.export_id)
            row = BindingRow(
                id=self._ids("bind_"),
                package_row="" if package is None else package.id,
                package_id=draft.package_id,
                package_version=draft.package_version,
                export_id=draft.export_id,
                export_kind="" if export is None else export.kind,
                org_id=draft.org_id,
                project_id=draft.project_id,
                config=draft.config,
                secrets=draft.secrets,
                policy=policy,
                status=draft.status,
                traffic_percent=draft.traffic_percent,
                revision=1,
                created_at=now,
                updated_at=now,
            )
            await self._admit(tx, row, package, export)
            await rows.add(tx, row)
            await self._note(tx, caller, "binding.create", row, status=row.status)
        return row

    async def change(self, caller: Principal, id: str, changes: Mapping[str, Any]) -> BindingRow:
        """Change some of config, secrets, policy, status, traffic_percent and package_version."""
        changed = dict(changes)
        if "policy" in changed:
            changed["policy"] = policies.document(changed["policy"])
        async with self._database.transaction() as tx:
            before = _seen(caller, id, await rows.get(tx, id))
            await self._require(tx, caller, before.org_id, before.project_id)
            row = replace(before, **changed, revision=before.revision + 1, updated_at=self._clock.now())
            package = await self._packages.usable_by(tx, row.org_id, row.package_id, row.package_version)
            export = await self._export(package, row.export_id)
            if package is not None:
                row = replace(row, package_row=package.id)
            if export is not None and export.kind != before.export_kind:
                text = f"in {row.package_version} {row.export_id} is a {export.kind}, not a {before.export_kind}"
                raise unprocessable("binding.kind_changed", text, "package_version")
            await self._admit(tx, row, package, export)
            if not await rows.replace(tx, row):
                raise conflict("binding.changed_meanwhile", "somebody else has changed this binding", retryable=True)
            await self._note(tx, caller, "binding.update", row, fields=sorted(changed))
            if before.status == ACTIVE and row.status != ACTIVE:
                await token_rows.revoke_of_binding(tx, id, self._clock.now())
                self._database.after_commit(lambda: self._tell_disabled(id))
        return row

    async def upsert(self, caller: Principal, draft: Draft) -> BindingRow:
        """The binding of this export at exactly this scope as the draft says, made or changed."""
        async with self._database.transaction() as tx:
            await self._require(tx, caller, draft.org_id, draft.project_id)
            wanted = {"package_id": draft.package_id, "export_id": draft.export_id}
            part = await rows.select_part(tx, draft.org_id, None, Page(limit=200), wanted)
            same = [row for row in part.items if row.project_id == draft.project_id]
            if not same:
                return await self.create(caller, draft)
            names = ("package_version", "config", "secrets", "policy", "status")
            return await self.change(caller, same[-1].id, {name: getattr(draft, name) for name in names})

    def _tell_disabled(self, id: str) -> None:
        for told in self.disabled:
            told(id)

    async def _admit(self, tx: Tx, row: BindingRow, package: PackageRow | None, export: Export | None) -> None:
        around = await self._around(tx, row, package, export)
        errors = rules.judge(row, around).errors if row.status == ACTIVE else tuple(rules.always(row, around))
        if errors:
            raise _refused(errors)

    async def _around(self, tx: Tx, row: BindingRow, package: PackageRow | None, export: Export | None) -> Surroundings:
        """What a binding is judged by, as it is in this transaction."""
        org = await org_rows.get(tx, row.org_id)
        assert org is not None
        wanted = {slot: ref for slot, ref in rules.references(row).items() if ref.scope in (row.org_id, row.project_id)}
        missing = await self._secrets.missing(tx, row.org_id, wanted)
        active = await rows.active(tx, row.org_id, export_id=row.export_id)
        others = [other for other in active if other.id != row.id and _same_place(other, row)]
        shares = tuple(Share(other.id, other.traffic_percent) for other in others)
        return Surroundings(package, export, policies.parsed(org.policy), frozenset(missing), shares)

    async def _export(self, package: PackageRow | None, export_id: str) -> Export | None:
        if package is None:
            return None
        found = await self._packages.found(package)
        assert found.spec is not None
        return next((export for export in found.spec.exports if export.name == export_id), None)

    async def _require(self, tx: Tx, caller: Principal, org_id: str, project_id: str | None) -> None:
        await self._orgs.scope(tx, caller, org_id, project_id)
        await rows.lock_org(tx, org_id)
        if caller.project_id is not None and project_id is None:
            raise denied("auth.role_denied", "a key of one project binds nothing for its org", required=["org key"])

    async def _note(self, tx: Tx, caller: Principal, action: str, row: BindingRow, **details: Any) -> None:
        facts = {"export_id": row.export_id, "package_id": row.package_id, "package_version": row.package_version}
        await self._audit.record(
            tx, caller, action, "binding", row.id, org_id=row.org_id, project_id=row.project_id, **facts, **details
        )

    # Looking.

    async def get(self, caller: Principal, id: str) -> BindingRow:
        """One binding; raises `not_found`."""
        async with self._database.reading() as tx:
            return _seen(caller, id, await rows.get(tx, id))

    async def page(
        self, caller: Principal, page: Page, *, org_id: str | None = None, **wanted: str | None
    ) -> Part[BindingRow]:
        """What the caller can see, narrowed by the fields of `store.bindings.FILTERS`."""
        said = {name: value for name, value in wanted.items() if value is not None}
        async with self._database.reading() as tx:
            if org_id is not None:
                await self._orgs.existing(tx, caller, org_id)
            return await rows.select_part(tx, org_id or caller.org_id, caller.project_id, page, said)

    async def validate(self, caller: Principal, id: str) -> Verdict:
        """Whether a binding could run as it is now; changes nothing."""
        async with self._database.reading() as tx:
            row = _seen(caller, id, await rows.get(tx, id))
            package = await package_rows.get(tx, row.package_row)
            export = await self._export(package, row.export_id)
            return rules.judge(row, await self._around(tx, row, package, export))

    # Choosing.

    async def bound(self, id: str) -> Bound | None:
        """The binding with this id, whatever its status, and what it is bound to."""
        return await self._bound.get(id, partial(self._read, id))

    async def _read(self, id: str) -> Bound | None:
        async with self._database.reading() as tx:
            row = await rows.get(tx, id)
            if row is None:
                return None
            package = await package_rows.get(tx, row.package_row)
            org = await org_rows.get(tx, row.org_id)
        export = await self._export(package, row.export_id)
        assert org is not None and package is not None and export is not None  # it was bound, and packages never change
        least = Policy(execution_class=rules.floor(package))
        policy = policies.narrowest(policies.parsed(org.policy), policies.parsed(row.policy), least)
        return Bound(row, package, export, policy)

    async def select(
        self, org_id: str, project_id: str | None, export: str, key: str, kind: str | None = None
    ) -> BindingRow | None:
        """The active binding that serves an export for this key; `export` may have its package before it.

        `acme/devkit/jira_search` and `jira_search` are both names of one; of several packages that offer the short
        one, the oldest binding's counts.
        """
        return _serving(await self._active_of(org_id, kind), project_id, export, key)

    async def _active_of(self, org_id: str, kind: str | None) -> list[BindingRow]:
        async def read() -> list[BindingRow]:
            async with self._database.reading() as tx:
                return await rows.active(tx, org_id, export_kind=kind)

        return await self._active.get((org_id, kind), read) or []

    async def digests_in_use(self) -> frozenset[str]:
        """The releases that some active binding names, by their digests."""
        async with self._database.reading() as tx:
            return await rows.digests_in_use(tx)

    async def serving(self, org_id: str, project_id: str | None, kind: str, key: str) -> list[Bound]:
        """One active binding for each export of a kind that an org or a project has, as this key sees them."""
        active = await self._active_of(org_id, kind)
        names = {f"{row.package_id}/{row.export_id}" for row in active if row.project_id in (None, project_id)}
        chosen = [_serving(active, project_id, name, key) for name in sorted(names)]
        found = [await self.bound(row.id) for row in chosen if row is not None]
        return [bound for bound in found if bound is not None]


def _serving(active: Iterable[BindingRow], project_id: str | None, export: str, key: str) -> BindingRow | None:
    """The one of these, the oldest first, that serves an export for a key."""
    package_id, _, export_id = export.rpartition("/")
    found = [row for row in active if row.export_id == export_id and package_id in ("", row.package_id)]
    places = [row for row in found if row.project_id in (None, project_id)]
    if not places:
        return None
    first = next((row for row in places if row.project_id is not None), places[0])
    same = [row for row in places if row.package_id == first.package_id]
    of_project = [Share(row.id, row.traffic_percent) for row in same if row.project_id is not None]
    of_org = [Share(row.id, row.traffic_percent) for row in same if row.project_id is None]
    chosen = rollout.selected(of_project, of_org, key)
    return next((row for row in same if row.id == chosen), None)


def _seen(caller: Principal, id: str, found: BindingRow | None) -> BindingRow:
    if found is None or not caller.sees(found.org_id, found.project_id):
        raise not_found("binding", id)
    return found


def _size(*kept: BindingRow | PackageRow) -> int:
    """Bytes; of nothing, too, something has to be kept."""
    return 1 + len(msgspec.json.encode(kept))


def _same_place(one: BindingRow, other: BindingRow) -> bool:
    return one.package_id == other.package_id and one.project_id == other.project_id


def _refused(errors: tuple[Finding, ...] | list[Finding]) -> GatewayError:
    first = errors[0]
    return unprocessable(first.code, first.message, first.path, errors=[error.to_json() for error in errors])
