"""The SDK plugin of an adapter: the pinned exports, with handlers that call the source.

The SDK has the plugin's side of every contract: names, greeting, dispatch, errors, progress and cancellation. Here is
only what a handler does. Loaded by every adapter, also by one that lives for a single call.
"""

from __future__ import annotations

from plugbay.sdk.plugin import Plugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from typing import Any, Protocol

    from plugbay.adapters.pin import Pin, PinnedExport

    class Source(Protocol):
        """Calls the source of an adapter; a failure is raised as `SourceFailed`."""

        async def call(self, export: PinnedExport, given: Any, ctx: Any) -> Any: ...
        async def run(self, export: PinnedExport, argv: Sequence[str], ctx: Any) -> Any: ...
        async def compact(self, export: PinnedExport, messages: Sequence[Any], ctx: Any) -> Any: ...
        def stream(self, export: PinnedExport, given: Any) -> AsyncIterator[Any]: ...

    Handlers = Callable[[PinnedExport], Callable[..., Any]]


PRE_COMPACT = "pre_compact"
"""The hook in which a compactor of kaged is asked; the SDK offers it for every compactor."""


def plugin_with_tools(pin: Pin, handler: Handlers) -> Plugin:
    """The plugin with its tools; `handler` makes the function of one. A vai host keeps the process of a worker."""
    plugin = Plugin(pin.id, pin.version, name=pin.name, description=pin.description)
    for export in pin.of_form("tool"):
        plugin.tool(
            export.served,
            description=export.description,
            input_schema=export.input_schema,
            output_schema=export.output_schema,
            effect=export.effect,
            timeout=export.timeout,
            execution_class="worker",
        )(handler(export))
    return plugin


def make_plugin(pin: Pin, source: Source) -> Plugin:
    """The plugin with everything that is pinned."""
    plugin = plugin_with_tools(pin, lambda export: _tool(source, export))
    for export in pin.of_form("method"):
        plugin.method(export.served)(_tool(source, export))
    for export in pin.of_form("command line"):
        plugin.cli(export.served, concurrent=True)(_command(source, export))
    for export in pin.of_form("compactor"):
        plugin.compactor(export=export.served, description=export.description)(_compactor(source, export))
    for export in pin.of_form("hook"):
        if not (plugin.compaction is not None and export.events == (PRE_COMPACT,)):
            first, *more = export.events
            plugin.hook(first, *more, export=export.served, description=export.description)(_hook(source, export))
    for export in pin.of_form("channel"):
        plugin.channel(export.served)(Channel(source, export))
    for export in pin.of_form("llm provider"):
        plugin.llm_provider(export.served)(_model(source, export))
    for export in pin.of_form("vector backend"):
        plugin.vector_backend(export.served)(Vectors(source, export))
    return plugin


def _tool(source: Source, export: PinnedExport) -> Callable[..., Any]:
    async def call(input: Any, ctx: Any) -> Any:
        return await source.call(export, input, ctx)

    return call


def _command(source: Source, export: PinnedExport) -> Callable[..., Any]:
    async def run(argv: Sequence[str], ctx: Any) -> Any:
        return await source.run(export, argv, ctx)

    return run


def _hook(source: Source, export: PinnedExport) -> Callable[..., Any]:
    async def run(event: Mapping[str, Any], ctx: Any) -> Any:
        return await source.call(export, event, ctx)

    return run


def _compactor(source: Source, export: PinnedExport) -> Callable[..., Any]:
    async def compact(messages: Sequence[Any], ctx: Any) -> Any:
        return await source.compact(export, messages, ctx)

    return compact


def _model(source: Source, export: PinnedExport) -> Callable[..., Any]:
    async def chat(request: Mapping[str, Any], model: str) -> AsyncIterator[Any]:
        async for chunk in source.stream(export, {**request, "model": model}):
            yield chunk

    return chat


class Channel:
    """A channel of the source."""

    def __init__(self, source: Source, export: PinnedExport) -> None:
        self._source = source
        self._export = export

    async def start(self, instance: str | None = None) -> None:
        await self._source.call(self._export, {"action": "start", "instance": instance}, None)

    async def stop(self) -> None:
        await self._source.call(self._export, {"action": "stop"}, None)

    async def send(self, message: Mapping[str, Any]) -> Any:
        return await self._source.call(self._export, {"action": "send", "message": message}, None)


class Vectors:
    """A vector backend of the source."""

    def __init__(self, source: Source, export: PinnedExport) -> None:
        self._source = source
        self._export = export

    async def upsert(self, collection: str, records: Sequence[Any]) -> Any:
        return (await self._ask("upsert", collection, records=records))["count"]

    async def search(self, collection: str, query: Mapping[str, Any]) -> Any:
        return (await self._ask("search", collection, query=query))["matches"]

    async def delete(self, collection: str, ids: Sequence[str]) -> Any:
        return (await self._ask("delete", collection, ids=ids))["count"]

    async def _ask(self, action: str, collection: str, **more: Any) -> Any:
        return await self._source.call(self._export, {"action": action, "collection": collection, **more}, None)
