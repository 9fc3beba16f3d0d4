"""A plugin process under kaged: who it says it is, what it answers, and what it asks of the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.model.errors import Code, Failure
from plugbay.sdk import Plugin
from plugbay.sdk.contracts.kaged import kaged_failure, supported_capabilities, supported_hooks
from plugbay.sdk.io.detect import is_own_method, kaged_name
from plugbay.sdk.runtime.executor import MAX_THREADS
from tests.sdk.processes import PluginProcess, gate, open_gate, running
from tests.support.requirements import requirement

GREETING = {"daemon_version": "0.1.0", "api_version": 1, "plugin_name": "a-p", "projects": ["proj"]}

CONTEXT = {
    "operator_id": "op",
    "project_id": "proj",
    "agent_path": "primary.subagents.x",
    "session_id": "ses",
    "request_id": "req",
}


def greet(plugin: PluginProcess, **more: Any) -> Any:
    answer = plugin.ask("initialize", **{**GREETING, "storage_available": True, **more})
    plugin.send(method="initialized", params={})
    return answer


EVERYTHING = """
plugin = Plugin("A.P", "2.1.0", capabilities=["kaged:storage:read", "net:[]", "filesystem.read"])
plugin.notifies("changed", "gone.far")

ERRORS = {
    "bug": RuntimeError("x"), "exit": SystemExit("x"),
    "argument": ToolArgumentInvalid("x", {"field": "q"}), "mine": ToolError("x", code="too_large", actual_bytes=9),
    "invalid": ToolError("x", code="invalid_input"), "missing": ToolNotFound("x"),
    "later": ToolUnavailable("x", 5000), "denied": ToolDenied("x"),
}

@plugin.tool()
def fails(error): raise ERRORS[error]

@plugin.tool()
async def fails_later(error): raise ERRORS[error]

@plugin.tool()
def echo(input): return input

@plugin.tool()
def returns(what): return {"set": {1}, "huge": "x" * 4_000_001, "none": None}[what]

@plugin.tool()
def who(ctx): return [ctx.plugin_id, ctx.agent_id, ctx.agent_path, ctx.session_id, ctx.project_id, ctx.operator_id,
                      ctx.request_id]

@plugin.tool()
async def who_later(context, ctx): return [context, ctx.agent_id]

@plugin.tool()
def modules(): return sorted(sys.modules)

@plugin.tool()
def asks_memory(ctx): return ctx.memory.recall("a", "q")

@plugin.tool()
def publishes(name, payload, ctx): ctx.events.publish(name, payload)

@plugin.tool()
async def publishes_later(name, payload, ctx): await ctx.events.publish(name, payload)

@plugin.method("index.rebuild")
async def rebuild(deep, ctx): return [deep, ctx.session_id]

@plugin.hook("on_session_start")
def start(event, ctx): return f"hello {ctx.session_id}"

@plugin.hook("on_session_idle")
async def idle(event, ctx): return None if event["transcript"] else inject("nothing yet")

@plugin.hook("post_compact")
def after(event): return {"retain": [], "inject": event["strategy"]} if event else 3

@plugin.hook("before_message")
def other(event): return "not kaged's"

@plugin.on_event()
def heard(event): pass
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginProcess]:
    """One process for many tests: it keeps nothing between calls."""
    with running(tmp_path_factory.mktemp("everything"), EVERYTHING) as plugin:
        greet(plugin)
        yield plugin


@requirement("kaged:sdk-identity", "kaged:sdk-name", "kaged:sdk-what-is-not-carried")
def test_a_plugin_sends_its_identity_and_exports(tmp_path: Path) -> None:
    with running(tmp_path, EVERYTHING) as plugin:
        said = greet(plugin)
        tools = "fails fails_later echo returns who who_later modules asks_memory publishes publishes_later".split()
        assert said == {
            "name": "a-p",
            "version": "2.1.0",
            "api_version": 1,
            "methods": ["index.rebuild", *(f"a-p.{tool}" for tool in tools)],
            "notifications": ["changed", "gone.far"],
            "capabilities_used": ["kaged:storage:read", "net:[]"],
        }


@requirement("kaged:sdk-detect")
@pytest.mark.parametrize("method", ["a-p.echo", "index.rebuild", "kaged.hook.on_session_start", "ping", "health.check"])
def test_a_daemon_may_ask_anything_first(tmp_path: Path, method: str) -> None:
    with running(tmp_path, EVERYTHING) as plugin:
        answer = plugin.ask(method, deep=1)
        assert answer in ({"deep": 1}, [1, None], {"inject": "hello None"}, {"status": "ok"})


