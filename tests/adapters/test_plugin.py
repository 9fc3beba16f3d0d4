"""The SDK plugin of a pin has a handler for each form, and every handler calls the source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from plugbay.adapters.pin import Pin, PinnedExport, Settings, Source
from plugbay.adapters.plugin import make_plugin


class Recorder:
    """A source that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def call(self, export: PinnedExport, given: Any, ctx: Any) -> Any:
        self.calls.append((export.name, given))
        return {"count": 2, "matches": ["m"]}

    async def run(self, export: PinnedExport, argv: Sequence[str], ctx: Any) -> Any:
        return await self.call(export, list(argv), ctx)

    async def compact(self, export: PinnedExport, messages: Sequence[Any], ctx: Any) -> Any:
        return await self.call(export, list(messages), ctx)

    async def stream(self, export: PinnedExport, given: Any) -> AsyncIterator[Any]:
        self.calls.append((export.name, given))
        yield "piece"


def pinned(*exports: tuple[str, str, str]) -> Pin:
    made = [
        PinnedExport("p", kind, name, form, name, events=(name,) if form == "hook" else ())
        for kind, name, form in exports
    ]
    return Pin("nexo", "p", "1.0.0", [Source("p", "nexo")], made, Settings())


def test_every_form_has_a_handler_that_calls_the_source() -> None:
    source = Recorder()
    pin = pinned(
        ("tool", "echo", "tool"),
        ("method", "a.b", "method"),
        ("cli_namespace", "notes", "command line"),
        ("hook", "before_message", "hook"),
        ("compactor", "short", "compactor"),
        ("channel", "mail", "channel"),
        ("llm_provider", "toy", "llm provider"),
        ("vector_backend", "flat", "vector backend"),
    )
    plugin = make_plugin(pin, source)
    channel: Any = plugin.channels["mail"]
    vectors: Any = plugin.vector_backends["flat"]

    async def use() -> None:
        await plugin.tools["echo"].function(input={"x": 1}, ctx=None)
        await plugin.methods["a.b"].function(input={}, ctx=None)
        await plugin.clis["notes"].function(["add"], ctx=None)
        await plugin.hooks["before_message"].function({"e": 1}, ctx=None)
        assert plugin.compaction is not None
        await plugin.compaction.function(["m"], ctx=None)
        await channel.start("one")
        await channel.send({"kind": "text"})
        await channel.stop()
        assert [chunk async for chunk in plugin.llm_providers["toy"].function({"messages": []}, "m")] == ["piece"]
        assert await vectors.upsert("c", [1]) == 2
        assert await vectors.search("c", {"embedding": []}) == ["m"]
        assert await vectors.delete("c", ["i"]) == 2

    asyncio.run(use())
    assert [name for name, _ in source.calls] == [
        *("echo", "a.b", "notes", "before_message", "short", "mail", "mail", "mail", "toy", "flat", "flat", "flat")
    ]
    assert source.calls[5:9] == [
        ("mail", {"action": "start", "instance": "one"}),
        ("mail", {"action": "send", "message": {"kind": "text"}}),
        ("mail", {"action": "stop"}),
        ("toy", {"messages": [], "model": "m"}),
    ]


def test_the_hook_of_a_compactor_is_the_compactor() -> None:
    pin = pinned(("hook", "pre_compact", "hook"), ("hook", "post_compact", "hook"), ("compactor", "p", "compactor"))
    plugin = make_plugin(pin, Recorder())
    assert plugin.compaction is not None
    assert list(plugin.hooks) == ["post_compact"]
