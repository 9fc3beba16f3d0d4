"""A plugin process under ainb: who it says it is, what it draws, hears and answers, and what it asks of its host."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugbay.sdk import Plugin, ToolError
from plugbay.sdk.context import unconnected
from plugbay.sdk.contracts.ainb import (
    DONE,
    FAILED,
    MISUSED,
    AinbDispatcher,
    ainb_manifest_object,
    ainb_name,
    subscribed_topics,
    supported_capabilities,
    tool_command_task,
    tool_namespaces,
)
from tests.sdk.processes import Framed, framed, gate, open_gate, running, running_framed
from tests.support.requirements import requirement

EVERYTHING = """
plugin = Plugin("a.p", "2.1.0", description="Shows it.", capabilities=["event_bus", "network=a.b", "net:"], eager=True)
plugin.publishes("out")
seen = []

@plugin.tool()
def echo(input): return input

@plugin.screen("main")
def draw(canvas, ctx):
    canvas.text(0, 0, " ".join(seen[-4:]) or "nothing yet", fg="green", bold=True)

@plugin.screen("other", min_size=(10, 3))
async def draw_other(canvas):
    canvas.text(0, 0, "the other one")
    canvas.redraw = canvas.captures_text = True

@plugin.screen("broken")
def draw_broken(canvas): raise ValueError("cannot draw")

@plugin.on_key("main")
def any_key(key): seen.append(key.name)

@plugin.on_key("main", "escape", "ctrl+c")
async def some_keys(key): seen.append(key.name.upper())

@plugin.on_key("other", "x", releases=True)
def let_go(key): seen.append(key.kind)

@plugin.on_mouse("main")
def mouse(mouse): seen.append(f"{mouse.kind}:{mouse.button}@{mouse.x},{mouse.y}")

@plugin.on_action("refresh")
def refresh(payload): seen.append(f"refresh={payload}")

@plugin.on_snapshot("t")
def heard(snapshot): seen.append(f"{snapshot.topic}={snapshot.text()}")

@plugin.on_snapshot("t")
def fails(snapshot):
    if snapshot.data == b"bad": raise ValueError("not this one")

@plugin.cli("say")
def say(argv): return " ".join(argv)

@plugin.cli("modules")
def modules(argv): print(*sys.modules)

@plugin.action("upper")
def upper(data): return data.upper()

@plugin.action("shape")
async def shape(data): return {"size": len(data)} if data else None

@plugin.action("huge")
def huge(data): return b"x" * (13 << 20)
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framed]:
    """One process for many tests: each looks at the end of what was seen."""
    with running_framed(tmp_path_factory.mktemp("everything"), EVERYTHING) as plugin:
        plugin.greet()
        yield plugin


def invoke(plugin: Framed, action: str, data: bytes = b"") -> Any:
    payload = b64encode(data).decode()
    answer = plugin.ask("host/action/invoke", action=action, payload=payload, timeout_ms=0)
    return b64decode(answer["payload"]) if "payload" in answer else answer


# Who it is.


@requirement("ainb:sdk-identity", "ainb:sdk-name", "ainb:sdk-what-is-not-carried")
def test_a_plugin_sends_its_identity_in_both_shapes(tmp_path: Path) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        assert plugin.greet() == {
            "name": "a.p",
            "version": "2.1.0",
            "abi_version": 2,
            "manifest": {
                "plugin": {"name": "a.p", "version": "2.1.0", "abi_version": 2, "description": "Shows it."},
                "capabilities": {"event_bus": True, "network": ["a.b"]},
                "provides": {
                    "screens": ["main", "other", "broken"],
                    "commands": ["refresh"],
                    "cli_namespaces": ["say", "modules", "upper", "shape", "huge", "a.p"],
                    "snapshots": ["out"],
                },
                "subscribes": {"snapshots": ["t"]},
                "lifecycle": {"spawn": "eager"},
            },
        }


@requirement("ainb:sdk-identity")
def test_another_abi_is_refused_and_an_unknown_method_is_not_found_even_before_the_greeting(tmp_path: Path) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        assert plugin.ask("plugin/other")["code"] == -32601
        assert plugin.greet(abi_version=3)["code"] == -32003
        assert plugin.greet()["name"] == "a.p"


@requirement("ainb:sdk-one-source")
def test_one_source_serves_whichever_contract_greets_it(tmp_path: Path) -> None:
    with running(tmp_path, EVERYTHING) as plugin:
        assert plugin.ask("a-p.echo", x=1) == {"x": 1}
    with running(tmp_path, EVERYTHING) as plugin:
        plugin.ask("initialize")
        assert plugin.ask("tool.invoke", tool_name="a_p_echo", args={"x": 1}) == {"x": 1}
    with running(tmp_path, EVERYTHING) as plugin:
        plugin.write(b'{"type":"handshake","protocol_version":"rterm.plugin.v1"}\n')
        assert plugin.read()["manifest"]["exposed_tools"] == ["echo"]


