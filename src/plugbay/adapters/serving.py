"""Serves the host that started an adapter: the plugin of the pin in the SDK, with the source behind it.

To an MCP client the host behind the adapter is served as `plugbay mcp serve` does it. To all others the SDK speaks, and
its event loop runs the host of the source. An adapter for rune lives for one call and leaves the host to a process that
stays (`plugbay.adapters.linger`).
"""

from __future__ import annotations

import os

from plugbay.adapters.plugin import make_plugin, plugin_with_tools
from plugbay.sdk.io.stdio import claim, leave, note
from plugbay.sdk.serving import begin, serve_rune

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from typing import Any, NoReturn

    from plugbay.adapters.pin import Pin, PinnedExport
    from plugbay.adapters.source import HostedSource


def serve(pin: Pin) -> NoReturn:
    """Serve until the host leaves, then exit."""
    for name, value in pin.settings.environment.items():
        os.environ.setdefault(name, value)
    if pin.target == "mcp":
        leave(serve_mcp(pin))
    if pin.target == "rune":
        serve_per_call(pin)
    serve_resident(pin)


def serve_resident(pin: Pin) -> NoReturn:
    """Serve a host of nexo, kaged, ainb or vai."""
    from plugbay.wire.fast_json import MsgspecCodec

    wire, source = claim(), LazySource(pin)
    plugin = make_plugin(pin, source)
    source.report = lambda text: plugin.host.log.warn(text)
    plugin.on_ready(source.start)
    plugin.on_shutdown(source.stop)
    if not begin(plugin, wire, MsgspecCodec()):
        leave(0)  # the host left before it spoke
    note(f"{pin.id} is an adapter for hosts of {pin.target}, and another host has started it")
    leave(1)


class LazySource:
    """A `HostedSource` that is loaded after the greeting: its modules take longer than the rest of the adapter."""

    def __init__(self, pin: Pin) -> None:
        self._pin = pin
        self._hosted: HostedSource | None = None
        self.report = note
        """Tells the other host, in one line, what is wrong with the source."""

    def _source(self) -> HostedSource:
        if self._hosted is None:
            from plugbay.adapters.source import HostedSource

            self._hosted = HostedSource(self._pin, lambda text: self.report(text))
        return self._hosted

    async def start(self) -> None:
        await self._source().start()

    async def stop(self) -> None:
        if self._hosted is not None:
            await self._hosted.stop()

    async def call(self, export: PinnedExport, given: Any, ctx: Any) -> Any:
        return await self._source().call(export, given, ctx)

    async def run(self, export: PinnedExport, argv: Sequence[str], ctx: Any) -> Any:
        return await self._source().run(export, argv, ctx)

    async def compact(self, export: PinnedExport, messages: Sequence[Any], ctx: Any) -> Any:
        return await self._source().compact(export, messages, ctx)

    def stream(self, export: PinnedExport, given: Any) -> AsyncIterator[Any]:
        return self._source().stream(export, given)


def serve_mcp(pin: Pin) -> int:
    """Serve an MCP client; the exit status."""
    import asyncio
    import signal

    from plugbay.adapters.source import make_host
    from plugbay.mcp_server import stdio
    from plugbay.mcp_server.listing import AS_TOOLS, qualified_name, short_name
    from plugbay.mcp_server.server import McpServer, QuestionRouter
    from plugbay.model.errors import PlugbayError

    wire = stdio.take_wire()

    async def work() -> None:
        router, task, loop = QuestionRouter(), asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        rule = qualified_name if len(pin.sources) > 1 else short_name
        only = [f"{export.plugin}/{export.name}" for export in pin.exports]
        async with make_host(pin, questions=router.ask) as host:
            server = McpServer(host, router, rule=rule, only=only, as_tools=AS_TOOLS, name=pin.id, strict=False)
            async with server:
                await stdio.serve(server, wire)

    try:
        asyncio.run(work())
    except asyncio.CancelledError:
        return 0
    except PlugbayError as error:
        note(f"{pin.id}: {error}")
        return 1
    return 0


def serve_per_call(pin: Pin) -> NoReturn:
    """Serve one call of a rune host."""
    import sys

    from plugbay.adapters.linger_client import LingeringHost
    from plugbay.sdk.io.stdio import when_host_gone
    from plugbay.wire.strict_json import stdlib_codec

    wire, codec = claim(), stdlib_codec()
    lingering = LingeringHost(pin, sys.executable)
    plugin = plugin_with_tools(pin, lingering.handler)
    first = begin(plugin, wire, codec)
    when_host_gone(wire, lambda: leave(1))
    leave(serve_rune(plugin, wire, codec, first))
