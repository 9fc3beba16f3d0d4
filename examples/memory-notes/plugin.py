"""A nexo plugin on the published SDK, `nexoai`: a tool that asks the host for memories and for a language model."""

import asyncio
from pathlib import Path
from typing import Any

from nexo_plugin_sdk import (
    BrokerSender,
    PluginAdapter,
    RpcServerError,
    ToolArgumentInvalid,
    ToolContext,
    ToolDef,
    ToolInvocation,
    ToolNotFound,
    ToolUnavailable,
)

ASK = ToolDef(
    "memory_notes_ask",
    "Answer a question from what the agent remembers.",
    {
        "type": "object",
        "properties": {
            "question": {"type": "string"},
            "provider": {"type": "string", "description": "one of the host's language models"},
            "model": {"type": "string"},
            "stream": {"type": "boolean", "default": False},
        },
        "required": ["question", "provider", "model"],
        "additionalProperties": False,
        "examples": [{"question": "What does Ada like?", "provider": "toy", "model": "quote"}],
    },
)


async def ask(call: ToolInvocation, context: ToolContext) -> dict[str, object]:
    """Recall, complete, answer."""
    if call.tool_name != ASK.name:
        raise ToolNotFound(call.tool_name)
    given = call.args if isinstance(call.args, dict) else {}
    missing = [name for name in ("question", "provider", "model") if not isinstance(given.get(name), str)]
    if missing:
        raise ToolArgumentInvalid(f"{', '.join(missing)}: a text is needed", details={"missing": missing})
    try:
        notes = await context.broker.memory_recall(agent_id=call.agent_id or "demo", query=given["question"], limit=5)
        request = {
            "provider": given["provider"],
            "model": given["model"],
            "messages": [{"role": "user", "content": given["question"]}],
            "system_prompt": "\n".join(["Answer from these notes:", *(note.content for note in notes)]),
            "temperature": 0.0,
        }
        text, pieces = await complete(context.broker, request, stream=given.get("stream") is True)
    except RpcServerError as error:  # not granted, not configured, or the model failed: the host says which
        raise ToolUnavailable(str(error)) from error
    return {"answer": text, "notes": len(notes), "pieces": pieces}


async def complete(broker: BrokerSender, request: dict[str, Any], *, stream: bool) -> tuple[str, int]:
    """The text of a completion, and in how many pieces it came."""
    if not stream:
        whole = await broker.llm_complete(**request)
        return whole.content or "", 1
    answer = broker.llm_complete_stream(**request)
    pieces = [piece async for piece in answer]
    await answer.final_result()  # raises what went wrong on the way
    return "".join(pieces), len(pieces)


async def main() -> None:
    manifest = Path(__file__).with_name("nexo-plugin.toml").read_text("utf-8")
    await PluginAdapter(manifest_toml=manifest, tools=[ASK], on_tool_with_context=ask).run()


if __name__ == "__main__":
    asyncio.run(main())
