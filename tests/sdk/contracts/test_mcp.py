"""A plugin process under MCP: who it says it is, and what its tools are asked and answer, in both eras."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.mcp import (
    LONGEST,
    CallResult,
    definition,
    progress_reporter,
    promised_schema,
    server_name,
    tool_name,
    tools_by_name,
)
from plugbay.sdk.errors import Cancelled, ToolError
from plugbay.sdk.results import ToolResult
from plugbay.sdk.types.handlers import Tool
from tests.sdk.processes import PATHS, Mcp, gate, open_gate, running_mcp
from tests.support.requirements import requirement

EVERYTHING = """
plugin = Plugin("example.demo", "1.2.3", name="Demo", description="Shows things.")

@plugin.tool(effect="read_only")
def add(a: int, b: int = 1) -> dict[str, int]:
    "Add numbers."
    print("adding")
    return {"sum": a + b}

@plugin.tool()
async def later(value): return value

@plugin.tool()
def fails(how):
    if how == "tool": raise ToolError("no quota", code="quota")
    if how == "rate": raise RateLimited(1.5)
    if how == "result": return ToolResult("went wrong", is_error=True)
    raise KeyError("a bug")

@plugin.tool()
def reports(ctx):
    ctx.progress("begun")
    ctx.progress("half", progress=50, total=100)
    ctx.progress(progress=20)
    return "done"

@plugin.tool()
def waits(path, ctx):
    open(path).read()
    ctx.sleep(60)

@plugin.tool()
def logs(ctx):
    ctx.log.warn("careful", path="/x")
    return "logged"

@plugin.tool()
def asks(ctx):
    return {"said": ctx.ask("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})}

@plugin.tool()
def asks_in_vain(path, ctx):
    try:
        ctx.ask("Who?", timeout=0.01)
    except ServiceError:
        open(path).read()

@plugin.tool()
async def asks_later(ctx):
    return {"said": await ctx.ask("Who?")}

@plugin.tool()
def completes(ctx):
    return ctx.llm.complete("", "any", [{"role": "user", "content": "hi"}], max_tokens=9).content

@plugin.tool()
def streams(ctx):
    stream = ctx.llm.stream("", "any", [{"role": "user", "content": "hi"}])
    return [*stream, stream.result.finish_reason]

@plugin.on_shutdown
def bye(): print("bye")
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Mcp]:
    with running_mcp(tmp_path, EVERYTHING) as plugin:
        yield plugin


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


@requirement("mcp:sdk-handshake")
def test_a_plugin_sends_its_identity_and_capabilities(plugin: Mcp) -> None:
    assert plugin.greet() == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}, "logging": {}},
        "serverInfo": {"name": "example-demo", "version": "1.2.3", "title": "Demo"},
        "instructions": "Shows things.",
    }
    tools = plugin.ask("tools/list")["tools"]
    assert tools[0] == {
        "name": "add",
        "description": "Add numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
            "required": ["a"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "additionalProperties": {"type": "integer"}},
        "annotations": {"readOnlyHint": True},
    }


@requirement("mcp:sdk-modern")
def test_a_plugin_needs_no_handshake(plugin: Mcp) -> None:
    found = plugin.modern("server/discover")
    assert (found["resultType"], found["supportedVersions"]) == ("complete", ["2026-07-28"])
    result = plugin.modern("tools/call", name="add", arguments={"a": 2})
    assert (result["resultType"], result["structuredContent"]) == ("complete", {"sum": 3})


@requirement("mcp:sdk-results")
def test_a_call_is_answered_with_content_and_prints_go_to_stderr(plugin: Mcp) -> None:
    plugin.greet()
    assert plugin.tool("add", {"a": 2}) == {"content": text('{"sum":3}'), "structuredContent": {"sum": 3}}
    assert plugin.stderr_line() == "adding\n"
    assert plugin.tool("later", {"value": "ok"}) == {"content": text("ok")}


@pytest.mark.parametrize(
    ("name", "args", "words", "code"),
    [
        ("add", {"a": "two"}, "a: must be a whole number, not a string", "invalid_input"),
        ("fails", {"how": "tool"}, "no quota", "plugin_error"),
        ("fails", {"how": "rate"}, "rate limited", "overloaded"),
        ("fails", {"how": "bug"}, "KeyError: 'a bug'", "plugin_error"),
    ],
)
@requirement("mcp:sdk-errors")
def test_what_goes_wrong_in_a_tool_is_for_the_model_to_read(
    plugin: Mcp, name: str, args: Any, words: str, code: str
) -> None:
    plugin.greet()
    result = plugin.tool(name, args)
    assert (result["isError"], result["content"]) == (True, text(words))
    assert result["_meta"]["dev.plugbay/failure"]["code"] == code


