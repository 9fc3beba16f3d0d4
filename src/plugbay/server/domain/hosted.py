"""`Hosted`: the plugins in the host's own folders, as their operator sees and handles them.

Owns what each operation needs to be true, that it is written into the audit log, and that a grant is kept in
plugbay.toml before it takes effect. How plugins live is the host's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from plugbay.host.admin import approval, operating
from plugbay.host.admin.approval import Inspection
from plugbay.host.admin.operating import Applied
from plugbay.host.config import config as configuration
from plugbay.host.host import Host
from plugbay.host.status import PluginStatus
from plugbay.model.errors import CallFailed, ConfigInvalid
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import GatewayError, conflict, not_found, unavailable, unprocessable
from plugbay.server.domain.plugbay_toml import change_grants
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

RELOAD_SECONDS = 30.0
"""That an operation waits for calls to end which are under way; it goes on by itself after that."""

_OPERATIONS: dict[str, Callable[[Host, str], Awaitable[None]]] = {
    "start": operating.start,
    "stop": operating.stop,
    "restart": operating.restart,
    "reload": operating.reload,
}


class Hosted:
    """The host's plugins."""

    def __init__(
        self, host: Host, database: Database, audit: Audit, config_file: Path | None, config_journal: Path
    ) -> None:
        self._host = host
        self._database = database
        self._audit = audit
        self._config_file = config_file
        self._config_journal = config_journal
        self._changing = asyncio.Lock()
        self._looking = asyncio.Lock()
        self._looks: dict[str, Inspection] = {}
        """By plugin: what was last shown of it, until somebody approves it; as many as there are plugins."""

    def plugins(self) -> list[dict[str, Any]]:
        """Every plugin, in the public shape."""
        return [operating.shape(self._host, status) for status in self._host.plugins()]

    def plugin(self, plugin_id: str) -> dict[str, Any]:
        """One plugin with its exports; raises `not_found`."""
        status = self._status(plugin_id)
        exports = [
            export.to_json() for name, export in self._host.exports().items() if name.rpartition("/")[0] == plugin_id
        ]
        return {**operating.shape(self._host, status), "exports": exports}

    def exports(self) -> list[dict[str, Any]]:
        """Every export by its full name."""
        return [{**export.to_json(), "name": name} for name, export in self._host.exports().items()]

    async def operate(self, caller: Principal, plugin_id: str, operation: str) -> dict[str, Any]:
        """Start, stop, restart or reload a plugin; how it is then."""
        self._status(plugin_id)
        await self._done(plugin_id, _OPERATIONS[operation](self._host, plugin_id))
        await self._note(caller, f"plugin.{operation}", plugin_id)
        return self.plugin(plugin_id)

    async def grant(self, caller: Principal, plugin_id: str, capabilities: Iterable[str]) -> dict[str, Any]:
        """Let a plugin have what it asks for, for good, from its next start; how it is then."""
        status, wanted = self._status(plugin_id), list(dict.fromkeys(capabilities))
        spec = status.spec
        possible = {name for whole in (*spec.capabilities, *spec.optional_capabilities) for name in _names(whole)}
        unknown = [name for name in wanted if name not in possible]
        if unknown:
            wishes = ", ".join(spec.capabilities) or "nothing"
            text = f"{plugin_id} does not ask for {', '.join(unknown)}; it asks for {wishes}"
            raise unprocessable("plugin.not_requested", text, "capabilities", requested=list(spec.capabilities))
        await self._regrant(caller, "plugin.grant", plugin_id, lambda old: dict.fromkeys([*old, *wanted]), wanted)
        return self.plugin(plugin_id)

    async def revoke(self, caller: Principal, plugin_id: str, capabilities: Iterable[str]) -> dict[str, Any]:
        """Take away what a plugin was granted in plugbay.toml; how it is then."""
        status, unwanted = self._status(plugin_id), set(capabilities)
        kept = self._host.config.plugin(plugin_id).grants or []
        if not unwanted & set(kept):
            text = f"nothing of this is granted to {plugin_id} in plugbay.toml"
            raise unprocessable("plugin.not_granted", text, "capabilities", granted=list(status.granted))
        rest = [name for name in kept if name not in unwanted]
        await self._regrant(caller, "plugin.revoke", plugin_id, lambda _: rest, sorted(unwanted))
        return self.plugin(plugin_id)

    async def look(self, caller: Principal, plugin_id: str) -> Inspection:
        """What a plugin offers that has to be approved: it is started once for that; raises `conflict`."""
        if not self._status(plugin_id).needs_approval:
            text = f"{plugin_id} says in its manifest what it offers; nothing of it has to be approved"
            raise unprocessable("plugin.no_approval", text)
        async with self._looking:
            try:
                seen = self._looks[plugin_id] = await approval.inspect(self._host, plugin_id)
            except CallFailed as error:
                raise _not_started(plugin_id, error) from None
        await self._note(caller, "plugin.look", plugin_id, digest=seen.digest)
        return seen

    def looked(self, plugin_id: str) -> Inspection | None:
        """What was last shown of a plugin, and is not approved yet."""
        return self._looks.get(plugin_id)

    async def approve(self, caller: Principal, plugin_id: str, digest: str) -> dict[str, Any]:
        """Let a plugin offer exactly what was last shown of it, which the digest names; how it is then."""
        self._status(plugin_id)
        seen = self._looks.get(plugin_id)
        if seen is None or seen.digest != digest:
            text = f"this is not what was last shown of {plugin_id}; look at it again, then approve that"
            raise conflict("plugin.not_shown", text)
        async with self._changing:
            try:
                await approval.approve(self._host, seen)
            except (ConfigInvalid, OSError) as error:
                raise unavailable("plugin.approval_unwritable", str(error)) from None
            self._looks.pop(plugin_id, None)
            await self._done(plugin_id, self._host.reload(plugin_id))
        await self._note(caller, "plugin.approve", plugin_id, digest=digest)
        return self.plugin(plugin_id)

    async def reload_config(self) -> Applied:
        """Read plugbay.toml again and reload the plugins for which it says something else; raises `ConfigInvalid`."""
        if self._config_file is None or not self._config_file.exists():
            return Applied((), ())
        async with self._changing:
            applied = operating.apply(self._host, configuration.load(self._config_file))
            for plugin_id in applied.plugins:
                await self._done(plugin_id, self._host.reload(plugin_id))
        return applied

    async def _regrant(
        self,
        caller: Principal,
        action: str,
        plugin_id: str,
        change: Callable[[list[str]], Iterable[str]],
        names: list[str],
    ) -> None:
        if self._config_file is None:
            raise conflict(
                "plugin.no_config", "this server has no plugbay.toml to keep grants in; start it with --config"
            )
        async with self._changing:
            try:
                config = await asyncio.to_thread(
                    change_grants, self._config_file, self._config_journal, plugin_id, change
                )
            except ConfigInvalid as error:
                raise conflict("plugin.config_invalid", str(error)) from None
            except OSError as error:
                raise unavailable("plugin.config_unwritable", f"plugbay.toml: {error.strerror}") from None
            applied = operating.apply(self._host, config)
            for changed in {plugin_id, *applied.plugins}:
                await self._done(changed, self._host.reload(changed))
        await self._note(caller, action, plugin_id, capabilities=names)

    async def _done(self, plugin_id: str, work: Awaitable[None]) -> None:
        """Wait for it, within bounds; it goes on when that takes too long."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait_for(asyncio.shield(task), RELOAD_SECONDS)
        except TimeoutError:
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        except CallFailed as error:
            raise _not_started(plugin_id, error) from None

    async def _note(self, caller: Principal, action: str, plugin_id: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", plugin_id, **details)

    def _status(self, plugin_id: str) -> PluginStatus:
        found = next((status for status in self._host.plugins() if status.spec.id == plugin_id), None)
        if found is None:
            raise not_found("plugin", plugin_id)
        return found


def _not_started(plugin_id: str, error: CallFailed) -> GatewayError:
    text = f"{plugin_id} does not start: {error.failure.message}"
    return conflict("plugin.not_started", text, failure=error.failure.to_json())


def _names(capability: str) -> tuple[str, str]:
    """A capability can be granted by its whole name, or by what stands before `=` for all of its kind."""
    return capability, capability.partition("=")[0]
