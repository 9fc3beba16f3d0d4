"""The adapter for langchain, with the framework itself; tests/docs has whole agents."""

from __future__ import annotations

import importlib
import sys

import pytest

from tests.support.frameworks import FrameworkEnvironment
from tests.support.tiers import exhaustive

MODULE = "plugbay.integrations.langchain"

PROGRAM = """
import asyncio, os
from langchain_core.tools import BaseTool
from plugbay import Host, ModelTools, SyncHost, SyncModelTools
from plugbay.integrations.langchain import host_tools

def call(**arguments):
    return {"type": "tool_call", "id": "1", "name": "p__t", "args": arguments}

def show(message):
    print(message.status, message.content.replace(chr(10), " "), message.artifact and message.artifact.value)

async def main():
    async with Host.load(os.environ["PLUGINS"]) as host:
        (tool,) = host_tools(ModelTools(host), timeout=60)
        assert isinstance(tool, BaseTool)
        print(tool.name, tool.description, tool.tool_call_schema["required"])
        show(await tool.ainvoke(call(n=1, config=2, run_manager=3, self=4, tools=5)))
        show(await tool.ainvoke(call(n="1")))
        try:
            tool.invoke(call(n=1))
        except NotImplementedError as error:
            print(error)

asyncio.run(main())
with SyncHost.load(os.environ["PLUGINS"]) as host:
    (tool,) = host_tools(SyncModelTools(host), timeout=60)
    show(tool.invoke(call(n=1)))
    show(tool.invoke(call()))
    show(asyncio.run(tool.ainvoke(call(n=2))))
"""

SAID = [
    "p__t Says it again. ['n']",
    'success {"n":1,"config":2,"run_manager":3,"self":4,"tools":5} '
    "{'n': 1, 'config': 2, 'run_manager': 3, 'self': 4, 'tools': 5}",
    """error invalid_input: the input does not fit t's schema: n: "1" is not of type "integer" None""",
    "p__t is a tool of a Host: use ainvoke, or SyncModelTools of a SyncHost",
    """success {"n":1} {'n': 1}""",
    """error invalid_input: the input does not fit t's schema: input: "n" is a required property None""",
    """success {"n":2} {'n': 2}""",
]


def test_without_the_framework_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ImportError, match=r"needs langchain_core.*: pip install 'plugbay\[langchain\]'"):
        importlib.import_module(MODULE)


@exhaustive
def test_every_argument_arrives_and_every_failure_is_a_message(frameworks: FrameworkEnvironment, plugins: str) -> None:
    assert frameworks.run(PROGRAM, {"PLUGINS": plugins}).splitlines() == SAID
