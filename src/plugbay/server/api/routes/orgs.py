"""Routes of orgs, their projects, and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, Body, ChosenId, Listing, Name, Paging, PathId, Time, example, listing
from plugbay.store.audit import to_json

router = Router(tags=["orgs"])


class OrgIn(Body):
    model_config = example(id="acme", name="Acme", policy={"network": "none", "max_child_runs": 4})

    name: Name
    id: ChosenId | None = Field(default=None, description="Default: generated.")
    policy: dict[str, Any] = Field(default_factory=dict, description="Upper limit for all bindings of the org.")


class OrgPatch(Body):
    model_config = example(policy={"timeout_ms": 60_000})

    name: Name | None = None
    policy: dict[str, Any] | None = None


class OrgOut(Answer):
    id: str
    name: str
    policy: dict[str, Any]
    created_at: Time
    updated_at: Time


class ProjectIn(Body):
    model_config = example(id="shop", name="The shop")

    name: Name
    id: ChosenId | None = Field(default=None, description="Default: generated.")


class ProjectPatch(Body):
    model_config = example(name="The tea shop")

    name: Name


class ProjectOut(Answer):
    id: str
    org_id: str
    name: str
    created_at: Time
    updated_at: Time


class AuditOut(Answer):
    id: str
    at: Time
    org_id: str | None
    project_id: str | None
    actor_kind: str
    actor_id: str
    action: str
    subject_kind: str
    subject_id: str
    request_id: str | None
    details: dict[str, Any]
    position: int = Field(description="The place in the hash chain of the org; the operator has a chain too.")
    previous_hash: str = Field(description="The hash of the entry before it.")
    hash: str = Field(description="SHA-256 of all other fields.")


class BrokenOut(Answer):
    kind: Literal["changed", "removed", "inserted", "cut"]
    position: int
    entry_id: str | None = Field(description="null: the entry was removed.")
    message: str


class ChainReportOut(Answer):
    chain: str = Field(description="The org; * for entries without an org.")
    entries: int
    removed: int = Field(description="Entries that `[retention]` has removed, from the beginning.")
    head: str = Field(description="chain:position:hash of the last entry.")
    broken: BrokenOut | None = Field(description="The first broken entry.")


class AuditReportOut(Answer):
    valid: bool
    chains: list[ChainReportOut]


@router.post("/v1/orgs", status_code=201, **needs("admin"))
async def create_org(body: OrgIn, caller: Caller, gateway: TheGateway) -> OrgOut:
    """Create an org. Only for the operator of all orgs."""
    return OrgOut.model_validate(await gateway.orgs.create(caller, body.name, body.policy, body.id))


@router.get("/v1/orgs", **needs("viewer"))
async def list_orgs(caller: Caller, gateway: TheGateway, page: Paging) -> Listing[OrgOut]:
    """Orgs visible to the caller."""
    return listing(await gateway.orgs.page(caller, page), OrgOut.model_validate)


@router.get("/v1/orgs/{org_id}", **needs("viewer"))
async def get_org(org_id: PathId, caller: Caller, gateway: TheGateway) -> OrgOut:
    return OrgOut.model_validate(await gateway.orgs.get(caller, org_id))


@router.patch("/v1/orgs/{org_id}", **needs("admin"))
async def update_org(org_id: PathId, body: OrgPatch, caller: Caller, gateway: TheGateway) -> OrgOut:
    """Change the given fields; missing fields and null stay unchanged."""
    return OrgOut.model_validate(await gateway.orgs.change(caller, org_id, **body.model_dump(exclude_none=True)))


@router.post("/v1/orgs/{org_id}/projects", status_code=201, **needs("admin"))
async def create_project(org_id: PathId, body: ProjectIn, caller: Caller, gateway: TheGateway) -> ProjectOut:
    return ProjectOut.model_validate(await gateway.orgs.create_project(caller, org_id, body.name, body.id))


@router.get("/v1/orgs/{org_id}/projects", **needs("viewer"))
async def list_projects(org_id: PathId, caller: Caller, gateway: TheGateway, page: Paging) -> Listing[ProjectOut]:
    """Projects of an org, visible to the caller."""
    return listing(await gateway.orgs.projects(caller, org_id, page), ProjectOut.model_validate)


@router.get("/v1/orgs/{org_id}/projects/{project_id}", **needs("viewer"))
async def get_project(org_id: PathId, project_id: PathId, caller: Caller, gateway: TheGateway) -> ProjectOut:
    return ProjectOut.model_validate(await gateway.orgs.project(caller, org_id, project_id))


@router.patch("/v1/orgs/{org_id}/projects/{project_id}", **needs("admin"))
async def update_project(
    org_id: PathId, project_id: PathId, body: ProjectPatch, caller: Caller, gateway: TheGateway
) -> ProjectOut:
    return ProjectOut.model_validate(await gateway.orgs.change_project(caller, org_id, project_id, body.name))


@router.get("/v1/audit", **needs("admin"))
async def list_audit(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    subject_id: Annotated[str | None, Query(max_length=200)] = None,
    action: Annotated[str | None, Query(max_length=64)] = None,
) -> Listing[AuditOut]:
    """The audit log: action, actor and request; newest first."""
    return listing(
        await gateway.audit.page(caller, page, subject_id=subject_id, action=action), AuditOut.model_validate
    )


@router.get("/v1/audit/verification", **needs("admin"))
async def verify_audit(
    caller: Caller,
    gateway: TheGateway,
    head: Annotated[
        list[str] | None,
        Query(max_length=100, description="A head from an earlier check: its entry must be unchanged."),
    ] = None,
) -> AuditReportOut:
    """Check the audit log of the caller's org: every entry, its place and its hash. All orgs for the operator."""
    return AuditReportOut.model_validate(to_json(await gateway.audit.verify(caller, head or ())))
