"""`host_tools`: the tools of a host as tools of LangChain and LangGraph.

agent = create_agent(model, host_tools(ModelTools(host)))           # await agent.ainvoke(…)
agent = create_agent(model, host_tools(SyncModelTools(sync_host)))  # agent.invoke(…)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

try:
    from langchain_core.tools import BaseTool, ToolException
except ModuleNotFoundError as error:
    text = f"plugbay.integrations.langchain needs {error.name}: pip install 'plugbay[langchain]'"
    raise ImportError(text, name=error.name) from None

from plugbay.mcp_server.model_tools import ModelTools, SyncModelTools, ToolAnswer


class HostTool(BaseTool):  # type: ignore[misc]
    """A tool of a plugin. `artifact` of its message is the `ToolAnswer`, with pictures and sound."""

    tools: Any
    timeout: float | None = None

    # `self` is positional only, and no parameter has a name: every name may be an argument of the plugin.
    async def _arun(self, /, *_: Any, **arguments: Any) -> tuple[str, ToolAnswer]:
        return _checked(await self.tools.use(self.name, arguments, timeout=self.timeout))

    def _run(self, /, *_: Any, **arguments: Any) -> tuple[str, ToolAnswer]:
        raise NotImplementedError(f"{self.name} is a tool of a Host: use ainvoke, or SyncModelTools of a SyncHost")


class SyncHostTool(HostTool):
    """A tool of a plugin of a `SyncHost`, for `invoke` and `ainvoke`."""

    _arun = BaseTool._arun

    def _run(self, /, *_: Any, **arguments: Any) -> tuple[str, ToolAnswer]:
        return _checked(self.tools.use(self.name, arguments, timeout=self.timeout))


def host_tools(tools: ModelTools | SyncModelTools, *, timeout: float | None = None) -> list[Any]:
    """Each tool as a `BaseTool`. A failed call is a message with the status `error`; it does not end the run.

    `timeout` is in seconds, for each call; without it, the plugin's own holds. New tools need a new list.
    """
    kind = SyncHostTool if isinstance(tools, SyncModelTools) else HostTool
    return [_to_tool(kind, tool, tools, timeout) for tool in tools.definitions("anthropic")]


def _to_tool(kind: Any, tool: Mapping[str, Any], tools: ModelTools | SyncModelTools, timeout: float | None) -> Any:
    return kind(
        name=tool["name"],
        description=tool["description"],
        # The host validates against this schema; its errors name each invalid argument.
        args_schema=tool["input_schema"],
        response_format="content_and_artifact",
        handle_tool_error=True,
        tools=tools,
        timeout=timeout,
    )


def _checked(answer: ToolAnswer) -> tuple[str, ToolAnswer]:
    if answer.failed:
        raise ToolException(answer.text)
    return answer.text, answer
