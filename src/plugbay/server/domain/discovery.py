"""What exports there are: those of every package that is available to the caller, with their schemas and bindings.

Owns what one is listed with. Export "available" here means its package is: whether it is bound, and how, is told beside
it. Starts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plugbay.model.spec import Export
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import Packages
from plugbay.server.domain.principal import Principal
from plugbay.store import bindings as binding_rows
from plugbay.store import packages as package_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Database
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page, Part


@dataclass(frozen=True, slots=True)
class Listed:
    """One export of one release, and the bindings to it that the caller sees."""

    package: PackageRow
    export: Export
    bindings: tuple[BindingRow, ...]

    @property
    def place(self) -> tuple[float, str]:
        """Where in the list it stands."""
        return self.package.created_at, f"{self.package.id}.{self.export.name}"

    def kind_table(self) -> dict[str, Any]:
        """The table of its kind in the manifest, files of schemas replaced by what is in them."""
        entries = self.package.manifest.get("exports", [])
        table = next((entry.get(self.export.kind) for entry in entries if entry.get("id") == self.export.name), None)
        schemas = {"input_schema": self.export.input_schema, "output_schema": self.export.output_schema}
        return {name: schemas.get(name, value) for name, value in (table or {}).items()}


class Discovery:
    """The lists of exports."""

    def __init__(self, database: Database, orgs: Orgs, packages: Packages) -> None:
        self._database = database
        self._orgs = orgs
        self._packages = packages

    async def page(
        self, caller: Principal, kind: str, page: Page, org_id: str | None = None, project_id: str | None = None
    ) -> Part[Listed]:
        """The exports of a kind, the newest packages first."""
        org, project = org_id or caller.org_id, project_id or caller.project_id
        async with self._database.reading() as tx:
            if org is not None:
                await self._orgs.scope(tx, caller, org, project)
            packages = await package_rows.usable(tx, org)
            bound = await binding_rows.of_packages(tx, [row.id for row in packages], org, project)
        found = [item for row in packages for item in await self._exports(row, kind, bound)]
        found = sorted(found, key=lambda item: item.place, reverse=True)
        rest = [item for item in found if page.after is None or item.place < page.after]
        shown = tuple(rest[: page.limit])
        return Part(shown, shown[-1].place if len(rest) > page.limit else None)

    async def _exports(self, row: PackageRow, kind: str, bound: list[BindingRow]) -> list[Listed]:
        found = await self._packages.found(row)
        assert found.spec is not None
        return [
            Listed(row, export, tuple(b for b in bound if b.package_row == row.id and b.export_id == export.name))
            for export in found.spec.exports
            if export.kind == kind
        ]
