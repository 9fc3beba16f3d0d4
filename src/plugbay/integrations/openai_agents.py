"""`function_tools`: the tools of a host as tools of the OpenAI Agents SDK.

agent = Agent(name="…", tools=function_tools(ModelTools(host)))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from agents import FunctionTool
except ModuleNotFoundError as error:
    text = f"plugbay.integrations.openai_agents needs {error.name}: pip install 'plugbay[openai-agents]'"
    raise ImportError(text, name=error.name) from None

from plugbay.mcp_server.model_tools import ModelTools


def function_tools(tools: ModelTools, *, timeout: float | None = None) -> list[Any]:
    """Each tool as a `FunctionTool`. A failed call is text for the model; it does not end the run.

    `timeout` is in seconds, for each call; without it, the plugin's own holds. A tool that may no longer be used is
    disabled. New tools need a new list.
    """
    return [_to_function_tool(tool, tools, timeout) for tool in tools.definitions("anthropic")]


def _to_function_tool(tool: Mapping[str, Any], tools: ModelTools, timeout: float | None) -> Any:
    name = tool["name"]

    async def invoke(context: Any, arguments: str) -> str:
        return (await tools.use(name, arguments, timeout=timeout)).text

    def is_enabled(context: Any, agent: Any) -> bool:
        return name in tools.exports()

    return FunctionTool(
        name=name,
        description=tool["description"],
        params_json_schema=tool["input_schema"],
        on_invoke_tool=invoke,
        # Strict mode accepts only schemas in which every property is required.
        strict_json_schema=False,
        is_enabled=is_enabled,
    )
