"""`HostToolset`: the tools of a host as a toolset of pydantic-ai.

    agent = Agent("openai:…", toolsets=[HostToolset(ModelTools(host))])

The tools are listed again before each request to the model, so plugins may come and go during a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from pydantic_ai import ToolDefinition, ToolFailed, ToolReturn
    from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
except ModuleNotFoundError as error:
    text = f"plugbay.integrations.pydantic_ai needs {error.name}: pip install 'plugbay[pydantic-ai]'"
    raise ImportError(text, name=error.name) from None
from pydantic_core import SchemaValidator, core_schema

from plugbay.mcp_server.model_tools import ModelTools

ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
"""The host validates against the schema of the tool; its errors name each invalid argument."""


class HostToolset(AbstractToolset[Any]):  # type: ignore[misc]
    """A failed call is a failed tool result, which the model reads; it does not end the run."""

    def __init__(self, tools: ModelTools, *, id: str | None = None, timeout: float | None = None) -> None:
        """`timeout` is in seconds, for each call; without it, the plugin's own holds."""
        self._tools = tools
        self._id = id
        self._timeout = timeout

    @property
    def id(self) -> str | None:
        """The name of this toolset for frameworks of durable execution."""
        return self._id

    async def get_tools(self, ctx: Any) -> dict[str, Any]:
        """The tools that may be used now."""
        return {tool["name"]: self._to_tool(tool) for tool in self._tools.definitions("anthropic")}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        """Call a tool. `metadata` of the result is the `ToolAnswer`, with pictures and sound."""
        answer = await self._tools.use(name, tool_args, timeout=self._timeout)
        if answer.failed:
            raise ToolFailed(answer.text)
        return ToolReturn(answer.text, metadata=answer)

    def _to_tool(self, tool: Mapping[str, Any]) -> Any:
        definition = ToolDefinition(
            name=tool["name"],
            description=tool["description"],
            parameters_json_schema=tool["input_schema"],
            strict=False,
        )
        return ToolsetTool(toolset=self, tool_def=definition, max_retries=1, args_validator=ANY_OBJECT)
