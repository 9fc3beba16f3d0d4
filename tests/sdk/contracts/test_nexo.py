"""A plugin process under nexo: who it says it is, what it answers, and what its errors are called."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk import Plugin
from plugbay.sdk.contracts.nexo import declared_tools, default_manifest, nexo_id, nexo_tool_name, parse
from tests.sdk.processes import PluginProcess, running
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement

GREETER = """
plugin = Plugin("example.greeter", "2.1.0", name="Greeter", description="Greets.")

@plugin.tool(description="Greet somebody.", input_schema={"type": "object", "required": ["name"]})
def greet(name, ctx):
    return {"text": f"Hello, {name}.", "agent": ctx.agent_id, "plugin": ctx.plugin_id}

@plugin.on_ready
async def ready(ctx):
    await ctx.events.publish("t", "ready")
"""


@requirement("nexo:sdk-identity", "nexo:sdk-tool-namespace")
def test_a_plugin_sends_its_identity_and_exports(tmp_path: Path) -> None:
    with running(tmp_path, GREETER) as plugin:
        schema = {"type": "object", "required": ["name"]}
        name = "example_greeter_greet"
        assert plugin.ask("initialize", nexo_version="0.1.5") == {
            "manifest": {
                "plugin": {
                    "id": "example_greeter",
                    "version": "2.1.0",
                    "name": "Greeter",
                    "description": "Greets.",
                }
            },
            "server_version": "example_greeter-2.1.0",
            "tools": [{"name": name, "description": "Greet somebody.", "input_schema": schema}],
        }
        assert plugin.read()["params"]["event"]["payload"] == "ready"
        answer = plugin.ask("tool.invoke", tool_name=name, args={"name": "Ada"}, agent_id="a")
        assert answer == {"text": "Hello, Ada.", "agent": "a", "plugin": "example_greeter"}


@requirement("nexo:sdk-identity")
def test_a_manifest_is_echoed_and_a_plugin_without_tools_offers_none(tmp_path: Path) -> None:
    text = '[plugin]\nid = "p"\nversion = "1.0.0"\n[plugin.new]\nx = 1\n'
    with running(tmp_path, f'plugin = Plugin.from_manifest({text!r}, server_version="mine")') as plugin:
        manifest = {"plugin": {"id": "p", "version": "1.0.0", "new": {"x": 1}}}
        assert plugin.ask("initialize") == {"manifest": manifest, "server_version": "mine"}
        for method in ("tool.invoke", "hook.on_hook", "channel.stop", "llm.chat", "memory.vector_delete", "bogus"):
            assert plugin.ask(method)["code"] == -32601


def test_two_tools_that_would_have_one_name_are_refused(tmp_path: Path) -> None:
    source = 'plugin = Plugin("p")\nfor name in ("a.b", "a_b"):\n    plugin.tool(name)(lambda: 1)'
    with running(tmp_path, source) as plugin:
        plugin.request("initialize")
        assert plugin.status() == 1
        assert "two tools of p have one name" in plugin.errors()


EVERYTHING = """
plugin = Plugin("p")

ERRORS = {
    "ToolNotFound": ToolNotFound("x"), "ToolArgumentInvalid": ToolArgumentInvalid("x", {"field": "q"}),
    "ToolExecutionFailed": ToolExecutionFailed("x"), "ToolUnavailable": ToolUnavailable("x", 5000),
    "ToolDenied": ToolDenied("x"), "ToolError": ToolError("x", code="mine"), "bug": RuntimeError("x"),
    "invalid": ToolError("x", code="invalid_input"),
    "connection": ChannelConnectionFailed("x"), "authentication": ChannelAuthenticationFailed("x"),
    "recipient": RecipientInvalid("bob", "gone"), "limited": RateLimited(42),
    "unsupported": UnsupportedFeature("video"),
    "llm connection": LlmConnectionFailed("x"), "llm authentication": LlmAuthenticationFailed("x"),
    "model": ModelNotFound("x"), "overflow": ContextOverflow("x"),
    "collection": CollectionNotFound("kb"), "dimension": DimensionMismatch(768, 2), "write": WriteFailed("x"),
}

