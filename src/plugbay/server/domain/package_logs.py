"""`PackageLogs`: the output of a package's processes, for readers of the org they ran for.

Lines of another org are in another file: an org never reads them, and its package or id is not found. Nodes are asked
for the lines of processes there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host.admin.logs import LogLine, PluginLogs
from plugbay.host.journal import Journal
from plugbay.host.recording.org_logs import OrgLogs, org_label
from plugbay.server.domain.errors import denied, unavailable
from plugbay.server.domain.logs import Log, Past
from plugbay.server.domain.orgs import Orgs
from plugbay.server.domain.packages import Packages
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

if TYPE_CHECKING:
    from plugbay.cluster.logs import NodeLogs

ORG_FOLDER = "orgs"


MAX_FOLLOWERS = 200
"""Readers that follow a log at the same time; each polls a file."""


class PackageLogs:
    """The logs of all packages. `written` takes the output of their processes."""

    def __init__(
        self, database: Database, packages: Packages, orgs: Orgs, log_dir: Path, nodes: NodeLogs | None = None
    ) -> None:
        self._database = database
        self._packages = packages
        self._orgs = orgs
        self.written = OrgLogs(log_dir / ORG_FOLDER)
        self._of_orgs = PluginLogs(Journal(), self.written.folder)
        self._of_all = PluginLogs(Journal(), log_dir)
        self._nodes = nodes
        self._followers = 0

    async def open(self, caller: Principal, id: str, org_id: str | None = None) -> Log:
        """The log of a package for an org: the caller's own, or the named one. The operator of all orgs may name none.

        Raises `not_found` for a package or an org that the caller does not see.
        """
        package = await self._packages.get(caller, id)
        org_id = org_id or caller.org_id
        if org_id is None:
            return Log(self._of_all, package.package_id, package.package_id, None, self._nodes)
        async with self._database.reading() as tx:
            await self._orgs.existing(tx, caller, org_id)
        if caller.project_id is not None:
            text = "a key of one project cannot read the log of a package, which belongs to the whole org"
            raise denied("auth.role_denied", text, required=["org key"])
        label = org_label(org_id, package.package_id)
        return Log(self._of_orgs, label, package.package_id, org_id, self._nodes)

    def follow(self, log: Log, past: Past) -> AsyncGenerator[LogLine, None]:
        """Lines of a log after its past; raises if too many are followed."""
        if self._followers >= MAX_FOLLOWERS:
            raise unavailable("quota.too_many_watchers", "too many logs are being followed", retry_after=1.0)
        return self._follow(log, past)

    async def _follow(self, log: Log, past: Past) -> AsyncGenerator[LogLine, None]:
        self._followers += 1
        try:
            async with aclosing(log.follow(past)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._followers -= 1
