"""Routes of bindings: create, update, validate, list, read, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from fastapi import Query, Response
from pydantic import Field, StringConstraints

from plugbay.server.api.caller import Caller, TheGateway, needs
from plugbay.server.api.idempotency import Router
from plugbay.server.api.models import Answer, Body, ChosenId, IdFilter, Listing, Paging, PathId, Time, example, listing
from plugbay.server.domain.bindings import Draft, DryRun, Verdict
from plugbay.server.domain.secrets import parse_reference
from plugbay.store.bindings import BindingRow

router = Router(tags=["bindings"])

Status = Literal["draft", "active", "disabled"]
Kind = Literal["harness", "tool", "hook", "compactor"]

PackageName = Annotated[str, StringConstraints(max_length=129, pattern=r"^[a-z0-9._-]+/[a-z0-9._-]+$")]
Version = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[0-9A-Za-z.+-]+$")]
ExportName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Slot = Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z][a-z0-9_]*$")]
Reference = Annotated[str, StringConstraints(max_length=1000)]


class Scope(Body):
    org_id: ChosenId
    project_id: ChosenId | None = None


class Rollout(Body):
    traffic_percent: Annotated[int, Field(ge=0, le=100, strict=True)] = 100


class BindingIn(Body):
    model_config = example(
        package_id="acme/devkit",
        package_version="1.0.0",
        export_id="jira_search",
        scope={"org_id": "acme", "project_id": "shop"},
        config={"base_url": "https://acme.example"},
        secrets={"jira_token": "secret://acme/jira_token"},
        policy={"timeout_ms": 10_000},
        status="active",
        rollout={"traffic_percent": 100},
    )

    package_id: PackageName
    package_version: Version
    export_id: ExportName
    scope: Scope
    config: dict[str, Any] = Field(default_factory=dict)
    secrets: dict[Slot, Reference] = Field(
        default_factory=dict, description="`secret://<org or project>/<name>` by slot; never a secret itself."
    )
    policy: dict[str, Any] = Field(default_factory=dict, description="Limits below the requests of the manifest.")
    status: Status = "active"
    rollout: Rollout = Rollout()


class BindingPatch(Body):
    model_config = example(policy={"timeout_ms": 5_000}, rollout={"traffic_percent": 50})

    package_version: Version | None = None
    config: dict[str, Any] | None = None
    secrets: dict[Slot, Reference] | None = None
    policy: dict[str, Any] | None = None
    status: Status | None = None
    rollout: Rollout | None = None
    revision: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="Change it only if it still has this revision; 409 otherwise."
    )


class ScopeOut(Answer):
    org_id: str
    project_id: str | None


class RolloutOut(Answer):
    traffic_percent: int


class BindingOut(Answer):
    binding_id: str
    package_id: str
    package_version: str
    export_id: str
    export_kind: Kind
    scope: ScopeOut
    config: dict[str, Any]
    secrets: dict[str, str]
    policy: dict[str, Any]
    status: Status
    rollout: RolloutOut
    revision: int
    created_at: Time
    updated_at: Time


class SettingsOut(Answer):
    """The fields of a binding that a request sets."""

    package_id: str
    package_version: str
    export_id: str
    scope: ScopeOut
    config: dict[str, Any]
    secrets: dict[str, str]
    policy: dict[str, Any]
    status: Status
    rollout: RolloutOut


class FindingOut(Answer):
    code: str
    path: str
    message: str


class VerdictOut(Answer):
    valid: bool
    errors: list[FindingOut]
    warnings: list[FindingOut]
    effective_permissions: dict[str, Any]


class DryRunOut(Answer):
    """The result that a request would have."""

    dry_run: Literal[True] = True
    accepted: bool = Field(description="Whether the request would be accepted without `dry_run`.")
    before: SettingsOut | None
    after: SettingsOut | None
    validation: VerdictOut | None


IsDryRun = Annotated[bool, Query(description="Only show the changes and the result of the validation; change nothing.")]


@router.post("/v1/plugin-bindings", status_code=201, responses={200: {"model": DryRunOut}}, **needs("operator"))
async def create_binding(
    body: BindingIn, response: Response, caller: Caller, gateway: TheGateway, dry_run: IsDryRun = False
) -> BindingOut | DryRunOut:
    """Attach an export to an org or a project. An active binding must be valid."""
    draft = draft_of(body)
    if dry_run:
        response.status_code = 200  # nothing was created
        return _dry_run_out(await gateway.bindings.preview_create(caller, draft))
    return binding_out(await gateway.bindings.create(caller, draft))


def draft_of(body: BindingIn) -> Draft:
    """The binding that a request wants."""
    return Draft(
        body.package_id,
        body.package_version,
        body.export_id,
        body.scope.org_id,
        body.scope.project_id,
        body.config,
        dict(body.secrets),
        body.policy,
        body.status,
        body.rollout.traffic_percent,
    )


@router.get("/v1/plugin-bindings", **needs("viewer"))
async def list_bindings(
    caller: Caller,
    gateway: TheGateway,
    page: Paging,
    org_id: IdFilter = None,
    project_id: IdFilter = None,
    package_id: Annotated[str | None, Query(max_length=129)] = None,
    package_version: Annotated[str | None, Query(max_length=128)] = None,
    export_id: IdFilter = None,
    kind: Kind | None = None,
    status: Status | None = None,
) -> Listing[BindingOut]:
    """Bindings visible to the caller."""
    part = await gateway.bindings.page(
        caller,
        page,
        org_id=org_id,
        project_id=project_id,
        package_id=package_id,
        package_version=package_version,
        export_id=export_id,
        export_kind=kind,
        status=status,
    )
    return listing(part, binding_out)


@router.get("/v1/plugin-bindings/{binding_id}", **needs("viewer"))
async def get_binding(binding_id: PathId, caller: Caller, gateway: TheGateway) -> BindingOut:
    return binding_out(await gateway.bindings.get(caller, binding_id))


@router.patch("/v1/plugin-bindings/{binding_id}", **needs("operator"))
async def change_binding(
    binding_id: PathId, body: BindingPatch, caller: Caller, gateway: TheGateway, dry_run: IsDryRun = False
) -> BindingOut | DryRunOut:
    """Change config, secrets, policy, rollout, status or version; the version may go back."""
    changes = changes_of(body)
    if dry_run:
        return _dry_run_out(await gateway.bindings.preview_change(caller, binding_id, changes, body.revision))
    return binding_out(await gateway.bindings.change(caller, binding_id, changes, body.revision))


def changes_of(body: BindingPatch) -> dict[str, Any]:
    """The fields that a request changes."""
    given = body.model_fields_set - {"revision"}
    changes = {name: getattr(body, name) for name in given if getattr(body, name) is not None}
    rollout = changes.pop("rollout", None)
    if rollout is not None:
        changes["traffic_percent"] = rollout.traffic_percent
    return changes


@router.delete("/v1/plugin-bindings/{binding_id}", **needs("operator"))
async def delete_binding(
    binding_id: PathId, caller: Caller, gateway: TheGateway, dry_run: IsDryRun = False
) -> BindingOut | DryRunOut:
    """Delete a binding without running or waiting work; 409 names that work. Disabling the binding cancels it."""
    if dry_run:
        return _dry_run_out(await gateway.bindings.preview_delete(caller, binding_id))
    return binding_out(await gateway.bindings.delete(caller, binding_id))


@router.post("/v1/plugin-bindings/{binding_id}:validate", **needs("viewer"))
async def validate_binding(binding_id: PathId, caller: Caller, gateway: TheGateway) -> VerdictOut:
    """Validate a binding without changing it. The answer is 200 for an invalid one too."""
    return _verdict_out(await gateway.bindings.validate(caller, binding_id))


def binding_out(row: BindingRow) -> BindingOut:
    """A binding as a response."""
    return BindingOut.model_validate(
        {
            "binding_id": row.id,
            "package_id": row.package_id,
            "package_version": row.package_version,
            "export_id": row.export_id,
            "export_kind": row.export_kind,
            "scope": {"org_id": row.org_id, "project_id": row.project_id},
            "config": row.config,
            "secrets": row.secrets,
            "policy": row.policy,
            "status": row.status,
            "rollout": {"traffic_percent": row.traffic_percent},
            "revision": row.revision,
            "created_at": row.created_at,
            "updated_at": row.updated_at,
        }
    )


HIDDEN = "(not a reference)"
"""In place of a slot's value that is not a reference: it may be the secret itself."""


def _settings_out(row: BindingRow | None) -> SettingsOut | None:
    if row is None:
        return None
    references = {slot: text if parse_reference(text) else HIDDEN for slot, text in row.secrets.items()}
    return SettingsOut(
        package_id=row.package_id,
        package_version=row.package_version,
        export_id=row.export_id,
        scope=ScopeOut(org_id=row.org_id, project_id=row.project_id),
        config=row.config,
        secrets=references,
        policy=row.policy,
        status=cast(Status, row.status),
        rollout=RolloutOut(traffic_percent=row.traffic_percent),
    )


def _dry_run_out(result: DryRun) -> DryRunOut:
    return DryRunOut(
        accepted=result.accepted,
        before=_settings_out(result.before),
        after=_settings_out(result.after),
        validation=None if result.verdict is None else _verdict_out(result.verdict),
    )


def _verdict_out(verdict: Verdict) -> VerdictOut:
    return VerdictOut(
        valid=verdict.valid,
        errors=[FindingOut.model_validate(finding) for finding in verdict.errors],
        warnings=[FindingOut.model_validate(finding) for finding in verdict.warnings],
        effective_permissions={**verdict.permissions.to_json(), "limits": dict(verdict.limits)},
    )
