#!/usr/bin/env python3
"""A plugin that does what a scenario of nexo's published conformance kit configures. Run by the kit and by tests.

    nexo_fixture.py --print-capabilities
    nexo_fixture.py --config '{"manifest": "…", "declare_tools": […], "tool_handler": "echo", …}'

Half of it is async, half of it plain, so that the kit exercises both.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CAPABILITIES = ["core", "memory", "llm", "tools"]
TOPIC = "plugin.inbound.conf"
QUESTION = [{"role": "user", "content": "hi"}]


def main(arguments: list[str]) -> None:
    if arguments == ["--print-capabilities"]:
        print(json.dumps(CAPABILITIES))  # before the SDK takes stdout for the protocol
        return
    sys.path.insert(0, str(Path(__file__).parents[3] / "src"))
    serve(json.loads(arguments[arguments.index("--config") + 1]))


def serve(config: dict[str, Any]) -> None:
    from plugbay.sdk import Plugin

    plugin = Plugin.from_manifest(
        config["manifest"],
        server_version=config.get("server_version", "conformance-fixture-0"),
        full_events="FULL_EVENTS" in os.environ,
    )
    verbs = config.get("tool_handlers", {})
    for name in config.get("declare_tools", []):
        verb = verbs.get(name, config.get("tool_handler", "not_found"))
        schema = {"type": "object"}
        plugin.tool(name, description=f"conformance tool {name}", input_schema=schema)(tool(verb))
    kind, _, argument = config.get("event_handler", "never").partition(":")
    if kind in EVENT_HANDLERS:
        plugin.on_event()(EVENT_HANDLERS[kind](argument))
    plugin.run()


# Tools.


def tool(verb: str) -> Callable[..., Any]:
    kind, _, argument = verb.partition(":")
    return TOOLS[kind](argument)


def echo(_: str) -> Callable[..., Any]:
    async def handler(input: Any, ctx: Any) -> Any:
        return {"echoed": input, "agent": ctx.agent_id, "plugin": ctx.plugin_id}

    return handler


def text(said: str) -> Callable[..., Any]:
    def handler(input: Any) -> Any:
        return {"content": [{"type": "text", "text": said}], "is_error": False}

    return handler


def slow(milliseconds: str) -> Callable[..., Any]:
    def handler(input: Any) -> Any:
        time.sleep(int(milliseconds) / 1000)
        return {"content": [{"type": "text", "text": "done"}], "is_error": False}

    return handler


def recall_then_return(_: str) -> Callable[..., Any]:
    def handler(input: Any, ctx: Any) -> Any:
        entries = ctx.memory.recall(ctx.agent_id, input["q"])
        return {"recalled": [entry["content"] for entry in entries], "plugin_id": ctx.plugin_id}

    return handler


def raises(code: str) -> Callable[..., Any]:
    from plugbay import sdk

    errors: dict[str, Exception] = {
        "33401": sdk.ToolNotFound("no such tool"),
        "33402": sdk.ToolArgumentInvalid("bad argument", details={"field": "q"}),
        "33403": sdk.ToolExecutionFailed("it did not work"),
        "33404": sdk.ToolUnavailable("later", retry_after_ms=5000),
        "33405": sdk.ToolDenied("not for you"),
        "": RuntimeError("a bug"),
    }

    async def handler(input: Any) -> Any:
        raise errors[code]

    return handler


def unserializable(_: str) -> Callable[..., Any]:
    def handler(input: Any) -> Any:
        return {"a set": {1, 2}}

    return handler


TOOLS: dict[str, Callable[[str], Callable[..., Any]]] = {
    "echo": echo,
    "text": text,
    "slow": slow,
    "recall_then_return": recall_then_return,
    "raise": raises,
    "raise_generic": raises,
    "return_unserializable": unserializable,
    "not_found": lambda _: raises("33401"),
}


# Events.


def publish_marker(_: str) -> Callable[..., Any]:
    def handler(event: Any, ctx: Any) -> None:
        ctx.events.publish(TOPIC, {"event_seen": event.payload["k"]})

    return handler


def slow_publish(milliseconds: str) -> Callable[..., Any]:
    def handler(event: Any, ctx: Any) -> None:
        time.sleep(int(milliseconds) / 1000)
        ctx.events.publish(TOPIC, {"event_seen": event.payload["k"]})

    return handler


def host_call(_: str) -> Callable[..., Any]:
    from plugbay.sdk import ServiceError

    async def handler(event: Any, ctx: Any) -> None:
        wish = event.payload
        try:
            seen = await HOST_CALLS[wish["op"]](wish, ctx)
        except ServiceError as error:
            seen = {"timed_out": True} if error.code == "timeout" else {"rpc_error": {"code": error.rpc_code}}
            if error.rpc_code is None and error.code == "unavailable":
                ctx.log("INFLIGHT_GOT_TRANSPORT")
                return
        await ctx.events.publish(TOPIC, seen)

    return handler


async def recall(wish: Any, ctx: Any) -> Any:
    entries = await ctx.memory.recall("conf", wish.get("q", "q"), timeout=wish.get("timeout", 30))
    return {"recalled": [entry["content"] for entry in entries]}


async def complete(wish: Any, ctx: Any) -> Any:
    done = await ctx.llm.complete(wish.get("provider", "minimax"), wish.get("model", "m"), QUESTION)
    return {"content": done.content, "finish_reason": done.finish_reason, "ct": done.usage["completion_tokens"]}


async def stream(wish: Any, ctx: Any) -> Any:
    pieces = ctx.llm.stream("minimax", "m", QUESTION)
    joined = "".join([piece async for piece in pieces])
    return {
        "joined": joined,
        "content_is_none": pieces.result.content is None,
        "finish_reason": pieces.result.finish_reason,
    }


HOST_CALLS = {
    "recall": recall,
    "recall_error": recall,
    "recall_timeout": recall,
    "inflight": recall,
    "complete": complete,
    "complete_error": complete,
    "stream": stream,
}

EVENT_HANDLERS = {"publish_marker": publish_marker, "slow_publish": slow_publish, "host_call": host_call}


if __name__ == "__main__":
    main(sys.argv[1:])
