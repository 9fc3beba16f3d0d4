"""`OperatorConfig`: plugbay.toml of a running server, edited and applied.

One change at a time. The file is locked against commands, validated, and rewritten in place with its comments:
sandboxes have a mount over it, and lose it when another file takes the name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from plugbay.host.admin import operating
from plugbay.host.admin.operating import Applied
from plugbay.host.config import config as configuration
from plugbay.host.config import editing
from plugbay.host.config.config import Config
from plugbay.host.disk.durable import rewrite
from plugbay.host.host import Host
from plugbay.model.errors import CallFailed, ConfigInvalid
from plugbay.server.domain.errors import GatewayError, conflict, unavailable

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

OPERATION_SECONDS = 30.0
"""Seconds to wait for an operation; it continues in the background afterwards."""


class OperatorConfig:
    """plugbay.toml of one host."""

    def __init__(self, host: Host, file: Path | None, journal: Path) -> None:
        """`journal` is for `durable.rewrite`."""
        self.file = file
        self.changing = asyncio.Lock()
        self._host = host
        self._journal = journal

    async def edit(self, change: Callable[[TOMLDocument], object], *reloaded: str) -> Applied:
        """Change the file, apply it, and reload the affected plugins and these; raises `conflict`, and then nothing
        has changed.
        """
        if self.file is None:
            text = "this server has no plugbay.toml to store the change in; start it with --config"
            raise conflict("plugin.no_config", text)
        async with self.changing:
            try:
                config = await asyncio.to_thread(self._write, self.file, change)
            except ConfigInvalid as error:
                raise conflict("plugin.config_invalid", str(error)) from None
            except OSError as error:
                raise unavailable("plugin.config_unwritable", f"plugbay.toml: {error.strerror}") from None
            return await self._apply(config, *reloaded)

    async def reload(self) -> Applied:
        """Read the file again, and apply it; raises `ConfigInvalid`."""
        if self.file is None or not self.file.exists():
            return Applied((), ())
        async with self.changing:
            return await self._apply(configuration.load(self.file))

    async def _apply(self, config: Config, *reloaded: str) -> Applied:
        applied = await operating.apply(self._host, config)
        for plugin_id in dict.fromkeys((*reloaded, *applied.plugins)):
            await finish(plugin_id, self._host.reload(plugin_id))
        return applied

    def _write(self, file: Path, change: Callable[[TOMLDocument], object]) -> Config:
        with editing.locked(file):
            document = editing.read(file)
            editing.to_text(document, file)  # an invalid file is not ours to change
            change(document)
            rewrite(file, editing.to_text(document, file).encode(), self._journal)
        return configuration.load(file)


async def finish(plugin_id: str, work: Awaitable[None]) -> None:
    """Wait for an operation on a plugin for `OPERATION_SECONDS`; raises `conflict` when the plugin does not start."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait_for(asyncio.shield(task), OPERATION_SECONDS)
    except TimeoutError:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    except CallFailed as error:
        raise not_started(plugin_id, error) from None


def not_started(plugin_id: str, error: CallFailed) -> GatewayError:
    """The refusal for a plugin that does not start."""
    text = f"{plugin_id} does not start: {error.failure.message}"
    return conflict("plugin.not_started", text, failure=error.failure.to_json())
