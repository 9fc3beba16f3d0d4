"""Routes of the marketplace: list cards, read one, install one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Answer, Body, Listing, PathId
from plugbay.server.api.routes.bindings import BindingOut, Reference, Scope, Slot, binding_out
from plugbay.server.api.routes.packages import PackageOut, package_out

router = Router(tags=["marketplace"])


class PublisherOut(Answer):
    id: str
    name: str
    first_party: bool


class ReviewOut(Answer):
    state: Literal["pending", "reviewed"]
    reviewed_at: str | None


class CardSignatureOut(Answer):
    status: Literal["verified", "untrusted", "missing"]
    key_id: str | None


class SourceOut(Answer):
    repo: str
    refs: list[str]


class OciOut(Answer):
    ref: str | None
    digest: str | None


class ReasonOut(Answer):
    code: str
    message: str


class InstallPolicyOut(Answer):
    installable: bool
    reasons: list[ReasonOut]
    requires_lock: bool


class CardOut(Answer):
    id: str
    name: str
    description: str
    kind: str
    status: Literal["available", "contract_ready"]
    publisher: PublisherOut
    review: ReviewOut
    signature: CardSignatureOut
    source: SourceOut
    oci: OciOut
    install_policy: InstallPolicyOut
    contract: dict[str, Any]
    export_id: str
    package_id: str
    version: str | None


class InstallIn(Body):
    scope: Scope
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[Slot, Reference] = Field(default_factory=dict)


class InstalledOut(Answer):
    package: PackageOut
    binding: BindingOut


@router.get("/v1/plugin-marketplace", **needs("viewer"))
async def list_cards(caller: Caller, gateway: TheGateway) -> Listing[CardOut]:
    """All cards, on one page."""
    cards = [CardOut.model_validate(card) for card in await gateway.marketplace.cards()]
    return Listing(items=cards, next_cursor=None)


@router.get("/v1/plugin-marketplace/{card_id}", **needs("viewer"))
async def get_card(card_id: PathId, caller: Caller, gateway: TheGateway) -> CardOut:
    return CardOut.model_validate(await gateway.marketplace.card(card_id))


@router.post("/v1/plugin-marketplace/{card_id}:install", **needs("operator"))
@long_running
async def install_card(card_id: PathId, body: InstallIn, caller: Caller, gateway: TheGateway) -> InstalledOut:
    """Create or update the package and an active binding of a card. Starts no plugin."""
    package, binding = await gateway.marketplace.install(
        caller, card_id, body.scope.org_id, body.scope.project_id, body.config, dict(body.secrets)
    )
    return InstalledOut(package=package_out(package), binding=binding_out(binding))
