"""`Packages`: releases as rows, with their exports; `Releases`: their files on disk.

A release whose signature is trusted is available; any other is quarantined, unless the operator requires no signatures.
The contents of a version never change once it was available; a quarantined upload gives way to the next one.
An archive is unpacked and verified in a staging folder, published in one step into a folder named by its digest, and
its hash is checked again before a process starts. `Releases` blocks on disk, so it runs in threads.

Registries are contacted at public addresses and those in `[network] allow_private`, and by name as `[registries]`
allows. The reason of a failed pull is only in the log: callers cannot learn from an answer whether an address exists.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from plugbay.host.discovery.folders import Found, inspect
from plugbay.model.errors import ConfigInvalid, ManifestInvalid
from plugbay.model.spec import Export, PluginSpec
from plugbay.packages import signature as signatures
from plugbay.packages.connection import NO_EXCEPTIONS, Connection
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.installer import verify
from plugbay.packages.package import (
    SIGNATURE_NAME,
    Opened,
    open_archive,
    read_folder,
    read_signature,
    tree_sha256,
)
from plugbay.packages.reference import Reference, Registries
from plugbay.packages.reference import parse as parse_reference
from plugbay.packages.registry import pull
from plugbay.packages.rules import DEFAULT_LIMITS, Limits
from plugbay.packages.signature import Signature
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.errors import (
    NOT_FOUND,
    GatewayError,
    conflict,
    denied,
    not_found,
    too_large,
    too_many,
    unavailable,
    unprocessable,
)
from plugbay.server.domain.ids import Ids, new_id
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.store import bindings as binding_rows
from plugbay.store import invocations as invocation_rows
from plugbay.store import marketplace as entry_rows
from plugbay.store import packages as rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, Tx
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part, cut

PACKAGES_FOLDER = "packages"
"""Below the data directory."""

TRUST_FILE = "trust.json"

UNTRUSTED = frozenset({Reason.KEY_UNKNOWN, Reason.KEY_EXPIRED, Reason.KEY_REVOKED, Reason.KEY_OF_OTHER_PUBLISHER})
"""Reasons why a valid signature is not trusted."""

CONFLICTS = frozenset(
    {
        Reason.DOWNGRADE,
        Reason.REPLAYED,
        Reason.VERSION_CONFLICT,
        Reason.PINNED,
        Reason.CHANGED_MEANWHILE,
        Reason.NO_EARLIER_RELEASE,
    }
)
"""Reasons that lie in what is installed, not in the package."""

CONTRACT = "vai"

VERIFIED, UNTRUSTED_SIGNATURE, INVALID = "verified", "untrusted", "invalid"
"""Statuses of a signature, with `missing`."""


class SignatureVerdict(msgspec.Struct, frozen=True):
    """The trust in a signature."""

    status: str
    """`verified`, `untrusted` or `missing`; an invalid signature is refused."""
    key_id: str | None = None
    why: str = ""


class ReadSignature(msgspec.Struct, frozen=True):
    """The signature of a stored release."""

    status: str
    """`verified`, `untrusted`, `missing` or `invalid`."""
    signature: Signature | None = None
    publisher: str | None = None
    """The publisher whose key signed it; None unless it is verified."""


class UnpackedPackage(msgspec.Struct, frozen=True):
    """An archive unpacked in a staging folder and verified."""

    opened: Opened
    manifest: dict[str, Any]
    verdict: SignatureVerdict

    @property
    def digest(self) -> str:
        return self.opened.digest


TRUST_VARIABLE = "PLUGBAY_TRUST_FILE"
"""Names a mounted file with the trusted keys, the same for several gateways; default: in the data directory."""


class Releases:
    """The package files of one gateway."""

    def __init__(self, data: Path, clock: Callable[[], datetime], limits: Limits = DEFAULT_LIMITS) -> None:
        self._store = Store(data / PACKAGES_FOLDER)
        self.trust = TrustStore(Path(os.environ.get(TRUST_VARIABLE) or data / TRUST_FILE))
        self.clock = clock
        self.limits = limits
        self._known: dict[str, Found] = {}

    def sweep(self) -> None:
        """Remove leftovers of killed uploads."""
        with self._store.locked():
            self._store.sweep_leftovers()

    @contextmanager
    def unpack(self, archive: Path, signature: bytes | None = None) -> Iterator[UnpackedPackage]:
        """Unpack and verify an archive in a staging folder, removed afterwards. `signature` is a detached one."""
        with self._store.staging() as folder:
            opened = open_archive(archive, folder, self.limits)
            spec = opened.package.spec
            if spec.contract != CONTRACT:
                text = f"{spec.id} is a {spec.contract} plugin; this server takes {CONTRACT} packages only"
                raise PackageRefused(Reason.INVALID_MANIFEST, text)
            given = signature if signature is not None else opened.signature
            verdict = self._verify(opened, given)
            if given is not None:
                (opened.package.root / SIGNATURE_NAME).write_bytes(given)
            text = (opened.package.root / opened.package.manifest).read_text("utf-8")
            yield UnpackedPackage(opened, tomllib.loads(text), verdict)

    def keep(self, unpacked_package: UnpackedPackage) -> None:
        """Publish an unpacked release; idempotent. A verified signature takes the place of one that is not."""
        package, digest = unpacked_package.opened.package, unpacked_package.digest
        given = read_signature(package.root)
        with self._store.locked():
            self._store.publish(package.root, digest, package.id)
            stored = read_signature(self.folder(digest, package.id))
            if given is None or given == stored or unpacked_package.verdict.status != VERIFIED:
                return
            with suppress(PackageRefused):  # the stored one is invalid
                if self._verify(unpacked_package.opened, stored).status == VERIFIED:
                    return
            self._store.replace_signature(digest, package.id, given)

    def is_kept(self, digest: str, package_id: str) -> bool:
        """Whether the files of a release are here."""
        return digest in self._known or self.folder(digest, package_id).is_dir()

    def restore(self, digest: str, archive: bytes, signature: bytes | None) -> None:
        """Unpack, verify and publish the archive of another gateway; raises `PackageRefused`."""
        with tempfile.TemporaryDirectory(prefix="plugbay-package-") as folder:
            path = Path(folder, "package")
            path.write_bytes(archive)
            with self.unpack(path, signature) as unpacked:
                if unpacked.digest != digest:
                    raise PackageRefused(Reason.TAMPERED, f"the archive that other gateways have is not {digest}")
                self.keep(unpacked)

    def discard(self, digest: str) -> None:
        """Remove the files of a release."""
        self._known.pop(digest, None)
        with self._store.locked():
            self._store.discard(digest)

    def _verify(self, opened: Opened, signature: bytes | None) -> SignatureVerdict:
        """Raises `PackageRefused` for an invalid signature."""
        if signature is None:
            return SignatureVerdict("missing", why="it has no signature")
        try:
            return SignatureVerdict(VERIFIED, verify(opened.package, signature, self.trust, self.clock()).key.key_id)
        except PackageRefused as refused:
            if refused.reason not in UNTRUSTED:
                raise
            return SignatureVerdict(UNTRUSTED_SIGNATURE, why=refused.message)

    def read_signature(self, row: PackageRow) -> ReadSignature:
        """Verify the stored signature of a release: its key, and that it is for these files, by their hash.

        The files themselves are hashed when they are used.
        """
        try:
            data = read_signature(self.folder(row.digest, row.package_id))
            if data is None:
                return ReadSignature("missing")
            signature = signatures.read(data)
            key = self.trust.judge(signature.key_id, row.package_id, self.clock())
            signatures.check_key(signature, key.public_key)
        except PackageRefused as refused:
            return ReadSignature(UNTRUSTED_SIGNATURE if refused.reason in UNTRUSTED else INVALID)
        stated = signature.package_id, signature.version, signature.tree_sha256, tree_sha256(signature.files)
        if stated != (row.package_id, row.version, row.tree_sha256, row.tree_sha256):
            return ReadSignature(INVALID)
        return ReadSignature(VERIFIED, signature, key.publisher)

    def folder(self, digest: str, package_id: str) -> Path:
        """Where the files of a release are."""
        return self._store.package_folder(digest, package_id)

    def cached(self, digest: str) -> Found | None:
        """The manifest of a release, if it was read before."""
        return self._known.get(digest)

    def load(self, digest: str, package_id: str) -> Found:
        """The manifest of a release, read once. Raises `PackageRefused` if its files are missing."""
        known = self.cached(digest)
        if known is None:
            root = self.folder(digest, package_id)
            known = inspect(root)
            if known.spec is None:
                raise PackageRefused(Reason.MISSING_FILE, f"the files of {package_id} are missing from {root}")
            self._known[digest] = known
        return known

    def load_verified(self, digest: str, package_id: str, tree_sha256: str) -> Found:
        """The manifest of a release after verifying all files; raises `PackageRefused`."""
        root = self.folder(digest, package_id)
        try:
            package = read_folder(root, to_pack=False)
        except OSError as error:
            raise PackageRefused(Reason.MISSING_FILE, f"the files of {package_id} are missing from {root}") from error
        if package.tree_sha256 != tree_sha256:
            raise PackageRefused(Reason.TAMPERED, f"the files of {package_id} changed since they were verified")
        return self.load(digest, package_id)


AVAILABLE, QUARANTINED = "available", "quarantined"

T = TypeVar("T")

UPLOAD = "upload"
"""The source of an uploaded package."""

LOG = logging.getLogger("plugbay.server.domain")

PULL_SECONDS = 600.0
"""Total time of a pull for a caller of the API."""

MAX_PULLS = 2
"""Pulls at the same time, of each org."""

_UNREACHED = frozenset({Reason.REGISTRY_FAILED, Reason.INSECURE_TRANSPORT})
"""Reasons that would reveal whether an address exists."""


class PackageSettings(msgspec.Struct, frozen=True):
    """Settings of packages."""

    require_signature: bool = True
    """Only signed packages of trusted keys are usable."""
    opened: frozenset[str] = frozenset()
    """`address:port` of registries allowed at private addresses."""
    registries: Registries = NO_EXCEPTIONS
    """Registries that the operator allows by name."""


class ListedExport(msgspec.Struct, frozen=True):
    """One export of one release, with the bindings visible to the caller."""

    package: PackageRow
    export: Export
    bindings: tuple[BindingRow, ...]

    @property
    def place(self) -> tuple[float, str]:
        """The sort key."""
        return self.package.created_at, f"{self.package.id}.{self.export.name}"

    def kind_table(self) -> dict[str, Any]:
        """The manifest table of its kind, with schema files inlined."""
        entries = self.package.manifest.get("exports", [])
        table = next((entry.get(self.export.kind) for entry in entries if entry.get("id") == self.export.name), None)
        schemas = {"input_schema": self.export.input_schema, "output_schema": self.export.output_schema}
        return {name: schemas.get(name, value) for name, value in (table or {}).items()}


class Download(NamedTuple):
    """A package from a registry."""

    archive: Path
    signature: bytes | None
    reference: Reference
    """With the digest of its manifest."""


class Packages:
    """All packages."""

    def __init__(
        self,
        database: Database,
        releases: Releases,
        orgs: Orgs,
        audit: Audit,
        clock: Clock,
        settings: PackageSettings | None = None,
        ids: Ids = new_id,
    ) -> None:
        self._database = database
        self._releases = releases
        self._orgs = orgs
        self._audit = audit
        self._clock = clock
        self._settings = settings or PackageSettings()
        self._ids = ids
        self._pulls = Counter[str]()
        self._connections: set[Connection] = set()
        self._fetching = asyncio.Lock()
        self._storing = asyncio.Lock()
        """Held while files and rows change: files without a row are removed."""

    async def pull(self, caller: Principal, source: str) -> tuple[PackageRow, bool]:
        """Pull a package by digest and store it; returns its row and whether it is new."""
        reference = _parse_pinned(source)
        async with self.download(caller, reference) as pulled:
            return await self.upload(caller, pulled.archive, pulled.signature, source=str(reference))

    @asynccontextmanager
    async def download(self, caller: Principal, reference: Reference) -> AsyncIterator[Download]:
        """A package from a registry, in a folder that is removed afterwards."""
        with self._pulling(caller.org_id or ""), tempfile.TemporaryDirectory(prefix="plugbay-pull-") as folder:
            pulling = asyncio.to_thread(self._pull_archive, reference, Path(folder))
            yield await translate_refusals(_hide_registry_details(reference, pulling))

    @contextmanager
    def _pulling(self, owner: str) -> Iterator[None]:
        """Limit the pulls of an owner: a slow registry holds a thread."""
        if self._pulls[owner] >= MAX_PULLS:
            raise too_many(f"{MAX_PULLS} packages are already being pulled", retry_after=5.0, code="quota.pulls")
        self._pulls[owner] += 1
        try:
            yield
        finally:
            self._pulls[owner] -= 1

    def stop(self) -> None:
        """End all pulls: their threads would keep the process alive."""
        for connection in list(self._connections):
            connection.abort()

    def _pull_archive(self, reference: Reference, folder: Path) -> Download:
        exceptions = self._settings.registries
        with Connection(
            reference, opened=self._settings.opened, registries=exceptions, seconds=PULL_SECONDS
        ) as connection:
            self._connections.add(connection)
            try:
                pulled = pull(connection, reference, folder, self._releases.limits)
            finally:
                self._connections.discard(connection)
        signature = None if pulled.signature is None else pulled.signature.read_bytes()
        return Download(pulled.archive, signature, pulled.reference)

    async def upload(
        self,
        caller: Principal,
        archive: Path,
        signature: bytes | None = None,
        *,
        source: str = UPLOAD,
        shared: bool = False,
    ) -> tuple[PackageRow, bool]:
        """Store a package; returns its row and whether it is new. Raises if it is invalid.

        It belongs to the caller's org, or is shared if `shared` is set or the operator of all orgs adds it.
        """
        unpacked = ExitStack()
        try:
            unpacking = self._releases.unpack(archive, signature)
            unpacked_package = await translate_refusals(asyncio.to_thread(unpacked.enter_context, unpacking))
            async with self._storing:
                # Files first: a row must never refer to missing files.
                await translate_refusals(asyncio.to_thread(self._releases.keep, unpacked_package))
                await self._keep_archive(unpacked_package.digest, archive, signature)
                owner = None if shared else caller.org_id
                try:
                    row, new, before = await self._record(caller, unpacked_package, source, owner)
                except GatewayError:
                    await self._discard_unused(unpacked_package.digest)
                    raise
                if before is not None:
                    await self._discard_unused(before)
            return row, new
        finally:
            await asyncio.to_thread(unpacked.close)

    async def _record(
        self, caller: Principal, unpacked_package: UnpackedPackage, source: str, owner: str | None
    ) -> tuple[PackageRow, bool, str | None]:
        """The row, whether it is new, and the digest whose place it takes."""
        package, verdict = unpacked_package.opened.package, unpacked_package.verdict
        now, status = self._clock.now(), self._status(verdict.status)
        row = PackageRow(
            id=self._ids("pkg_"),
            org_id=owner,
            package_id=package.id,
            version=package.version,
            digest=unpacked_package.digest,
            tree_sha256=package.tree_sha256,
            manifest=unpacked_package.manifest,
            signature_status=verdict.status,
            key_id=verdict.key_id,
            status=status,
            source=source,
            created_at=now,
            accepted_at=now if status == AVAILABLE else None,
        )
        async with self._database.transaction() as tx:
            if await rows.insert(tx, row):
                await self._record_audit(tx, caller, "package.create", row)
                return row, True, None
            before = await rows.find(tx, owner, row.package_id, row.version, deleted=True, lock="update")
            assert before is not None
            if before.digest == row.digest and before.deleted_at is None:
                return await self._judge_again(tx, caller, before, row), False, None
            return await self._replace(tx, caller, before, row, package.spec), True, before.digest

    async def _judge_again(self, tx: Tx, caller: Principal, before: PackageRow, row: PackageRow) -> PackageRow:
        """The same release once more, perhaps with a better signature."""
        if before.signature_status in (VERIFIED, row.signature_status):
            return before
        judged = replace(
            before,
            signature_status=row.signature_status,
            key_id=row.key_id,
            status=row.status,
            accepted_at=before.accepted_at or row.accepted_at,
        )
        await rows.judge(tx, judged)
        await self._record_audit(tx, caller, "package.update", judged)
        return judged

    async def _replace(
        self, tx: Tx, caller: Principal, before: PackageRow, row: PackageRow, spec: PluginSpec
    ) -> PackageRow:
        """Take the place of an upload that was never accepted, or of a deleted package; raises for other contents of an
        accepted version.
        """
        if before.digest != row.digest and before.accepted_at is not None:
            gone = "" if before.deleted_at is None else ", and was deleted"
            text = f"{row.package_id} {row.version} exists with other contents{gone}; a version must not change"
            raise conflict("package.version_conflict", text, expected=before.digest, found=row.digest)
        if row.org_id is not None:
            _require_org_key(caller)
        bound = await binding_rows.of_packages(tx, [before.id], None, None)
        kinds = {export.name: export.kind for export in spec.exports}
        lost = [binding for binding in bound if kinds.get(binding.export_id) != binding.export_kind]
        if lost:
            named = [binding.id for binding in lost if caller.sees(binding.org_id, binding.project_id)]
            text = f"bindings use exports of {row.package_id} {row.version} that this upload does not have"
            listed = ", ".join(named) or "those of other orgs"
            raise conflict("package.in_use", f"{text}: {listed}; delete them first", bindings=named)
        row = replace(row, id=before.id, accepted_at=before.accepted_at or row.accepted_at)
        await rows.replace_contents(tx, row)
        if before.deleted_at is None:
            await self._record_audit(tx, caller, "package.replace", row, before=before.digest)
        else:
            await self._record_audit(tx, caller, "package.create", row)
        return row

    async def _record_audit(self, tx: Tx, caller: Principal, action: str, row: PackageRow, **more: Any) -> None:
        facts = {"package_id": row.package_id, "version": row.version, "signature": row.signature_status, **more}
        await self._audit.record(tx, caller, action, "package", row.id, org_id=row.org_id, **facts)

    async def _discard_unused(self, digest: str) -> None:
        """Remove files that no package of any org has any more. Needs `_storing`."""
        async with self._database.every_org(), self._database.reading() as tx:
            stored = await rows.is_stored(tx, digest)
        if not stored:
            await asyncio.to_thread(self._releases.discard, digest)
            if self._database.fence is not None:
                async with self._database.transaction() as tx:
                    await rows.remove_archive(tx, digest)

    # The files of a release at each of several gateways.

    async def _keep_archive(self, digest: str, archive: Path, signature: bytes | None) -> None:
        """Keep the archive for other gateways."""
        if self._database.fence is not None:
            data = await asyncio.to_thread(archive.read_bytes)
            async with self._database.transaction() as tx:
                await rows.keep_archive(tx, digest, data, signature)

    async def fetch(self, row: PackageRow) -> None:
        """Have the files of a release here, if another gateway took the upload. They are verified again."""
        if self._database.fence is None or await asyncio.to_thread(self._releases.is_kept, row.digest, row.package_id):
            return
        async with self._fetching:
            async with self._database.reading() as tx:
                found = await rows.read_archive(tx, row.digest)
            if found is not None:
                await translate_refusals(asyncio.to_thread(self._releases.restore, row.digest, *found))

    async def delete(self, caller: Principal, id: str) -> PackageRow:
        """Delete a package that nothing uses; raises with the ids of its users.

        Its version stays taken: only the same contents can come back.
        """
        async with self._storing:
            async with self._database.transaction() as tx:
                row = await rows.get(tx, id, lock="update")
                if row is None or not _sees(caller, row):
                    raise not_found("package", id)
                if row.org_id is None:
                    require_operator_of_all(caller, "deletes shared packages")
                _require_org_key(caller)
                bound = await binding_rows.of_packages(tx, [id], None, None)
                entries = await entry_rows.all_entries(tx, id)
                users: dict[str, Any] = {
                    "bindings": [binding.id for binding in bound],
                    "invocations": await invocation_rows.running_of(tx, row.org_id, row.package_id, row.version),
                    "marketplace_entries": [entry.id for entry in entries],
                }
                users = {kind: ids for kind, ids in users.items() if ids}
                if users:
                    listed = "; ".join(f"{kind.replace('_', ' ')} {', '.join(ids)}" for kind, ids in users.items())
                    text = f"{row.package_id} {row.version} is in use by {listed}"
                    raise conflict("package.in_use", text, **users)
                await rows.delete(tx, id, self._clock.now())
                await self._record_audit(tx, caller, "package.delete", row, digest=row.digest)
            await self._discard_unused(row.digest)
        return row

    async def distrust(self, tx: Tx, caller: Principal, row: PackageRow) -> PackageRow:
        """Mark a package whose key is no longer trusted; it is quarantined unless signatures are not required."""
        judged = replace(row, signature_status=UNTRUSTED_SIGNATURE, status=self._status(UNTRUSTED_SIGNATURE))
        await rows.judge(tx, judged)
        await self._record_audit(tx, caller, "package.distrust", judged, key_id=row.key_id, status=judged.status)
        return judged

    def _status(self, signature: str) -> str:
        return AVAILABLE if signature == VERIFIED or not self._settings.require_signature else QUARANTINED

    # Reading.

    async def get(self, caller: Principal, id: str) -> PackageRow:
        """One package; raises `not_found`."""
        async with self._database.reading() as tx:
            found = await rows.get(tx, id)
        if found is None or not _sees(caller, found):
            raise not_found("package", id)
        return found

    async def page(
        self,
        caller: Principal,
        page: Page,
        *,
        package_id: str | None = None,
        version: str | None = None,
        status: str | None = None,
        search: str | None = None,
    ) -> Part[PackageRow]:
        """Packages visible to the caller, filtered; `search` is part of an id."""
        async with self._database.reading() as tx:
            return await rows.select_part(
                tx, caller.org_id, page, package_id=package_id, version=version, status=status, search=search
            )

    async def exports(
        self,
        caller: Principal,
        kind: str,
        page: Page,
        org_id: str | None = None,
        project_id: str | None = None,
        only: frozenset[str] | None = None,
    ) -> Part[ListedExport]:
        """Exports of a kind, newest packages first; `only` those of these bindings, if given."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        async with self._database.reading() as tx:
            if org is not None:
                await self._orgs.scope(tx, caller, org, project)
            packages = await rows.usable(tx, org)
            bound = await binding_rows.of_packages(tx, [row.id for row in packages], org, project)
        shown = [row for row in bound if only is None or row.id in only]
        found = [item for row in packages for item in await self._exports_of(row, kind, shown)]
        found = [item for item in found if only is None or item.bindings]
        return cut(sorted(found, key=lambda item: item.place, reverse=True), page, lambda item: item.place)

    async def _exports_of(self, row: PackageRow, kind: str, bound: list[BindingRow]) -> list[ListedExport]:
        found = await self.load(row)
        assert found.spec is not None
        return [
            ListedExport(row, export, tuple(b for b in bound if b.package_row == row.id and b.export_id == export.name))
            for export in found.spec.exports
            if export.kind == kind
        ]

    async def usable_by(
        self, tx: Tx, org_id: str, package_id: str, version: str, lock: rows.Lock | None = None
    ) -> PackageRow | None:
        """The release for an org: its own, or else the shared one; an available one first."""
        own = await rows.find(tx, org_id, package_id, version, lock=lock)
        if own is not None and own.status == AVAILABLE:
            return own
        shared = await rows.find(tx, None, package_id, version, lock=lock)
        return shared if own is None or (shared is not None and shared.status == AVAILABLE) else own

    async def export(self, row: PackageRow, export_id: str) -> Export | None:
        """One export of a package; None if it has none of this name."""
        found = await self.load(row)
        assert found.spec is not None
        return next((export for export in found.spec.exports if export.name == export_id), None)

    async def load(self, row: PackageRow) -> Found:
        """The manifest of a package with its schemas."""
        known = self._releases.cached(row.digest)
        if known is not None:
            return known
        await self.fetch(row)
        return await translate_refusals(asyncio.to_thread(self._releases.load, row.digest, row.package_id))

    async def load_verified(self, row: PackageRow) -> Found:
        """The manifest of a release, after its files were verified again."""
        await self.fetch(row)
        work = asyncio.to_thread(self._releases.load_verified, row.digest, row.package_id, row.tree_sha256)
        return await translate_refusals(work)


