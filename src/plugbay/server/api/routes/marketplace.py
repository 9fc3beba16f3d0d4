"""Routes of the marketplace: list cards, read one, install one; publish and remove entries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Answer, Body, ChosenId, Listing, Paging, PathId, example, listing
from plugbay.server.api.routes.bindings import BindingOut, ExportName, Reference, Scope, Slot, binding_out
from plugbay.server.api.routes.packages import PackageOut, package_out
from plugbay.server.domain.marketplace import NewEntry

router = Router(tags=["marketplace"])


class PublisherOut(Answer):
    id: str
    name: str
    first_party: bool


class ReviewOut(Answer):
    state: Literal["pending", "reviewed"]
    reviewed_at: str | None


class CardSignatureOut(Answer):
    status: Literal["verified", "untrusted", "missing", "invalid"]
    key_id: str | None
    publisher: str | None = Field(description="The publisher whose trusted key signed the package.")
    signed_at: str | None


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
    lock_file: str | None = Field(description="The file of the package that pins its dependencies.")


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
    model_config = example(scope={"org_id": "acme", "project_id": "shop"}, config={}, secrets={})

    scope: Scope
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[Slot, Reference] = Field(default_factory=dict)


class InstalledOut(Answer):
    package: PackageOut
    binding: BindingOut


class SourceIn(Body):
    repo: Annotated[str, StringConstraints(max_length=500)] = ""
    refs: Annotated[list[Annotated[str, StringConstraints(max_length=200)]], Field(max_length=20)] = Field(
        default_factory=list
    )


class EntryIn(Body):
    model_config = example(
        id="jira",
        package="pkg_5f0c1d2e",
        export_id="search",
        source={"repo": "https://example.com/acme/jira", "refs": ["v1.0.0"]},
        reviewed=True,
    )

    id: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    package: ChosenId = Field(description="The id of a shared package, signed by a publisher whose key is trusted.")
    export_id: ExportName
    source: SourceIn = SourceIn()
    lock_file: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = Field(
        default=None, description="The lock file in the package; a harness needs one."
    )
    reviewed: bool = Field(default=False, description="Whether the operator has reviewed the package.")


@router.get("/v1/plugin-marketplace", **needs("viewer"))
async def list_cards(caller: Caller, gateway: TheGateway, page: Paging) -> Listing[CardOut]:
    """The built-in cards, then published ones. The signature of each is verified again."""
    return listing(await gateway.marketplace.page(page), CardOut.model_validate)


@router.post("/v1/plugin-marketplace", status_code=201, **needs("admin"))
async def publish_entry(body: EntryIn, caller: Caller, gateway: TheGateway) -> CardOut:
    """Publish an export of a shared package. Only for the operator of all orgs.

    Name, description and permissions on the card are those of the manifest, which the publisher has signed.
    """
    source = body.source
    new = NewEntry(
        body.id, body.package, body.export_id, source.repo, tuple(source.refs), body.lock_file, body.reviewed
    )
    return CardOut.model_validate(await gateway.marketplace.publish(caller, new))


@router.delete("/v1/plugin-marketplace/{card_id}", **needs("admin"))
async def unpublish_entry(card_id: PathId, caller: Caller, gateway: TheGateway) -> CardOut:
    """Remove a published entry; installed packages and bindings stay. Only for the operator of all orgs."""
    return CardOut.model_validate(await gateway.marketplace.unpublish(caller, card_id))


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
