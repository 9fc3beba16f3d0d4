"""Routes of packages (upload, pull, list, read, logs, delete) and of the exports they offer."""

from __future__ import annotations

import asyncio
import binascii
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError
from starlette.responses import JSONResponse, Response

from plugbay.packages.documents import MAX_BYTES
from plugbay.packages.registry import ARCHIVE_TYPE
from plugbay.packages.rules import DEFAULT_LIMITS
from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router, long_running
from plugbay.server.api.lines import Follow, Lines, Tail, log_response
from plugbay.server.api.models import Answer, Body, IdFilter, Listing, Paging, PathId, example, listing
from plugbay.server.api.routes.bindings import Kind, ScopeOut, Status
from plugbay.server.api.sse import STREAM
from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import invalid, too_large
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.packages import ListedExport
from plugbay.server.domain.principal import Principal
from plugbay.store.bindings import BindingRow
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page

router = Router(tags=["packages"])

SIGNATURE_HEADER = "x-vai-signature"

GZIPS = frozenset({ARCHIVE_TYPE, "application/gzip", "application/x-gzip"})

Package = Annotated[str, Query(max_length=129, pattern=r"^[a-z0-9._/-]*$")]
Version = Annotated[str, Query(max_length=128, pattern=r"^[A-Za-z0-9.+-]*$")]


class SourceIn(Body):
    model_config = example(source="oci://registry.example/acme/devkit@sha256:" + 64 * "0")

    source: str = Field(max_length=1000, description="oci://registry/repository@sha256:…")


class SignatureOut(Answer):
    status: Literal["verified", "untrusted", "missing"]
    key_id: str | None


class PackageOut(Answer):
    id: str
    org_id: str | None = Field(description="The owning org; null: shared by all orgs.")
    package_id: str
    version: str
    digest: str
    manifest: dict[str, Any]
    signature: SignatureOut
    status: Literal["available", "quarantined"]
    source: str
    created_at: str


def _upload_openapi() -> dict[str, Any]:
    """Permissions and the two kinds of bodies, for OpenAPI."""
    route = needs("admin")
    archive = {"schema": {"type": "string", "format": "binary"}}
    route["openapi_extra"] |= {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": SourceIn.model_json_schema()}, ARCHIVE_TYPE: archive},
        },
        "parameters": [
            {
                "name": "X-VAI-Signature",
                "in": "header",
                "required": False,
                "description": "marketplace.signature.json in base64, if it is not in the archive.",
                "schema": {"type": "string", "pattern": "^[A-Za-z0-9+/=]+$"},
            }
        ],
    }
    return route


@router.post(
    "/v1/plugin-packages",
    status_code=201,
    response_model=PackageOut,
    responses={200: {"model": PackageOut, "description": "The package was already on the server."}},
    **_upload_openapi(),
)
@long_running
async def upload_package(request: Request, caller: Caller, gateway: TheGateway) -> Response:
    """Add a package: upload the archive, or name its source in a registry."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        row, new = await gateway.packages.pull(caller, _source(await request.body()))
    elif kind in GZIPS:
        signature = _signature(request.headers.get(SIGNATURE_HEADER))
        with tempfile.TemporaryDirectory(prefix="plugbay-upload-") as folder:
            archive = await _save_body(request, Path(folder))
            row, new = await gateway.packages.upload(caller, archive, signature)
    else:
        text = "send an archive as application/gzip, or its source as application/json"
        raise invalid("request.invalid_content_type", text, "Content-Type")
    return JSONResponse(package_out(row).model_dump(), 201 if new else 200)


def _source(body: bytes) -> str:
    try:
        return SourceIn.model_validate_json(body).source
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


def _signature(header: str | None) -> bytes | None:
    if header is None:
        return None
    try:
        data = binascii.a2b_base64(header.encode("latin-1"), strict_mode=True)
    except ValueError:
        raise invalid("request.invalid", "the signature is not base64", "X-VAI-Signature") from None
    if len(data) > MAX_BYTES:
        raise too_large("package.too_large", "the signature is too large")
    return data


async def _save_body(request: Request, folder: Path) -> Path:
    """Write the body to a file, up to the maximum size of a package."""
    path, size = folder / "package.tar.gz", 0
    with await asyncio.to_thread(path.open, "xb") as file:
        async for piece in request.stream():
            size += len(piece)
            if size > DEFAULT_LIMITS.packed:
                text = f"a package has {DEFAULT_LIMITS.packed:,} bytes at most"
                raise too_large("package.too_large", text, limit=DEFAULT_LIMITS.packed)
            await asyncio.to_thread(file.write, piece)
    return path


@router.get("/v1/plugin-packages", **needs("viewer"))
async def list_packages(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    package_id: Package | None = None,
    version: Version | None = None,
    status: Literal["available", "quarantined"] | None = None,
) -> Listing[PackageOut]:
    """Packages of the caller's org, and shared ones."""
    part = await gateway.packages.page(caller, page, package_id=package_id, version=version, status=status)
    return listing(part, package_out)


