"""Tools for a model: definitions, and an answer to every call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host, ModelTools, SyncHost, SyncModelTools
from plugbay.mcp_server.listing import NamesCollide
from plugbay.model.errors import Code
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.vai import FAILS, LEFT, write_vai_plugin

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "text": {"type": "string"}}, "required": ["n"]}
LONG = "x" * 50

SERVER = """
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("say", "show", "number")]

def tools_call(m):
    name = m["params"]["name"]
    if name == "say":
        reply(m, **text("one"), isError=bool(m["params"]["arguments"].get("fail")))
    elif name == "show":
        picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        reply(m, content=[{"type": "text", "text": "a"}, picture, {"type": "text", "text": "b"}])
    else:
        reply(m, content=[], structuredContent={"n": 1})
"""


def write(root: Path, plugin_id: str = "example.p", **tool: Any) -> Path:
    return write_plugin(root, plugin_id, tools=[{"name": "t", "description": "Says it again.", **tool}])


@pytest.mark.parametrize(
    ("shape", "described"),
    [
        ("anthropic", {"name": "example_p__t", "description": "Says it again.", "input_schema": SCHEMA}),
        (
            "openai",
            {
                "type": "function",
                "function": {"name": "example_p__t", "description": "Says it again.", "parameters": SCHEMA},
            },
        ),
        (
            "openai-responses",
            {"type": "function", "name": "example_p__t", "description": "Says it again.", "parameters": SCHEMA},
        ),
        (
            "mcp",
            {
                "name": "example_p__t",
                "description": "Says it again.",
                "inputSchema": SCHEMA,
                "annotations": {"readOnlyHint": True},
            },
        ),
    ],
)
def test_each_interface_has_tools_in_its_own_shape(shape: str, described: Any, run: Run, tmp_path: Path) -> None:
    write(tmp_path, input_schema=SCHEMA)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert ModelTools(host).definitions(shape) == [described]

    run(main)


def test_an_unknown_shape_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match="'gemini' is not a shape; there are anthropic, openai, openai-responses, mcp"):
        ModelTools(Host.load(tmp_path)).definitions("gemini")


@pytest.mark.parametrize("arguments", ['{"n": 1, "text": "ü"}', b'{"n": 1, "text": "\xc3\xbc"}', {"n": 1, "text": "ü"}])
def test_arguments_may_be_text_or_an_object(arguments: Any, run: Run, tmp_path: Path) -> None:
    write(tmp_path, input_schema=SCHEMA)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            answer = await ModelTools(host).use("example_p__t", arguments)
            assert json.loads(answer.text) == answer.value == {"n": 1, "text": "ü"}
            assert not answer.failed

    run(main)


@pytest.mark.parametrize("arguments", [None, "", "  ", b"", "{}", {}])
def test_a_model_may_say_nothing_where_nothing_is_needed(arguments: Any, run: Run, tmp_path: Path) -> None:
    write(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await ModelTools(host).use("example_p__t", arguments)).value == {}

    run(main)


@pytest.mark.parametrize(
    ("name", "arguments", "code", "text"),
    [
        ("example_p_t", "{}", Code.TOOL_NOT_EXPOSED, "did you mean example_p__t?"),
        ("weather", "{}", Code.TOOL_NOT_EXPOSED, "tool_not_exposed: there is no tool called 'weather'"),
        ("example_p__t", '{"n": ', Code.INVALID_INPUT, "the arguments are not JSON"),
        ("example_p__t", '{"n": NaN}', Code.INVALID_INPUT, "the arguments are not JSON"),
        ("example_p__t", "\ud800", Code.INVALID_INPUT, "the arguments are not JSON"),
        ("example_p__t", "[1]", Code.INVALID_INPUT, "the arguments must be one JSON object"),
        ("example_p__t", '{"n": "1", "text": 2}', Code.INVALID_INPUT, 'n: "1" is not of type'),
        ("example_p__t", '{"n": "1", "text": 2}', Code.INVALID_INPUT, "\ntext: 2 is not of type"),
    ],
)
def test_a_model_can_read_each_of_its_errors(
    name: str, arguments: str, code: str, text: str, run: Run, tmp_path: Path
) -> None:
    write(tmp_path, input_schema=SCHEMA)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            answer = await ModelTools(host).use(name, arguments)
            assert answer.failed
            assert answer.failure is not None and answer.failure.code == code
            assert text in answer.text
            assert answer.content == ({"type": "text", "text": answer.text},)
            assert answer.value is None

    run(main)


def test_a_plugin_that_fails_is_an_answer_too(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "p", script="read -r _; printf '%s\\n' '{hello}'; echo secret words >&2; exit 3\n")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            answer = await ModelTools(host).use("p__t")
            assert answer.failed
            assert answer.text.startswith("crashed: ")
            assert "secret words" not in answer.text

    run(main)


@requirement("vai:host-failed-result")
def test_a_model_reads_the_content_of_a_failure_and_its_message(run: Run, tmp_path: Path) -> None:
    write_vai_plugin(tmp_path, FAILS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            tools = ModelTools(host)
            answer = await tools.use(next(iter(tools.exports())))
            assert answer.failed and answer.failure is not None
            assert answer.text == "3 of 4 rows were written\nplugin_error: the disk is full"
            assert answer.content == (*LEFT["content"], {"type": "text", "text": "plugin_error: the disk is full"})

    run(main)


def test_an_input_that_is_no_object_is_one_argument(run: Run, tmp_path: Path) -> None:
    write(tmp_path, input_schema={"type": "array"})

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            tools = ModelTools(host)
            (tool,) = tools.definitions("anthropic")
            assert tool["input_schema"]["properties"] == {"input": {"type": "array"}}
            assert (await tools.use(tool["name"], {"input": [1, 2]})).text == "[1,2]"

    run(main)


def test_what_mcp_servers_say_is_text_for_the_model_and_whole_beside_it(run: Run, tmp_path: Path) -> None:
    write_server(tmp_path, "s", SERVER)

    async def main() -> None:
        async with Host.load(tmp_path, trusted="s") as host:
            tools = ModelTools(host)
            assert await tools.ready(20)
            assert set(tools.exports()) == {"s__say", "s__show", "s__number"}
            said = await tools.use("s__say")
            assert (said.text, said.failed) == ("one", False)
            assert (await tools.use("s__say", {"fail": True})).failed
            shown = await tools.use("s__show")
            assert shown.text == "a\nb"
            assert [item["type"] for item in shown.content] == ["text", "image", "text"]
            assert (await tools.use("s__number")).text == '{"n":1}'

    run(main)


def test_a_long_answer_is_cut_for_the_model_alone(run: Run, tmp_path: Path) -> None:
    write(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            answer = await ModelTools(host, longest=20).use("example_p__t", {"text": LONG})
            assert answer.text == '{"text":"xxxxxxxxxxx\n[the first 20 of 61 characters]'
            assert answer.value == {"text": LONG}

    run(main)


def test_only_some_of_them_may_be_shown_and_under_their_own_names(run: Run, tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b")

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert ModelTools(host, only="a", short=True).exports() == {"t": "a/t"}
            assert ModelTools(host, only=["b/*"]).exports() == {"b__t": "b/t"}
            assert (await ModelTools(host, only=["a"]).use("b__t")).failed
            with pytest.raises(NamesCollide, match="a/t and b/t would both be served as 't'"):
                ModelTools(host, short=True).definitions("mcp")

    run(main)


def test_what_may_not_be_used_is_not_shown(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path, "p", capabilities=["tool.execute"], tools=[{"name": "t", "capabilities": ["tool.execute"]}])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert ModelTools(host).exports() == {}
        async with Host.load(tmp_path, grants=["tool.execute"]) as host:
            assert ModelTools(host).exports() == {"p__t": "p/t"}

    run(main)


def test_without_a_loop_it_is_the_same(tmp_path: Path) -> None:
    write(tmp_path, input_schema=SCHEMA)
    with SyncHost.load(tmp_path) as host:
        tools = SyncModelTools(host)
        assert tools.ready(20)
        (tool,) = tools.definitions("anthropic")
        assert tools.use(tool["name"], '{"n": 1}').value == {"n": 1}
        assert tools.use(tool["name"], "{").failed
