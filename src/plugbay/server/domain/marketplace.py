"""`Marketplace`: cards, and installing a card as a package and a binding. Starts no plugin.

A card is installable if it was reviewed, is available, has a verified signature, a pinned digest, and, for a harness, a
dependency lock; otherwise it lists the reasons. Built-in packages are packed from `catalogue`, reproducibly, and signed
with a first-party key of this data directory, which is trusted for first-party packages only. The signature states that
this gateway built the archive from its own files.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from plugbay.packages import keys, signature
from plugbay.packages.archive import pack
from plugbay.packages.errors import PackageRefused
from plugbay.packages.trust import TrustedKey
from plugbay.server.domain.bindings import ACTIVE, FIRST_PARTY, Bindings, Draft
from plugbay.server.domain.errors import conflict, not_found
from plugbay.server.domain.packages import Packages, Releases
from plugbay.server.domain.principal import Principal
from plugbay.store import packages as package_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database
from plugbay.store.packages import PackageRow


@dataclass(frozen=True, slots=True)
class Artifact:
    """The artifact behind a card; all empty if there is none."""

    digest: str | None = None
    signature: str = "missing"
    key_id: str | None = None
    ref: str | None = None
    locked: bool = False
    """Whether every dependency is pinned."""


@dataclass(frozen=True, slots=True)
class Card:
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

    @property
    def status(self) -> str:
        return "contract_ready" if self.builtin is None else "available"

    def reasons(self, artifact: Artifact) -> list[dict[str, str]]:
        """Why it is not installable; empty if it is."""
        rules = (
            (self.reviewed_at is None, "not_reviewed", "it has not been reviewed"),
            (self.status != "available", "contract_ready", "its contract is ready, its runtime is not published yet"),
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
            "publisher": PUBLISHER,
            "review": {
                "state": "pending" if self.reviewed_at is None else "reviewed",
                "reviewed_at": self.reviewed_at,
            },
            "signature": {"status": artifact.signature, "key_id": artifact.key_id},
            "source": {"repo": self.repo, "refs": list(self.refs)},
            "oci": {"ref": artifact.ref, "digest": artifact.digest},
            "install_policy": {
                "installable": not reasons,
                "reasons": reasons,
                "requires_lock": self.requires_lock,
            },
            "contract": self.contract,
            "export_id": self.export_id,
            "package_id": self.package_id,
            "version": self.version,
        }


PUBLISHER = {"id": "plugbay", "name": "plugbay", "first_party": True}

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
        "harness": {"mode": "composite", "fidelity": fidelity, "supports": ["continue", "branch_session", "tool"]},
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
        version="1.0.0",
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

FOLDER = "marketplace"
"""Below the data directory: archives that were built, and the key that signs them."""

KEY_FILE, PUBLIC_FILE = "first-party.key", "first-party.pub"

PROGRAMS = "bin"
"""The folder with executables: an installed wheel may have lost their mode."""


@dataclass(frozen=True, slots=True)
class BuiltPackage:
    """An archive that was built and signed here."""

    archive: Path
    signature: bytes
    digest: str
    tree_sha256: str
    key_id: str


class Marketplace:
    """The cards of one gateway."""

    def __init__(
        self,
        database: Database,
        packages: Packages,
        bindings: Bindings,
        releases: Releases,
        data: Path,
        clock: Callable[[], datetime],
    ) -> None:
        self._database = database
        self._packages = packages
        self._bindings = bindings
        self._releases = releases
        self._folder = data / FOLDER
        self._clock = clock
        self._built: dict[str, BuiltPackage] = {}
        self._building = asyncio.Lock()

    async def cards(self) -> list[dict[str, Any]]:
        """Every card as it is now."""
        return [card.to_json(await self._artifact(card)) for card in CARDS]

    async def card(self, id: str) -> dict[str, Any]:
        """One card; raises `not_found`."""
        card = _find_card(id)
        return card.to_json(await self._artifact(card))

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
        card = _find_card(id)
        artifact = await self._artifact(card)
        reasons = card.reasons(artifact)
        if reasons:
            text = f"{card.name} cannot be installed: {'; '.join(reason['message'] for reason in reasons)}"
            raise conflict("marketplace.not_installable", text, reasons=reasons)
        built = await self._build(card)
        package = await self._install_package(caller, card, built)
        draft = Draft(
            card.package_id, package.version, card.export_id, org_id, project_id, config, secrets, status=ACTIVE
        )
        return package, await self._bindings.upsert(caller, draft)

    async def _install_package(self, caller: Principal, card: Card, built: BuiltPackage) -> PackageRow:
        """Upload the package unless its files are known: another zlib packs the same files into other bytes."""
        async with self._database.reading() as tx:
            known = await package_rows.find(tx, None, card.package_id, card.version or "")
        if known is not None and known.tree_sha256 == built.tree_sha256 and known.status == "available":
            return known
        row, _ = await self._packages.upload(
            caller, built.archive, built.signature, source=f"marketplace:{card.id}", shared=True
        )
        return row

    async def _artifact(self, card: Card) -> Artifact:
        if card.builtin is None:
            return Artifact()
        built = await self._build(card)
        trusted = await asyncio.to_thread(self._is_trusted, card, built.key_id)
        ref = f"builtin:{card.id}:{card.version}"
        return Artifact(built.digest, "verified" if trusted else "untrusted", built.key_id, ref)

    def _is_trusted(self, card: Card, key_id: str) -> bool:
        """Whether the key is still trusted: an operator may have revoked it."""
        try:
            self._releases.trust.judge(key_id, card.package_id, self._clock())
        except PackageRefused:
            return False
        return True

    async def _build(self, card: Card) -> BuiltPackage:
        async with self._building:
            if card.id not in self._built:
                self._built[card.id] = await asyncio.to_thread(self._pack, card)
            return self._built[card.id]

    def _pack(self, card: Card) -> BuiltPackage:
        assert card.builtin is not None
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = self._signing_key()
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            root = Path(place) / card.builtin
            shutil.copytree(CATALOGUE / card.builtin, root, ignore=shutil.ignore_patterns("__pycache__"))
            for program in (root / PROGRAMS).iterdir():
                program.chmod(0o755)
            archive = self._folder / f"{card.id}.tar.gz"
            packed = pack(root, archive)
            signed = signature.sign(packed.package, key, self._clock())
            tree = packed.package.tree_sha256
        return BuiltPackage(archive, signed.to_bytes(), packed.digest, tree, signed.key_id)

    def _signing_key(self) -> Any:
        """The first-party key of this data directory, created and trusted on first use."""
        private, public = self._folder / KEY_FILE, self._folder / PUBLIC_FILE
        if not private.exists():
            public.unlink(missing_ok=True)
            keys.make(private, public)
        key = keys.load_private(private)
        own = TrustedKey(keys.public_of(key), FIRST_PARTY)
        known = self._releases.trust.keys()
        if own.key_id not in {item.key_id for item in known}:
            self._releases.trust.add(own)
        return key


def _find_card(id: str) -> Card:
    found = next((card for card in CARDS if card.id == id), None)
    if found is None:
        raise not_found("card", id)
    return found