@plugin.tool()
def fails(error): raise ERRORS[error]

@plugin.tool()
async def fails_later(error): raise ERRORS[error]

@plugin.tool()
def returns(what): return {"set": {1}, "nan": float("nan"), "huge": "x" * (17 << 20), "none": None}[what]

@plugin.tool()
def modules(): return sorted(sys.modules)

@plugin.tool()
def run_again(): plugin.run()

@plugin.tool()
def returns_coroutine(ctx):
    async def later(): return "later"
    return later()

@plugin.hook("before_message")
async def redact(event):
    return block("PII") if "secret" in event["body"] else None

@plugin.channel("slack")
class Slack:
    async def start(self, instance):
        self.instance = instance
        plugin.host.events.publish("plugin.inbound.slack", f"started {instance}")
    def send(self, message):
        if "error" in message: raise ERRORS[message["error"]]
        return "id-" + message["to"]

@plugin.channel("discord")
class Discord: pass

@plugin.llm_provider("plain")
def chat(request, model):
    if "error" in request: raise ERRORS[request["error"]]
    yield f"{model} says "
    yield {"type": "text_delta", "delta": "hi"}
    yield {"type": "usage", "usage": {"prompt_tokens": 1, "completion_tokens": 2}}

@plugin.llm_provider("async")
async def chat_later(request, model):
    for piece in chat(request, model):
        yield piece

@plugin.llm_provider("broken")
def chat_broken(request, model):
    yield "a"
    yield {"type": "text_delta", "delta": {1, 2}}

@plugin.vector_backend("store")
class Store:
    def upsert(self, collection, records):
        if collection in ERRORS: raise ERRORS[collection]
        return len(records)
    async def search(self, collection, query): return [{"id": "r1", "score": query["limit"]}]
    def delete(self, collection, ids): return len(ids)
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginProcess]:
    """One process for many tests: it keeps nothing between calls."""
    with running(tmp_path_factory.mktemp("everything"), EVERYTHING) as plugin:
        yield plugin


@requirement("nexo:sdk-tool-errors")
@pytest.mark.parametrize("way", ["fails", "fails_later"])
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ("ToolNotFound", -33401, None),
        ("ToolArgumentInvalid", -33402, {"details": {"field": "q"}}),
        ("ToolExecutionFailed", -33403, None),
        ("ToolUnavailable", -33404, {"retry_after_ms": 5000}),
        ("ToolDenied", -33405, None),
        ("ToolError", -33403, None),
        ("invalid", -33402, None),
        ("bug", -33403, None),
    ],
)
def test_what_a_tool_raises_has_its_number(
    everything: PluginProcess, way: str, error: str, code: int, data: dict[str, Any] | None
) -> None:
    answer = everything.tool(way, {"error": error})
    assert (answer["code"], answer.get("data"), "x" in answer["message"]) == (code, data, True)


@requirement("nexo:sdk-tool-errors")
@pytest.mark.parametrize("what", ["set", "nan", "huge"])
def test_a_result_that_cannot_be_sent_is_an_error_and_not_a_silence(everything: PluginProcess, what: str) -> None:
    answer = everything.tool("returns", {"what": what})
    assert (answer["code"], "cannot be sent" in answer["message"]) == (-33403, True)
    everything.request("tool.invoke", tool_name="p_returns", args={"what": "none"})
    assert everything.read()["result"] is None


def test_a_plain_handler_may_return_something_to_await(everything: PluginProcess) -> None:
    assert everything.tool("returns_coroutine") == "later"


@requirement("nexo:sdk-hook-block")
def test_hooks_have_their_say(everything: PluginProcess) -> None:
    def said(body: str) -> Any:
        return everything.ask("hook.on_hook", plugin_id="p", hook_name="before_message", event={"body": body})

    assert said("hello") == {}
    assert said("secret") == {"abort": True, "reason": "PII", "decision": "block"}
    assert everything.ask("hook.on_hook", hook_name="after_message", event={})["code"] == -32601


