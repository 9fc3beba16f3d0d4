"""`Marketplace`: cards, and installing a card as a package and a binding. Starts no plugin.

A card is installable if it was reviewed, is available, has a verified signature, a pinned digest, and, for a harness, a
dependency lock; otherwise it lists the reasons. The signature is that of the package, made by its publisher: it covers
every file, so also the manifest with the name, description and permissions on the card. Review, source and lock file
are statements of the operator. No key of this server signs anything: built-in packages carry the signature of the
publisher `plugbay`, whose public key is trusted once, when a data directory is new.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from plugbay.contracts.vai.manifest import USUAL_CLASS
from plugbay.contracts.vai.sections import Permissions
from plugbay.host.disk import durable
from plugbay.packages import keys
from plugbay.packages import signature as signatures
from plugbay.packages.archive import Packed, pack
from plugbay.packages.errors import PackageRefused
from plugbay.packages.installer import verify
from plugbay.packages.package import read_signature
from plugbay.packages.reference import is_reference
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.bindings import ACTIVE, FIRST_PARTY, Bindings, Draft
from plugbay.server.domain.clock import Clock, stamp
from plugbay.server.domain.errors import conflict, not_found, unprocessable
from plugbay.server.domain.packages import (
    AVAILABLE,
    INVALID,
    UNTRUSTED,
    UNTRUSTED_SIGNATURE,
    VERIFIED,
    Packages,
    Releases,
    translate_refusals,
)
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.store import marketplace as entry_rows
from plugbay.store import packages as package_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database, Tx
from plugbay.store.marketplace import Entry
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part, cut


class Artifact(msgspec.Struct, frozen=True):
    """The artifact behind a card; all empty if there is none."""

    digest: str | None = None
    signature: str = "missing"
    key_id: str | None = None
    ref: str | None = None
    locked: bool = False
    """Whether every dependency is pinned."""
    publisher: str | None = None
    """The publisher whose trusted key signed it."""
    signed_at: str | None = None


class Card(msgspec.Struct, frozen=True):
    """One marketplace entry."""

    id: str
    name: str
    description: str
    kind: str
    export_id: str
    package_id: str
    version: str | None
    reviewed_at: str | None
    repo: str
    refs: tuple[str, ...]
    contract: dict[str, Any]
    """Kind and permissions of the export, before there is a manifest."""
    requires_lock: bool
    builtin: str | None = None
    """The folder of the catalogue that it is built from."""
    package: PackageRow | None = None
    """The package of an entry that the operator has published."""
    lock_file: str | None = None
    published_at: float | None = None

    @property
    def status(self) -> str:
        return "contract_ready" if self.builtin is None and self.package is None else "available"

    def reasons(self, artifact: Artifact) -> list[dict[str, str]]:
        """Why it is not installable; empty if it is."""
        rules = (
            (self.reviewed_at is None, "not_reviewed", "it has not been reviewed"),
            (self.status != "available", "contract_ready", "its runtime is not published yet"),
            (artifact.signature != "verified", "signature_not_verified", f"its signature is {artifact.signature}"),
            (artifact.digest is None, "digest_not_pinned", "no artifact is pinned by its digest"),
            (
                self.requires_lock and not artifact.locked,
                "dependency_lock_missing",
                "a harness needs a lock of its dependencies",
            ),
        )
        return [{"code": code, "message": text} for broken, code, text in rules if broken]

    def to_json(self, artifact: Artifact) -> dict[str, Any]:
        """The card as it is shown."""
        reasons = self.reasons(artifact)
        return {
            "id": self.id,
            "name": self.name,
            "description": self.description,
            "kind": self.kind,
            "status": self.status,
            "publisher": _publisher_out(self.package_id),
            "review": {
                "state": "pending" if self.reviewed_at is None else "reviewed",
                "reviewed_at": self.reviewed_at,
            },
            "signature": {
                "status": artifact.signature,
                "key_id": artifact.key_id,
                "publisher": artifact.publisher,
                "signed_at": artifact.signed_at,
            },
            "source": {"repo": self.repo, "refs": list(self.refs)},
            "oci": {"ref": artifact.ref, "digest": artifact.digest},
            "install_policy": {
                "installable": not reasons,
                "reasons": reasons,
                "requires_lock": self.requires_lock,
                "lock_file": self.lock_file,
            },
            "contract": self.contract,
            "export_id": self.export_id,
            "package_id": self.package_id,
            "version": self.version,
        }


def _publisher_out(package_id: str) -> dict[str, Any]:
    """The publisher of a package: no other publisher's key can sign it."""
    name = package_id.partition("/")[0]
    return {"id": name, "name": name, "first_party": name == FIRST_PARTY}