def _sees(caller: Principal, row: PackageRow) -> bool:
    return row.org_id is None or caller.sees(row.org_id)


def _require_org_key(caller: Principal) -> None:
    if caller.project_id is not None:
        text = "a key of one project cannot replace or delete a package of its org"
        raise denied("auth.role_denied", text, required=["org key"])


def parse_source(source: str) -> Reference:
    """The package that a source names; raises `package.invalid_source`."""
    try:
        return parse_reference(source)
    except PackageRefused as refused:
        raise unprocessable("package.invalid_source", refused.message, "source") from None


def _parse_pinned(source: str) -> Reference:
    """Require a digest: a tag can move."""
    reference = parse_source(source)
    if reference.digest is None:
        text = "name the package by its digest, as oci://registry.example/acme/devkit@sha256:…"
        raise unprocessable("package.unpinned_source", text, "source")
    return reference


async def _hide_registry_details(reference: Reference, work: Awaitable[T]) -> T:
    """Replace every registry failure by one that reveals nothing about the address."""
    try:
        return await work
    except PackageRefused as refused:
        if refused.reason not in _UNREACHED:
            raise
        reason = f"{refused.message}; {refused.hint}" if refused.hint else refused.message
        LOG.warning("a package was not pulled", extra={"source": str(reference), "reason": reason})
        text = f"no registry answers over TLS at {reference.registry}, or this server does not connect to its address"
        more = "its log has the reason; [registries] of its plugbay.toml can allow private addresses and plain HTTP"
        raise PackageRefused(Reason.REGISTRY_FAILED, f"{text}; {more}") from None