@requirement("ainb:sdk-light")
def test_asyncio_is_loaded_by_the_first_async_handler_and_other_contracts_never(tmp_path: Path) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        plugin.greet()
        loaded = set(plugin.run("modules")[0].decode().split())
        assert {"plugbay.sdk.contracts.ainb", "plugbay.sdk.screens.canvas"} <= loaded
        assert not loaded & {"asyncio", "threading", "logging", "inspect", "typing", "json", "re", "enum", "msgspec"}
        assert not [name for name in loaded if "nexo" in name or "kaged" in name or "manifests" in name]
        plugin.render(height=3, screen_id="other")
        assert b"asyncio" in plugin.run("modules")[0].split()


# Screens.


@requirement("ainb:sdk-screens")
def test_a_screen_is_drawn_as_large_as_the_host_says(tmp_path: Path) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        plugin.greet()
        answer = plugin.ask("plugin/render", viewport={"width": 7, "height": 3}, generation=0)
        assert (answer["buffer"]["width"], answer["buffer"]["height"]) == (7, 3)
        assert (answer["redraw"], answer["captures_text"]) == (False, False)
        assert len(answer["buffer"]["cells"]) == 7
        green = {"r": 13, "g": 188, "b": 121}
        assert answer["buffer"]["cells"][0] == [{"x": 0, "y": 0}, {"symbol": "n", "fg": green, "modifier": 1}]


@requirement("ainb:sdk-screens")
def test_a_plugin_may_own_several_screens_and_draws_the_first_where_none_is_named(everything: Framed) -> None:
    assert everything.render(screen_id="other", height=3)[0] == "the other one"
    assert everything.render(screen_id="main") == everything.render()
    answer = everything.ask("plugin/render", viewport={"width": 20, "height": 3}, screen_id="other")
    assert (answer["redraw"], answer["captures_text"]) == (True, True)
    missing = everything.ask("plugin/render", viewport={"width": 1, "height": 1}, screen_id="none")
    assert (missing["code"], "there is no screen 'none'" in missing["message"]) == (-32602, True)


@requirement("ainb:sdk-screens")
@pytest.mark.parametrize(("width", "height"), [(9, 3), (10, 2)])
def test_where_there_is_too_little_room_the_plugin_says_so(everything: Framed, width: int, height: int) -> None:
    assert everything.render(width, height, screen_id="other")[0] == "needs 10x3"[:width]
    assert everything.render(0, 0, screen_id="other") == []


@requirement("ainb:sdk-bounded")
def test_a_screen_larger_than_any_is_refused_before_there_is_a_canvas(everything: Framed) -> None:
    answer = everything.ask("plugin/render", viewport={"width": 65535, "height": 65535}, screen_id="main")
    assert (answer["code"], "is too large for a plugin" in answer["message"]) == (-32602, True)
    assert everything.ask("plugin/render", viewport={"width": 1024, "height": 1024}, screen_id="main")["buffer"]


@requirement("ainb:sdk-errors")
def test_a_screen_that_cannot_be_drawn_is_an_error_of_this_call_only(everything: Framed) -> None:
    failed = everything.ask("plugin/render", viewport={"width": 9, "height": 9}, screen_id="broken")
    assert (failed["code"], failed["message"]) == (-32603, "ValueError: cannot draw")
    assert everything.render()


@requirement("ainb:sdk-screens")
def test_a_plugin_without_screens_is_an_empty_one_and_the_only_screen_has_every_name(tmp_path: Path) -> None:
    with running_framed(tmp_path, 'plugin = Plugin("p")') as plugin:
        plugin.greet()
        assert plugin.ask("plugin/render", viewport={"width": 9, "height": 9})["buffer"] == {
            "width": 0,
            "height": 0,
            "cells": [],
        }
        assert plugin.ask("host/action/invoke", action="a", payload="")["code"] == -32601
    only = 'plugin = Plugin("p")\nplugin.screen("main")(lambda canvas: canvas.text(0, 0, "it"))'
    with running_framed(tmp_path, only) as plugin:
        plugin.greet()
        assert plugin.render(screen_id="plugin:p")[0] == "it"


@requirement("ainb:sdk-screens")
def test_a_large_picture_with_a_look_for_every_cell_is_sent(tmp_path: Path) -> None:
    source = 'plugin = Plugin("p")\nplugin.screen("main")(lambda canvas: canvas.fill(char="\\"", fg="red", bg="blue"))'
    with running_framed(tmp_path, source) as plugin:
        plugin.greet()
        assert plugin.render(200, 60) == ['"' * 200] * 60


# What is told.


