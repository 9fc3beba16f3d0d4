"""`Bindings`: exports attached to orgs and projects, with config, secret references, policy, rollout share and status.

Package, export and scope of a binding never change; its version may, and is validated again. Validation is pure and
reports all problems at once, each with its own code. Some rules hold for every binding (no pasted secret, no secret of
another tenant), the others only for active ones.

Rollout: a project's bindings come before its org's. Bindings of one export at one scope share traffic by percent; the
bucket of a key is `sha256(binding id + key) mod 100` with the id of the oldest binding at that scope, so a session
keeps its binding while the shares behind it grow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from plugbay.contracts.schemas import compile_schema
from plugbay.contracts.vai.spec import MODES
from plugbay.host.confinement.reach import Reach
from plugbay.host.invocations.context import LONGEST, Permissions, execution_class
from plugbay.host.request import ExportBinding
from plugbay.model.spec import Export
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import LIMITS
from plugbay.server.domain.errors import GatewayError, conflict, denied, not_found, unprocessable
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import AVAILABLE, Packages
from plugbay.server.domain.policy import (
    Policy,
    effective_limits,
    effective_permissions,
    find_widened,
    intersect_policies,
    parse_policy,
    validate_policy,
)
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.secrets import SecretRef, Secrets, parse_reference
from plugbay.store import bindings as rows
from plugbay.store import orgs as org_rows
from plugbay.store import packages as package_rows
from plugbay.store import tokens as token_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, RowCache, Tx
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part
from plugbay.store.secrets import SecretRow

FULL_TRAFFIC = 100
"""Percent."""


class Share(msgspec.Struct, frozen=True):
    """The traffic share of one binding."""

    binding_id: str
    percent: int


def bucket(binding_id: str, key: str) -> int:
    """The bucket of a key, 0 to 99."""
    return int.from_bytes(hashlib.sha256(f"{binding_id}{key}".encode("utf-8", "surrogatepass")).digest()) % FULL_TRAFFIC


def pick_share(shares: Sequence[Share], key: str) -> str | None:
    """The binding for a key among those of one scope, oldest first; None if no share covers it."""
    if not shares:
        return None
    if shares[0].percent >= FULL_TRAFFIC:
        return shares[0].binding_id
    place, reached = bucket(shares[0].binding_id, key), 0
    for share in shares:
        reached += share.percent
        if place < reached:
            return share.binding_id
    return None


def select_share(of_project: Sequence[Share], of_org: Sequence[Share], key: str) -> str | None:
    """The binding that serves a key: the project's, or else the org's."""
    return pick_share(of_project, key) or pick_share(of_org, key)


def excess_percent(shares: Iterable[Share]) -> int:
    """Percent above 100 of these shares together; 0 if they fit."""
    return max(0, sum(share.percent for share in shares) - FULL_TRAFFIC)


def stable_key(*ids: str | None) -> str:
    """The rollout key: the first id that is set, such as session, chain or run."""
    return next((id for id in ids if id), "")


MAX_ERRORS = 12
"""Schema errors reported for one config."""

MAX_USERS = 1_000
"""Bindings that `using_secrets` finds."""

FIRST_PARTY = "plugbay"
"""The publisher of built-in packages."""


class Finding(msgspec.Struct, frozen=True):
    """One error or warning."""

    code: str
    path: str
    message: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "path": self.path, "message": self.message}


class BindingContext(msgspec.Struct, frozen=True):
    """The facts that a binding is validated against."""

    package: PackageRow | None
    export: Export | None
    org_policy: Policy = msgspec.field(default_factory=Policy)
    missing: frozenset[str] = frozenset()
    """Slots whose secret does not exist."""
    others: tuple[Share, ...] = ()
    """Active bindings of the same export at the same scope."""


class Verdict(msgspec.Struct, frozen=True):
    """The result of a validation."""

    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...] = ()
    permissions: Permissions = msgspec.field(default_factory=Permissions)
    limits: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def valid(self) -> bool:
        return not self.errors


def check_invariants(binding: BindingRow, context: BindingContext) -> list[Finding]:
    """Errors that no binding may have, whatever its status."""
    found = list(_reference_errors(binding))
    if context.package is None:
        text = f"there is no {binding.package_id} {binding.package_version} here"
        return [Finding("binding.package_not_found", "package_version", text), *found]
    if context.export is None:
        text = f"{binding.package_id} {binding.package_version} has no export {binding.export_id!r}"
        return [Finding("binding.unknown_export", "export_id", text), *found]
    found += _slot_errors(binding, context.export)
    found += [
        Finding("binding.policy_widens", f"policy.{name}", f"a policy can only narrow: {why}")
        for name, why in find_widened(parse_policy(binding.policy), context.export)
    ]
    return found


def judge_binding(binding: BindingRow, context: BindingContext) -> Verdict:
    """Validate a binding that is to be active; returns all errors, warnings and its effective permissions."""
    errors = check_invariants(binding, context)
    package, export = context.package, context.export
    if package is None or export is None:
        return Verdict(tuple(errors))
    errors += _package_errors(package, export)
    errors += _config_errors(export.facts.get("config_schema"), binding.config)
    policy = intersect_policies(context.org_policy, parse_policy(binding.policy))
    permissions = effective_permissions(export, policy)
    errors += _secret_errors(binding, permissions.secret_slots, context.missing)
    errors += _rollout_errors(binding, context.others)
    warnings = tuple(_warnings(package, export, policy, permissions))
    return Verdict(tuple(errors), warnings, permissions, effective_limits(export, policy))


def least_execution_class(package: PackageRow) -> str:
    """The least isolation for a package, by trust in its publisher."""
    if package.signature_status != "verified":
        return "isolated"
    return "inline" if package.package_id.partition("/")[0] == FIRST_PARTY else "worker"


def secret_references(binding: BindingRow) -> dict[str, SecretRef]:
    """The secret references of a binding by slot; invalid ones are left out."""
    found = {slot: parse_reference(text) for slot, text in binding.secrets.items()}
    return {slot: ref for slot, ref in found.items() if ref is not None}


# The rules.


def _reference_errors(binding: BindingRow) -> Iterator[Finding]:
    """Never quotes an invalid reference: it may be the secret itself."""
    for slot, text in binding.secrets.items():
        ref, path = parse_reference(text), f"secrets.{slot}"
        if ref is None:
            why = "a slot takes a reference, secret://<org or project>/<name>, never the secret itself"
            yield Finding("binding.raw_secret", path, why)
        elif ref.scope not in (binding.org_id, binding.project_id):
            why = f"a binding of this scope uses secrets of {binding.project_id or binding.org_id}, not of {ref.scope}"
            yield Finding("binding.secret_scope_denied", path, why)


def _slot_errors(binding: BindingRow, export: Export) -> list[Finding]:
    slots = _slots(export)
    text = f"{export.name} has no such slot; it has {', '.join(slots) or 'none'}"
    return [
        Finding("binding.undeclared_slot", f"secrets.{slot}", text) for slot in binding.secrets if slot not in slots
    ]


def _package_errors(package: PackageRow, export: Export) -> list[Finding]:
    found = []
    if package.status != "available":
        text = f"{package.package_id} {package.version} is quarantined: its signature is {package.signature_status}"
        found.append(Finding("binding.package_quarantined", "package_version", text))
    unsupported = export.facts.get("unsupported")
    if unsupported:
        found.append(Finding("binding.unsupported_platform", "package_version", unsupported))
    mode = export.facts.get("mode", MODES[0])
    if export.kind == "harness" and mode not in MODES:
        text = f"its harness mode is {mode!r:.60}; this gateway supports {', '.join(MODES)}"
        found.append(Finding("binding.unsupported_mode", "export_id", text))
    return found


def _config_errors(schema: Any, config: Mapping[str, Any]) -> list[Finding]:
    if schema is None:
        text = "the export has no such setting"
        return [Finding("binding.invalid_config", f"config.{key}", text) for key in islice(config, MAX_ERRORS)]
    validator = compile_schema(schema)
    if validator.is_valid(dict(config)):
        return []
    return [
        Finding("binding.invalid_config", ".".join(["config", *map(str, error.instance_path)]), error.message)
        for error in islice(validator.iter_errors(dict(config)), MAX_ERRORS)
    ]


def _secret_errors(binding: BindingRow, slots: Sequence[str], missing: Iterable[str]) -> list[Finding]:
    """Errors of the slots that the policies leave; the others get nothing, so nothing is needed for them."""
    unbound = [slot for slot in slots if slot not in binding.secrets]
    found = [Finding("binding.unbound_slot", f"secrets.{slot}", "this slot has no reference") for slot in unbound]
    text, gone = "there is no such secret", sorted(set(missing).intersection(slots))
    return found + [Finding("binding.secret_not_found", f"secrets.{slot}", text) for slot in gone]


def _rollout_errors(binding: BindingRow, others: Iterable[Share]) -> list[Finding]:
    more = excess_percent([*others, Share(binding.id, binding.traffic_percent)])
    if not more:
        return []
    text = f"together with the other active bindings of this export, that is {more} percent too much"
    return [Finding("binding.rollout_exceeded", "rollout.traffic_percent", text)]


def _warnings(package: PackageRow, export: Export, policy: Policy, permissions: Permissions) -> Iterator[Finding]:
    asked = effective_permissions(export, Policy())
    lost = [scope for scope in asked.gateway_api_scopes if scope not in permissions.gateway_api_scopes]
    if lost:
        text = f"it asks for {', '.join(lost)}, which is not granted"
        yield Finding("binding.scope_not_granted", "policy.gateway_api_scopes", text)
    if asked.network != permissions.network:
        yield Finding("binding.network_not_granted", "policy.network", "it asks for the network, which is not granted")
    if asked.filesystem != permissions.filesystem:
        text = f"it asks for {asked.filesystem} and gets {permissions.filesystem}"
        yield Finding("binding.filesystem_not_granted", "policy.filesystem", text)
    withheld = [slot for slot in asked.secret_slots if slot not in permissions.secret_slots]
    if withheld:
        text = f"it asks for the secrets {', '.join(withheld)} and does not get them"
        yield Finding("binding.secret_not_granted", "policy.secret_slots", text)
    declared, least = export.facts.get("execution_class") or "isolated", least_execution_class(package)
    if execution_class(declared, least) != declared:
        text = f"it asks for the execution class {declared}; its publisher is trusted for {least}"
        yield Finding("binding.class_raised", "policy.execution_class", text)
    if policy.timeout_ms is None and export.facts.get("timeout_ms", 0) >= LONGEST:
        yield Finding("binding.timeout_clamped", "policy.timeout_ms", f"an invocation has at most {LONGEST} ms")


def _slots(export: Export) -> list[str]:
    return list((export.facts.get("permissions") or {}).get("secret_slots", ()))


CACHE_BYTES = 16 << 20
"""Bytes of bindings with their packages, as JSON, that are remembered, and once more of lists of bindings: thousands of
usual size. One may have a mebibyte of config, so it is not their number that counts."""

ACTIVE, DISABLED, DRAFT = "active", "disabled", "draft"


class Draft(msgspec.Struct, frozen=True):
    """A new binding."""

    package_id: str
    package_version: str
    export_id: str
    org_id: str
    project_id: str | None = None
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    policy: dict[str, Any] = msgspec.field(default_factory=dict)
    status: str = ACTIVE
    traffic_percent: int = FULL_TRAFFIC


class ResolvedBinding(msgspec.Struct, frozen=True):
    """A binding with its package, its export and its effective policy."""

    row: BindingRow
    package: PackageRow
    export: Export
    policy: Policy
    binding: ExportBinding
    """For the host, without secrets."""
    reach: Reach
    """The access that the sandbox leaves the plugin."""


class Proposed(NamedTuple):
    """A binding that is not stored yet, with its package and export."""

    row: BindingRow
    package: PackageRow | None
    export: Export | None


class DryRun(msgspec.Struct, frozen=True):
    """The result that a change of a binding would have."""

    before: BindingRow | None
    after: BindingRow | None
    verdict: Verdict | None
    """None for a deletion."""
    accepted: bool
    """A draft is accepted with errors that an active binding may not have."""


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
        self.on_disabled: list[Callable[[str], object]] = []
        """Called with the id of each binding that stopped being active, after the commit."""
        self._bound = RowCache[str, ResolvedBinding](
            database, CACHE_BYTES, lambda bound: _json_size(bound.row, bound.package)
        )
        self._active = RowCache[tuple[str, str | None], list[BindingRow]](
            database, CACHE_BYTES, lambda active: _json_size(*active)
        )

    # Changing.

    async def create(self, caller: Principal, draft: Draft) -> BindingRow:
        """Create a binding; an active one must be valid."""
        async with self._database.transaction() as tx:
            proposed = await self._propose_new(tx, caller, draft)
            await self._require_valid(tx, proposed)
            row = proposed.row
            await rows.add(tx, row)
            await self._record_audit(tx, caller, "binding.create", row, status=row.status)
        return row

    async def change(
        self, caller: Principal, id: str, changes: Mapping[str, Any], revision: int | None = None
    ) -> BindingRow:
        """Change some of config, secrets, policy, status, traffic_percent and package_version.

        With a revision, only if the binding still has it.
        """
        async with self._database.transaction() as tx:
            before, proposed = await self._propose_change(tx, caller, id, changes, revision)
            await self._require_valid(tx, proposed)
            row = proposed.row
            if not await rows.replace(tx, row):
                raise conflict("binding.changed_meanwhile", "another request has changed this binding", retryable=True)
            await self._record_audit(tx, caller, "binding.update", row, fields=sorted(changes))
            if before.status == ACTIVE and row.status != ACTIVE:
                await self._end_work(tx, id)
        return row

    async def _propose_new(self, tx: Tx, caller: Principal, draft: Draft) -> Proposed:
        """A new binding, before its validation."""
        now, policy = self._clock.now(), validate_policy(draft.policy)
        await self._require(tx, caller, draft.org_id, draft.project_id)
        package = await self._packages.usable_by(tx, draft.org_id, draft.package_id, draft.package_version, "share")
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
        return Proposed(row, package, export)

    async def _propose_change(
        self, tx: Tx, caller: Principal, id: str, changes: Mapping[str, Any], revision: int | None
    ) -> tuple[BindingRow, Proposed]:
        """The binding as it is, and as it would be, before its validation."""
        changed = dict(changes)
        if "policy" in changed:
            changed["policy"] = validate_policy(changed["policy"])
        before = _visible(caller, id, await rows.get(tx, id))
        await self._require(tx, caller, before.org_id, before.project_id)
        if revision is not None and before.revision != revision:
            text = f"another request has changed this binding: it has revision {before.revision}, not {revision}"
            raise conflict("binding.changed_meanwhile", text, "revision", revision=before.revision)
        row = replace(before, **changed, revision=before.revision + 1, updated_at=self._clock.now())
        package = await self._package_of(tx, before, row.package_version)
        export = await self._export(package, row.export_id)
        if package is not None:
            row = replace(row, package_row=package.id)
        if export is not None and export.kind != before.export_kind:
            text = f"in {row.package_version} {row.export_id} is a {export.kind}, not a {before.export_kind}"
            raise unprocessable("binding.kind_changed", text, "package_version")
        return before, Proposed(row, package, export)

    # Dry runs take the same steps up to the first write. They may not write and roll back: with an `Idempotency-Key`
    # the transaction is the request's, and commits.

    async def preview_create(self, caller: Principal, draft: Draft) -> DryRun:
        """The result of `create`, without creating."""
        async with self._database.transaction() as tx:
            return await self._preview(tx, None, await self._propose_new(tx, caller, draft))

    async def preview_change(
        self, caller: Principal, id: str, changes: Mapping[str, Any], revision: int | None = None
    ) -> DryRun:
        """The result of `change`, without changing."""
        async with self._database.transaction() as tx:
            return await self._preview(tx, *await self._propose_change(tx, caller, id, changes, revision))

    async def preview_delete(self, caller: Principal, id: str) -> DryRun:
        """The result of `delete`, without deleting; raises with the ids of unfinished work."""
        async with self._database.transaction() as tx:
            return DryRun(await self._require_unused(tx, caller, id), None, None, True)

    async def _preview(self, tx: Tx, before: BindingRow | None, proposed: Proposed) -> DryRun:
        context = await self._context_of(tx, *proposed)
        refused = _refusing_errors(proposed.row, context)
        return DryRun(before, proposed.row, judge_binding(proposed.row, context), not refused)

    async def _package_of(self, tx: Tx, before: BindingRow, version: str) -> PackageRow | None:
        """The package for a changed binding: the one it has, unless its version changes or it is not available."""
        if version == before.package_version:
            package = await package_rows.get(tx, before.package_row, lock="share")
            if package is not None and package.status == AVAILABLE:
                return package
        return await self._packages.usable_by(tx, before.org_id, before.package_id, version, "share")

    async def delete(self, caller: Principal, id: str) -> BindingRow:
        """Delete a binding without running or waiting work; raises with the ids of that work."""
        async with self._database.transaction() as tx:
            row = await self._require_unused(tx, caller, id)
            await rows.delete(tx, id)
            await self._record_audit(tx, caller, "binding.delete", row)
            await self._end_work(tx, id)  # of invocations that begin in this moment
        return row

    async def _require_unused(self, tx: Tx, caller: Principal, id: str) -> BindingRow:
        row = _visible(caller, id, await rows.get(tx, id))
        await self._require(tx, caller, row.org_id, row.project_id)
        work: dict[str, Any] = dict(await rows.unfinished_work(tx, id))
        if work:
            listed = "; ".join(f"{kind} {', '.join(ids)}" for kind, ids in work.items())
            text = f"the binding {id} has unfinished work: {listed}"
            hint = "wait for it, or disable the binding, which cancels it"
            raise conflict("binding.in_use", f"{text}; {hint}", retryable=True, **work)
        return row

    async def disable_all(self, tx: Tx, caller: Principal, package_row: str, reason: str) -> list[str]:
        """Disable the active bindings of a package, in every org; returns their ids."""
        bound = await rows.of_packages(tx, [package_row], None, None)
        active = [row for row in bound if row.status == ACTIVE]
        for row in active:
            now = self._clock.now()
            await rows.replace(tx, replace(row, status=DISABLED, revision=row.revision + 1, updated_at=now))
            await self._record_audit(tx, caller, "binding.update", row, fields=["status"], reason=reason)
            await self._end_work(tx, row.id)
        return [row.id for row in active]

    async def _end_work(self, tx: Tx, id: str) -> None:
        """Revoke the tokens of a binding, and cancel its work after the commit."""
        await token_rows.revoke_of_binding(tx, id, self._clock.now())
        self._database.after_commit(lambda: self._notify_disabled(id))

    async def upsert(self, caller: Principal, draft: Draft) -> BindingRow:
        """Create or update the binding of this export at exactly this scope."""
        async with self._database.transaction() as tx:
            await self._require(tx, caller, draft.org_id, draft.project_id)
            wanted = {"package_id": draft.package_id, "export_id": draft.export_id}
            part = await rows.select_part(tx, draft.org_id, None, Page(limit=200), wanted)
            same = [row for row in part.items if row.project_id == draft.project_id]
            if not same:
                return await self.create(caller, draft)
            names = ("package_version", "config", "secrets", "policy", "status")
            return await self.change(caller, same[-1].id, {name: getattr(draft, name) for name in names})

    def _notify_disabled(self, id: str) -> None:
        for notify in self.on_disabled:
            notify(id)

    async def _require_valid(self, tx: Tx, proposed: Proposed) -> None:
        errors = _refusing_errors(proposed.row, await self._context_of(tx, *proposed))
        if errors:
            raise _validation_error(errors)

    async def _context_of(
        self, tx: Tx, row: BindingRow, package: PackageRow | None, export: Export | None
    ) -> BindingContext:
        """The validation context of a binding, as of this transaction."""
        org = await org_rows.get(tx, row.org_id)
        assert org is not None
        wanted = {
            slot: ref for slot, ref in secret_references(row).items() if ref.scope in (row.org_id, row.project_id)
        }
        missing = await self._secrets.missing(tx, row.org_id, wanted)
        active = await rows.active(tx, row.org_id, export_id=row.export_id)
        others = [other for other in active if other.id != row.id and _same_scope(other, row)]
        shares = tuple(Share(other.id, other.traffic_percent) for other in others)
        return BindingContext(package, export, parse_policy(org.policy), frozenset(missing), shares)

    async def _export(self, package: PackageRow | None, export_id: str) -> Export | None:
        return None if package is None else await self._packages.export(package, export_id)

    async def _require(self, tx: Tx, caller: Principal, org_id: str, project_id: str | None) -> None:
        await self._orgs.scope(tx, caller, org_id, project_id)
        await rows.lock_org(tx, org_id)
        if caller.project_id is not None and project_id is None:
            raise denied("auth.role_denied", "a key of one project cannot bind for its org", required=["org key"])

    async def _record_audit(self, tx: Tx, caller: Principal, action: str, row: BindingRow, **details: Any) -> None:
        facts = {"export_id": row.export_id, "package_id": row.package_id, "package_version": row.package_version}
        await self._audit.record(
            tx, caller, action, "binding", row.id, org_id=row.org_id, project_id=row.project_id, **facts, **details
        )

    # Looking.

    async def get(self, caller: Principal, id: str) -> BindingRow:
        """One binding; raises `not_found`."""
        async with self._database.reading() as tx:
            return _visible(caller, id, await rows.get(tx, id))

    async def page(
        self,
        caller: Principal,
        page: Page,
        *,
        org_id: str | None = None,
        search: str | None = None,
        **wanted: str | None,
    ) -> Part[BindingRow]:
        """Bindings visible to the caller, filtered by `store.bindings.FILTERS`; `search` is part of an id or name."""
        filters = {name: value for name, value in wanted.items() if value is not None}
        async with self._database.reading() as tx:
            if org_id is not None:
                await self._orgs.existing(tx, caller, org_id)
            return await rows.select_part(tx, org_id or caller.org_id, caller.project_id, page, filters, search)

    async def using_secrets(self, caller: Principal, secrets: Sequence[SecretRow]) -> dict[str, list[BindingRow]]:
        """Bindings visible to the caller that use these secrets, by the id of the secret; the newest `MAX_USERS`."""
        ids = {(each.org_id, str(SecretRef(each.scope, each.name))): each.id for each in secrets}
        async with self._database.reading() as tx:
            found = await rows.with_secrets(tx, ids, MAX_USERS)
        users: dict[str, list[BindingRow]] = {each.id: [] for each in secrets}
        for row in found:
            for reference in set(row.secrets.values()):
                if caller.sees(row.org_id, row.project_id) and (row.org_id, reference) in ids:
                    users[ids[row.org_id, reference]].append(row)
        return users

    async def validate(self, caller: Principal, id: str) -> Verdict:
        """Validate a binding as it is; changes nothing."""
        async with self._database.reading() as tx:
            row = _visible(caller, id, await rows.get(tx, id))
            package = await package_rows.get(tx, row.package_row)
            export = await self._export(package, row.export_id)
            return judge_binding(row, await self._context_of(tx, row, package, export))

    # Choosing.

    async def bound(self, id: str) -> ResolvedBinding | None:
        """The binding with this id, whatever its status; None if there is none."""
        return await self._bound.get(id, partial(self._read, id))

    async def _read(self, id: str) -> ResolvedBinding | None:
        async with self._database.reading() as tx:
            row = await rows.get(tx, id)
            if row is None:
                return None
            package = await package_rows.get(tx, row.package_row)
            org = await org_rows.get(tx, row.org_id)
        export = await self._export(package, row.export_id)
        assert (
            org is not None and package is not None and export is not None
        )  # checked at creation, and packages never change
        least = Policy(execution_class=least_execution_class(package))
        policy = intersect_policies(parse_policy(org.policy), parse_policy(row.policy), least)
        # Requests to a harness name its limits; the work of other kinds has the default ones.
        for_host = policy.for_host(None if export.kind == "harness" else LIMITS)
        binding = ExportBinding(row.id, row.config, {}, for_host, row.org_id, row.project_id)
        return ResolvedBinding(row, package, export, policy, binding, policy.reach())

    async def select(
        self, org_id: str, project_id: str | None, export: str, key: str, kind: str | None = None
    ) -> BindingRow | None:
        """The active binding that serves an export for this key; `export` may have its package before it.

        `acme/devkit/jira_search` and `jira_search` are both names of one; of several packages that offer the short
        one, the oldest binding's counts.
        """
        return _select_row(await self._active_of(org_id, kind), project_id, export, key)

    async def _active_of(self, org_id: str, kind: str | None) -> list[BindingRow]:
        async def read() -> list[BindingRow]:
            async with self._database.reading() as tx:
                return await rows.active(tx, org_id, export_kind=kind)

        return await self._active.get((org_id, kind), read) or []

    async def digests_in_use(self) -> frozenset[str]:
        """Digests of releases used by active bindings."""
        async with self._database.reading() as tx:
            return await rows.digests_in_use(tx)

    async def serving(self, org_id: str, project_id: str | None, kind: str, key: str) -> list[ResolvedBinding]:
        """One active binding per export of a kind, selected for this key."""
        active = await self._active_of(org_id, kind)
        names = {f"{row.package_id}/{row.export_id}" for row in active if row.project_id in (None, project_id)}
        chosen = [_select_row(active, project_id, name, key) for name in sorted(names)]
        found = [await self.bound(row.id) for row in chosen if row is not None]
        return [bound for bound in found if bound is not None]


def _select_row(active: Iterable[BindingRow], project_id: str | None, export: str, key: str) -> BindingRow | None:
    """Select the binding of an export for a key; `active` is sorted oldest first."""
    package_id, _, export_id = export.rpartition("/")
    found = [row for row in active if row.export_id == export_id and package_id in ("", row.package_id)]
    places = [row for row in found if row.project_id in (None, project_id)]
    if not places:
        return None
    first = next((row for row in places if row.project_id is not None), places[0])
    same = [row for row in places if row.package_id == first.package_id]
    of_project = [Share(row.id, row.traffic_percent) for row in same if row.project_id is not None]
    of_org = [Share(row.id, row.traffic_percent) for row in same if row.project_id is None]
    chosen = select_share(of_project, of_org, key)
    return next((row for row in same if row.id == chosen), None)


def _visible(caller: Principal, id: str, found: BindingRow | None) -> BindingRow:
    if found is None or not caller.sees(found.org_id, found.project_id):
        raise not_found("binding", id)
    return found


def _json_size(*kept: BindingRow | PackageRow) -> int:
    """Bytes as JSON; at least 1, because a cached miss takes space too."""
    return 1 + len(msgspec.json.encode(kept))


def _same_scope(one: BindingRow, other: BindingRow) -> bool:
    return one.package_id == other.package_id and one.project_id == other.project_id


def _refusing_errors(row: BindingRow, context: BindingContext) -> tuple[Finding, ...]:
    """The errors for which a binding is refused: all of an active one, else those that no binding may have."""
    return judge_binding(row, context).errors if row.status == ACTIVE else tuple(check_invariants(row, context))


def _validation_error(errors: tuple[Finding, ...] | list[Finding]) -> GatewayError:
    first = errors[0]
    return unprocessable(first.code, first.message, first.path, errors=[error.to_json() for error in errors])
