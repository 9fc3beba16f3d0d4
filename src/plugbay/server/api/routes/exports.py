"""The four lists of exports: harnesses, tools, hooks, compactors."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, Listing
from plugbay.server.api.paging import Paging, listing
from plugbay.server.api.routes.bindings import Kind, ScopeOut, Status
from plugbay.server.domain.discovery import Listed
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import Principal
from plugbay.store.bindings import BindingRow
from plugbay.store.pages import Page

router = Router(tags=["exports"])

Named = Annotated[str | None, Query(max_length=64)]


class BoundOut(Answer):
    binding_id: str
    scope: ScopeOut
    status: Status


class ExportOut(Answer):
    package: str = Field(description="The id of the package's row.")
    package_id: str
    package_version: str
    export_id: str
    kind: Kind
    display_name: str
    description: str
    execution_class: str
    default_timeout_ms: int
    max_concurrency: int
    permissions: dict[str, Any]
    config_schema: dict[str, Any] | None
    harness: dict[str, Any] | None = None
    tool: dict[str, Any] | None = None
    hook: dict[str, Any] | None = None
    compactor: dict[str, Any] | None = None
    bindings: list[BoundOut]


@router.get("/v1/plugin-harnesses", **needs("viewer"))
async def list_harnesses(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: Named = None, project_id: Named = None
) -> Listing[ExportOut]:
    """Harness exports of available packages."""
    return await _exports(caller, gateway, page, "harness", org_id, project_id)


@router.get("/v1/plugin-tools", **needs("viewer"))
async def list_tools(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: Named = None, project_id: Named = None
) -> Listing[ExportOut]:
    """Tool exports of available packages."""
    return await _exports(caller, gateway, page, "tool", org_id, project_id)


@router.get("/v1/plugin-hooks", **needs("viewer"))
async def list_hooks(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: Named = None, project_id: Named = None
) -> Listing[ExportOut]:
    """Hook exports of available packages."""
    return await _exports(caller, gateway, page, "hook", org_id, project_id)


@router.get("/v1/plugin-compactors", **needs("viewer"))
async def list_compactors(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: Named = None, project_id: Named = None
) -> Listing[ExportOut]:
    """Compactor exports of available packages."""
    return await _exports(caller, gateway, page, "compactor", org_id, project_id)


async def _exports(
    caller: Principal, gateway: Gateway, page: Page, kind: str, org_id: str | None, project_id: str | None
) -> Listing[ExportOut]:
    return listing(await gateway.discovery.page(caller, kind, page, org_id, project_id), _export)


def _export(item: Listed) -> ExportOut:
    facts = item.export.facts
    return ExportOut.model_validate(
        {
            "package": item.package.id,
            "package_id": item.package.package_id,
            "package_version": item.package.version,
            "export_id": item.export.name,
            "kind": item.export.kind,
            "display_name": facts["display_name"],
            "description": item.export.description,
            "execution_class": facts["execution_class"],
            "default_timeout_ms": facts["timeout_ms"],
            "max_concurrency": facts["max_concurrency"],
            "permissions": facts["permissions"],
            "config_schema": facts["config_schema"],
            item.export.kind: item.kind_table(),
            "bindings": [_bound(row) for row in item.bindings],
        }
    )


def _bound(row: BindingRow) -> dict[str, Any]:
    scope = {"org_id": row.org_id, "project_id": row.project_id}
    return {"binding_id": row.id, "scope": scope, "status": row.status}