@router.get("/v1/plugin-packages/{package}", **needs("viewer"))
async def get_package(package: PathId, caller: Caller, gateway: TheGateway) -> PackageOut:
    return package_out(await gateway.packages.get(caller, package))


@router.delete("/v1/plugin-packages/{package}", **needs("admin"))
async def delete_package(package: PathId, caller: Caller, gateway: TheGateway) -> PackageOut:
    """Delete a package without bindings, running invocations and marketplace entries; 409 names those.

    Its version stays taken: only the same contents can be uploaded again. Only the operator of all orgs deletes shared
    packages.
    """
    return package_out(await gateway.packages.delete(caller, package))


@router.get("/v1/plugin-packages/{package}/logs", **needs("viewer"), responses=STREAM, response_model=Lines)
async def get_package_logs(
    request: Request,
    package: PathId,
    caller: Caller,
    gateway: TheGateway,
    org_id: IdFilter = None,
    tail: Tail = 100,
    follow: Follow = False,
) -> Any:
    """Output of the package's processes for the caller's org: stderr and `log` events. For keys of a whole org.

    Each node has at most 200 past lines.
    """
    logs = gateway.package_logs
    log = await logs.open(caller, package, org_id)
    past = await log.tail(tail)
    return log_response(request, past.lines, logs.follow(log, past) if follow else None)


def package_out(row: PackageRow) -> PackageOut:
    """A package as a response."""
    return PackageOut(
        id=row.id,
        org_id=row.org_id,
        package_id=row.package_id,
        version=row.version,
        digest=row.digest,
        manifest=msgspec.to_builtins(row.manifest),
        signature=SignatureOut.model_validate({"status": row.signature_status, "key_id": row.key_id}),
        status="available" if row.status == "available" else "quarantined",
        source=row.source,
        created_at=stamp(row.created_at),
    )


exports_router = Router(tags=["exports"])


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


@exports_router.get("/v1/plugin-harnesses", **needs("viewer"))
async def list_harnesses(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None, project_id: IdFilter = None
) -> Listing[ExportOut]:
    """Harness exports of available packages."""
    return await _exports(caller, gateway, page, "harness", org_id, project_id)


@exports_router.get("/v1/plugin-tools", **needs(any_of=("viewer", "runs:read", "runs:write")))
async def list_tools(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None, project_id: IdFilter = None
) -> Listing[ExportOut]:
    """Tool exports of available packages; for a harness the tools that it was given."""
    only = None
    if caller.kind == "delegated":
        only = frozenset(tool.binding_id for tool in await gateway.harnesses.tools(caller))
    return listing(await gateway.packages.exports(caller, "tool", page, org_id, project_id, only), _export_out)


@exports_router.get("/v1/plugin-hooks", **needs("viewer"))
async def list_hooks(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None, project_id: IdFilter = None
) -> Listing[ExportOut]:
    """Hook exports of available packages."""
    return await _exports(caller, gateway, page, "hook", org_id, project_id)


@exports_router.get("/v1/plugin-compactors", **needs("viewer"))
async def list_compactors(
    caller: Caller, gateway: TheGateway, page: Paging, org_id: IdFilter = None, project_id: IdFilter = None
) -> Listing[ExportOut]:
    """Compactor exports of available packages."""
    return await _exports(caller, gateway, page, "compactor", org_id, project_id)


async def _exports(
    caller: Principal, gateway: Gateway, page: Page, kind: str, org_id: str | None, project_id: str | None
) -> Listing[ExportOut]:
    return listing(await gateway.packages.exports(caller, kind, page, org_id, project_id), _export_out)


def _export_out(item: ListedExport) -> ExportOut:
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
            "bindings": [_binding(row) for row in item.bindings],
        }
    )


def _binding(row: BindingRow) -> dict[str, Any]:
    scope = {"org_id": row.org_id, "project_id": row.project_id}
    return {"binding_id": row.id, "scope": scope, "status": row.status}