@requirement("mcp:sdk-errors")
def test_a_result_that_says_it_went_wrong_is_sent_as_it_is_and_an_unknown_tool_is_an_error(plugin: Mcp) -> None:
    plugin.greet()
    assert plugin.tool("fails", {"how": "result"}) == {"content": text("went wrong"), "isError": True}
    assert plugin.tool("nothing")["code"] == -32602


@requirement("mcp:sdk-progress")
def test_progress_goes_to_requests_with_a_token(plugin: Mcp) -> None:
    plugin.greet()
    assert plugin.tool("reports") == {"content": text("done")}
    id = plugin.request("tools/call", name="reports", arguments={}, _meta={"progressToken": "t"})
    said = [plugin.read() for _ in range(4)]
    assert [frame.get("params") for frame in said] == [
        {"progressToken": "t", "progress": 1, "message": "begun"},
        {"progressToken": "t", "progress": 50, "total": 100, "message": "half"},
        {"progressToken": "t", "progress": 51},
        None,
    ]
    assert said[-1]["id"] == id


def test_progress_always_grows() -> None:
    sent: list[Any] = []
    report = progress_reporter(sent.append)
    for more in ({"progress": 2.5}, {"progress": True}, {"progress": "x", "total": "y"}, {"progress": -1}):
        report("", more)
    assert [item["progress"] for item in sent] == [2.5, 3.5, 4.5, 5.5]
    assert all(set(item) == {"progress"} for item in sent)


@requirement("mcp:sdk-cancel")
def test_a_call_that_is_called_off_ends_without_an_answer(plugin: Mcp, tmp_path: Path) -> None:
    plugin.greet()
    path = gate(tmp_path)
    id = plugin.request("tools/call", name="waits", arguments={"path": str(path)})
    open_gate(path)
    plugin.send(method="notifications/cancelled", params={"requestId": id, "reason": "enough"})
    assert plugin.tool("add", {"a": 1})["structuredContent"] == {"sum": 2}


@requirement("mcp:sdk-logging")
def test_log_lines_are_messages_of_a_session_as_loud_as_it_wants(plugin: Mcp) -> None:
    plugin.greet()
    plugin.request("tools/call", name="logs", arguments={})
    said = plugin.read()
    assert (said["method"], said["params"]["level"]) == ("notifications/message", "warning")
    assert said["params"]["data"] == {"message": "careful", "path": "/x"}
    assert plugin.read()["result"] == {"content": text("logged")}
    assert plugin.ask("logging/setLevel", level="error") == {}
    assert plugin.tool("logs") == {"content": text("logged")}


@requirement("mcp:sdk-logging")
def test_without_a_session_log_lines_go_to_stderr(plugin: Mcp) -> None:
    assert plugin.modern("tools/call", name="logs", arguments={})["content"] == text("logged")
    assert plugin.stderr_line() == "warn: careful path='/x'\n"


@pytest.mark.parametrize("tool", ["asks", "asks_later"])
@requirement("mcp:sdk-ask")
def test_a_person_is_asked_with_a_request_of_its_own(plugin: Mcp, tool: str) -> None:
    plugin.greet(elicitation={})
    id = plugin.request("tools/call", name=tool, arguments={})
    asked = plugin.read()
    assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Who?")
    plugin.send(id=asked["id"], result={"action": "accept", "content": {"name": "Ada"}})
    answer = plugin.read()
    assert (answer["id"], answer["result"]["structuredContent"]) == (id, {"said": {"name": "Ada"}})


@requirement("mcp:sdk-ask")
def test_a_declined_question_has_no_answer(plugin: Mcp) -> None:
    plugin.greet(elicitation={})
    plugin.request("tools/call", name="asks", arguments={})
    plugin.send(id=plugin.read()["id"], result={"action": "decline"})
    assert plugin.read()["result"]["structuredContent"] == {"said": None}