@requirement("ainb:sdk-keys")
def test_keys_reach_the_handlers_that_ask_for_them(everything: Framed) -> None:
    everything.key("q")
    everything.key("esc")
    assert everything.render(40)[0].endswith("q esc ESC")
    held = {"code": {"type": "char", "ch": "c"}, "mods": 2, "kind": "repeat"}
    everything.tell("plugin/handle_key", screen_id="main", key=held, generation=3)
    assert everything.render(40)[0].endswith("ctrl+c CTRL+C")


@requirement("ainb:sdk-keys")
def test_key_releases_reach_the_handlers_that_ask_for_them(everything: Framed) -> None:
    for screen in ("main", "other"):
        for kind in ("press", "release"):
            key = {"code": {"type": "char", "ch": "x"}, "mods": 0, "kind": kind}
            everything.tell("plugin/handle_key", screen_id=screen, key=key, generation=3)
    assert everything.render(40)[0].endswith("x press release")
    everything.key("q", screen="nobody's")
    assert everything.render(40)[0].endswith("x press release")


@requirement("ainb:sdk-mouse", "ainb:sdk-palette")
def test_the_mouse_and_commands_of_the_palette_are_heard(everything: Framed) -> None:
    mouse = {"kind": {"type": "down", "button": {"type": "left"}}, "col": 7, "row": 2}
    everything.tell("plugin/handle_mouse", screen_id="main", mouse=mouse, generation=1)
    assert everything.render(40)[0].endswith("down:left@7,2")
    everything.tell("plugin/handle_action", action_id="refresh", payload=3)
    everything.tell("plugin/handle_action", action_id="nobody's")
    assert everything.render(40)[0].endswith("refresh=3")


@requirement("ainb:sdk-snapshots")
def test_snapshots_reach_their_handlers_and_a_failing_one_is_told_on_stderr(tmp_path: Path) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        plugin.greet()
        plugin.snapshot("nobody's", b"x")
        plugin.snapshot("t", b"bad")
        plugin.tell("plugin/handle_event", topic="t", payload=[104, 105])
        assert plugin.render(40)[0] == "t=bad t=hi"
        while not (line := plugin.stderr_line()).startswith("a.p:"):
            assert line, "the failure was not told"
        assert line == "a.p: the handler of t failed: ValueError: not this one\n"


@requirement("ainb:sdk-subscriptions")
def test_what_is_declared_is_subscribed_to_after_the_greeting_when_the_bus_was_granted(tmp_path: Path) -> None:
    source = """
plugin = Plugin("p", capabilities=["event_bus"])
for topic in ("a", "b", "a", None): plugin.on_snapshot(topic)(lambda snapshot: None)

@plugin.cli("ready")
def ready(argv): return "yes"
"""
    with running_framed(tmp_path, source) as plugin:
        plugin.greet("network")
        assert plugin.run("ready")[0] == b"yes", "nothing was asked: the next word is the answer"
    with running_framed(tmp_path, source) as plugin:
        assert plugin.greet("event_bus")["name"] == "p", "the greeting is answered first"
        asked = [plugin.read(), plugin.read()]
        assert [(frame["method"], frame["params"]) for frame in asked] == [
            ("host/snapshot/subscribe", {"topic": "a"}),
            ("host/snapshot/subscribe", {"topic": "b"}),
        ]
        plugin.send(id=asked[0]["id"], error={"code": -32001, "message": "capability denied: event_bus"})
        plugin.send(id=asked[1]["id"], result={})
        assert plugin.stderr_line() == "no snapshots of a arrive: capability denied: event_bus\n"
        assert plugin.run("ready")[0] == b"yes"


# What is asked.


@requirement("ainb:sdk-actions")
def test_an_action_takes_bytes_and_answers_with_bytes(everything: Framed) -> None:
    assert invoke(everything, "upper", b"abc") == b"ABC"
    assert invoke(everything, "shape", b"abc") == b'{"size":3}'
    assert invoke(everything, "shape") == b""
    missing = invoke(everything, "say")
    assert (missing["code"], "there is no action 'say'" in missing["message"]) == (-32602, True)


@requirement("ainb:sdk-actions-as-commands")
def test_an_action_is_also_reached_as_a_command_line(everything: Framed) -> None:
    assert everything.run("upper", "be", "loud") == (b"BE LOUD", b"", 0)
    assert everything.run("shape", "four") == (b'{"size":4}', b"", 0)
    assert everything.run("shape") == (b"", b"", 0)
    assert everything.run("upper", "--help") == (
        "upper [TEXT…]: an action of a.p; TEXT is its data\n".encode(),
        b"",
        0,
    )
    assert everything.run("nothing")[2] == 2


