"""The adapter for openai-agents, with the framework itself; tests/docs has whole agents."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.support.frameworks import FrameworkEnvironment
from tests.support.tiers import exhaustive

MODULE = "plugbay.integrations.openai_agents"

PROGRAM = """
import asyncio, os
from agents import Agent, FunctionTool, RunContextWrapper
from plugbay import Host, ModelTools
from plugbay.integrations.openai_agents import function_tools

async def main():
    async with Host.load(os.environ["PLUGINS"]) as host:
        (tool,) = function_tools(ModelTools(host), timeout=60)
        agent = Agent(name="a", tools=[tool])
        assert isinstance(tool, FunctionTool)
        print(tool.name, tool.description, tool.params_json_schema["required"], tool.strict_json_schema)
        print(await tool.on_invoke_tool(None, '{"n": 1}'))
        print(await tool.on_invoke_tool(None, '{"n": "1"}'))
        print(await tool.on_invoke_tool(None, '{"n": '))
        print(len(await agent.get_all_tools(RunContextWrapper(None))))
        host.calls.catalog.remove("p")
        print(len(await agent.get_all_tools(RunContextWrapper(None))))

asyncio.run(main())
"""

SAID = [
    "p__t Says it again. ['n'] False",
    '{"n":1}',
    """invalid_input: the input does not fit t's schema: n: "1" is not of type "integer\"""",
    "invalid_input: the arguments are not JSON: not JSON: Input data was truncated",
    "1",
    "0",
]


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ImportError, match=r"needs agents.*: pip install 'plugbay\[openai-agents\]'"):
        importlib.import_module(MODULE)


@exhaustive
def test_a_call_is_text_for_the_model_and_a_tool_that_is_gone_is_disabled(
    frameworks: FrameworkEnvironment, plugins: str
) -> None:
    assert frameworks.run(PROGRAM, {"PLUGINS": plugins}).splitlines() == SAID
