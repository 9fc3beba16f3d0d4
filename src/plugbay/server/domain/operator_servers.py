"""`OperatorServers`: MCP servers in plugbay.toml, declared and removed while the server runs.

A declared server is hosted at once, and pending: it runs for a look, and for calls only after its offer was approved.
Audits each change without secrets. To declare a server is to choose a command that this machine runs, so callers ask
for the operator token again: a stolen session is not enough.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from plugbay.contracts.mcp import remote
from plugbay.host.admin.servers import ServerEntry, drop_secrets, forget_server, save_secrets, summarize
from plugbay.host.config import editing
from plugbay.host.config.config import FILE_NAME
from plugbay.host.config.sections import ServerConfig
from plugbay.host.discovery.servers import find_servers
from plugbay.host.host import Host
from plugbay.host.status import PluginStatus
from plugbay.model.errors import ConfigInvalid
from plugbay.model.ids import id_problem
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import GatewayError, conflict, not_found, unprocessable
from plugbay.server.domain.operator_config import OperatorConfig
from plugbay.server.domain.principal import Principal, require_operator_of_all
from plugbay.store.database import Database

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

UNUSABLE = "command_unusable"
"""A warning about a plugin in a folder, where the program may come later; a refusal in a form."""


class OperatorServers:
    """The MCP servers of one host."""

    def __init__(self, host: Host, database: Database, audit: Audit, config: OperatorConfig) -> None:
        self._host = host
        self._database = database
        self._audit = audit
        self._config = config
        self._declaring = asyncio.Lock()

    def servers(self) -> list[dict[str, Any]]:
        """Every MCP server that is hosted or declared, as JSON, by name."""
        hosted = [self._describe(status) for status in self._host.plugins() if status.needs_approval]
        broken = [
            {"name": item.entry, "state": "invalid", "declared": item.entry in self._host.config.mcp}
            | {"problem": str(item.errors[0]), "program": "", "offers": ""}
            for item in self._host.problems
            if item.errors and item.entry and item.spec is None
        ]
        return sorted([*hosted, *broken], key=lambda server: server["name"])

    def _describe(self, status: PluginStatus) -> dict[str, Any]:
        spec = status.spec
        approval = self._host.runtime_exports.approval(spec.id)
        drift = self._host.runtime_exports.problems.get(spec.id)
        warnings = [str(each) for item in self._host.problems if item.spec is spec for each in item.problems]
        state = "pending" if approval is None else "changed" if drift else "approved"
        return {
            "name": spec.id,
            "state": state,
            "declared": spec.id in self._host.config.mcp,
            "problem": drift or next(iter(warnings), ""),
            "program": spec.url.partition("?")[0] if spec.url else " ".join(spec.command),
            "offers": summarize(approval),
        }

    async def declare(self, caller: Principal, entry: ServerEntry) -> list[str]:
        """Declare a server and host it; returns the names of its secrets that have no value yet."""
        require_operator_of_all(caller, "declares MCP servers")
        cluster = self._host.config.cluster
        if cluster is not None and cluster.nats:
            text = "plugins of this gateway run on nodes, which run verified packages only; an MCP server is a command"
            raise unprocessable("server.not_placed", text)
        state = self._state()
        async with self._declaring:
            self._check_name(entry.name)
            await asyncio.to_thread(self._check_entry, entry)
            try:
                await asyncio.to_thread(save_secrets, state, entry.name, entry.secrets)
            except ConfigInvalid as error:
                raise conflict("plugin.config_invalid", str(error)) from None
            try:
                await self._config.edit(lambda document: self._add(document, entry))
            except GatewayError:
                if entry.name not in self._host.config.mcp:
                    await asyncio.to_thread(drop_secrets, state, entry.name, entry.secrets)
                raise
        await self._record(caller, "server.declare", entry.name, program=entry.shown, secrets=sorted(entry.secrets))
        return await asyncio.to_thread(entry.missing_secrets, state)

    def _add(self, document: TOMLDocument, entry: ServerEntry) -> None:
        if entry.name in document.get(editing.SERVERS, ()):  # by a command, since the file was read
            raise self._exists(entry.name)
        editing.declare_servers(document, {entry.name: entry.section()})

    async def remove(self, caller: Principal, name: str) -> None:
        """Remove a declaration with its approval, secrets, login and bundle. Running calls end first."""
        require_operator_of_all(caller, "removes MCP servers")
        servers = dict(self._host.config.mcp)
        if name not in servers:
            raise not_found("server", name)
        state = self._state()
        await self._config.edit(lambda document: editing.remove_server(document, name))
        await asyncio.to_thread(forget_server, state, name, servers.pop(name), servers.values())
        await self._record(caller, "server.remove", name)

    def _check_name(self, name: str) -> None:
        problem = id_problem(name)
        if problem is not None:
            raise unprocessable("server.invalid", f"{name!r:.80} cannot be the name of a server: it {problem}", "name")
        if name in self._host.config.mcp or name in self._host.specs:
            raise self._exists(name)

    @staticmethod
    def _exists(name: str) -> GatewayError:
        text = f"there is already a plugin {name!r}; remove it first, or choose another name"
        return conflict("server.exists", text)

    def _check_entry(self, entry: ServerEntry) -> None:
        """Refuse a server that could not be hosted, before anything is written."""
        refused = remote.headers_problem(entry.headers)
        if refused is not None:
            raise unprocessable("server.invalid", f"the header {refused[0]!r:.60} {refused[1]}", "headers")
        try:
            server = ServerConfig.model_validate(entry.section())
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            text = str(first["msg"]).removeprefix("Value error, ")
            raise unprocessable("server.invalid", text, "program") from None
        (found,) = find_servers(self._host.config.model_copy(update={"mcp": {entry.name: server}}))
        wrong = [problem for problem in found.problems if problem in found.errors or problem.code == UNUSABLE]
        if wrong:
            param = "folder" if wrong[0].path == "dir" else "program"
            raise unprocessable("server.invalid", wrong[0].message.removeprefix(f"{FILE_NAME}: "), param)

    def _state(self) -> Path:
        if self._host.state_dir is None:
            raise conflict("plugin.no_config", "this server has no state folder for approvals and secrets")
        return self._host.state_dir

    async def _record(self, caller: Principal, action: str, name: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", name, **details)