@requirement("ainb:sdk-refused-ids")
@pytest.mark.parametrize(("id", "shown"), [("7", "'7'"), (-7, "-7"), (7.5, "7.5")])
def test_a_request_with_another_id_than_an_unsigned_integer_is_refused_on_stderr(
    tmp_path: Path, id: Any, shown: str
) -> None:
    with running_framed(tmp_path, EVERYTHING) as plugin:
        plugin.greet()
        plugin.send(id=id, method="plugin/render", params={"viewport": {"width": 1, "height": 1}})
        refused = "is refused: an id of this contract is an unsigned integer"
        assert plugin.stderr_line() == f"a.p: 'plugin/render' with the id {shown} {refused}\n"
        assert plugin.run("say", "on") == (b"on", b"", 0)


@requirement("ainb:sdk-errors")
def test_an_answer_that_is_too_large_is_an_error_and_not_a_broken_stream(everything: Framed) -> None:
    assert invoke(everything, "huge")["code"] == -32603
    assert everything.run("say", "still", "here") == (b"still here", b"", 0)


ASKING = """
plugin = Plugin("p", capabilities=["event_bus"])

ASKS = {
    "get": lambda ctx: ctx.snapshots.get("t"),
    "subscribe": lambda ctx: ctx.snapshots.subscribe("t"),
    "invoke": lambda ctx: ctx.actions.invoke("other.act", "x", timeout=2),
    "read": lambda ctx: ctx.files.read("/f"),
    "list": lambda ctx: ctx.files.list("/d"),
    "fetch": lambda ctx: ctx.http.fetch("https://a/", "POST", {"x": 1}, {"k": "v"}),
    "memory": lambda ctx: ctx.memory.recall("a", "q"),
    "storage": lambda ctx: ctx.storage.get("k"),
    "events": lambda ctx: ctx.events.publish("t", 1),
}
TELLS = {
    "publish": lambda ctx: ctx.snapshots.publish("t", {"a": 1}),
    "chunked": lambda ctx: ctx.snapshots.publish_chunked("t", [1], version=1, encoding="json"),
    "log": lambda ctx: ctx.log.warn("careful", at=1),
    "too_large": lambda ctx: ctx.snapshots.publish("t", bytes(12_500_001)),
    "item_too_large": lambda ctx: ctx.snapshots.publish_chunked("t", ["x" * 12_500_001], version=1, encoding="json"),
    "action_too_large": lambda ctx: ctx.actions.invoke("other.act", bytes(13 << 20)),
}

def outcome(ask):
    try:
        return repr(ask())
    except ServiceError as error:
        return f"{error.code} {error.rpc_code} {error}"

@plugin.cli("asks")
def asks(argv, ctx): return outcome(lambda: {**ASKS, **TELLS}[argv[0]](ctx))

@plugin.cli("asks_later")
async def asks_later(argv, ctx):
    try:
        told = {**ASKS, **TELLS}[argv[0]](ctx)
        return repr(await told if hasattr(told, "__await__") else told)
    except ServiceError as error:
        return f"{error.code} {error.rpc_code} {error}"

@plugin.cli("asks_outside")
def asks_outside(argv): return outcome(lambda: {**ASKS, **TELLS}[argv[0]](plugin.host))

@plugin.on_snapshot("t")
def heard(snapshot, ctx): ctx.snapshots.publish("answer", ctx.snapshots.get("t").data)

@plugin.on_key("main")
async def key(key, ctx): await ctx.snapshots.publish("answer", (await ctx.snapshots.get("t")).data)

@plugin.screen("main")
def draw(canvas): pass
"""

WAYS = pytest.mark.parametrize("way", ["asks", "asks_later", "asks_outside"])


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framed]:
    with running_framed(tmp_path_factory.mktemp("asking"), ASKING) as plugin:
        plugin.greet()
        yield plugin


def said(plugin: Framed, id: int) -> str:
    """The output of a command line that was asked for before."""
    frame = plugin.read()
    assert frame["id"] == id
    return b64decode(frame["result"]["stdout"]).decode()


