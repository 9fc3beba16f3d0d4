"""What a plugin may ask and tell, and what it is told. Real children, both loops."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plugbay import Host
from plugbay.host.reception import MAX_EVENT
from tests.support.kaged import write_kaged_plugin
from tests.support.loops import Run, until
from tests.support.nexo import write_nexo_plugin
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
def test_a_publish_of_ten_megabytes_is_dropped_and_the_child_lives(run: Run, tmp_path: Path) -> None:
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
        ("memory.recall", {"agent_id": "a", "query": "q"}, "not configured"),
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
def test_a_method_nobody_knows_is_minus_32601(run: Run, tmp_path: Path) -> None:
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
            assert host.plugins()[0].counters == {"noise": 1}
            assert await host.call("echo", {"count": 300}) == "said"
            counters = host.plugins()[0].counters
            assert counters["publish_dropped"] > 100
            assert (await anext(events)).topic == "plugin.p.changed"

    run(main)