@requirement("nexo:sdk-channel", "nexo:sdk-host-outside-handlers")
def test_channels_start_send_and_say_what_they_lack(everything: PluginProcess) -> None:
    start = everything.request("channel.start", kind="slack", instance="primary")
    assert everything.read()["params"]["event"]["payload"] == "started primary"
    assert everything.read() == {"jsonrpc": "2.0", "id": start, "result": {"ok": True}}
    receipt = everything.ask("channel.send_outbound", kind="slack", msg={"kind": "text", "to": "bob"})
    assert (receipt["message_id"], type(receipt["sent_at_unix"])) == ("id-bob", int)
    assert everything.ask("channel.stop", kind="slack")["code"] == -32601
    assert everything.ask("channel.start", kind="discord", instance=None)["code"] == -32601


@requirement("nexo:sdk-channel-errors")
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ("connection", -33001, None),
        ("authentication", -33002, None),
        ("recipient", -33003, {"recipient": "bob", "reason": "gone"}),
        ("limited", -33004, {"retry_after_secs": 42}),
        ("unsupported", -33005, {"feature": "video"}),
        ("bug", -32603, None),
    ],
)
def test_what_a_channel_raises_has_its_number(everything: PluginProcess, error: str, code: int, data: Any) -> None:
    answer = everything.ask("channel.send_outbound", kind="slack", msg={"error": error})
    assert (answer["code"], answer.get("data")) == (code, data)


@requirement("nexo:sdk-chat-stream")
@pytest.mark.parametrize("provider", ["plain", "async"])
def test_a_model_answers_in_pieces_when_asked_to(everything: PluginProcess, provider: str) -> None:
    wish = {"provider": provider, "model": "m", "request": {"messages": []}}
    rest = {"usage": {"prompt_tokens": 1, "completion_tokens": 2}, "finish_reason": {"kind": "stop"}}
    assert everything.ask("llm.chat", stream=False, **wish) == {
        "content": {"type": "text", "text": "m says hi"},
        **rest,
    }
    id = everything.request("llm.chat", stream=True, **wish)
    deltas = [everything.read()["params"] for _ in range(3)]
    assert [delta["request_id"] for delta in deltas] == [id] * 3
    assert [delta["chunk"].get("delta") for delta in deltas] == ["m says ", "hi", None]
    end = {"content": {"type": "text", "text": ""}, **rest}
    assert everything.read() == {"jsonrpc": "2.0", "id": id, "result": end}


def test_a_piece_that_cannot_be_sent_fails_the_call(everything: PluginProcess) -> None:
    everything.request("llm.chat", provider="broken", model="m", stream=True, request={})
    assert everything.read()["params"]["chunk"]["delta"] == "a"
    assert everything.read()["error"]["code"] == -32603


@requirement("nexo:sdk-llm-errors")
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ("llm connection", -33101, None),
        ("llm authentication", -33102, None),
        ("limited", -33103, {"retry_after_secs": 42}),
        ("model", -33104, None),
        ("overflow", -33105, None),
    ],
)
def test_what_a_model_raises_has_its_number(everything: PluginProcess, error: str, code: int, data: Any) -> None:
    answer = everything.ask("llm.chat", provider="plain", model="m", stream=True, request={"error": error})
    assert (answer["code"], answer.get("data")) == (code, data)


@requirement("nexo:sdk-vectors")
def test_a_vector_store_counts_and_finds(everything: PluginProcess) -> None:
    assert everything.ask("memory.vector_upsert", backend="store", collection="c", records=[{}]) == {"count": 1}
    found = everything.ask("memory.vector_search", backend="store", collection="c", query={"limit": 3})
    assert found == {"matches": [{"id": "r1", "score": 3}]}
    assert everything.ask("memory.vector_delete", backend="store", collection="c", ids=["a", "b"]) == {"count": 2}