@WAYS
@pytest.mark.parametrize(
    ("what", "method", "params", "result", "seen"),
    [
        (
            "get",
            "host/snapshot/get",
            {"topic": "t"},
            {"payload": "eA==", "version": 7},
            "Snapshot(data=b'x', topic='t', version=7)",
        ),
        ("get", "host/snapshot/get", {"topic": "t"}, {"payload": None, "version": 0}, "None"),
        ("subscribe", "host/snapshot/subscribe", {"topic": "t"}, {}, "None"),
        (
            "invoke",
            "host/action/invoke",
            {"action": "other.act", "payload": "eA==", "timeout_ms": 2000},
            {"payload": "eQ=="},
            "b'y'",
        ),
        ("read", "host/fs/read_file", {"path": "/f"}, {"bytes": [1, 255]}, "b'\\x01\\xff'"),
        (
            "list",
            "host/fs/read_dir",
            {"path": "/d"},
            {"entries": [{"name": "a", "is_dir": True, "size": 0}]},
            "[FileEntry(is_dir=True, name='a', size=0)]",
        ),
        (
            "fetch",
            "host/network/fetch",
            {"url": "https://a/", "method": "POST", "body": "eyJ4IjoxfQ==", "headers": [["k", "v"]]},
            {"status": 201, "headers": [["a", "b"]], "body": "eA=="},
            "Response(body=b'x', headers=[('a', 'b')], status=201)",
        ),
    ],
)
@requirement("ainb:sdk-snapshots", "ainb:sdk-actions", "ainb:sdk-files", "ainb:sdk-http")
def test_the_hosts_services_are_asked_in_plain_and_async_handlers_and_outside(
    asking: Framed, way: str, what: str, method: str, params: Any, result: Any, seen: str
) -> None:
    id = asking.request("plugin/cli_dispatch", namespace=way, argv=[what])
    asked = asking.read()
    assert (asked["method"], asked["params"]) == (method, params)
    asking.send(id=asked["id"], result=result)
    assert said(asking, id) == seen


@WAYS
@requirement("ainb:sdk-denied")
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (
            {"code": -32001, "message": "capability denied: network"},
            "capability_not_allowed -32001 capability denied: network",
        ),
        ({"code": -32601, "message": "method not found: x"}, "unavailable -32601 method not found: x"),
        ({"code": -32602, "message": "no such host"}, "invalid_input -32602 no such host"),
    ],
)
def test_a_refusal_of_the_host_says_why(asking: Framed, way: str, error: Any, seen: str) -> None:
    id = asking.request("plugin/cli_dispatch", namespace=way, argv=["fetch"])
    asking.send(id=asking.read()["id"], error=error)
    assert said(asking, id) == seen


@WAYS
@requirement("ainb:sdk-what-is-not-carried")
@pytest.mark.parametrize(("what", "hosts"), [("memory", "nexo"), ("storage", "kaged"), ("events", "nexo and kaged")])
def test_what_ainb_does_not_carry_is_said_to_be_missing(asking: Framed, way: str, what: str, hosts: str) -> None:
    text = f"not_found None this host speaks ainb and does not offer ctx.{what}; hosts of {hosts} do"
    assert asking.run(way, what)[0].decode() == text


@WAYS
@requirement("ainb:sdk-snapshots", "ainb:sdk-log")
def test_the_host_is_told_without_waiting(asking: Framed, way: str) -> None:
    told = {}
    for what in ("publish", "chunked", "log"):
        id = asking.request("plugin/cli_dispatch", namespace=way, argv=[what])
        frame = asking.read()
        assert "id" not in frame
        told[what] = (frame["method"], frame["params"])
        assert said(asking, id) == "None"
    assert told["publish"] == ("host/snapshot/publish", {"topic": "t", "payload": "eyJhIjoxfQ=="})
    assert b'"chunk_index":0,"is_final":true' in b64decode(told["chunked"][1]["payload"])
    assert told["log"] == ("host/log", {"level": "warn", "message": "careful", "fields": {"at": 1}})


@WAYS
@requirement("ainb:sdk-errors")
def test_what_is_too_large_for_a_frame_is_refused_before_it_is_sent(asking: Framed, way: str) -> None:
    assert asking.run(way, "action_too_large")[0].startswith(b"frame_too_large None the message has")


@WAYS
@requirement("ainb:sdk-snapshot-size")
def test_a_snapshot_that_a_host_would_drop_is_refused_with_the_way_to_send_it(asking: Framed, way: str) -> None:
    text = asking.run(way, "too_large")[0]
    assert text.startswith(b"frame_too_large None the snapshot of t has 12,500,001 bytes; at most 12,500,000 fit")
    assert b"publish_chunked" in text
    id = asking.request("plugin/cli_dispatch", namespace=way, argv=["item_too_large"])
    assert b'"is_final":false' in b64decode(asking.read()["params"]["payload"])
    assert said(asking, id).startswith("frame_too_large None the snapshot of t has 12,5")


@requirement("ainb:sdk-reader-free")
@pytest.mark.parametrize("tell", [lambda plugin: plugin.snapshot("t", b"x"), lambda plugin: plugin.key("a")])
def test_a_handler_of_something_that_was_told_may_ask_the_host(asking: Framed, tell: Any) -> None:
    tell(asking)
    asked = asking.read()
    assert asked["method"] == "host/snapshot/get"
    asking.send(id=asked["id"], result={"payload": "eA==", "version": 1})
    assert asking.read()["params"] == {"topic": "answer", "payload": "eA=="}


