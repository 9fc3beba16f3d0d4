"""Requests and notifications of plugins, their gates, and events for plugins. Real processes, both loops."""

from __future__ import annotations

import asyncio
import json
import os
import textwrap
import threading
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from plugbay import Host, __version__
from plugbay.contracts.mcp.spec import resident
from plugbay.host.confinement.notes import LIMITS_DEGRADED
from plugbay.host.events.snapshots import Snapshot, Snapshots
from plugbay.host.inbound.handler import (
    LINE_BURST,
    OFFER_BURST,
    SNAPSHOT_BURST,
    InboundHandler,
    LogWriter,
    Services,
    SnapshotAccess,
)
from plugbay.host.journal import LEVELS
from plugbay.host.supervision.resident import ResidentSupervisor
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.gate import MAX_EVENT, MAX_SUBSCRIPTIONS, Gate
from plugbay.model.operations import (
    ChangeResource,
    GetSnapshot,
    OfferExports,
    PublishSnapshot,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.spec import Access, PluginSpec
from tests.support.ainb import write_ainb_plugin
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run
from tests.support.machine import confined_counters
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.requirements import requirement

ASKS = """
waiting = {}
def tool_invoke(m):
    waiting[7] = m
    args = m["params"]["args"]
    request(7, args["method"], **args["params"])
def answered(m):
    reply(waiting.pop(m["id"]), {key: m[key] for key in ("result", "error") if key in m})
"""
"""A tool that asks the host whatever its input says, and answers with what it heard."""

PUBLISHES = """
def tool_invoke(m):
    notify("broker.publish", **m["params"]["args"])
    reply(m, "sent")
"""


async def ask(host: Host, method: str, **params: Any) -> Any:
    return await host.call("p_ask", {"method": method, "params": params})


def with_memory(tmp_path: Path) -> Path:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\nvectors = "embedded"\n')
    return config


# Publishing.


@requirement("nexo:host-publish-allowed")
@pytest.mark.parametrize("topic", ["plugin.inbound.k", "plugin.inbound.k.team", "plugin.inbound.k.team.thread"])
def test_a_publish_inside_the_allow_list_reaches_the_bus_completed_and_stamped(
    run: Run, tmp_path: Path, topic: str
) -> None:
    write_nexo_plugin(tmp_path, body=PUBLISHES, tools=["say"], channels=["k"])
    sent = {"topic": "agent.route.x", "source": "core", "payload": {"text": "hi"}, "correlation_id": "c1"}

    async def main() -> None:
        async with Host.load(tmp_path) as host, host.subscribe(">") as events:
            assert await host.call("p_say", {"topic": topic, "event": sent}) == "sent"
            event = await anext(event async for event in events if event.topic == topic)
            assert (event.source, event.payload, event.correlation_id) == ("p", {"text": "hi"}, "c1")
            assert event.id and event.timestamp.endswith("Z") and event.session_id is None

    run(main)


@requirement("nexo:host-event-session")
@pytest.mark.parametrize(
    ("session", "kept"),
    [("01940000-0000-0000-0000-000000000099", True), ("session-7", False), (7, False)],
)
def test_a_session_is_kept_or_its_loss_is_counted(run: Run, tmp_path: Path, session: Any, kept: bool) -> None:
    write_nexo_plugin(tmp_path, body=PUBLISHES, tools=["say"], channels=["k"])
    topic = "plugin.inbound.k"
    sent = {"topic": topic, "source": "p", "payload": 1, "session_id": session}

    async def main() -> None:
        async with Host.load(tmp_path) as host, host.subscribe(topic) as events:
            assert await host.call("p_say", {"topic": topic, "event": sent}) == "sent"
            assert (await anext(events)).session_id == (session if kept else None)
            assert host.journal.counts("p").get("session_dropped", 0) == (0 if kept else 1)

    run(main)


@requirement("nexo:host-publish-refused", "nexo:host-publish-wildcard-subject")
@pytest.mark.parametrize(
    "topic",
    [
        "plugin.inbound.other",
        "plugin.inbound",
        "plugin.outbound.k",
        "agent.route.x",
        "plugin.inbound.kk",
        "plugin.inbound.k.*",
        "plugin.inbound.k.>",
        "plugin.inbound.k.",
        "plugin.lifecycle.p.crashed",
    ],
)
def test_a_publish_outside_it_is_dropped_and_counted(run: Run, tmp_path: Path, topic: str) -> None:
    write_nexo_plugin(tmp_path, body=PUBLISHES, tools=["say"], channels=["k"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            await host.settled()
            heard = []
            host._backends.services.bus.listen([">"], lambda event: heard.append(event.topic))
            await host.call("p_say", {"topic": topic, "event": {"payload": 1}})
            await host.call("p_say", {"topic": "plugin.inbound.k", "event": {"payload": 1}})
            await until(lambda: heard == ["plugin.inbound.k"])
            assert host.plugins()[0].counters["publish_refused"] == 1

    run(main)


@requirement("nexo:host-publish-too-large")
def test_a_publish_of_ten_megabytes_is_dropped_and_the_instance_lives(run: Run, tmp_path: Path) -> None:
    body = """
    def tool_invoke(m):
        publish("plugin.inbound.k", fill="x" * m["params"]["args"]["bytes"])
        reply(m, os.getpid())
    """
    write_nexo_plugin(tmp_path, body=body, tools=["flood"], channels=["k"])

    async def main() -> None:
        async with Host.load(tmp_path) as host, host.subscribe("plugin.inbound.k") as events:
            pid = await host.call("p_flood", {"bytes": 10 << 20})
            assert await host.call("p_flood", {"bytes": MAX_EVENT // 2}) == pid
            assert len((await anext(events)).payload["fill"]) == MAX_EVENT // 2
            assert host.plugins()[0].counters == {"publish_refused": 1}

    run(main)


@requirement("nexo:host-publish-as-request")
def test_a_publish_with_an_id_is_answered(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=ASKS, tools=["ask"], channels=["k"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            good = await ask(host, "broker.publish", topic="plugin.inbound.k", event={"payload": 1})
            assert good == {"result": {"ok": True}}
            bad = await ask(host, "broker.publish", topic="agent.x", event={"payload": 1})
            assert bad["error"]["code"] == -32603
            assert "outside this plugin's topics" in bad["error"]["message"]

    run(main)


@requirement("nexo:host-early-publish")
def test_a_publish_before_the_greeting_is_accepted_is_kept_and_delivered_after_it(run: Run, tmp_path: Path) -> None:
    body = """
    hello = initialize
    def initialize(m):
        publish("plugin.inbound.k", n=1)
        hello(m)
        publish("plugin.inbound.k", n=2)
    """
    write_nexo_plugin(tmp_path, body=body, channels=["k"])

    async def main() -> None:
        host = Host.load(tmp_path)
        async with host.subscribe("plugin.inbound.k") as events, host:
            assert [(await anext(events)).payload for _ in range(2)] == [{"n": 1}, {"n": 2}]

    run(main)


# Being told.


@requirement("nexo:host-broker-event", "nexo:host-topic-allow-list")
def test_a_plugin_hears_its_own_kinds_once_with_the_full_event(run: Run, tmp_path: Path) -> None:
    body = "def broker_event(m):\n    publish('plugin.inbound.k', heard=m['params'])\n"
    write_nexo_plugin(tmp_path, body=body, channels=["k"])

    async def main() -> None:
        async with Host.load(tmp_path) as host, host.subscribe("plugin.inbound.k") as events:
            await host.settled()
            for topic in ("plugin.outbound.other", "plugin.outbound.kk", "plugin.inbound.x", "plugin.outbound.k.team"):
                host.publish(topic, {"to": topic}, source="agent.a")
            heard = (await anext(events)).payload["heard"]
            assert heard["topic"] == heard["event"]["topic"] == "plugin.outbound.k.team"
            assert set(heard["event"]) == {"id", "timestamp", "topic", "source", "session_id", "payload"}
            assert (heard["event"]["source"], heard["event"]["payload"]) == (
                "agent.a",
                {"to": "plugin.outbound.k.team"},
            )

    run(main)


# Memory and language models.


@requirement("nexo:host-memory-recall")
def test_memory_is_recalled_for_a_plugin_that_may(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=ASKS, tools=["ask"])

    async def main() -> None:
        async with Host.load(tmp_path / "p", config=with_memory(tmp_path), grants=["memory.recall"]) as host:
            assert host.memory is not None
            await host.memory.remember("a", "user prefers concise answers", tags=["preference"])
            await host.memory.remember("b", "user prefers long answers")
            answer = await ask(host, "memory.recall", agent_id="a", query="concise answers", limit=5)
            (entry,) = answer["result"]["entries"]
            assert (entry["agent_id"], entry["content"], entry["tags"]) == (
                "a",
                "user prefers concise answers",
                ["preference"],
            )
            assert set(entry) == {"id", "agent_id", "content", "tags", "concept_tags", "created_at", "memory_type"}

    run(main)


@requirement("nexo:host-services-not-configured")
@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        (
            "llm.complete",
            {"provider": "x", "model": "m", "messages": [{"role": "user", "content": "hi"}]},
            "not configured",
        ),
    ],
)
def test_a_service_that_is_not_configured_is_an_error_and_not_a_silence(
    run: Run, tmp_path: Path, method: str, params: Mapping[str, Any], word: str
) -> None:
    write_nexo_plugin(tmp_path, body=ASKS, tools=["ask"])

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            answer = await ask(host, method, **params)
            assert answer["error"]["code"] == -32603
            assert word in answer["error"]["message"]

    run(main)


@pytest.mark.parametrize("method", ["memory.recall", "llm.complete"])
def test_a_service_that_was_not_granted_is_refused_and_says_how_to_grant_it(
    run: Run, tmp_path: Path, method: str
) -> None:
    write_nexo_plugin(tmp_path, body=ASKS, tools=["ask"])
    params = {"agent_id": "a", "query": "q", "provider": "x", "model": "m"}
    messages = [{"role": "user", "content": "hi"}]

    async def main() -> None:
        async with Host.load(tmp_path / "p", config=with_memory(tmp_path)) as host:
            answer = await ask(host, method, **params, messages=messages)
            assert answer["error"]["code"] == -32603
            assert f"--grant {method}" in answer["error"]["message"]
            assert host.plugins()[0].counters["service_refused"] == 1

    run(main)


@requirement("nexo:host-services-gated")
def test_before_the_greeting_is_accepted_no_service_is_open(run: Run, tmp_path: Path) -> None:
    body = """
    early = {}
    hello = initialize
    def initialize(m):
        early["m"] = m
        request(1, "memory.recall", agent_id="a", query="q")
    def answered(m):
        if "m" in early:
            globals()["heard"] = m
            hello(early.pop("m"))
    def tool_invoke(m):
        reply(m, heard["error"]["code"])
    """
    write_nexo_plugin(tmp_path, body=body, tools=["heard"])

    async def main() -> None:
        async with Host.load(tmp_path / "p", config=with_memory(tmp_path), grant_all=True) as host:
            assert await host.call("p_heard", {}) == -32603

    run(main)


@requirement("nexo:host-unknown-method")
def test_an_unknown_method_is_minus_32601(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path, body=ASKS, tools=["ask"])

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            assert (await ask(host, "tool.dispatch"))["error"]["code"] == -32601

    run(main)


@requirement("nexo:host-slow-service-stalls-nobody")
def test_a_slow_host_call_never_stalls_the_other_traffic_of_its_plugin(run: Run, tmp_path: Path) -> None:
    slow = """
    def llm_chat(m):
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        content = {"type": "text", "text": "ok"}
        answer = {"content": content, "usage": usage, "finish_reason": {"kind": "stop"}}
        threading.Timer(0.3, reply, (m, answer)).start()
    """
    write_nexo_plugin(tmp_path, "model", body=slow, extends={"llm_providers": ["slow"]})
    both = (
        ASKS
        + """
ask = tool_invoke
def tool_invoke(m):
    ask(m) if "method" in m["params"]["args"] else reply(m, "at once")
"""
    )
    write_nexo_plugin(tmp_path, body=both, tools=["ask"])
    params = {"provider": "slow", "model": "m", "messages": [{"role": "user", "content": "hi"}]}

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            order: list[str] = []
            waiting = asyncio.ensure_future(ask(host, "llm.complete", **params))
            waiting.add_done_callback(lambda _: order.append("slow"))
            await until(lambda: host.plugins()[0].busy == 1)
            assert await host.call("p_ask", {}) == "at once"
            order.append("fast")
            assert (await waiting)["result"]["content"] == "ok"
            assert order == ["fast", "slow"]

    run(main)


# Storage, and publishes that have a rate.

STORES = """
waiting = {}
def tool(name, params, m):
    waiting[7] = m
    request(7, params["method"], **params["params"])
def answered(m):
    reply(waiting.pop(m["id"]), {key: m[key] for key in ("result", "error") if key in m})
"""
STORAGE = ["kaged:storage:read", "kaged:storage:write"]


async def stored(host: Host, plugin: str, method: str, **params: Any) -> Any:
    return await host.call(f"{plugin}/echo", {"method": f"kaged.storage.{method}", "params": params})


@requirement("kaged:storage-namespaced", "kaged:storage-survives")
def test_each_plugin_has_a_storage_of_its_own_that_outlives_the_host(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_kaged_plugin(tmp_path / "plugins", name, STORES, capabilities=STORAGE)
    options: dict[str, Any] = {"state_dir": tmp_path / "state", "grant_all": True}

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", **options) as host:
            assert await stored(host, "a", "set", key="k", value={"n": 1}) == {"result": {"ok": True}}
            assert await stored(host, "b", "get", key="k") == {"result": {"found": False, "value": None}}
            assert await stored(host, "b", "list", prefix="") == {"result": {"keys": []}}
        async with Host.load(tmp_path / "plugins", **options) as host:
            assert await stored(host, "a", "get", key="k") == {"result": {"found": True, "value": {"n": 1}}}
            assert await stored(host, "a", "delete", key="k") == {"result": {"deleted": True}}
            assert await stored(host, "a", "delete", key="k") == {"result": {"deleted": False}}

    run(main)


@requirement("kaged:storage-granted")
@pytest.mark.parametrize(
    ("granted", "reads", "writes"),
    [([], False, False), (["kaged:storage:read"], True, False), (["kaged:storage:write"], False, True)],
)
def test_reading_and_writing_are_granted_apart(
    run: Run, tmp_path: Path, granted: list[str], reads: bool, writes: bool
) -> None:
    write_kaged_plugin(tmp_path / "plugins", body=STORES, capabilities=STORAGE)
    config = tmp_path / "plugbay.toml"
    config.write_text(f"[host]\nstate_dir = 'state'\n[plugins.p]\ngrants = {granted!r}\n")

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            assert ("result" in await stored(host, "p", "get", key="k")) == reads
            assert ("result" in await stored(host, "p", "list")) == reads
            assert ("result" in await stored(host, "p", "set", key="k", value=1)) == writes
            assert ("result" in await stored(host, "p", "delete", key="k")) == writes

    run(main)


@requirement("kaged:storage-off")
def test_a_host_without_a_state_directory_says_that_there_is_no_storage(run: Run, tmp_path: Path) -> None:
    body = STORES + "\n_ask = tool\ndef tool(name, params, m):\n    reply(m, greeting['storage_available'])\n"
    write_kaged_plugin(tmp_path, body=body, capabilities=STORAGE)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            assert await host.call("echo", {}) is False

    run(main)


@requirement("kaged:notifications-rate", "kaged:notifications-declared")
def test_notifications_are_events_and_those_that_come_too_fast_are_dropped_and_counted(
    run: Run, tmp_path: Path
) -> None:
    body = """
    def tool(name, params, m):
        for number in range(params["count"]):
            notify("changed", n=number)
        notify("undeclared", n=0)
        reply(m, "said")
    """
    write_kaged_plugin(tmp_path, body=body, notifications=["changed"])

    async def main() -> None:
        async with Host.load(tmp_path) as host, host.subscribe("plugin.p.>", depth=1000) as events:
            assert await host.call("echo", {"count": 3}) == "said"
            assert [(await anext(events)).payload for _ in range(3)] == [{"n": 0}, {"n": 1}, {"n": 2}]
            assert host.plugins()[0].counters == confined_counters(noise=1)
            assert await host.call("echo", {"count": 300}) == "said"
            counters = host.plugins()[0].counters
            assert counters["publish_dropped"] > 100
            assert (await anext(events)).topic == "plugin.p.changed"

    run(main)


# Snapshots, files, the network, actions and the log, as they arrive over the wire.

TALKS = """
waiting = {}
def cli_dispatch(params, m):
    verb, *words = params["argv"]
    if verb == "ask":
        waiting[100 + len(waiting)] = m
        request(99 + len(waiting), words[0], **json.loads(words[1]))
    elif verb == "tell":
        notify(words[0], **json.loads(words[1]))
        say(m, "told")
    else:
        say(m, [[topic, data.decode()] for topic, data in events])
def answered(m):
    say(waiting[m["id"]], m.get("result", m.get("error")))
def say(m, value):
    reply(m, {"stdout": b64(json.dumps(value).encode()), "stderr": "", "exit_code": 0})
"""
"""Asks or tells the host whatever its command line says, and prints what it heard."""

EVENT_BUS: dict[str, Any] = {"event_bus": True}


def talker(folder: Path, name: str = "p", body: str = "", **manifest: Any) -> Path:
    return write_ainb_plugin(folder, name, TALKS + textwrap.dedent(body), namespaces=[name], **manifest)


async def asks(host: Host, plugin: str, method: str, **params: Any) -> Any:
    """The result that a plugin gets for a request, or the error object."""
    output = await host.run_cli(plugin, ["ask", f"host/{method}", json.dumps(params)])
    return json.loads(output.stdout)


async def tells(host: Host, plugin: str, method: str, **params: Any) -> None:
    await host.run_cli(plugin, ["tell", f"host/{method}", json.dumps(params)])


async def heard(host: Host, plugin: str) -> Any:
    return json.loads((await host.run_cli(plugin, ["heard"])).stdout)


def b64(data: bytes) -> str:
    return b64encode(data).decode()


@requirement("ainb:host-snapshot-get", "ainb:host-snapshot-fan-out", "ainb:host-snapshot-not-to-itself")
def test_a_snapshot_of_one_plugin_reaches_the_others_that_want_it(run: Run, tmp_path: Path) -> None:
    for name in ("p", "q"):
        talker(tmp_path, name, capabilities=EVENT_BUS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            assert await asks(host, "q", "snapshot/get", topic="t") == {"payload": None, "version": 0}
            for name in ("p", "q"):
                assert await asks(host, name, "snapshot/subscribe", topic="t") == {}
            await tells(host, "p", "snapshot/publish", topic="t", payload=b64(b"one"))
            assert await asks(host, "q", "snapshot/get", topic="t") == {"payload": b64(b"one"), "version": 1}
            assert host.snapshots.get("t") == Snapshot(b"one", 1, "p")
            host.snapshots.publish("t", b"two")
            assert await heard(host, "q") == [["t", "one"], ["t", "two"]]
            assert await heard(host, "p") == [["t", "two"]]

    run(main)


@requirement("ainb:host-declared-subscriptions", "ainb:host-snapshot-once", "ainb:host-subscriptions-end")
def test_declared_topics_are_delivered_after_every_start_and_requested_ones_until_the_instance_ends(
    run: Run, tmp_path: Path
) -> None:
    talker(tmp_path, capabilities=EVENT_BUS, subscribes={"snapshots": ["declared"]})

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            host.snapshots.publish("declared", b"early")
            for topic in ("asked", "declared"):
                assert await asks(host, "p", "snapshot/subscribe", topic=topic) == {}
            for number in (b"1", b"2"):
                host.snapshots.publish("declared", number)
                host.snapshots.publish("asked", number)
            order = ["declared", "asked"]
            assert await heard(host, "p") == [[topic, number] for number in "12" for topic in order]
            await host.reload("p")
            assert await heard(host, "p") == []
            host.snapshots.publish("declared", b"3")
            host.snapshots.publish("asked", b"3")
            assert await heard(host, "p") == [["declared", "3"]]

    run(main)


@requirement("ainb:host-init-subscribes")
def test_what_a_plugin_asks_for_inside_its_greeting_is_answered_and_what_comes_meanwhile_waits(
    run: Run, tmp_path: Path
) -> None:
    body = """
    hello = init
    def init(m):
        waiting["m"] = m
        request(1, "host/snapshot/subscribe", topic="t")
    talks = answered
    def answered(m):
        if m["id"] == 1:
            publish("subscribed", b"")
            request(2, "host/action/invoke", action="wait", payload="")
        elif m["id"] == 2:
            hello(waiting.pop("m"))
        else:
            talks(m)
    """
    talker(tmp_path, body=body, capabilities=EVENT_BUS, lifecycle={"spawn": "eager"})

    async def main() -> None:
        host = Host.load(tmp_path, grant_all=True)
        subscribed = asyncio.Event()
        host.snapshots.listen("subscribed", lambda topic, snapshot: subscribed.set())

        async def wait(data: bytes) -> bytes:
            await subscribed.wait()
            host.snapshots.publish("t", b"meanwhile")
            return b""

        host.actions.register("wait", wait)
        async with host:
            assert await heard(host, "p") == [["t", "meanwhile"]]

    run(main)


@requirement("ainb:host-topics-gated")
@pytest.mark.parametrize(
    ("grant", "topic"), [(False, "t"), ([], "t"), (["usage.*"], "t"), (["t*"], "fleet.t"), (True, "fleet.t")]
)
def test_a_topic_that_is_not_granted_is_minus_32001_and_a_publish_is_dropped(
    run: Run, tmp_path: Path, grant: Any, topic: str
) -> None:
    talker(tmp_path, capabilities={"event_bus": grant}, subscribes={"snapshots": [topic]})

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            denied = {"code": -32001, "message": "capability denied: event_bus"}
            for method in ("get", "subscribe"):
                assert await asks(host, "p", f"snapshot/{method}", topic=topic) == denied
            await tells(host, "p", "snapshot/publish", topic=topic, payload=b64(b"x"))
            assert host.snapshots.topics() == []
            host.snapshots.publish(topic, b"x")
            assert await heard(host, "p") == []
            counters = host.plugins()[0].counters
            assert (counters["publish_refused"], counters["subscription_refused"]) == (1, 1)

    run(main)


@requirement("ainb:host-topics-gated")
def test_what_the_operator_has_not_granted_is_denied_although_the_manifest_asks_for_it(
    run: Run, tmp_path: Path
) -> None:
    talker(tmp_path, capabilities={"event_bus": ["a", "b"], "network": True})

    async def main() -> None:
        async with Host.load(tmp_path, grants=["event_bus=a"]) as host:
            assert await asks(host, "p", "snapshot/get", topic="a") == {"payload": None, "version": 0}
            assert (await asks(host, "p", "snapshot/get", topic="b"))["code"] == -32001
            answer = await asks(host, "p", "network/fetch", url="http://example.org/")
            assert answer == {"code": -32001, "message": "capability denied: network"}

    run(main)


@requirement("ainb:host-snapshot-bounds")
def test_a_publish_too_large_to_be_delivered_is_dropped_without_other_effects(run: Run, tmp_path: Path) -> None:
    body = """
    talks = cli_dispatch
    def cli_dispatch(params, m):
        if params["argv"][0] == "publish":
            publish("t", bytes(int(params["argv"][1])))
            say(m, os.getpid())
        else:
            talks(params, m)
    """
    talker(tmp_path, body=body, capabilities=EVENT_BUS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            pid = (await host.run_cli("p", ["publish", "12500001"])).stdout
            assert (host.snapshots.get("t"), host.plugins()[0].counters) == (None, confined_counters(publish_refused=1))
            assert (await host.run_cli("p", ["publish", "12500000"])).stdout == pid
            kept = host.snapshots.get("t")
            assert kept is not None and len(kept.data) == 12_500_000

    run(main)


def test_a_flood_of_publishes_is_cut_off_and_counted(run: Run, tmp_path: Path) -> None:
    body = """
    def cli_dispatch(params, m):
        for number in range(4000):
            publish("t", b"%d" % number)
        say(m, "done")
    """
    talker(tmp_path, body=body, capabilities=EVENT_BUS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            await host.run_cli("p", [])
            kept, dropped = host.snapshots.get("t"), host.plugins()[0].counters["publish_dropped"]
            assert kept is not None and kept.version + dropped == 4000
            assert kept.version >= SNAPSHOT_BURST

    run(main)


@requirement("ainb:host-ui-state", "ainb:host-snapshot-survives")
def test_what_a_plugin_says_of_its_screens_goes_with_its_process_and_the_rest_stays(run: Run, tmp_path: Path) -> None:
    talker(tmp_path, capabilities=EVENT_BUS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            for topic in ("ui.state", "usage"):
                await tells(host, "p", "snapshot/publish", topic=topic, payload=b64(b"x"))
            assert host.snapshots.topics() == ["ui.state/p", "usage"]
            await host.reload("p")
            assert host.snapshots.topics() == ["usage"]

    run(main)


def test_a_process_that_dies_in_its_greeting_leaves_no_subscription_behind(run: Run, tmp_path: Path) -> None:
    body = """
    def init(m):
        request(1, "host/snapshot/subscribe", topic="t")
    def answered(m):
        sys.exit(3)
    """
    talker(tmp_path, body=body, capabilities=EVENT_BUS)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            with pytest.raises(CallFailed):
                await host.run_cli("p", ["heard"])
            assert not host.snapshots._listeners

    run(main)


@requirement("ainb:host-idle-subscribers")
@pytest.mark.parametrize(
    ("subscribes", "asked", "kept"),
    [
        ({}, None, False),
        ({"snapshots": ["t"]}, None, True),
        ({"snapshots": ["t"], "latest_state": ["t"]}, None, False),
        ({"snapshots": ["t"], "latest_state": ["t"]}, "u", True),
        ({}, "u", True),
    ],
)
def test_a_process_with_subscriptions_counts_as_needed(
    run: Run, tmp_path: Path, subscribes: dict[str, Any], asked: str | None, kept: bool
) -> None:
    talker(tmp_path, capabilities=EVENT_BUS, subscribes=subscribes)

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            assert await heard(host, "p") == []
            if asked is not None:
                assert await asks(host, "p", "snapshot/subscribe", topic=asked) == {}
            supervisor = host.calls.supervisors["p"]
            assert isinstance(supervisor, ResidentSupervisor) and supervisor._instance is not None
            assert supervisor._instance.keeps_alive is kept

    run(main)


# Files.


@requirement("ainb:host-files-denied-name")
def test_a_denied_path_names_the_capability_of_its_root_also_if_it_was_not_requested(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    talker(tmp_path / "plugins")
    roots = {
        ".agents-in-a-box/sessions": "read_sessions",
        ".claude/agents-in-a-box/sessions": "read_sessions",
        ".claude/projects": "read_claude_logs",
        ".codex/sessions": "read_codex_logs",
        "elsewhere": "read_paths",
    }

    async def main() -> None:
        async with Host.load(tmp_path / "plugins") as host:
            for root, capability in roots.items():
                answer = await asks(host, "p", "fs/read_file", path=str(tmp_path / root / "a.jsonl"))
                assert answer == {"code": -32001, "message": f"capability denied: {capability}"}

    run(main)


@requirement("ainb:host-files-read", "ainb:host-files-list", "ainb:host-files-guard", "ainb:host-files-denied")
def test_files_are_read_where_a_grant_says_so_and_elsewhere_denied_by_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    logs, notes = tmp_path / ".claude/projects", tmp_path / "notes"
    for folder in (logs, notes):
        folder.mkdir(parents=True)
        (folder / "a.txt").write_bytes(b"\x00hello")
    (notes / "link").symlink_to("/etc/passwd")
    capabilities = {"read_paths": ["~/notes"], "read_claude_logs": True}
    talker(tmp_path / "plugins", capabilities=capabilities)

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", grants=["read_paths"]) as host:
            read = await asks(host, "p", "fs/read_file", path=str(notes / "a.txt"))
            assert b64decode(read["bytes"]) == b"\x00hello"
            listed = await asks(host, "p", "fs/read_dir", path=str(notes))
            assert {"name": "a.txt", "is_dir": False, "size": 6} in listed["entries"]
            denied = {
                str(logs / "a.txt"): "read_claude_logs",
                str(notes / "link"): "read_paths",
                f"{notes}/../.claude/projects/a.txt": "read_claude_logs",
                "/etc/passwd": "read_paths",
            }
            for path, capability in denied.items():
                answer = await asks(host, "p", "fs/read_file", path=path)
                assert answer == {"code": -32001, "message": f"capability denied: {capability}"}
            missing = await asks(host, "p", "fs/read_file", path=f"{notes}/none")
            assert missing == {"code": -32602, "message": f"read {notes}/none: No such file or directory"}
        async with Host.load(tmp_path / "plugins", grant_all=True) as host:
            read = await asks(host, "p", "fs/read_file", path=str(logs / "a.txt"))
            assert b64decode(read["bytes"]) == b"\x00hello"

    run(main)


HOARDS = """
answers = []
def cli_dispatch(params, m):
    global asked, waiting
    path, count, go_on = params["argv"]
    asked, waiting = int(count), m
    for number in range(asked):
        request(100 + number, "host/fs/read_file", path=path)
    open(go_on).close()
def answered(m):
    answers.append("result" in m)
    if len(answers) == asked:
        text = "%d of %d" % (sum(answers), asked)
        reply(waiting, {"stdout": b64(text.encode()), "stderr": "", "exit_code": 0})
"""
"""Asks for one file many times and reads no answer until somebody opens the other end of a pipe."""


def test_a_plugin_that_asks_for_much_and_reads_nothing_does_not_fill_the_memory_of_the_host(
    run: Run, tmp_path: Path
) -> None:
    large, gate = tmp_path / "large.bin", tmp_path / "go-on"
    large.write_bytes(bytes(10_000_000))
    os.mkfifo(gate)
    capabilities = {"read_paths": [str(large)]}
    write_ainb_plugin(tmp_path / "plugins", body=HOARDS, namespaces=("p",), capabilities=capabilities)

    async def main() -> None:
        # It waits at a gate, which no sandbox shows: that is neither a folder nor a file.
        async with Host.load(tmp_path / "plugins", grant_all=True, unconfined=True) as host:
            asked = asyncio.ensure_future(host.run_cli("p", [str(large), "20", str(gate)]))
            await until(lambda: host.journal.counts("p").get("service_refused", 0) >= 10)
            with gate.open("w"):
                answered = int((await asked).stdout.split()[0])
            assert 1 <= answered <= 10

    run(main)


# The network.


@requirement("ainb:host-network-fetch", "ainb:host-network-allow-list")
def test_a_plugin_fetches_from_granted_hosts_at_addresses_the_operator_allows(run: Run, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    talker(tmp_path / "plugins", capabilities={"network": ["127.0.0.1"]})

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        config = tmp_path / "plugbay.toml"
        config.write_text(f'[network]\nallow_private = ["127.0.0.1:{port}"]\n')
        url = f"http://127.0.0.1:{port}/"
        async with Host.load(tmp_path / "plugins", config=config, grant_all=True) as host:
            answer = await asks(host, "p", "network/fetch", url=url)
            assert answer == {"status": 200, "headers": [["X-A", "1"], ["Content-Length", "2"]], "body": b64(b"hi")}
            assert (await asks(host, "p", "network/fetch", url="http://localhost/"))["code"] == -32001
            assert (await asks(host, "p", "network/fetch", url="ftp://127.0.0.1/"))["code"] == -32602
        async with Host.load(tmp_path / "plugins", grant_all=True) as host:
            assert (await asks(host, "p", "network/fetch", url=url))["code"] == -32001
        server.close()

    run(main)


@requirement("ainb:host-network-granted-address", "host:network-explicit-private")
@pytest.mark.parametrize("unconfined", [False, True])
def test_a_private_address_that_the_operator_grants_by_its_name_is_fetched_from(
    run: Run, tmp_path: Path, unconfined: bool
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        config, url = tmp_path / "plugbay.toml", f"http://127.0.0.1:{port}/"
        talker(tmp_path / "plugins", capabilities={"network": [f"127.0.0.1:{port}"]})

        async def status(**options: Any) -> int:
            async with Host.load(tmp_path / "plugins", config=config, unconfined=unconfined, **options) as host:
                answer = await asks(host, "p", "network/fetch", url=url)
                return int(answer.get("status") or answer["code"])

        config.write_text(f'[plugins.p]\ngrants = ["network=127.0.0.1:{port}"]\n')
        async with server:
            assert await status() == 200
            config.write_text('[plugins.p]\ngrants = ["network"]\n')
            assert await status() == -32001
            config.write_text("")
            assert await status(grants=[f"network=127.0.0.1:{port}"]) == 200
            assert await status(grant_all=True) == -32001

    run(main)


# Actions.


@requirement("ainb:host-action-invoke", "ainb:host-action-timeout", "ainb:host-action-unknown")
def test_an_action_of_the_host_is_done_in_its_time_or_not_at_all(run: Run, tmp_path: Path) -> None:
    talker(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            host.actions.register("upper", bytes.upper)
            host.actions.register("exec", bytes.upper, spawns=True)
            stuck = threading.Event()
            host.actions.register("never", lambda data: data if stuck.wait() else b"")
            answer = await asks(host, "p", "action/invoke", action="upper", payload=b64(b"in"), timeout_ms=5000)
            assert answer == {"payload": b64(b"IN")}
            answer = await asks(host, "p", "action/invoke", action="never", payload="", timeout_ms=50)
            assert answer == {"code": -32002, "message": "action timed out: never"}
            stuck.set()
            assert (await asks(host, "p", "action/invoke", action="none", payload=""))["code"] == -32602
            answer = await asks(host, "p", "action/invoke", action="exec", payload="")
            assert answer == {"code": -32001, "message": "capability denied: spawn_subprocess"}

    run(main)


@requirement("ainb:host-actions-built-in")
def test_every_host_has_actions_that_need_no_grant_and_no_program_around_it(run: Run, tmp_path: Path) -> None:
    talker(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:

            async def invoke(action: str, data: bytes = b"") -> bytes:
                return b64decode((await asks(host, "p", "action/invoke", action=action, payload=b64(data)))["payload"])

            assert json.loads(await invoke("host.info")) == {"kind": "plugbay", "version": __version__}
            assert await invoke("host.echo", b"\x00hello") == b"\x00hello"
            host.actions.register("mine", bytes.upper)
            assert json.loads(await invoke("host.actions")) == ["host.actions", "host.echo", "host.info", "mine"]

    run(main)


@requirement("ainb:host-action-spawns")
def test_an_action_that_starts_a_process_needs_the_grant(run: Run, tmp_path: Path) -> None:
    talker(tmp_path, capabilities={"spawn_subprocess": True})

    async def main() -> None:
        async with Host.load(tmp_path, grant_all=True) as host:
            host.actions.register("exec", bytes.upper, spawns=True)
            answer = await asks(host, "p", "action/invoke", action="exec", payload=b64(b"in"))
            assert answer == {"payload": b64(b"IN")}

    run(main)


# The log.


@requirement("ainb:host-log-levels", "ainb:host-log-fields", "ainb:host-log-kept")
def test_lines_of_a_plugin_are_kept_from_its_level_on(run: Run, tmp_path: Path) -> None:
    for name in ("p", "q"):
        talker(tmp_path / "plugins", name)
    config = tmp_path / "plugbay.toml"
    config.write_text('[host]\nlog_level = "warn"\n\n[plugins.q]\nlog_level = "trace"\n')

    async def main() -> None:
        async with Host.load(tmp_path / "plugins", config=config) as host:
            for name in ("p", "q"):
                for level in ("trace", "debug", "info", "warn", "error"):
                    await tells(host, name, "log", level=level, message=f"a {level}", fields={"n": 1})
            lines = {
                name: [(note.level, note.text) for note in host.journal.recent(name) if note.kind != LIMITS_DEGRADED]
                for name in ("p", "q")
            }
            assert lines["p"] == [("warn", 'a warn {"n":1}'), ("error", 'a error {"n":1}')]
            assert [level for level, _ in lines["q"]] == ["trace", "debug", "info", "warn", "error"]

    run(main)


# What this host does not offer.


@requirement("ainb:host-unknown-method")
@pytest.mark.parametrize(
    "method",
    ["event_stream_subscribe", "spawn_managed_subprocess", "unix_socket_dial", "secret_store_get", "workspace_list"],
)
def test_the_methods_of_later_hosts_are_not_found(run: Run, tmp_path: Path, method: str) -> None:
    talker(tmp_path)

    async def main() -> None:
        async with Host.load(tmp_path) as host:
            answer = await asks(host, "p", method)
            assert answer == {"code": -32601, "message": f"method not found: host/{method}"}

    run(main)


def test_the_newest_offer_is_never_lost_however_often_it_changes(run: Run, tmp_path: Path) -> None:
    heard: list[Any] = []

    async def main() -> None:
        services = Services(offered=lambda plugin_id, offer: heard.append(offer["n"]))
        handler = InboundHandler(resident("srv", ("run",), tmp_path), (), services)
        for number in range(300):
            handler.handle_notification(ChangeResource("a://b"))
            handler.handle_notification(OfferExports({"n": number}))
        assert len(heard) == OFFER_BURST
        await until(lambda: heard[-1] == 299)
        assert len(heard) == OFFER_BURST + 1
        handler.handle_notification(OfferExports({"n": 300}))
        handler.detach()  # and with its process goes what it said last
        assert heard[-1] == 299

    run(main)


Lines = list[tuple[str, str, str]]


def desk(level: str) -> tuple[LogWriter, Lines]:
    lines: Lines = []
    return LogWriter(level, lambda kind, text, *, level: lines.append((kind, text, level)), lambda: 0.0), lines


@requirement("ainb:host-log-levels")
@pytest.mark.parametrize("lowest", LEVELS)
def test_what_is_below_the_level_is_dropped(lowest: str) -> None:
    log, lines = desk(lowest)
    for level in LEVELS:
        log.write(WriteLog(level, level))
    assert [text for _, text, _ in lines] == list(LEVELS[LEVELS.index(lowest) :])
    assert all((kind, level) == (f"log.{text}", text) for kind, text, level in lines)


def test_an_unknown_level_is_info() -> None:
    log, lines = desk("info")
    log.write(WriteLog("notice", "x"))
    assert lines == [("log.info", "x", "info")]


@requirement("ainb:host-log-fields")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (None, "said"),
        ({}, "said"),
        ([], "said"),
        ({"n": 1, "who": "me"}, 'said {"n":1,"who":"me"}'),
        (msgspec.Raw(b'{"n": 1}'), 'said {"n": 1}'),
        ("more", 'said "more"'),
        (0, "said 0"),
        ({"bad": float("nan")}, "said"),
    ],
)
def test_fields_stand_behind_the_text(fields: Any, text: str) -> None:
    log, lines = desk("info")
    log.write(WriteLog("info", "said", fields))
    assert [line for _, line, _ in lines] == [text]


def test_a_flood_is_cut_off_and_counted_and_what_is_too_low_costs_nothing() -> None:
    log, lines = desk("info")
    for number in range(int(LINE_BURST) + 5):
        log.write(WriteLog("debug", "nothing"))
        log.write(WriteLog("info", str(number)))
    kinds = [kind for kind, _, _ in lines]
    assert kinds.count("log.info") == LINE_BURST
    assert kinds[-5:] == ["log_dropped"] * 5


class GatedAccess(SnapshotAccess):
    """The snapshots of one instance behind their gate, as the handler calls them."""

    def get(self, topic: str) -> Any:
        return self._gate.refuse(GetSnapshot(topic)) or super().get(topic)

    def subscribe(self, topic: str) -> Failure | None:
        return self._gate.refuse(SubscribeSnapshot(topic)) or super().subscribe(topic)

    def publish(self, topic: str, data: bytes) -> Failure | None:
        return self._gate.refuse(PublishSnapshot(topic, data)) or super().publish(topic, data)


def with_topics(spec: PluginSpec, *topics: str) -> tuple[PluginSpec, Gate]:
    """The plugin with a grant for these topics."""
    granted = replace(spec, access=tuple(Access("topic", topic, capability="event_bus") for topic in topics))
    return granted, Gate(granted, ("event_bus",))


@dataclass
class Process:
    """The snapshots of one instance, and those it received."""

    snapshots: Snapshots
    desk: GatedAccess
    heard: list[tuple[str, bytes]] = field(default_factory=list)


def process(
    *topics: str, snapshots: Snapshots | None = None, id: str = "p", spec: dict[str, Any] | None = None
) -> Process:
    """A process that may use these topics, greeted already."""
    store = Snapshots() if snapshots is None else snapshots
    plugin = PluginSpec(id, "1.0.0", "ainb", Path("/nowhere"), ("x",), **(spec or {}))
    made = Process(store, GatedAccess(*with_topics(plugin, *topics), store))
    made.desk.open(lambda topic, data: made.heard.append((topic, data)))
    made.desk.subscribe_declared()
    return made


def code_of(answer: object) -> object:
    return (answer.code, answer.detail.get("capability")) if isinstance(answer, Failure) else answer


def published(desk: SnapshotAccess, topic: str, data: bytes = b"x") -> object:
    refusal = desk.publish(topic, data)
    return "published" if refusal is None else refusal.code


DENIED = (Code.CAPABILITY_NOT_ALLOWED, "event_bus")


@requirement("ainb:host-topics-gated")
def test_without_the_grant_nothing_is_read_subscribed_to_or_published() -> None:
    p = process()
    p.snapshots.publish("a", b"1")
    assert code_of(p.desk.get("a")) == DENIED
    assert code_of(p.desk.subscribe("a")) == DENIED
    assert published(p.desk, "a", b"2") == Code.CAPABILITY_NOT_ALLOWED
    assert p.snapshots.get("a") == Snapshot(b"1", 1, "host")


@requirement("ainb:host-topics-gated", "ainb:host-snapshot-get")
def test_with_the_grant_it_is_and_the_publisher_is_the_plugin() -> None:
    p = process("a*")
    assert p.desk.get("a") == {"data": None, "version": 0}
    assert p.desk.subscribe("a") is None
    assert published(p.desk, "ab", b"2") == "published"
    assert p.desk.get("ab") == {"data": b"2", "version": 1}
    assert p.snapshots.get("ab") == Snapshot(b"2", 1, "p")
    assert code_of(p.desk.get("b")) == DENIED


@requirement("ainb:host-fleet-reserved")
def test_only_the_host_publishes_for_the_fleet_and_only_a_full_name_reads_it() -> None:
    everything, named = process(""), process("fleet.x")
    for p in (everything, named):
        assert published(p.desk, "fleet.x") == Code.CAPABILITY_NOT_ALLOWED
        p.snapshots.publish("fleet.x", b"1")
    assert code_of(everything.desk.get("fleet.x")) == code_of(everything.desk.subscribe("fleet.x")) == DENIED
    assert named.desk.get("fleet.x") == {"data": b"1", "version": 1}
    assert named.desk.subscribe("fleet.x") is None


@requirement("ainb:host-declared-subscriptions")
def test_declared_and_granted_topics_are_delivered_from_the_greeting_on() -> None:
    snapshots = Snapshots()
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/nowhere"), ("x",), snapshots=("a", "b"))
    desk = SnapshotAccess(*with_topics(spec, "a"), snapshots)
    heard: list[str] = []
    desk.open(lambda topic, data: heard.append(topic))
    snapshots.publish("a", b"before the greeting")
    assert heard == []
    assert desk.subscribe_declared() == ["b"]
    for topic in ("a", "b"):
        snapshots.publish(topic, b"after it")
    assert heard == ["a"]


@requirement("ainb:host-snapshot-once", "ainb:host-snapshot-not-to-itself")
def test_a_topic_that_is_declared_and_asked_for_is_delivered_once_and_never_to_its_publisher() -> None:
    p = process("", spec={"snapshots": ("a",)})
    assert p.desk.subscribe("a") is None
    p.snapshots.publish("a", b"1")
    p.desk.publish("a", b"2")
    assert p.heard == [("a", b"1")]


def test_what_it_asks_for_in_its_greeting_counts_at_once() -> None:
    snapshots = Snapshots()
    spec = PluginSpec("p", "1.0.0", "ainb", Path("/nowhere"), ("x",))
    desk = SnapshotAccess(*with_topics(spec, ""), snapshots)
    heard: list[str] = []
    desk.open(lambda topic, data: heard.append(topic))
    assert desk.subscribe("a") is None
    snapshots.publish("a", b"1")
    assert heard == ["a"]


@requirement("ainb:host-subscriptions-end", "ainb:host-snapshot-survives")
def test_subscriptions_end_with_the_process_and_what_it_published_stays() -> None:
    p = process("", spec={"snapshots": ("declared",)})
    p.desk.subscribe("a")
    p.desk.publish("b", b"kept")
    p.desk.close()
    p.desk.close()
    for topic in ("a", "declared"):
        p.snapshots.publish(topic, b"1")
    assert p.heard == []
    assert p.snapshots.get("b") == Snapshot(b"kept", 1, "p")
    assert code_of(p.desk.subscribe("a")) == (Code.CANCELLED, None)
    assert p.desk.subscribe_declared() == []
    assert not p.snapshots._listeners


@requirement("ainb:host-ui-state")
def test_each_plugin_says_of_its_screens_in_a_place_of_its_own_and_it_goes_with_the_process() -> None:
    snapshots = Snapshots()
    p, q = (process("", snapshots=snapshots, id=name) for name in "pq")
    p.desk.publish("ui.state", b"p1")
    q.desk.publish("ui.state", b"q1")
    assert snapshots.topics() == ["ui.state/p", "ui.state/q"]
    assert p.desk.get("ui.state") == p.desk.get("ui.state/p") == {"data": b"p1", "version": 1}
    assert published(p.desk, "ui.state/q", b"forged") == Code.CAPABILITY_NOT_ALLOWED
    assert published(p.desk, "ui.state/p", b"p2") == "published"
    p.desk.close()
    assert snapshots.topics() == ["ui.state/q"]
    assert published(p.desk, "ui.state", b"too late") == Code.CAPABILITY_NOT_ALLOWED
    assert published(p.desk, "last.words") == "published"


@requirement("ainb:host-idle-subscribers")
def test_a_subscription_keeps_an_instance_alive_unless_it_is_for_the_latest_state_only() -> None:
    assert not process("").desk.keeps_alive
    assert process("", spec={"snapshots": ("a",)}).desk.keeps_alive
    assert not process(spec={"snapshots": ("a",)}).desk.keeps_alive, "what was not granted is not waited for"
    p = process("", spec={"snapshots": ("a",), "latest_state": ("a",)})
    assert not p.desk.keeps_alive
    p.desk.subscribe("b")
    assert p.desk.keeps_alive
    p.desk.close()
    assert not p.desk.keeps_alive


@pytest.mark.parametrize("topic", ["", "a\0", "x" * 1000])
def test_what_can_be_no_topic_is_not_subscribed_to(topic: str) -> None:
    assert code_of(process("").desk.subscribe(topic)) == (Code.INVALID_INPUT, None)


def test_one_process_subscribes_to_so_many_topics_and_no_more() -> None:
    p = process("")
    for number in range(MAX_SUBSCRIPTIONS):
        assert p.desk.subscribe(f"t{number}") is None
    assert code_of(p.desk.subscribe("more")) == (Code.OVERLOADED, None)
    assert p.desk.subscribe("t0") is None, "the same again is no more"


def test_what_the_store_refuses_is_refused() -> None:
    assert published(process("").desk, "a", bytes(12_500_001)) == Code.FRAME_TOO_LARGE