_HARNESS_SCOPES = ["sessions:read", "chains:read", "chains:write", "runs:write", "compactions:write"]


def _harness_contract(fidelity: str, slots: list[str]) -> dict[str, Any]:
    return {
        "kind": "harness",
        "execution_class": "isolated",
        "permissions": {
            "network": "egress",
            "filesystem": "scratch",
            "gateway_api_scopes": _HARNESS_SCOPES,
            "secret_slots": slots,
        },
        "harness": {
            "mode": "composite",
            "fidelity": fidelity,
            "supports": ["continue", "branch_session", "compact", "tool"],
        },
    }


CARDS = (
    Card(
        id="openai-codex-harness",
        name="OpenAI Codex Hosted Harness",
        description="Orchestrates Codex through its App Server or SDK, with delegated credentials of this gateway.",
        kind="harness",
        export_id="codex",
        package_id="plugbay/codex-harness",
        version=None,
        reviewed_at=None,
        repo="https://github.com/openai/codex",
        refs=("Codex App Server", "Codex SDK"),
        contract=_harness_contract("checkpoint", ["openai_key"]),
        requires_lock=True,
    ),
    Card(
        id="opencode-harness",
        name="OpenCode Hosted Harness",
        description="Runs OpenCode server workflows through @opencode-ai/sdk.",
        kind="harness",
        export_id="opencode",
        package_id="plugbay/opencode-harness",
        version=None,
        reviewed_at=None,
        repo="https://github.com/sst/opencode",
        refs=("@opencode-ai/sdk",),
        contract=_harness_contract("prompt_replay", ["anthropic_key", "openai_key"]),
        requires_lock=True,
    ),
    Card(
        id="thread-weave",
        name="Thread Weave Compactor",
        description="Keeps recent coding context directly and emits lineage-linked seed blocks for older task history.",
        kind="compactor",
        export_id="thread_weave",
        package_id="plugbay/thread-weave",
        version="1.0.1",
        reviewed_at="2026-11-15",
        repo="plugbay",
        refs=("gateway/catalogue/thread_weave",),
        contract={
            "kind": "compactor",
            "execution_class": "worker",
            "permissions": {"network": "none", "filesystem": "scratch", "gateway_api_scopes": [], "secret_slots": []},
            "compactor": {"target_context": "coding", "supports_pinned_items": True},
        },
        requires_lock=False,
        builtin="thread_weave",
    ),
)
"""In the order in which they are shown."""


CATALOGUE = Path(__file__).with_name("catalogue")

PUBLISHER_KEY = CATALOGUE / "plugbay.pub"
"""The public key of the publisher of built-in packages; `plugbay sign` with its private key signs their folders."""

FOLDER = "marketplace"
"""Below the data directory: archives that were built, and the id of the publisher key that was trusted."""

TRUSTED_ONCE = "trusted-publisher"
"""The file with that id: a key that the operator has removed is not trusted again."""

PROGRAMS = "bin"
"""The folder with executables: an installed wheel may have lost their mode."""

BUILTIN_PLACE = 9e9
"""The time by which built-in cards sort before published ones."""


class BuiltPackage(msgspec.Struct, frozen=True):
    """A built-in package: the archive, and the signature that came with its files."""

    packed: Packed
    signature: bytes | None

    @property
    def archive(self) -> Path:
        return self.packed.path


class NewEntry(msgspec.Struct, frozen=True):
    """An entry to publish."""

    id: str
    package: str
    """The row id of a shared package."""
    export_id: str
    repo: str = ""
    refs: tuple[str, ...] = ()
    lock_file: str | None = None
    reviewed: bool = False