@pytest.mark.parametrize(
    ("what", "service"),
    [("get", "snapshots"), ("publish", "snapshots"), ("invoke", "actions"), ("read", "files"), ("fetch", "http")],
)
@requirement("ainb:sdk-what-is-not-carried")
def test_where_another_contract_is_spoken_the_services_of_ainb_are_said_to_be_missing(
    tmp_path: Path, what: str, service: str
) -> None:
    source = (
        f"{ASKING}\n@plugin.tool()\ndef asks_tool(what, ctx): return outcome(lambda: {{**ASKS, **TELLS}}[what](ctx))"
    )
    with running(tmp_path, source) as plugin:
        text = f"not_found None this host speaks kaged and does not offer ctx.{service}; hosts of ainb do"
        assert plugin.ask("p.asks_tool", what=what) == text
        assert plugin.ask("p.asks_tool", what="log") == "None"
        assert plugin.stderr_line() == "warn: careful at=1\n"
    with running(tmp_path, source) as plugin:
        plugin.ask("initialize")
        text = f"not_found None this host speaks nexo and does not offer ctx.{service}; hosts of ainb do"
        assert plugin.tool("asks_tool", {"what": what}) == text


# Order.


ORDERED = """
import asyncio
plugin = Plugin("p")
log, running = [], [0, 0]

def note(what):
    running[0] += 1
    running[1] = max(running)
    log.append(what)
    running[0] -= 1

@plugin.screen("main")
def draw(canvas): note("render")

@plugin.on_key("main")
def key(key): note(key.name)

@plugin.on_mouse("main")
async def mouse(mouse):
    running[0] += 1
    await asyncio.sleep(0)
    running[0] -= 1
    note("mouse")

@plugin.on_snapshot()
def heard(snapshot):
    if snapshot.text() == "hold":
        running[0] += 1
        print("holding")
        open("gate").read()
        running[0] -= 1
    note(snapshot.text())

@plugin.on_action("act")
async def act(payload): note("act")

@plugin.cli("log")
def show(argv): return " ".join(log) + f" most={running[1]}"

@plugin.cli("beside", concurrent=True)
def beside(argv): return "beside"

@plugin.action("beside", concurrent=True)
async def beside_later(data): return "beside"
"""


@requirement("ainb:sdk-order", "ainb:sdk-keys-first", "ainb:sdk-one-at-a-time")
def test_handlers_run_one_at_a_time_in_order_with_keys_before_what_waits(tmp_path: Path) -> None:
    path = gate(tmp_path)
    with running_framed(tmp_path, ORDERED) as plugin:
        plugin.greet()
        plugin.snapshot("t", b"hold")
        assert plugin.stderr_line() == "holding\n"
        plugin.snapshot("t", b"e1")
        picture = plugin.request("plugin/render", viewport={"width": 1, "height": 1})
        plugin.tell("plugin/handle_action", action_id="act")
        plugin.snapshot("t", b"e2")
        for name in ("a", "b"):
            plugin.key(name)
            mouse = {"kind": {"type": "moved"}, "col": 0, "row": 0}
            plugin.tell("plugin/handle_mouse", screen_id="main", mouse=mouse, generation=1)
        assert plugin.run("beside")[0] == b"beside", "what may run beside others does"
        assert invoke(plugin, "beside") == b"beside"
        open_gate(path)
        assert plugin.read()["id"] == picture
        log, most = plugin.run("log")[0].decode().rsplit(" ", 1)
        assert log == "hold a b mouse mouse e1 render act e2"
        assert most == "most=1"


@requirement("ainb:sdk-bounded")
def test_a_storm_drops_the_oldest_and_says_so(tmp_path: Path) -> None:
    path = gate(tmp_path)
    small = "import plugbay.sdk.runtime.executor as t; t.SerialQueue.__init__.__defaults__ = (2, 3, 1 << 20)"
    with running_framed(tmp_path, f"{ORDERED}\n{small}") as plugin:
        plugin.greet()
        plugin.snapshot("t", b"hold")
        assert plugin.stderr_line() == "holding\n"
        for number in range(5):
            plugin.snapshot("t", b"e%d" % number)
            plugin.key(str(number))
        refused = [plugin.request("plugin/render", viewport={"width": 1, "height": 1}) for _ in range(4)][-1]
        answer = plugin.read()
        assert (answer["id"], answer["error"]["code"]) == (refused, -32603)
        assert "busy" in answer["error"]["message"]
        open_gate(path)
        for _ in range(3):
            plugin.read()
        assert plugin.run("log")[0].startswith(b"hold 3 4 render render render")
        plugin.close()
        assert plugin.status() == 0
        dropped = plugin.errors().splitlines()
        assert dropped.count("p: dropped an event on t: too many handlers are busy") == 5
        assert dropped.count("p: dropped an event on screen main: too many handlers are busy") == 3


# Leaving.


