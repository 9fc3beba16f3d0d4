"""The cards of the marketplace: what is offered before anybody has it, and whether it can be had.

Pure. Owns the curated entries and the rule: installable is what was reviewed, is available, has a verified signature,
a pinned digest, and a lock of its dependencies if it is a harness. A card that is not says why, in codes and words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Posture:
    """What is known of the artifact behind a card; a card without one has nothing to install."""

    digest: str | None = None
    signature: str = "missing"
    key_id: str | None = None
    ref: str | None = None
    locked: bool = False
    """Whether every dependency is pinned."""


@dataclass(frozen=True, slots=True)
class Card:
    """One entry."""

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
    """What its export will ask for and be, before there is a manifest to read."""
    requires_lock: bool
    builtin: str | None = None
    """The folder of the catalogue that it is built from."""

    @property
    def status(self) -> str:
        return "contract_ready" if self.builtin is None else "available"

    def reasons(self, posture: Posture) -> list[dict[str, str]]:
        """Why it cannot be installed; none: it can."""
        rules = (
            (self.reviewed_at is None, "not_reviewed", "nobody has reviewed it"),
            (self.status != "available", "contract_ready", "its contract is ready, its runtime is not published yet"),
            (posture.signature != "verified", "signature_not_verified", f"its signature is {posture.signature}"),
            (posture.digest is None, "digest_not_pinned", "no artifact is pinned by its digest"),
            (
                self.requires_lock and not posture.locked,
                "dependency_lock_missing",
                "a harness needs a lock of what it depends on",
            ),
        )
        return [{"code": code, "message": text} for broken, code, text in rules if broken]

    def to_json(self, posture: Posture) -> dict[str, Any]:
        """The card as it is shown."""
        reasons = self.reasons(posture)
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
            "signature": {"status": posture.signature, "key_id": posture.key_id},
            "source": {"repo": self.repo, "refs": list(self.refs)},
            "oci": {"ref": posture.ref, "digest": posture.digest},
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


def _hosted_harness(fidelity: str, slots: list[str]) -> dict[str, Any]:
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
        contract=_hosted_harness("checkpoint", ["openai_key"]),
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
        contract=_hosted_harness("prompt_replay", ["anthropic_key", "openai_key"]),
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