@requirement("kaged:sdk-health")
@pytest.mark.parametrize("method", ["health.check", "ping"])
def test_both_probes_are_answered_while_handlers_are_busy(tmp_path: Path, method: str) -> None:
    gate(tmp_path)
    with running(tmp_path, LEAVING) as plugin:
        for _ in range(MAX_THREADS + 1):
            plugin.request("p.held")
        assert plugin.ask(method) == {"status": "ok"}
        plugin.request("shutdown")
        assert plugin.ask(method) == {"status": "ok"}


@requirement("kaged:sdk-tools", "kaged:sdk-context")
def test_a_tool_gets_its_arguments_and_its_context(everything: PluginProcess) -> None:
    assert everything.ask("a-p.echo", x=1, _context=CONTEXT) == {"x": 1}
    path = "primary.subagents.x"
    assert everything.ask("a-p.who", _context=CONTEXT) == ["a-p", path, path, "ses", "proj", "op", "req"]
    assert everything.ask("a-p.who") == ["a-p", *[None] * 6]
    assert everything.ask("a-p.who_later", _context=CONTEXT) == [CONTEXT, path]


@requirement("kaged:sdk-methods")
def test_a_method_is_answered_under_its_own_name(everything: PluginProcess) -> None:
    assert everything.ask("index.rebuild", deep=True, _context=CONTEXT) == [True, "ses"]
    assert everything.ask("index.rebuild")["code"] == -32602
    for method in ("index.other", "echo", "a-p.other", "A.P.echo", "tool.invoke", "kaged.hook.before_message"):
        assert everything.ask(method)["code"] == -32601, method


@requirement("kaged:sdk-errors")
@pytest.mark.parametrize("way", ["fails", "fails_later"])
@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ("bug", -32603, None),
        ("exit", -32603, None),
        ("argument", -32602, {"code": "tool_argument_invalid", "details": {"field": "q"}}),
        ("invalid", -32602, {"code": "invalid_input"}),
        ("mine", -32000, {"code": "too_large", "actual_bytes": 9}),
        ("missing", -32601, {"code": "tool_not_found"}),
        ("later", -32000, {"code": "tool_unavailable", "retry_after_ms": 5000}),
        ("denied", -32000, {"code": "tool_denied"}),
    ],
)
def test_what_a_tool_raises_has_its_number(
    everything: PluginProcess, way: str, error: str, code: int, data: Any
) -> None:
    answer = everything.ask(f"a-p.{way}", error=error)
    assert (answer["code"], answer.get("data"), "x" in answer["message"]) == (code, data, True)


@requirement("kaged:sdk-errors")
def test_arguments_that_do_not_fit_are_invalid_parameters(everything: PluginProcess) -> None:
    answer = everything.ask("a-p.fails", other=1)
    assert (answer["code"], answer["message"]) == (-32602, "error: is required; other: is unknown; there is error")
    assert answer["data"]["code"] == "invalid_input"
    assert answer["data"]["details"][0] == {"path": "error", "rule": "is required"}


@requirement("kaged:sdk-errors")
@pytest.mark.parametrize("what", ["set", "huge"])
def test_a_result_that_cannot_be_sent_is_an_error_and_not_a_silence(everything: PluginProcess, what: str) -> None:
    answer = everything.ask("a-p.returns", what=what)
    assert (answer["code"], "cannot be sent" in answer["message"]) == (-32603, True)
    everything.request("a-p.returns", what="none")
    assert everything.read()["result"] is None


def test_a_failure_without_a_word_of_its_own_says_ours() -> None:
    busy = Failure(Code.UNAVAILABLE, "busy", retry_after_ms=1000)
    assert kaged_failure(busy).detail == {"plugin_code": "unavailable", "retry_after_ms": 1000}


@requirement("kaged:sdk-hooks")
def test_hooks_have_their_say(everything: PluginProcess) -> None:
    def fire(hook: str, **event: Any) -> Any:
        return everything.ask(f"kaged.hook.{hook}", **event, _context=CONTEXT)

    assert fire("on_session_start") == {"inject": "hello ses"}
    assert fire("on_session_idle", transcript="user: hi") == {}
    assert fire("on_session_idle", transcript="") == {"inject": "nothing yet"}
    assert fire("post_compact", strategy="drop") == {"retain": [], "inject": "drop"}
    assert fire("post_compact")["code"] == -32603
    assert fire("pre_compact")["code"] == -32601


