"""Routes of API keys: create, list, read, revoke. Only the answer to `create` contains the key."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime, Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, shown_once
from plugbay.server.api.models import Answer, Body, ChosenId, Listing, Name, Paging, PathId, listing
from plugbay.server.domain.clock import maybe_stamp, stamp
from plugbay.server.domain.principal import ROLES, Role
from plugbay.store.keys import ApiKey

router = Router(tags=["keys"])


class KeyIn(Body):
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
    role: str = Field(json_schema_extra={"enum": list(ROLES)})
    hint: str = Field(description="The last characters of the key.")
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class NewKeyOut(KeyOut):
    key: str | None = Field(description="The key, shown once; null in a replayed answer.")


@router.post("/v1/api-keys", status_code=201, **needs("admin"))
@shown_once("key")
async def create_key(body: KeyIn, caller: Caller, gateway: TheGateway) -> NewKeyOut:
    """Create a key. It cannot have more rights than its creator."""
    expires_at = None if body.expires_at is None else body.expires_at.timestamp()
    made, key = await gateway.keys.create(caller, body.org_id, body.name, body.role, body.project_id, expires_at)
    return NewKeyOut(**_key_out(made).model_dump(), key=key)


@router.get("/v1/api-keys", **needs("admin"))
async def list_keys(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: Annotated[str | None, Query(max_length=64)] = None
) -> Listing[KeyOut]:
    """Keys visible to the caller, including revoked ones."""
    return listing(await gateway.keys.page(caller, page, org_id), _key_out)


@router.get("/v1/api-keys/{key_id}", **needs("admin"))
async def get_key(key_id: PathId, caller: Caller, gateway: TheGateway) -> KeyOut:
    return _key_out(await gateway.keys.get(caller, key_id))


@router.delete("/v1/api-keys/{key_id}", **needs("admin"))
async def revoke_key(key_id: PathId, caller: Caller, gateway: TheGateway) -> KeyOut:
    """Revoke a key, permanently."""
    return _key_out(await gateway.keys.revoke(caller, key_id))


def _key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        id=key.id,
        org_id=key.org_id,
        project_id=key.project_id,
        name=key.name,
        role=key.role,
        hint=key.hint,
        created_at=stamp(key.created_at),
        expires_at=maybe_stamp(key.expires_at),
        revoked_at=maybe_stamp(key.revoked_at),
    )