@requirement("mcp:sdk-ask")
def test_a_question_that_timed_out_is_cancelled_at_once(tmp_path: Path, plugin: Mcp) -> None:
    path = gate(tmp_path)
    plugin.greet(elicitation={})
    id = plugin.request("tools/call", name="asks_in_vain", arguments={"path": str(path)})
    asked, taken_back = plugin.read(), plugin.read()
    assert (taken_back["method"], taken_back["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
    assert plugin.ask("ping") == {}
    open_gate(path)
    assert plugin.read()["id"] == id


@pytest.mark.parametrize("tool", ["asks", "asks_later"])
@requirement("mcp:sdk-ask")
def test_without_a_session_a_call_is_made_again_with_the_answer(plugin: Mcp, tool: str) -> None:
    first = plugin.modern("tools/call", name=tool, arguments={})
    assert first["resultType"] == "input_required"
    ((key, question),) = first["inputRequests"].items()
    assert (question["method"], question["params"]["message"]) == ("elicitation/create", "Who?")
    answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
    state = first["requestState"]
    again = plugin.modern("tools/call", name=tool, arguments={}, inputResponses=answers, requestState=state)
    assert (again["resultType"], again["structuredContent"]) == ("complete", {"said": {"name": "Ada"}})


@requirement("mcp:sdk-ask")
def test_a_client_without_elicitation_is_not_asked(plugin: Mcp) -> None:
    plugin.greet()
    result = plugin.tool("asks")
    assert result["content"] == text("it needs the host: the client does not offer elicitation")


@pytest.mark.parametrize(
    ("tool", "content"),
    [("completes", text("Hello.")), ("streams", text('{"result":["Hello.","stop"]}'))],
)
@requirement("mcp:sdk-sampling")
def test_the_models_of_a_client_answer_in_one_piece(plugin: Mcp, tool: str, content: Any) -> None:
    plugin.greet(sampling={})
    plugin.request("tools/call", name=tool, arguments={})
    asked = plugin.read()
    assert (asked["method"], asked["params"]["messages"][0]["content"]) == (
        "sampling/createMessage",
        {"type": "text", "text": "hi"},
    )
    said = {"role": "assistant", "content": {"type": "text", "text": "Hello."}, "model": "m", "stopReason": "endTurn"}
    plugin.send(id=asked["id"], result=said)
    assert plugin.read()["result"]["content"] == content


@requirement("mcp:sdk-leaving")
def test_a_plugin_leaves_in_good_order_when_its_input_ends(plugin: Mcp) -> None:
    plugin.greet()
    plugin.close()
    assert plugin.status() == 0
    assert plugin.errors() == "bye\n"


@requirement("mcp:sdk-light")
def test_speaking_mcp_loads_nothing_heavy(tmp_path: Path) -> None:
    source = """
plugin = Plugin("light")

@plugin.tool()
def loaded() -> list:
    heavy = ("asyncio", "dataclasses", "inspect", "logging", "threading", "typing")
    return [name for name in heavy if name in sys.modules]
"""
    with running_mcp(tmp_path, source) as plugin:
        plugin.greet()
        assert plugin.tool("loaded")["structuredContent"] == {"result": []}


def test_two_tools_with_one_name_there_are_told_at_once(tmp_path: Path) -> None:
    source = "\nfor name in ('a b', 'a/b'):\n    plugin.tool(name)(lambda: 1)\nplugin.run()\n"
    file = tmp_path / "plugin.py"
    file.write_text(f"{PATHS}from plugbay.sdk import Plugin\nplugin = Plugin('p')\n{source}")
    done = subprocess.run(
        [sys.executable, "-S", str(file)], input=b'{"method":"server/discover"}\n', capture_output=True, check=False
    )
    assert b"two tools of p have one name in MCP's alphabet: a b, a/b" in done.stderr


@pytest.mark.parametrize(
    ("id", "name"),
    [("tea-shop", "tea-shop"), ("example.weather", "example-weather"), ("acme/devkit", "acme-devkit"), ("été", "-t-")],
)
def test_a_server_is_called_by_what_clients_take(id: str, name: str) -> None:
    assert server_name(id) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("look", "look"),
        ("admin.tools_List-2", "admin.tools_List-2"),
        ("sky map/now", "sky_map_now"),
        ("x" * 200, "x" * LONGEST),
    ],
)
def test_a_tool_has_its_own_name_as_far_as_mcp_has_the_letters(given: str, name: str) -> None:
    assert tool_name(given) == name


def test_every_tool_is_offered_under_its_name() -> None:
    plugin = Plugin("p")
    plugin.tool("look")(lambda: 1)
    plugin.tool("look up")(lambda: 2)
    assert [(name, tool.name) for name, tool in tools_by_name(plugin).items()] == [
        ("look", "look"),
        ("look_up", "look up"),
    ]


TEXT = {"type": "string"}

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