class Marketplace:
    """The cards of one gateway."""

    def __init__(
        self,
        database: Database,
        packages: Packages,
        bindings: Bindings,
        releases: Releases,
        audit: Audit,
        data: Path,
        clock: Clock,
    ) -> None:
        self._database = database
        self._packages = packages
        self._bindings = bindings
        self._releases = releases
        self._audit = audit
        self._folder = data / FOLDER
        self._clock = clock
        self._built: dict[str, BuiltPackage] = {}
        self._building = asyncio.Lock()

    async def page(self, page: Page) -> Part[dict[str, Any]]:
        """Cards as they are now: the built-in ones, then published ones, newest first."""
        async with self._database.reading() as tx:
            published = [await self._card_of(tx, entry) for entry in await entry_rows.all_entries(tx)]
        part = cut([*CARDS, *published], page, _place)
        shown = [card.to_json(await self._artifact(card)) for card in part.items]
        return Part(tuple(shown), part.after)

    async def card(self, id: str) -> dict[str, Any]:
        """One card; raises `not_found`."""
        card = await self._find_card(id)
        return card.to_json(await self._artifact(card))

    # Publishing.

    async def publish(self, caller: Principal, new: NewEntry) -> dict[str, Any]:
        """Publish an export of a shared package; raises unless a trusted key has signed the package."""
        require_operator_of_all(caller, "publishes marketplace entries")
        now = self._clock.now()
        reviewed_at = now if new.reviewed else None
        entry = Entry(
            new.id, new.package, new.export_id, new.repo, list(new.refs), new.lock_file, reviewed_at, created_at=now
        )
        async with self._database.transaction() as tx:
            row = await package_rows.get(tx, new.package, lock="update")
            if row is None:
                raise not_found("package", new.package)
            await self._require_publishable(row, new)
            if _builtin(new.id) is not None or not await entry_rows.insert(tx, entry):
                raise conflict("marketplace.entry_exists", f"the marketplace entry already exists: {new.id!r}", "id")
            facts = {"package": row.id, "package_id": row.package_id, "version": row.version, "reviewed": new.reviewed}
            await self._record_audit(tx, caller, "marketplace.publish", new.id, **facts)
            card = await self._card_of(tx, entry)
        return card.to_json(await self._artifact(card))

    async def _require_publishable(self, row: PackageRow, new: NewEntry) -> None:
        name = f"{row.package_id} {row.version}"
        if row.org_id is not None:
            text = f"{name} belongs to one org; the operator of all orgs uploads a shared package"
            raise unprocessable("marketplace.package_not_shared", text, "package")
        await self._packages.fetch(row)
        found = await translate_refusals(asyncio.to_thread(self._releases.read_signature, row))
        if found.signature is None or row.status != AVAILABLE:
            text = f"the signature of {name} is {found.status}; only packages with a trusted signature can be published"
            raise conflict("marketplace.signature_not_verified", text, "package", signature=found.status)
        if await self._packages.export(row, new.export_id) is None:
            raise unprocessable("marketplace.unknown_export", f"{name} has no export {new.export_id!r}", "export_id")
        if new.lock_file is not None and new.lock_file not in found.signature.files:
            text = f"{name} has no file {new.lock_file!r}"
            raise unprocessable("marketplace.lock_file_missing", text, "lock_file")

    async def unpublish(self, caller: Principal, id: str) -> dict[str, Any]:
        """Remove a published entry; returns its card. Installed packages and bindings stay."""
        require_operator_of_all(caller, "removes marketplace entries")
        if _builtin(id) is not None:
            text = f"{id} is part of plugbay; to prevent its installation, revoke the key of its publisher"
            raise conflict("marketplace.builtin", text)
        card = await self._find_card(id)
        shown = card.to_json(await self._artifact(card))
        async with self._database.transaction() as tx:
            if not await entry_rows.delete(tx, id):
                raise not_found("card", id)
            facts = {"package_id": card.package_id, "version": card.version}
            await self._record_audit(tx, caller, "marketplace.unpublish", id, **facts)
        return shown

    async def _record_audit(self, tx: Tx, caller: Principal, action: str, id: str, **facts: Any) -> None:
        await self._audit.record(tx, caller, action, "marketplace_entry", id, **facts)

    # Installing.

    async def install(
        self,
        caller: Principal,
        id: str,
        org_id: str,
        project_id: str | None,
        config: dict[str, Any],
        secrets: dict[str, str],
    ) -> tuple[PackageRow, BindingRow]:
        """Install a card: create or update its package and an active binding; raises if it is not installable."""
        card = await self._find_card(id)
        reasons = card.reasons(await self._artifact(card))
        if reasons:
            text = f"{card.name} cannot be installed: {'; '.join(reason['message'] for reason in reasons)}"
            raise conflict("marketplace.not_installable", text, reasons=reasons)
        package = card.package or await self._install_package(caller, card)
        await self._packages.load_verified(package)
        draft = Draft(
            card.package_id, package.version, card.export_id, org_id, project_id, config, secrets, status=ACTIVE
        )
        async with self._database.transaction():
            binding = await self._bindings.upsert(caller, draft)
            if binding.package_row != package.id:
                text = f"{org_id} has {card.package_id} {package.version} of its own, which differs from the card"
                raise conflict("marketplace.own_package", text)
        return package, binding

    async def _install_package(self, caller: Principal, card: Card) -> PackageRow:
        """Upload the package unless its files are known: another zlib packs the same files into other bytes."""
        built = await self._build(card)
        async with self._database.reading() as tx:
            known = await package_rows.find(tx, None, card.package_id, card.version or "")
        same = known is not None and known.tree_sha256 == built.packed.package.tree_sha256
        if known is not None and same and known.status == AVAILABLE:
            return known
        source = f"marketplace:{card.id}"
        async with self._database.every_org():  # the package is for all of them
            row, _ = await self._packages.upload(caller, built.archive, built.signature, source=source, shared=True)
        return row

    # Cards.

    async def _find_card(self, id: str) -> Card:
        builtin = _builtin(id)
        if builtin is not None:
            return builtin
        async with self._database.reading() as tx:
            entry = await entry_rows.get(tx, id)
            if entry is None:
                raise not_found("card", id)
            return await self._card_of(tx, entry)

    async def _card_of(self, tx: Tx, entry: Entry) -> Card:
        """The card of a published entry. All that it says about the package is in the signed manifest, which the row
        has too: a card is shown even if the files are gone.
        """
        row = await package_rows.get(tx, entry.package_row)
        assert row is not None  # an entry keeps its package
        export = next(item for item in row.manifest["exports"] if item["id"] == entry.export_id)
        kind = export["kind"]
        return Card(
            id=entry.id,
            name=export["display_name"],
            description=export.get("description") or row.manifest.get("description", ""),
            kind=kind,
            export_id=entry.export_id,
            package_id=row.package_id,
            version=row.version,
            reviewed_at=None if entry.reviewed_at is None else stamp(entry.reviewed_at),
            repo=entry.repo,
            refs=tuple(entry.refs),
            contract={
                "kind": kind,
                "execution_class": export.get("execution_class") or USUAL_CLASS[kind],
                "permissions": Permissions.model_validate(export.get("permissions", {})).model_dump(),
                kind: export[kind],
            },
            requires_lock=kind == "harness",
            package=row,
            lock_file=entry.lock_file,
            published_at=entry.created_at,
        )

    async def _artifact(self, card: Card) -> Artifact:
        """The artifact of a card, with its signature as it is verified now."""
        if card.package is not None:
            await self._packages.fetch(card.package)
            return await translate_refusals(asyncio.to_thread(self._artifact_of_package, card, card.package))
        if card.builtin is None:
            return Artifact()
        built = await self._build(card)
        return await translate_refusals(asyncio.to_thread(self._artifact_of_builtin, card, built))

    def _artifact_of_package(self, card: Card, row: PackageRow) -> Artifact:
        found = self._releases.read_signature(row)
        signature = found.signature
        ref = row.source if is_reference(row.source) else None
        if signature is None:
            return Artifact(row.digest, found.status, row.key_id, ref)
        locked = card.lock_file in signature.files
        return Artifact(row.digest, found.status, signature.key_id, ref, locked, found.publisher, signature.signed_at)

    def _artifact_of_builtin(self, card: Card, built: BuiltPackage) -> Artifact:
        digest, ref = built.packed.digest, f"builtin:{card.id}:{card.version}"
        if built.signature is None:
            return Artifact(digest, ref=ref)
        try:
            signature, key = verify(built.packed.package, built.signature, self._releases.trust, self._releases.clock())
        except PackageRefused as refused:
            status = UNTRUSTED_SIGNATURE if refused.reason in UNTRUSTED else INVALID
            return Artifact(digest, status, signatures.read(built.signature).key_id, ref)
        return Artifact(digest, VERIFIED, key.key_id, ref, False, key.publisher, signature.signed_at)

    async def _build(self, card: Card) -> BuiltPackage:
        async with self._building:
            if card.id not in self._built:
                self._built[card.id] = await translate_refusals(asyncio.to_thread(self._pack, card))
            return self._built[card.id]

    def _pack(self, card: Card) -> BuiltPackage:
        assert card.builtin is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._trust_publisher()
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            root = Path(place) / card.builtin
            shutil.copytree(CATALOGUE / card.builtin, root, ignore=shutil.ignore_patterns("__pycache__"))
            for program in (root / PROGRAMS).iterdir():
                program.chmod(0o755)
            return BuiltPackage(pack(root, self._folder / f"{card.id}.tar.gz"), read_signature(root))

    def _trust_publisher(self) -> None:
        """Trust the publisher of built-in packages, once: later on the operator decides."""
        key = TrustedKey(keys.load_public(PUBLISHER_KEY), FIRST_PARTY)
        marker = self._folder / TRUSTED_ONCE
        if marker.exists() and marker.read_text() == key.key_id:
            return
        with suppress(PackageRefused):  # it was revoked
            self._releases.trust.add(key, "keep")
        durable.write_file(marker, key.key_id.encode())


def _builtin(id: str) -> Card | None:
    return next((card for card in CARDS if card.id == id), None)


def _place(card: Card) -> tuple[float, str]:
    """The sort key: built-in cards first, in their order."""
    if card.published_at is None:
        return BUILTIN_PLACE - CARDS.index(card), card.id
    return card.published_at, card.id