@requirement("kaged:sdk-notifications")
@pytest.mark.parametrize("way", ["publishes", "publishes_later"])
def test_only_what_is_declared_is_published(everything: PluginProcess, way: str) -> None:
    for name in ("changed", "gone.far", "plugin.a-p.changed"):
        call = everything.request(f"a-p.{way}", name=name, payload={"n": 1})
        method = name.removeprefix("plugin.a-p.")
        assert everything.read() == {"jsonrpc": "2.0", "method": method, "params": {"n": 1}}
        assert everything.read()["id"] == call
    answer = everything.ask(f"a-p.{way}", name="other", payload=1)
    assert "'other' is not declared; plugin.notifies('other') does that" in answer["message"]


@requirement("kaged:sdk-what-is-not-carried")
def test_what_kaged_does_not_carry_is_said_to_be_missing(everything: PluginProcess) -> None:
    assert (
        "this host speaks kaged and does not offer ctx.memory; hosts of nexo do"
        in everything.ask("a-p.asks_memory")["message"]
    )


@requirement("kaged:sdk-light")
def test_asyncio_is_loaded_by_the_first_async_handler_and_nexo_never(tmp_path: Path) -> None:
    with running(tmp_path, EVERYTHING) as plugin:
        greet(plugin)
        loaded = set(plugin.ask("a-p.modules"))
        assert "plugbay.sdk.contracts.kaged" in loaded
        assert not loaded & {"asyncio", "threading", "logging", "inspect", "typing", "json", "re", "enum", "signal"}
        assert not [name for name in loaded if "nexo" in name or "manifests" in name]
        plugin.ask("index.rebuild", deep=1)
        assert "asyncio" in plugin.ask("a-p.modules")


STORING = """
plugin = Plugin("p", capabilities=["kaged:storage:read", "kaged:storage:write"])

@plugin.tool()
def stores(ctx):
    store = ctx.storage
    return [store.get("k", "none"), store.set("k", [1]), store.get("k"), store.delete("k"), store.keys("a.")]

@plugin.tool()
async def stores_later(ctx):
    store = ctx.storage
    return [await store.get("k", "none"), await store.set("k", [1]), await store.get("k"), await store.delete("k"),
            await store.keys("a.")]

@plugin.tool()
def stores_outside(): return [plugin.host.storage.get("k", "none")]

def told(error): return [error.code, error.rpc_code, str(error)]

@plugin.tool()
def refused(ctx):
    try: ctx.storage.set("k", 1)
    except ServiceError as error: return told(error)

@plugin.tool()
async def refused_later(ctx):
    try: await ctx.storage.set("k", 1)
    except ServiceError as error: return told(error)
"""

CONVERSATION = [
    ("kaged.storage.get", {"key": "k"}, {"value": None, "found": False}),
    ("kaged.storage.set", {"key": "k", "value": [1]}, {"ok": True}),
    ("kaged.storage.get", {"key": "k"}, {"value": [1], "found": True}),
    ("kaged.storage.delete", {"key": "k"}, {"deleted": True}),
    ("kaged.storage.list", {"prefix": "a.", "limit": 1000}, {"keys": ["a.b"]}),
]


@pytest.fixture(scope="module")
def storing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PluginProcess]:
    with running(tmp_path_factory.mktemp("storing"), STORING) as plugin:
        greet(plugin)
        yield plugin


@pytest.mark.parametrize("way", ["", "_later"], ids=["plain", "async"])
class TestStorage:
    @requirement("kaged:sdk-storage")
    def test_values_are_kept_by_the_host(self, storing: PluginProcess, way: str) -> None:
        call = storing.request(f"p.stores{way}")
        for method, params, result in CONVERSATION:
            asked = storing.read()
            assert (asked["method"], asked["params"]) == (method, params)
            storing.send(id=asked["id"], result=result)
        answer = {"jsonrpc": "2.0", "id": call, "result": ["none", None, [1], True, ["a.b"]]}
        assert storing.read() == answer

    @requirement("kaged:sdk-storage-refused")
    def test_a_refusal_says_why(self, storing: PluginProcess, way: str) -> None:
        storing.request(f"p.refused{way}")
        refusal = {"code": -32000, "message": "not granted", "data": {"code": "capability_not_allowed"}}
        storing.send(id=storing.read()["id"], error=refusal)
        assert storing.read()["result"] == ["capability_not_allowed", -32000, "not granted"]

    @requirement("kaged:sdk-storage-refused")
    def test_a_host_without_storage_is_not_asked(self, tmp_path: Path, way: str) -> None:
        with running(tmp_path, STORING) as plugin:
            greet(plugin, storage_available=False)
            text = "this host speaks kaged and does not offer ctx.storage; others of its kind may"
            assert plugin.ask(f"p.refused{way}") == ["not_found", None, text]