def called(schema: dict[str, Any] | None = None, check: Callable[[], None] = lambda: None) -> CallResult:
    return CallResult(Tool("t", "", lambda: None, output_schema=schema), check)


@requirement("mcp:sdk-definitions")
def test_a_definition_has_schemas_and_hints_and_nothing_that_was_not_said() -> None:
    def look(city: str, days: int = 1) -> list[str]:
        return []

    assert definition("look", Tool("look", "Looks.", look, effect="read_only", output_schema=TEXT)) == {
        "name": "look",
        "description": "Looks.",
        "inputSchema": {
            "type": "object",
            "properties": {"city": TEXT, "days": {"type": "integer", "default": 1}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "outputSchema": {"type": "object", "properties": {"result": TEXT}, "required": ["result"]},
        "annotations": {"readOnlyHint": True},
    }
    bare = definition("t", Tool("t", "", lambda: None, {"properties": {}}))
    assert bare == {"name": "t", "inputSchema": {"properties": {}, "type": "object"}}


@pytest.mark.parametrize(
    ("effect", "hints"),
    [
        ("read_only", {"readOnlyHint": True}),
        ("idempotent_write", {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True}),
        ("non_idempotent_write", {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}),
        ("unknown", None),
    ],
)
@requirement("mcp:sdk-annotations")
def test_what_a_tool_does_to_the_world_becomes_hints(effect: str, hints: Any) -> None:
    assert definition("t", Tool("t", "", lambda: None, effect=effect)).get("annotations") == hints


def test_a_schema_of_something_else_than_an_object_is_one_of_an_object_around_it() -> None:
    assert promised_schema(None) is None
    assert promised_schema(POINT) is POINT
    shared = {"type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": POINT}}
    assert promised_schema(shared) == {
        "type": "object",
        "properties": {"result": {"type": "array", "items": {"$ref": "#/$defs/P"}}},
        "required": ["result"],
        "$defs": {"P": POINT},
    }


@pytest.mark.parametrize(
    ("value", "schema", "result"),
    [
        ("hi", None, {"content": text("hi")}),
        ("hi", TEXT, {"content": text("hi"), "structuredContent": {"result": "hi"}}),
        (None, None, {"content": []}),
        ({"x": 1}, None, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
        ({"x": 1}, POINT, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
        (
            {"x": 1},
            {"type": ["object", "null"]},
            {"content": text('{"result":{"x":1}}'), "structuredContent": {"result": {"x": 1}}},
        ),
        ([1, 2], None, {"content": text('{"result":[1,2]}'), "structuredContent": {"result": [1, 2]}}),
        (
            ToolResult(["a", {"type": "image"}], {"x": 1}, is_error=True),
            None,
            {
                "content": [{"type": "text", "text": "a"}, {"type": "image"}],
                "structuredContent": {"x": 1},
                "isError": True,
            },
        ),
        (ToolResult(structured_output={"x": 1}), None, {"content": text('{"x":1}'), "structuredContent": {"x": 1}}),
    ],
)
@requirement("mcp:sdk-results")
def test_what_a_tool_returns_becomes_content_and_structured_content(value: Any, schema: Any, result: Any) -> None:
    assert called(schema).whole(value) == result


@pytest.mark.parametrize(
    ("pieces", "result"),
    [
        (["a", "b"], {"content": text("ab")}),
        ([], {"content": []}),
        (["a", "b", {"type": "image"}], {"content": [*text("ab"), {"type": "image"}]}),
        ([1, {"x": 2}], {"content": text('{"result":[1,{"x":2}]}'), "structuredContent": {"result": [1, {"x": 2}]}}),
        (["a", ToolResult("all")], {"content": text("all")}),
    ],
)
@requirement("mcp:sdk-results")
def test_what_a_tool_yields_is_put_together(pieces: list[Any], result: Any) -> None:
    collector = called()
    for piece in pieces:
        collector.add(piece)
    assert collector.end() == result


def test_what_has_no_json_form_is_an_error_of_the_tool() -> None:
    with pytest.raises(ToolError, match="the result cannot be sent: at /x: nan has no JSON form"):
        called().whole({"x": float("nan")})


@pytest.mark.parametrize("value", ["\udc80", ToolResult([{"type": "image", "data": b"x"}])])
def test_content_that_has_no_json_form_is_one_too(value: Any) -> None:
    with pytest.raises(ToolError, match="the result cannot be sent"):
        called().whole(value)


def test_a_tool_that_yields_stops_when_it_is_cancelled() -> None:
    def check() -> None:
        raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        called(check=check).add("a")
