"""Routes of API keys: create, list, read, revoke. Only the answer to `create` contains the key."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import (
    Answer,
    Body,
    ChosenId,
    IdFilter,
    Listing,
    Name,
    Paging,
    PathId,
    Time,
    example,
    listing,
    one_of,
    to_seconds,
)
from plugbay.server.domain.principal import ROLES, Role

router = Router(tags=["keys"])


class KeyIn(Body):
    model_config = example(
        org_id="acme", name="deploy", role="operator", project_id="shop", expires_at="2100-01-01T00:00:00Z"
    )

    org_id: ChosenId
    name: Name
    role: Role
    project_id: ChosenId | None = Field(default=None, description="For this project alone.")
    expires_at: AwareDatetime | None = None


class KeyOut(Answer):
    id: str
    org_id: str
    project_id: str | None
    name: str
    role: str = one_of(*ROLES)
    hint: str = Field(description="The last characters of the key.")
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None


class NewKeyOut(KeyOut):
    key: str | None = Field(description="The key, shown once; null in a replayed answer.")


@router.post("/v1/api-keys", status_code=201, **needs("admin"))
@shown_once("key")
async def create_key(body: KeyIn, caller: Caller, gateway: TheGateway) -> NewKeyOut:
    """Create a key. It cannot have more rights than its creator."""
    expires_at = to_seconds(body.expires_at)
    made, key = await gateway.keys.create(caller, body.org_id, body.name, body.role, body.project_id, expires_at)
    return NewKeyOut(**KeyOut.model_validate(made).model_dump(), key=key)


@router.get("/v1/api-keys", **needs("admin"))
async def list_keys(caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None) -> Listing[KeyOut]:
    """Keys visible to the caller, including revoked ones."""
    return listing(await gateway.keys.page(caller, page, org_id), KeyOut.model_validate)


@router.get("/v1/api-keys/{key_id}", **needs("admin"))
async def get_key(key_id: PathId, caller: Caller, gateway: TheGateway) -> KeyOut:
    return KeyOut.model_validate(await gateway.keys.get(caller, key_id))


@router.delete("/v1/api-keys/{key_id}", **needs("admin"))
async def revoke_key(key_id: PathId, caller: Caller, gateway: TheGateway) -> KeyOut:
    """Revoke a key, permanently."""
    return KeyOut.model_validate(await gateway.keys.revoke(caller, key_id))
