"""A running host as a server: what clients ask becomes calls of plugins, and what changes they are told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.mcp_server import names
from plugbay.mcp_server.bridge import Bridge
from plugbay.mcp_server.conversation import Conversation
from plugbay.mcp_server.names import NamesCollide
from plugbay.model.errors import Code
from tests.mcp_server.houses import declare, house
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.spans import PARENT, SPAN, TRACE, Spans, parent_of, trace_of

DESCRIBES = """
def initialize(m):
    schema = {"type": "object", "properties": {"kind": {"type": "string"}}}
    tools = [{"name": name, "description": "Make tea.", "input_schema": schema} for name in TOOLS]
    manifest = {"plugin": {"id": ID, "version": "0.1.0"}}
    reply(m, {"manifest": manifest, "server_version": "test", "tools": tools})
"""


class Client:
    """A client in this process, of the handshake era."""

    def __init__(self, bridge: Bridge, **capabilities: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self._number = 0
        self.conversation: Conversation = bridge.converse(self)
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {}}
        self.say({"id": 0, "method": "initialize", "params": params})

    def say(self, message: dict[str, Any]) -> None:
        self.conversation.receive(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        self.say({"id": number, "method": method, "params": params})
        return await self.answer(number)

    async def answer(self, number: Any) -> Any:
        await until(lambda: any(each.get("id") == number for each in self.heard), 20)
        answer = next(each for each in self.heard if each.get("id") == number)
        return answer.get("result", answer.get("error"))

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    def told(self, method: str) -> list[Any]:
        return [each.get("params") for each in self.heard if each.get("method") == method]

    def has_room(self, origin: Any) -> bool:
        return True

    def send(self, data: bytes, origin: Any) -> None:
        self.heard += map(json.loads, data.splitlines())

    def unanswered(self, origin: Any) -> None:
        pass


@requirement("mcp:serve-errors", "mcp:serve-results")
def test_tools_of_any_contract_are_called_and_their_failures_are_for_the_model(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "echo")
    write_plugin(tmp_path / "plugins", "broken", script="echo so sorry >&2; exit 3\n")
    write_plugin(tmp_path / "plugins", "text", tools=[{"name": "t", "input_schema": {"type": "string"}}])

    async def main() -> None:
        async with house(tmp_path / "plugins", rule=names.full) as (host, bridge):
            client = Client(bridge)
            answer = await client.call("echo__t", a=1)
            assert answer == {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}
            failed = await client.call("broken__t")
            assert failed["isError"]
            assert failed["_meta"]["dev.plugbay/failure"]["code"] == Code.CRASHED
            assert "stderr_tail" not in failed["_meta"]["dev.plugbay/failure"]["detail"]
            told = (await host.attempt("broken/t")).failure
            assert told is not None and told.detail["stderr_tail"] == ["so sorry"]
            wrong = await client.call("text__t", input=7)
            assert "does not fit t's schema" in wrong["content"][0]["text"]
            assert (await client.call("text__t", input="plain"))["content"][0]["text"] == "plain"
            assert (await client.call("nobody"))["code"] == -32602

    run(main)


@requirement("mcp:serve-pending")
def test_what_nobody_granted_is_not_served(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "wants", capabilities=["network"])
    write_plugin(tmp_path / "plugins", "modest")
    declare(tmp_path / "plugins" / "servers", all="handshake")

    async def main() -> None:
        async with Host(discover([tmp_path / "plugins"]), state_dir=tmp_path / "state") as host, Bridge(host) as bridge:
            client = Client(bridge)
            assert [tool["name"] for tool in (await client.ask("tools/list"))["tools"]] == ["modest__t"]
            assert {name: failure.code for name, failure in bridge.left_out().items()} == {
                "wants": Code.CAPABILITY_NOT_ALLOWED,
                "all": Code.CAPABILITY_NOT_ALLOWED,
            }

    run(main)


@requirement("mcp:serve-names-collide")
def test_names_that_collide_keep_a_bridge_from_opening(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "one")
    write_plugin(tmp_path / "plugins", "two")

    async def main() -> None:
        with pytest.raises(NamesCollide, match="one/t and two/t would both be served as 't'"):
            async with house(tmp_path / "plugins"):
                pass
        async with house(tmp_path / "plugins", only=["two"]) as (_, bridge):
            assert list(bridge.offering.tools) == ["t"]
        async with house(tmp_path / "plugins", strict=False) as (host, bridge):
            assert [entry.full_name for entry in bridge.offering.tools.values()] == ["one/t"]
            assert "two/t would both be served" in host.journal.recent("mcp serve")[-1].text

    run(main)


@requirement("mcp:serve-schemas")
def test_plugins_that_describe_their_tools_when_greeted_are_greeted_first(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path / "plugins", "calm", DESCRIBES, tools=["brew"])

    async def main() -> None:
        async with house(tmp_path / "plugins") as (_, bridge):
            (tool,) = bridge.offering.offer["tools"]
            assert tool["description"] == "Make tea."
            assert list(tool["inputSchema"]["properties"]) == ["kind"]

    run(main)


@requirement("mcp:serve-list-changed")
def test_a_server_that_takes_long_to_start_comes_later(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all="modern"), patience=0) as (_, bridge):
            client = Client(bridge)
            await until(lambda: bool(client.told("notifications/tools/list_changed")), 20)
            assert len((await client.ask("tools/list"))["tools"]) == 14
            assert len((await client.ask("prompts/list"))["prompts"]) == 2

    run(main)


@requirement("mcp:serve-list-changed")
def test_a_plugin_that_is_given_up_leaves_the_list_and_comes_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", one="handshake", two="handshake"), rule=names.full) as served:
            host, bridge = served
            client = Client(bridge)
            host.publish("plugin.lifecycle.one.gave_up", {"plugin_id": "one"}, source="plugin.supervisor")
            await until(lambda: len(client.told("notifications/tools/list_changed")) == 1)
            assert len((await client.ask("tools/list"))["tools"]) == 14
            await host.reload("one")
            await client.call("two__echo", text="x")
            host.publish("plugin.lifecycle.one.started", {"plugin_id": "one"}, source="plugin.supervisor")
            await until(lambda: len(client.told("notifications/tools/list_changed")) == 2)
            assert len((await client.ask("tools/list"))["tools"]) == 28

    run(main)


@requirement("mcp:serve-resource-updates")
def test_a_resource_is_watched_once_for_all_and_as_long_as_anybody_watches(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all="handshake")) as (host, bridge):
            one, other, third = Client(bridge), Client(bridge), Client(bridge)
            for client in (one, other):
                assert await client.ask("resources/subscribe", uri="memo://one") == {}
            await third.call("touch", uri="memo://one")
            await until(lambda: bool(other.told("notifications/resources/updated")))
            assert one.told("notifications/resources/updated") == [{"uri": "memo://one"}]
            assert third.told("notifications/resources/updated") == []
            await one.ask("resources/unsubscribe", uri="memo://one")
            bridge.leave(other.conversation)
            await until(lambda: not bridge._watches.addresses)
            missing = await one.ask("resources/subscribe", uri="memo://one")
            assert missing == {}
            await host.reload("all")
            await until(lambda: host.plugins()[0].state != "running")
            await third.call("echo", text="wakes it up")
            while len(one.told("notifications/resources/updated")) < 2:
                await third.call("touch", uri="memo://one")

    run(main)


@requirement("mcp:serve-question-over")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_with_a_call_that_is_called_off_its_question_is_over(run: Run, tmp_path: Path, era: str) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all=era)) as (_, bridge):
            client = Client(bridge, elicitation={})
            client.say({"id": "call", "method": "tools/call", "params": {"name": "ask", "arguments": {}}})
            await until(lambda: bool(client.told("elicitation/create")))
            (question,) = [each["id"] for each in client.heard if each.get("method") == "elicitation/create"]
            client.say({"method": "notifications/cancelled", "params": {"requestId": "call"}})
            await until(lambda: bool(client.told("notifications/cancelled")))
            assert [over["requestId"] for over in client.told("notifications/cancelled")] == [question]

    run(main)


@requirement("mcp:serve-elicitation")
def test_of_two_clients_each_is_asked_what_belongs_to_its_own_call(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all="modern")) as (_, bridge):
            clients = {name: Client(bridge, elicitation={}) for name in ("Ada", "Bob")}
            for client in clients.values():
                client.say({"id": "call", "method": "tools/call", "params": {"name": "ask", "arguments": {}}})
            await until(lambda: all(client.told("elicitation/create") for client in clients.values()))
            for name, client in clients.items():
                (question,) = [each["id"] for each in client.heard if each.get("method") == "elicitation/create"]
                client.say({"id": question, "result": {"action": "accept", "content": {"name": name}}})
            answers = {name: client.answer("call") for name, client in clients.items()}
            for name, answer in answers.items():
                assert name in (await answer)["content"][0]["text"]

    run(main)


def test_what_nobody_has_is_said_so(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all="handshake")) as (_, bridge):
            client = Client(bridge)
            assert (await client.ask("prompts/get", name="nothing"))["code"] == -32602
            for reference in ({"type": "ref/prompt", "name": "nothing"}, {"type": "ref/resource", "uri": "memo://x"}):
                for ref in (reference, {"name": [], "uri": {}, "type": reference["type"]}):
                    wrong = await client.ask("completion/complete", ref=ref, argument={"name": "a", "value": ""})
                    assert wrong["code"] == -32602
            assert (await client.ask("resources/read", uri="memo://nothing"))["code"] == -32002

    run(main)


def test_clients_that_make_no_sense_are_noted(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins")

    async def main() -> None:
        async with house(tmp_path / "plugins") as (host, bridge):
            Client(bridge).conversation.receive(b"?\n")
            assert host.journal.counts("mcp client") == {"noise": 1}

    run(main)


@requirement("mcp:serve-end")
def test_leaving_ends_what_clients_still_wait_for(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with house(declare(tmp_path / "plugins", all="handshake")) as (_, bridge):
            client = Client(bridge)
            waiting = asyncio.ensure_future(client.call("wait"))
            await until(lambda: client.conversation.busy == 1)
        assert client.conversation.closed
        assert client.conversation.busy == 0
        waiting.cancel()

    run(main)


def test_what_plugins_do_for_a_client_belongs_to_the_trace_it_names(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "echo")
    spans = Spans()

    async def main() -> None:
        async with house(tmp_path / "plugins", tracer=spans.tracer) as (_, bridge):
            client = Client(bridge)
            await client.ask("tools/call", name="t", arguments={}, _meta={"traceparent": PARENT})
            await client.ask("tools/call", name="t", arguments={}, _meta={"traceparent": "no such thing"})
            named, unnamed = spans.all()
            assert (named.name, trace_of(named), parent_of(named)) == ("execute_tool t", TRACE, SPAN)
            assert unnamed.parent is None

    run(main)