@requirement("kaged:sdk-storage")
def test_storage_is_there_outside_of_handlers(storing: PluginProcess) -> None:
    storing.request("p.stores_outside")
    storing.send(id=storing.read()["id"], result={"value": 7, "found": True})
    assert storing.read()["result"] == [7]


SETTINGS = """
plugin = Plugin("p", config_schema={"type": "object"}, secrets_schema={"type": "object"})

@plugin.on_ready
def ready(ctx): print("ready with", ctx.config, ctx.secrets)

@plugin.tool()
def shows(ctx): return [dict(ctx.config), ctx.secrets["token"], plugin.config["depth"], plugin.secrets["token"]]

@plugin.tool()
async def prints(ctx):
    print(ctx, ctx.secrets, plugin.secrets)
    raise RuntimeError(ctx.secrets)
"""


@requirement("kaged:sdk-config", "kaged:sdk-secrets")
def test_settings_reach_handlers_and_secrets_never_stderr(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as plugin:
        greet(plugin, config={"depth": 3}, system_config={"token": "hunter2"})
        assert plugin.ask("p.shows") == [{"depth": 3}, "hunter2", 3, "hunter2"]
        assert plugin.stderr_line() == "ready with Config({'depth': 3}) Secrets({'token': '***'})\n"
        assert plugin.ask("p.prints")["message"] == "Internal error: RuntimeError: Secrets({'token': '***'})"
        plugin.close()
        errors = plugin.errors()
        assert ("RuntimeError" in errors, "hunter2" in errors) == (True, False)


COMPACTING = """
plugin = Plugin("p")

@plugin.compactor
{kind} compact(messages, ctx):
    if not messages: return None
    if messages[0] == {{"role": "wrong"}}: return "shorter"
    return [*messages[1:], {{"role": "system", "content": ctx.agent_path}}]
"""

OBSERVING = """
@plugin.hook("pre_compact")
{kind} observe(event, ctx):
    if event["trigger"] == "bug": raise OSError("disk full")
    return 3 if event["trigger"] == "wrong" else event["trigger"]
"""

PLAIN_OR_ASYNC = pytest.mark.parametrize("kind", ["def", "async def"])


@PLAIN_OR_ASYNC
@requirement("kaged:sdk-compactor")
def test_a_compactor_returns_other_messages_or_leaves_it_to_the_host(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, COMPACTING.format(kind=kind)) as plugin:
        greet(plugin)

        def compact(messages: Any) -> Any:
            event = {"strategy": "drop", "trigger": "t", "keep": 1}
            return plugin.ask("kaged.hook.pre_compact", **event, messages=messages, _context=CONTEXT)

        told = {"role": "system", "content": "primary.subagents.x"}
        assert compact([{"role": "user"}, {"role": "assistant"}]) == {"messages": [{"role": "assistant"}, told]}
        assert compact([]) == {}
        assert compact("text") == {}  # what only observers are told
        assert compact([{"role": "wrong"}])["code"] == -32603
        assert plugin.ask("kaged.hook.post_compact")["code"] == -32601


@PLAIN_OR_ASYNC
@pytest.mark.parametrize("observer", ["def", "async def"])
@requirement("kaged:sdk-compactor")
def test_an_observer_has_its_say_in_the_same_answer(tmp_path: Path, kind: str, observer: str) -> None:
    with running(tmp_path, COMPACTING.format(kind=kind) + OBSERVING.format(kind=observer)) as plugin:
        greet(plugin)
        user = {"role": "user"}
        both = plugin.ask("kaged.hook.pre_compact", trigger="now", messages=[user, user])
        assert both == {"inject": "now", "messages": [user, {"role": "system", "content": None}]}
        assert plugin.ask("kaged.hook.pre_compact", trigger="now") == {"inject": "now"}
        for trigger in ("bug", "wrong"):
            alone = plugin.ask("kaged.hook.pre_compact", trigger=trigger, messages=[user, user])
            assert list(alone) == ["messages"]
        plugin.close()
        assert "the first of two handlers failed: OSError: disk full" in plugin.errors()


def test_a_compactor_for_which_there_is_no_room_says_so(tmp_path: Path) -> None:
    small = "import plugbay.sdk.runtime.executor as w; w.Workers.__init__.__defaults__ = (1, 0)"
    with running(tmp_path, f"{COMPACTING.format(kind='def')}\n{small}") as plugin:
        answer = plugin.ask("kaged.hook.pre_compact", messages=[{}])
        assert (answer["code"], answer["data"]) == (-32000, {"code": "unavailable", "retry_after_ms": 1000})


LEAVING = """
plugin = Plugin("p")
plugin.notifies("bye")

@plugin.tool()
def held():
    open("gate").read()
    return "held"

@plugin.tool()
async def held_later():
    import asyncio
    await asyncio.to_thread(held)
    return "held"

@plugin.tool()
def echo(input): return input

@plugin.on_shutdown
def farewell(ctx):
    ctx.events.publish("bye", {"n": 1})
"""

BYE = {"jsonrpc": "2.0", "method": "bye", "params": {"n": 1}}


@pytest.mark.parametrize("way", ["", "_later"], ids=["plain", "async"])
@requirement("kaged:sdk-shutdown")
def test_shutdown_waits_for_handlers_then_answers_then_leaves_without_the_end_of_input(
    tmp_path: Path, way: str
) -> None:
    path = gate(tmp_path)
    with running(tmp_path, LEAVING) as plugin:
        greet(plugin)
        call = plugin.request(f"p.held{way}")
        goodbye = plugin.request("shutdown")
        late = plugin.ask("p.echo")
        assert (late["code"], late["data"]) == (-32000, {"code": "unavailable"})
        open_gate(path)
        assert plugin.read() == {"jsonrpc": "2.0", "id": call, "result": "held"}
        assert plugin.read() == BYE
        assert plugin.read() == {"jsonrpc": "2.0", "id": goodbye, "result": {"status": "ok"}}
        assert plugin.status() == 0


@requirement("kaged:sdk-shutdown-bound")
def test_a_handler_that_never_ends_does_not_keep_the_plugin(tmp_path: Path) -> None:
    gate(tmp_path)
    with running(tmp_path, f"{LEAVING}\nimport plugbay.sdk.runtime.resident as r; r.DRAIN_SECONDS = 0.05") as plugin:
        greet(plugin)
        plugin.request("p.held")
        plugin.request("shutdown")
        assert plugin.read() == BYE
        assert plugin.read()["result"] == {"status": "ok"}
        assert plugin.status() == 0
        assert "p: 1 handlers did not finish within 0.05 s" in plugin.errors()


@requirement("kaged:sdk-eof")
def test_the_end_of_input_is_a_good_bye_too(tmp_path: Path) -> None:
    with running(tmp_path, LEAVING) as plugin:
        greet(plugin)
        assert plugin.ask("p.echo", x=1) == {"x": 1}
        plugin.close()
        assert plugin.status() == 0


@requirement("kaged:sdk-name")
@pytest.mark.parametrize(
    ("id", "mapped"), [("memory", "memory"), ("example.weather", "example-weather"), ("My_Plugin 2", "my-plugin-2")]
)
def test_an_id_is_mapped_to_the_alphabet(id: str, mapped: str) -> None:
    assert kaged_name(id) == mapped


@pytest.mark.parametrize(
    ("method", "own"),
    [
        ("a-b.echo", True),
        ("index.rebuild", True),
        ("a.b.echo", False),
        ("a-b.other", False),
        ("a-b", False),
        ("echo", False),
    ],
)
def test_a_plugin_knows_what_only_a_daemon_would_ask_for(method: str, own: bool) -> None:
    plugin = Plugin("a.b")
    plugin.tool("echo")(lambda: 1)
    plugin.method("index.rebuild")(lambda: 1)
    assert is_own_method(plugin, method) is own


@requirement("kaged:sdk-what-is-not-carried")
def test_hooks_and_capabilities_of_other_contracts_are_left_out() -> None:
    def handler(event: Any) -> None: ...

    plugin = Plugin("p")
    for hook in ("post_compact", "before_message", "on_session_start"):
        plugin.hook(hook)(handler)
    assert supported_hooks(plugin) == ("on_session_start", "post_compact")
    plugin.compactor(handler)
    assert supported_hooks(plugin) == ("on_session_start", "pre_compact", "post_compact")
    capabilities = ("filesystem.read", "net:[]", "kaged:storage:read", "read:fs:/a", "network")
    assert supported_capabilities(capabilities) == ("net:[]", "kaged:storage:read", "read:fs:/a")