async def translate_refusals(work: Awaitable[T]) -> T:
    """Translate errors of the package layer."""
    try:
        return await work
    except PackageRefused as refused:
        raise _as_gateway_error(refused) from None
    except ManifestInvalid as invalid:
        problems = [problem.to_json() for problem in invalid.problems]
        first = invalid.problems[0]
        raise unprocessable(f"manifest.{first.code}", str(first), first.path or None, problems=problems) from None
    except ConfigInvalid:
        raise trust_unreadable() from None


def trust_unreadable() -> GatewayError:
    """The error while trust.json is invalid."""
    return unavailable("package.trust_unreadable", "the list of trusted keys cannot be read")


def _as_gateway_error(refused: PackageRefused) -> GatewayError:
    code = f"package.{refused.reason}"
    if refused.reason is Reason.TOO_LARGE:
        return too_large(code, refused.message)
    if refused.reason in (Reason.REGISTRY_FAILED, Reason.UNAUTHORIZED):
        return unavailable(code, refused.message)
    if refused.reason is Reason.NOT_INSTALLED:
        return GatewayError(NOT_FOUND, code, 404, refused.message)
    if refused.reason in CONFLICTS:
        return conflict(code, refused.message)
    return unprocessable(
        code, refused.message, **({"file": refused.detail["file"]} if "file" in refused.detail else {})
    )
