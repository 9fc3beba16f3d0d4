"""The adapter for pydantic-ai, with the framework itself; tests/docs has whole agents."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.support.frameworks import FrameworkEnvironment
from tests.support.tiers import exhaustive

MODULE = "plugbay.integrations.pydantic_ai"

PROGRAM = """
import asyncio, os
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from plugbay import Host, ModelTools
from plugbay.integrations.pydantic_ai import HostToolset

CALLS = [ToolCallPart("p__t", {"n": 1, "ctx": 2, "self": 3}), ToolCallPart("p__t", {"n": "1"})]

def model(messages, info):
    print([(tool.name, tool.description, tool.parameters_json_schema["required"]) for tool in info.function_tools])
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    for part in messages[-1].parts if turn else ():
        print(part.outcome, part.content, part.metadata and part.metadata.value)
    return ModelResponse([TextPart("done")] if turn == len(CALLS) else [CALLS[turn]])

async def main():
    async with Host.load(os.environ["PLUGINS"]) as host:
        toolset = HostToolset(ModelTools(host), id="plugins", timeout=60)
        print(toolset.id, (await Agent(FunctionModel(model), toolsets=[toolset]).run("go")).output)
        none = toolset.filtered(lambda ctx, tool: False)
        CALLS.clear()
        await Agent(FunctionModel(model), toolsets=[none]).run("go")

asyncio.run(main())
"""

LISTED = "[('p__t', 'Says it again.', ['n'])]"
SAID = [
    LISTED,
    LISTED,
    """success {"n":1,"ctx":2,"self":3} {'n': 1, 'ctx': 2, 'self': 3}""",
    LISTED,
    """failed invalid_input: the input does not fit t's schema: n: "1" is not of type "integer" None""",
    "plugins done",
    "[]",
]


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ImportError, match=r"needs pydantic_ai.*: pip install 'plugbay\[pydantic-ai\]'"):
        importlib.import_module(MODULE)


@exhaustive
def test_the_tools_are_listed_before_each_request_and_failures_are_results(
    frameworks: FrameworkEnvironment, plugins: str
) -> None:
    assert frameworks.run(PROGRAM, {"PLUGINS": plugins}).splitlines() == SAID