@requirement("nexo:sdk-vector-errors")
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ("collection", -33301, {"collection": "kb"}),
        ("dimension", -33302, {"expected": 768, "got": 2}),
        ("limited", -33303, {"retry_after_secs": 42}),
        ("write", -33304, None),
    ],
)
def test_what_a_vector_store_raises_has_its_number(everything: PluginProcess, error: str, code: int, data: Any) -> None:
    answer = everything.ask("memory.vector_upsert", backend="store", collection=error, records=[])
    assert (answer["code"], answer.get("data")) == (code, data)


def test_run_is_called_once(everything: PluginProcess) -> None:
    assert "serves a plugin already" in everything.tool("run_again")["message"]


@requirement("nexo:sdk-light")
def test_asyncio_is_loaded_by_the_first_async_handler_and_other_modules_never(tmp_path: Path) -> None:
    with running(tmp_path, EVERYTHING) as plugin:
        plugin.ask("initialize")
        loaded = set(plugin.tool("modules"))
        assert "plugbay.sdk.runtime.resident" in loaded
        assert not loaded & {"asyncio", "threading", "logging", "inspect", "typing", "json", "re", "enum", "signal"}
        assert not [name for name in loaded if "kaged" in name or "manifests" in name]
        plugin.ask("hook.on_hook", hook_name="before_message", event={"body": ""})
        assert "asyncio" in plugin.tool("modules")


