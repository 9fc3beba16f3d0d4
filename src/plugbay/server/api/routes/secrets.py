"""Routes of secrets: set, list, delete, rotate the key. Values are never returned."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import Field, SecretStr
from starlette.responses import JSONResponse, Response

from plugbay.host.recording.redaction import SHORTEST
from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.models import Answer, Body, ChosenId, IdFilter, Listing, Paging, example, listing
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import invalid
from plugbay.server.domain.principal import Principal
from plugbay.server.domain.secrets import SECRET_NAME, SecretRef, SecretScope
from plugbay.store.secrets import SecretRow

router = Router(tags=["secrets"])

MAX_VALUE = 64 << 10
"""Characters of a value; a certificate with its chain has a tenth."""

SecretName = Annotated[str, Path(pattern=rf"^{SECRET_NAME}$")]


class SecretIn(Body):
    model_config = example(value="correct horse battery", org_id="acme", project_id="shop")

    value: Annotated[SecretStr, Field(min_length=SHORTEST, max_length=MAX_VALUE)] = Field(
        description="Not too short: short values cannot be redacted from output."
    )
    org_id: ChosenId | None = Field(default=None, description="Default: the caller's org.")
    project_id: ChosenId | None = Field(default=None, description="For this project alone.")


class SecretOut(Answer):
    name: str
    org_id: str
    project_id: str | None
    ref: str = Field(description="The reference to use in a binding.")
    version: int
    created_at: str
    updated_at: str


class RotatedOut(Answer):
    resealed: int


@router.put(
    "/v1/secrets/{name}",
    response_model=SecretOut,
    responses={201: {"model": SecretOut, "description": "It is new."}},
    **needs("admin"),
)
async def put_secret(name: SecretName, body: SecretIn, caller: Caller, gateway: TheGateway) -> Response:
    """Set a secret. It applies from the next invocation; no restart is needed."""
    scope = scope_of(caller, body.org_id, body.project_id)
    row, new = await gateway.secrets.put(caller, scope, name, body.value.get_secret_value())
    return JSONResponse(_secret_out(row).model_dump(), 201 if new else 200)


@router.get("/v1/secrets", **needs("operator"))
async def list_secrets(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None, project_id: IdFilter = None
) -> Listing[SecretOut]:
    """Names and versions; no values."""
    return listing(await gateway.secrets.page(caller, page, org_id, project_id), _secret_out)


@router.delete("/v1/secrets/{name}", status_code=204, **needs("admin"))
async def delete_secret(
    name: SecretName, caller: Caller, gateway: TheGateway, org_id: IdFilter = None, project_id: IdFilter = None
) -> Response:
    """Remove a secret; invocations of bindings that need it fail from now on."""
    await gateway.secrets.delete(caller, scope_of(caller, org_id, project_id), name)
    return Response(status_code=204)


@router.post("/v1/secrets:rotate-key", **needs("admin"))
@long_running
async def rotate_key(caller: Caller, gateway: TheGateway) -> RotatedOut:
    """Seal every secret with a new key, and forget the old one. For the operator of all orgs."""
    return RotatedOut(resealed=await gateway.secrets.rotate_key(caller))


def scope_of(caller: Principal, org_id: str | None, project_id: str | None) -> SecretScope:
    """The owner that a request names; the caller's own unless it names one."""
    org = org_id or caller.org_id
    if org is None:
        raise invalid("request.invalid", "an operator of all orgs must name the org", "org_id")
    return SecretScope(org, project_id or caller.project_id)


def _secret_out(row: SecretRow) -> SecretOut:
    return SecretOut(
        name=row.name,
        org_id=row.org_id,
        project_id=None if row.scope == row.org_id else row.scope,
        ref=str(SecretRef(row.scope, row.name)),
        version=row.version,
        created_at=stamp(row.created_at),
        updated_at=stamp(row.updated_at),
    )
