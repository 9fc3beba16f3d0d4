"""`PackageLogs`: the output of a package's processes, for readers of the org they ran for.

Lines of another org are in another file: an org never reads them, and its package or id is not found.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

from plugbay.host.admin.logs import LogLine, PluginLogs
from plugbay.host.journal import Journal
from plugbay.host.recording.org_logs import OrgLogs, org_label
from plugbay.server.domain.errors import denied, unavailable
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import Packages
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

ORG_FOLDER = "orgs"


MAX_FOLLOWERS = 200
"""Readers that follow a log at the same time; each polls a file."""


class PackageLog(NamedTuple):
    """One readable log."""

    logs: PluginLogs
    label: str

    def tail(self, count: int) -> list[LogLine]:
        """The last lines, oldest first."""
        return self.logs.tail(self.label, count)


class PackageLogs:
    """The logs of all packages. `written` takes the output of their processes."""

    def __init__(self, database: Database, packages: Packages, orgs: Orgs, log_dir: Path) -> None:
        self._database = database
        self._packages = packages
        self._orgs = orgs
        self.written = OrgLogs(log_dir / ORG_FOLDER)
        self._of_orgs = PluginLogs(Journal(), self.written.folder)
        self._of_all = PluginLogs(Journal(), log_dir)
        self._followers = 0

    async def open(self, caller: Principal, id: str, org_id: str | None = None) -> PackageLog:
        """The log of a package for an org: the caller's own, or the named one. The operator of all orgs may name none.

        Raises `not_found` for a package or an org that the caller does not see.
        """
        package = await self._packages.get(caller, id)
        org_id = org_id or caller.org_id
        if org_id is None:
            return PackageLog(self._of_all, package.package_id)
        async with self._database.reading() as tx:
            await self._orgs.existing(tx, caller, org_id)
        if caller.project_id is not None:
            text = "the processes of a package serve a whole org; a key of one project does not read their log"
            raise denied("auth.role_denied", text, required=["org key"])
        return PackageLog(self._of_orgs, org_label(org_id, package.package_id))

    def follow(self, log: PackageLog) -> AsyncGenerator[LogLine, None]:
        """Lines of a log from now on; raises if too many are followed."""
        if self._followers >= MAX_FOLLOWERS:
            raise unavailable("quota.too_many_watchers", "too many logs are being followed", retry_after=1.0)
        return self._follow(log)

    async def _follow(self, log: PackageLog) -> AsyncGenerator[LogLine, None]:
        self._followers += 1
        try:
            async with aclosing(log.logs.follow(log.label)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._followers -= 1
