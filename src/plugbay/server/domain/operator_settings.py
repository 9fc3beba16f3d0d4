"""`OperatorSettings`: settings and secrets of the operator's plugins. Audits each change by name, never by value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from plugbay.host.admin.plugin_settings import PluginSettings
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, ConfigInvalid, Failure
from plugbay.server.domain.audit import Audit
from plugbay.server.domain.errors import conflict, not_found, unprocessable
from plugbay.server.domain.principal import Principal
from plugbay.store.database import Database

T = TypeVar("T")


class OperatorSettings:
    """Settings of the plugins of one host."""

    def __init__(self, host: Host, database: Database, audit: Audit) -> None:
        self._host = host
        self._database = database
        self._audit = audit

    def of(self, plugin_id: str) -> PluginSettings:
        """The settings of a plugin; raises for an unknown one, and if the host saves nothing."""
        spec = self._host.specs.get(plugin_id)
        if spec is None:
            raise not_found("plugin", plugin_id)
        if self._host.state_dir is None:
            raise conflict("plugin.no_config", "this server has no state folder to save settings in")
        return PluginSettings(spec, self._host.bindings, self._host.state_dir)

    async def describe(self, plugin_id: str) -> tuple[dict[str, Any], frozenset[str]]:
        """The settings as JSON without secrets, and the names of the fields that were changed here."""
        target = self.of(plugin_id)
        return await _in_thread(lambda: (target.describe(), target.saved()))

    async def change(self, caller: Principal, plugin_id: str, values: Mapping[str, Any]) -> dict[str, Failure]:
        """Change settings; returns the failures by name, and then nothing is changed."""
        target = self.of(plugin_id)
        failures = await _in_thread(lambda: target.change(values))
        if not failures:
            await self._record(caller, "plugin.configure", plugin_id, settings=sorted(values))
        return failures

    async def reset(self, caller: Principal, plugin_id: str, name: str) -> None:
        """Forget the change of a setting."""
        target = self.of(plugin_id)
        await _in_thread(lambda: target.reset([name]))
        await self._record(caller, "plugin.configure", plugin_id, reset=[name])

    async def set_secret(self, caller: Principal, plugin_id: str, name: str, value: str | None) -> None:
        """Save a secret, or remove it. No message reveals it."""
        target = self.of(plugin_id)

        def save() -> None:
            target.require_secret(name)
            target.set_secret(name, value)

        await _in_thread(save)
        await self._record(caller, "plugin.secret", plugin_id, secret=name, removed=value is None)

    async def _record(self, caller: Principal, action: str, plugin_id: str, **details: Any) -> None:
        async with self._database.transaction() as tx:
            await self._audit.record(tx, caller, action, "plugin", plugin_id, **details)


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except ConfigInvalid as error:
        raise conflict("plugin.config_invalid", str(error)) from None
    except CallFailed as error:
        raise unprocessable("plugin.setting_invalid", error.failure.message) from None