LEAVING = """
plugin = Plugin("p")

@plugin.on_ready
def ready(ctx): ctx.log("ready")

@plugin.on_shutdown
def bye(): print("bye")

@plugin.cli("held")
def held(argv):
    open("gate").read()
    return "done"

@plugin.cli("configured")
def configured(argv, ctx): return repr(dict(ctx.config))
"""


def leaving(tmp_path: Path) -> Any:
    return running_framed(tmp_path, LEAVING)


@requirement("ainb:sdk-shutdown")
def test_after_shutdown_the_farewell_is_said_and_the_answer_is_an_empty_object(tmp_path: Path) -> None:
    path = gate(tmp_path)
    with leaving(tmp_path) as plugin:
        plugin.greet()
        assert plugin.read()["params"]["message"] == "ready"
        held = plugin.request("plugin/cli_dispatch", namespace="held", argv=[])
        bye = plugin.request("plugin/shutdown")
        late = plugin.request("plugin/render", viewport={"width": 1, "height": 1})
        refused = plugin.read()
        assert (refused["id"], refused["error"]["code"]) == (late, -32603)
        open_gate(path)
        assert plugin.read()["id"] == held
        answer = plugin.read()
        assert (answer["id"], answer["result"]) == (bye, {})
        assert (plugin.status(), plugin.errors()) == (0, "bye\n")


@requirement("ainb:sdk-shutdown")
@pytest.mark.parametrize("leave", [lambda plugin: plugin.tell("plugin/shutdown"), lambda plugin: plugin.close()])
def test_a_plugin_leaves_in_good_order_when_it_is_told_or_its_input_ends(tmp_path: Path, leave: Any) -> None:
    with leaving(tmp_path) as plugin:
        plugin.greet()
        plugin.read()
        leave(plugin)
        assert (plugin.status(), plugin.errors()) == (0, "bye\n")


@requirement("ainb:sdk-framing")
@pytest.mark.parametrize("broken", [b"Content-Length: x\r\n\r\n", b"Content-Type: a\r\n\r\n", b"\r\n", b"{}\n"])
def test_a_broken_frame_ends_the_conversation(tmp_path: Path, broken: bytes) -> None:
    with leaving(tmp_path) as plugin:
        plugin.greet()
        plugin.read()
        plugin.write(broken)
        assert plugin.status() == 1
        assert "the host broke the framing" in plugin.errors()


@requirement("ainb:sdk-framing")
def test_a_frame_may_come_byte_by_byte_and_a_body_that_is_no_json_is_skipped(tmp_path: Path) -> None:
    with leaving(tmp_path) as plugin:
        plugin.write(b"content-LENGTH:  3\r\n\r\n???")
        hello = {"jsonrpc": "2.0", "id": 1, "method": "plugin/init", "params": {"config": {"depth": 3}}}
        for byte in framed(hello):
            plugin.write(bytes([byte]))
        assert plugin.read()["result"]["name"] == "p"
        plugin.read()
        assert plugin.run("configured")[0] == b"{'depth': 3}"


def test_listening_to_a_screen_that_is_none_is_a_mistake_that_is_told() -> None:
    plugin = Plugin("p")
    plugin.on_key("main")(print)
    with pytest.raises(ValueError, match="'main', which is not a screen"):
        AinbDispatcher(plugin)
    plugin.screen("main")(print)
    assert AinbDispatcher(plugin).serves()
    plugin.on_key("main", "ctl+a")(print)
    with pytest.raises(ValueError, match="no key is called 'ctl\\+a'"):
        AinbDispatcher(plugin)


@requirement("ainb:sdk-name")
@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("burndown", "burndown"),
        ("example.weather", "example.weather"),
        ("../x", "-x"),
        ("a/b\\c", "a-b-c"),
        ("a\n", "a-"),
    ],
)
def test_a_name_can_be_that_of_a_folder(id: str, name: str) -> None:
    assert ainb_name(id) == name


@requirement("ainb:sdk-what-is-not-carried")
@pytest.mark.parametrize(
    ("capabilities", "grants"),
    [
        ([], {}),
        (["event_bus"], {"event_bus": True}),
        (["network=a.b", "network=c.d:8080", "network=a.b"], {"network": ["a.b", "c.d:8080"]}),
        (["network=a.b", "network", "network=c.d"], {"network": True}),
        (["read_paths=~/a=b"], {"read_paths": ["~/a=b"]}),
        (["secrets:read=key", "net:[]", "kaged:storage:read", "filesystem.read"], {"secrets:read": ["key"]}),
    ],
)
def test_capabilities_become_grants_and_those_of_others_are_left_out(
    capabilities: list[str], grants: dict[str, object]
) -> None:
    assert supported_capabilities(capabilities) == grants