ASKING = """
plugin = Plugin("p")
HI = [{"role": "user", "content": "hi"}]

@plugin.tool()
def recalls(ctx): return [entry["content"] for entry in ctx.memory.recall(ctx.agent_id, "q", limit=2)]

@plugin.tool()
async def recalls_later(ctx): return [entry["content"] for entry in await ctx.memory.recall(ctx.agent_id, "q", limit=2)]

@plugin.tool()
def completes(ctx): return ctx.llm.complete("m", "m-1", HI, system_prompt="s").content

@plugin.tool()
async def completes_later(ctx): return (await ctx.llm.complete("m", "m-1", HI, system_prompt="s")).content

@plugin.tool()
def streams(ctx):
    stream = ctx.llm.stream("m", "m-1", HI)
    return ["".join(stream), stream.result.content, stream.result.finish_reason]

@plugin.tool()
async def streams_later(ctx):
    stream = ctx.llm.stream("m", "m-1", HI)
    return ["".join([piece async for piece in stream]), stream.result.content, stream.result.finish_reason]

def told(error): return [error.code, error.rpc_code]

@plugin.tool()
def times_out(ctx):
    try: ctx.memory.recall("a", "q", timeout=0.01)
    except ServiceError as error: return told(error)

@plugin.tool()
async def times_out_later(ctx):
    try: await ctx.memory.recall("a", "q", timeout=0.01)
    except ServiceError as error: return told(error)

@plugin.tool()
def refused(ctx):
    try: ctx.memory.recall("a", "q")
    except ServiceError as error: return told(error)

@plugin.tool()
async def refused_later(ctx):
    try: await ctx.memory.recall("a", "q")
    except ServiceError as error: return told(error)

@plugin.tool()
def stores(ctx):
    try: ctx.storage.get("k")
    except ServiceError as error: return [error.code, str(error), ctx.session_id, dict(ctx.config)]

@plugin.tool()
async def publishes_and_forgets_to_await(ctx):
    ctx.events.publish("t", 1, full=True)
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginProcess]:
    with running(tmp_path_factory.mktemp("asking"), ASKING) as plugin:
        yield plugin


@pytest.mark.parametrize("way", ["", "_later"], ids=["plain", "async"])
class TestServices:
    @requirement("nexo:sdk-memory-recall")
    def test_memory(self, asking: PluginProcess, way: str) -> None:
        call = asking.request("tool.invoke", tool_name=f"p_recalls{way}", agent_id="a")
        question = asking.read()
        assert (question["method"], question["params"]) == (
            "memory.recall",
            {"agent_id": "a", "query": "q", "limit": 2},
        )
        asking.send(id=question["id"], result={"entries": [{"id": "m1", "agent_id": "a", "content": "c1"}]})
        assert asking.read() == {"jsonrpc": "2.0", "id": call, "result": ["c1"]}

    @requirement("nexo:sdk-llm-complete")
    def test_a_completion(self, asking: PluginProcess, way: str) -> None:
        asking.request("tool.invoke", tool_name=f"p_completes{way}")
        question = asking.read()
        assert (question["method"], question["params"]) == (
            "llm.complete",
            {
                "provider": "m",
                "model": "m-1",
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 4096,
                "temperature": 0.7,
                "system_prompt": "s",
            },
        )
        asking.send(id=question["id"], result={"content": "one line", "finish_reason": "stop", "usage": {}})
        assert asking.read()["result"] == "one line"

    @requirement("nexo:sdk-llm-stream")
    def test_a_stream(self, asking: PluginProcess, way: str) -> None:
        asking.request("tool.invoke", tool_name=f"p_streams{way}")
        id = asking.read()["id"]
        for chunk in "abc":
            asking.send(method="llm.complete.delta", params={"request_id": id, "chunk": chunk})
        asking.send(id=id, result={"finish_reason": "stop", "usage": {}})
        assert asking.read()["result"] == ["abc", None, "stop"]

    @requirement("nexo:sdk-service-timeout")
    def test_a_timeout_whose_late_answer_is_dropped(self, asking: PluginProcess, way: str) -> None:
        asking.request("tool.invoke", tool_name=f"p_times_out{way}")
        question = asking.read()
        assert asking.read()["result"] == ["timeout", None]
        asking.send(id=question["id"], result={"entries": []})
        asking.request("tool.invoke", tool_name=f"p_refused{way}")
        asking.send(id=asking.read()["id"], error={"code": -32603, "message": "memory not configured"})
        assert asking.read()["result"] == ["unavailable", -32603]


@requirement("kaged:sdk-what-is-not-carried")
def test_what_nexo_does_not_carry_is_said_to_be_missing(asking: PluginProcess) -> None:
    text = "this host speaks nexo and does not offer ctx.storage; hosts of kaged do"
    assert asking.tool("stores") == ["not_found", text, None, {}]


@requirement("nexo:sdk-publish")
def test_a_forgotten_await_loses_no_event(asking: PluginProcess) -> None:
    asking.request("tool.invoke", tool_name="p_publishes_and_forgets_to_await")
    event = asking.read()["params"]["event"]
    assert sorted(event) == ["id", "payload", "session_id", "source", "timestamp", "topic"]
    assert asking.read()["result"] is None


SHAPES = """
plugin = Plugin("p", "1.0.0"{setting})

@plugin.tool()
def plain(ctx):
    ctx.events.publish("t", 1)

@plugin.tool()
async def awaited(ctx):
    await ctx.events.publish("t", 1)

@plugin.tool()
def outside():
    plugin.host.events.publish("t", 1)

@plugin.tool()
def with_session(ctx):
    ctx.events.publish("t", 1, session_id="01940000-0000-0000-0000-000000000099", full=False)

@plugin.tool()
def other(ctx):
    ctx.events.publish("t", 1, full={other})
