"""Routes of trusted publishers: list keys, add one, revoke one. For the operator of all orgs."""

from __future__ import annotations

import binascii
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from plugbay.packages import keys
from plugbay.packages.trust import TrustedKey
from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, Body, Listing, Paging, PathId, example, listing
from plugbay.server.domain.errors import unprocessable
from plugbay.server.domain.trust import Consequences

router = Router(tags=["trust"])

Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class TrustedKeyIn(Body):
    model_config = example(public_key="lQpT0nM7c1u0N7yq3m2o5wYh6Yk4Zt8rJ2bq1vX9c0A=", publisher="acme")

    public_key: Annotated[str, StringConstraints(max_length=1000)] = Field(
        description="An Ed25519 key: the PEM text of a `.pub` file, or its 32 bytes in base64."
    )
    publisher: Name = Field(description="The key may sign `publisher/…`, and nothing else.")
    packages: Annotated[list[Name], Field(max_length=100)] = Field(
        default_factory=list, description="Further package ids that it may sign."
    )
    not_after: AwareDatetime | None = Field(default=None, description="The end of its time; null: none.")
    other_keys: Literal["refuse", "keep", "replace"] = Field(
        default="refuse", description="If the publisher has another key: refuse this one, keep both, or replace it."
    )


class TrustedKeyOut(Answer):
    key_id: str
    public_key: str
    publisher: str
    packages: list[str]
    not_after: str | None
    revoked: bool


class DistrustedOut(Answer):
    id: str
    package_id: str
    version: str
    status: Literal["available", "quarantined"]


class ChangedKeyOut(TrustedKeyOut):
    distrusted_packages: list[DistrustedOut] = Field(description="Packages whose signature is no longer trusted.")
    disabled_bindings: list[str]


@router.get("/v1/trusted-publishers", **needs("admin"))
async def list_trusted_keys(caller: Caller, gateway: TheGateway, page: Paging) -> Listing[TrustedKeyOut]:
    """Trusted keys and revoked ones. Only for the operator of all orgs."""
    return listing(await gateway.trusted_publishers.page(caller, page), _key_out)


@router.post("/v1/trusted-publishers", status_code=201, **needs("admin"))
async def add_trusted_key(body: TrustedKeyIn, caller: Caller, gateway: TheGateway) -> ChangedKeyOut:
    """Trust a key of a publisher. Only for the operator of all orgs."""
    public = parse_public_key(body.public_key)
    key, consequences = await gateway.trusted_publishers.add(
        caller, public, body.publisher, body.packages, body.not_after, body.other_keys
    )
    return _changed_out(key, consequences)


@router.delete("/v1/trusted-publishers/{key_id}", **needs("admin"))
async def revoke_trusted_key(key_id: PathId, caller: Caller, gateway: TheGateway) -> ChangedKeyOut:
    """Revoke a key for ever: its packages are quarantined, their active bindings are disabled.

    Only for the operator of all orgs.
    """
    return _changed_out(*await gateway.trusted_publishers.remove(caller, key_id))


def parse_public_key(text: str) -> bytes:
    """The bytes of a public key in PEM or base64; raises `trust.key_unusable`."""
    try:
        found = keys.parse_public(text.encode()) if "BEGIN" in text else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        found = None
    if found is None or len(found) != keys.KEY_BYTES:
        text = f"this is not an Ed25519 public key: neither PEM nor {keys.KEY_BYTES} bytes in base64"
        raise unprocessable("trust.key_unusable", text, "public_key")
    return found


def _key_out(key: TrustedKey) -> TrustedKeyOut:
    return TrustedKeyOut.model_validate(key.to_json())


def _changed_out(key: TrustedKey, consequences: Consequences) -> ChangedKeyOut:
    more: dict[str, Any] = {
        "distrusted_packages": consequences.packages,
        "disabled_bindings": list(consequences.bindings),
    }
    return ChangedKeyOut.model_validate(key.to_json() | more)