@requirement("ainb:sdk-what-is-not-carried")
def test_what_ainb_has_no_word_for_is_not_in_the_manifest() -> None:
    plugin = Plugin("p", "1.0.0", capabilities=["net:[]"])
    plugin.hook("on_session_start")(print)
    plugin.knob("speed", type="range", label="Speed", min=0, max=1)
    assert ainb_manifest_object(plugin) == {"plugin": {"name": "p", "version": "1.0.0", "abi_version": 2}}


def test_tools_are_behind_one_command_line_unless_its_name_is_taken() -> None:
    plugin = Plugin("-example.the shop")
    assert tool_namespaces(plugin) == []
    plugin.tool("quote")(lambda: 1)
    plugin.tool("sell")(lambda: 1)
    assert tool_namespaces(plugin) == ["example.the-shop"]
    assert ainb_manifest_object(plugin)["provides"] == {"cli_namespaces": ["example.the-shop"]}
    plugin.cli("example.the-shop")(print)
    assert tool_namespaces(plugin) == []


@requirement("ainb:sdk-subscriptions")
def test_topics_with_handlers_are_subscribed_to_once() -> None:
    plugin = Plugin("p")
    for topic in ("b", "a", None, "b"):
        plugin.on_snapshot(topic)(print)
    assert subscribed_topics(plugin) == ["b", "a"]


@requirement("ainb:sdk-actions")
def test_an_action_is_found_among_the_command_lines() -> None:
    plugin = Plugin("p")
    plugin.cli("usage")(print)
    plugin.action("usage")(print)
    plugin.action("usage.total")(print)
    assert ainb_manifest_object(plugin)["provides"] == {"cli_namespaces": ["usage", "usage.total"]}


plugin = Plugin("shop")


@plugin.tool()
def quote(city: str, days: int = 1) -> dict[str, Any]:
    """Say what it costs."""
    if city == "Nowhere":
        raise ToolError("there is no such place: Nowhere\udc80", code="not_found")
    return {"city": city, "sum": float("nan") if days == 0 else days}


@plugin.tool("later")
async def quote_later(city: str, ctx: Any) -> str:
    if not city:
        raise SystemExit(3)
    return f"{city}{ctx.plugin_id}"


@plugin.tool()
def lines() -> Iterator[str]:
    yield "a"
    yield "b"


def run(*argv: str) -> tuple[str, str, int]:
    task = tool_command_task(plugin.tools, argv)
    assert task.concurrent
    value = task.call(lambda said, stop: unconnected("p", said, stop=stop), print)
    later = task.handler.is_async
    output = asyncio.run(task.settle_later(value, print)) if later else task.settle(value, print)
    return output["stdout"].decode(), output["stderr"].decode(), output["exit_code"]


@pytest.mark.parametrize(
    ("argv", "stdout"),
    [
        ([], "quote  Say what it costs.\nlater\nlines\n"),
        (["quote", '{"city": "Lima"}'], '{"city":"Lima","sum":1}\n'),
        (["later", '{"city": "Lima"}'], '"Limap"\n'),
        (["lines"], '"ab"\n'),
    ],
)
def test_a_result_is_json_on_stdout(argv: list[str], stdout: str) -> None:
    assert run(*argv) == (stdout, "", DONE)


@pytest.mark.parametrize(
    ("argv", "stderr", "status"),
    [
        (["qoute"], "tool_not_exposed: there is no tool 'qoute'; there is quote, later, lines\n", MISUSED),
        (["quote", "{"], "invalid_input: the input of quote is not JSON: ", MISUSED),
        (["quote", "\udc80"], "invalid_input: the input of quote is not JSON: ", MISUSED),
        (["quote", "{}", "{}"], "invalid_input: quote needs its input as one JSON value, not as 2 words\n", MISUSED),
        (["quote"], "invalid_input: city: is required\n", MISUSED),
        (["quote", '{"city": "Nowhere"}'], "not_found: there is no such place: Nowhere\\udc80\n", FAILED),
        (["quote", '{"city": "", "days": 0}'], "plugin_error: the result cannot be sent: at /sum: nan", FAILED),
        (["later", '{"city": ""}'], "plugin_error: SystemExit: 3\n", FAILED),
    ],
)
def test_what_went_wrong_is_a_code_and_a_message_on_stderr(argv: list[str], stderr: str, status: int) -> None:
    said, error, code = run(*argv)
    assert (said, error.startswith(stderr), code) == ("", True, status), error


def test_a_call_that_is_cancelled_before_its_turn_says_so() -> None:
    for words in (["quote", '{"city": "Lima"}'], ["later", '{"city": "Lima"}']):
        task = tool_command_task(plugin.tools, words)
        task.cancel("enough")
        value = task.call(lambda said, stop: unconnected(), print)
        for output in (task.settle(value, print), asyncio.run(task.settle_later(value, print))):
            assert output == {"stdout": b"", "stderr": b"cancelled: enough\n", "exit_code": FAILED}