"""
MINIMAL = ["payload", "source", "topic"]
FULL = ["id", "payload", "session_id", "source", "timestamp", "topic"]


@requirement("nexo:sdk-event-shape")
@pytest.mark.parametrize("full", [False, True])
def test_the_shape_of_events_is_a_setting_of_the_plugin_and_a_session_is_never_lost(tmp_path: Path, full: bool) -> None:
    setting = ", full_events=True" if full else ""
    with running(tmp_path, SHAPES.format(setting=setting, other=not full)) as plugin:

        def published(tool: str) -> Any:
            plugin.request("tool.invoke", tool_name=f"p_{tool}")
            event = plugin.read()["params"]["event"]
            assert plugin.read()["result"] is None
            return event

        for tool in ("plain", "awaited", "outside"):
            assert sorted(published(tool)) == (FULL if full else MINIMAL)
        assert sorted(published("other")) == (MINIMAL if full else FULL)
        event = published("with_session")
        assert (sorted(event), event["session_id"]) == (FULL, "01940000-0000-0000-0000-000000000099")


@requirement("nexo:sdk-event-shape")
def test_a_plugin_from_a_manifest_has_the_setting_too() -> None:
    text = '[plugin]\nid = "p"\nversion = "1.0.0"\n'
    assert Plugin.from_manifest(text, full_events=True).full_events
    assert not Plugin.from_manifest(text).full_events


FIXTURE = Path(__file__).with_name("nexo_fixture.py")


def test_the_fixture_for_the_published_kit_does_what_it_is_configured_to() -> None:
    def run(*arguments: str, given: bytes = b"") -> list[Any]:
        command = [sys.executable, str(FIXTURE), *arguments]
        done = subprocess.run(command, input=given, capture_output=True, timeout=PATIENCE, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert run("--print-capabilities") == [["core", "memory", "llm", "tools"]]
    manifest = '[plugin]\nid = "c"\nversion = "0.1.0"\n[plugin.extends]\ntools = ["c_t", "c_s"]\n'
    config = {"manifest": manifest, "declare_tools": ["c_t", "c_s"], "tool_handlers": {"c_s": "text:hello"}}
    given = b"".join(
        b'{"id": %d, "method": "tool.invoke", "params": {"tool_name": "%s"}}\n' % (n, name)
        for n, name in enumerate((b"c_t", b"c_s"))
    )
    answers = {answer["id"]: answer for answer in run("--config", json.dumps(config), given=given)}
    assert answers[0]["error"]["code"] == -33401
    assert answers[1]["result"] == {"content": [{"type": "text", "text": "hello"}], "is_error": False}


@pytest.mark.parametrize(
    ("id", "mapped"), [("slack", "slack"), ("example.weather", "example_weather"), ("My-Plugin 2", "my_plugin_2")]
)
def test_an_id_is_mapped_to_the_alphabet(id: str, mapped: str) -> None:
    assert nexo_id(id) == mapped


@requirement("nexo:sdk-tool-namespace")
@pytest.mark.parametrize(
    ("tool", "offered"),
    [
        ("forecast", "p_forecast"),
        ("p_forecast", "p_forecast"),
        ("ext_p_forecast", "ext_p_forecast"),
        ("ext_q_forecast", "p_ext_q_forecast"),
        ("get.it", "p_get_it"),
    ],
)
def test_a_tool_is_offered_with_the_plugins_prefix(tool: str, offered: str) -> None:
    assert nexo_tool_name("p", tool) == offered


def test_a_manifest_is_echoed_as_it_is_written() -> None:
    manifest = parse('[plugin]\nid = "p"\nversion = "1.0.0"\n[plugin.extends]\ntools = ["p_a"]\n[plugin.new]\nx = 1\n')
    assert manifest["plugin"]["new"] == {"x": 1}
    assert declared_tools(manifest) == ["p_a"]
    assert declared_tools(default_manifest("p", "1", "", "")) == []


def test_a_plugin_without_one_sends_its_identity() -> None:
    table = {"id": "a_b", "version": "1", "name": "a.b", "description": "d"}
    assert default_manifest("a.b", "1", "", "d") == {"plugin": table}
    assert default_manifest("a.b", "1", "N", "d")["plugin"]["name"] == "N"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "id"),
        ("plugin = 3", "id"),
        ('[plugin]\nversion = "1"', "id"),
        ('[plugin]\nid = "1p"\nversion = "1"', "id"),
        ('[plugin]\nid = "p\\n"\nversion = "1"', "id"),
        ('[plugin]\nid = "p"', "version"),
        ('[plugin]\nid = "p"\nversion = " "', "version"),
    ],
)
def test_a_manifest_without_a_valid_id_and_version_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"plugin\.{what}"):
        parse(text)
