"""Subscriptions, and the server with real plugins."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.config.config import Config
from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.host.inbound.questions import Question
from plugbay.mcp_server import listing
from plugbay.mcp_server.connection import Call, ClientConnection
from plugbay.mcp_server.listing import NamesCollide
from plugbay.mcp_server.server import McpServer, QuestionRouter, Subscriptions
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import AskUser, ChangeResource, InvokeTool, WatchResource
from tests.mcp_server.running_servers import declare, running_server
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.plugins import write_plugin
from tests.support.requirements import requirement
from tests.support.spans import PARENT, SPAN, TRACE, Spans, parent_of, trace_of
from tests.support.vai import FAILS, LEFT, write_vai_plugin


class Client:
    """A client with the methods that subscriptions use."""

    def __init__(self) -> None:
        self.closed = False
        self.told: list[Any] = []

    def notify(self, op: Any) -> None:
        self.told.append(op)


class Bench:
    def __init__(self, failure: Failure | None = None) -> None:
        self.failure = failure
        self.asked: list[WatchResource] = []
        self.subscriptions = Subscriptions(self._ask, self._later)

    async def _ask(self, op: WatchResource) -> Failure | None:
        self.asked.append(op)
        return self.failure

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        with pytest.raises(StopIteration):  # it waits for nothing
            work.send(None)

    def change(self, client: Client, uri: str, wanted: bool = True) -> Failure | None:
        return asyncio.run(self.subscriptions.change(client, WatchResource(uri, wanted)))  # type: ignore[arg-type]


@requirement("mcp:serve-resource-updates")
def test_the_first_watcher_begins_it_and_the_last_one_ends_it() -> None:
    bench, one, other = Bench(), Client(), Client()
    bench.change(one, "a://1")
    bench.change(other, "a://1")
    bench.change(one, "a://2")
    assert bench.asked == [WatchResource("a://1"), WatchResource("a://2")]
    bench.subscriptions.notify_changed("a://1")
    bench.subscriptions.notify_changed("a://3")
    assert one.told == other.told == [ChangeResource("a://1")]
    bench.subscriptions.remove_client(one)  # type: ignore[arg-type]
    assert bench.asked[2:] == [WatchResource("a://2", False)]
    bench.change(other, "a://1", False)
    bench.change(other, "a://1", False)
    assert bench.asked[3:] == [WatchResource("a://1", False)]
    assert bench.subscriptions.uris == []


def test_a_refused_or_departed_client_has_no_subscription() -> None:
    refused, client = Bench(Failure(Code.NOT_FOUND, "no")), Client()
    failure = refused.change(client, "a://1")
    assert failure is not None and failure.code == Code.NOT_FOUND
    client.closed = True
    gone = Bench()
    assert gone.change(client, "a://1") is None
    assert refused.subscriptions.uris == gone.subscriptions.uris == []


def test_a_new_process_is_asked_again() -> None:
    bench = Bench()
    bench.change(Client(), "a://1")
    bench.subscriptions.resubscribe("a://1")
    assert bench.asked == [WatchResource("a://1")] * 2


class Slow(Bench):
    """A plugin that answers when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: asyncio.Queue[Failure | None] = asyncio.Queue()
        self.tasks: list[asyncio.Future[Any]] = []

    async def _ask(self, op: WatchResource) -> Failure | None:
        self.asked.append(op)
        return await self.answers.get()

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    def begin(self, client: Client, wanted: bool = True) -> asyncio.Future[Failure | None]:
        work = self.subscriptions.change(client, WatchResource("a://1", wanted))  # type: ignore[arg-type]
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def let(self, *answers: Failure | None) -> None:
        for answer in answers:
            self.answers.put_nowait(answer)
        await until(lambda: self.answers.empty() and all(task.done() for task in self.tasks))


BEGUN, ENDED = WatchResource("a://1"), WatchResource("a://1", False)


@requirement("mcp:serve-resource-updates")
def test_a_client_that_subscribes_while_another_leaves_is_notified(run: Run) -> None:
    async def main() -> None:
        bench, one, other = Slow(), Client(), Client()
        bench.begin(one)
        await bench.let(None)
        bench.subscriptions.remove_client(one)  # type: ignore[arg-type]
        bench.begin(other)
        await bench.let(None, None)
        assert bench.asked == [BEGUN, ENDED, BEGUN]
        bench.subscriptions.notify_changed("a://1")
        assert (one.told, other.told) == ([], [ChangeResource("a://1")])

    run(main)


@requirement("mcp:serve-resource-updates")
def test_a_client_that_subscribes_meanwhile_gets_its_own_answer(run: Run) -> None:
    async def main() -> None:
        bench = Slow()
        refused, taken = bench.begin(Client()), bench.begin(Client())
        no = Failure(Code.NOT_FOUND, "not now")
        await bench.let(no, None)
        assert (refused.result(), taken.result()) == (no, None)
        assert bench.asked == [BEGUN, BEGUN]

    run(main)


@requirement("mcp:serve-resource-updates")
def test_unsubscribing_before_the_answer_leaves_no_subscription(run: Run) -> None:
    async def main() -> None:
        bench, client, gone = Slow(), Client(), Client()
        bench.begin(client)
        await bench.begin(client, wanted=False)
        await bench.let(None, None)
        bench.begin(gone)
        gone.closed = True
        await bench.let(None, None)
        assert bench.asked == [BEGUN, ENDED] * 2
        assert bench.subscriptions.uris == []

    run(main)


DESCRIBES = """
def initialize(m):
    schema = {"type": "object", "properties": {"kind": {"type": "string"}}}
    tools = [{"name": name, "description": "Make tea.", "input_schema": schema} for name in TOOLS]
    manifest = {"plugin": {"id": ID, "version": "0.1.0"}}
    reply(m, {"manifest": manifest, "server_version": "test", "tools": tools})
"""


class McpClient:
    """A client in this process, with a handshake."""

    def __init__(self, server: McpServer, **capabilities: Any) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answered: set[Any] = set()
        self._number = 0
        self.connection: ClientConnection = server.connect(self)
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {}}
        self.say({"id": 0, "method": "initialize", "params": params})

    def say(self, message: dict[str, Any]) -> None:
        self.connection.receive(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        self.say({"id": number, "method": method, "params": params})
        return await self.answer(number)

    async def answer(self, number: Any) -> Any:
        def answers() -> list[dict[str, Any]]:
            return [each for each in self.heard if each.get("id") == number and "method" not in each]

        await until(lambda: bool(answers()), 20)
        answer = answers()[0]
        return answer.get("result", answer.get("error"))

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Requests of the server that are not answered yet; each is returned once."""
        found = [each for each in self.heard if each.get("method") == method and each["id"] not in self.answered]
        self.answered |= {each["id"] for each in found}
        return found

    def reply(self, method: str, reply: dict[str, Any]) -> bool:
        """Answer the open requests of the server; whether there were any."""
        found = self.requests(method)
        for request in found:
            self.say({"id": request["id"], **reply})
        return bool(found)

    async def reply_to(self, method: str, result: Any) -> None:
        """Wait for the next request of the server, and answer it."""
        await until(lambda: self.reply(method, {"result": result}))

    def told(self, method: str) -> list[Any]:
        return [each.get("params") for each in self.heard if each.get("method") == method]

    def has_room(self, origin: Any) -> bool:
        return True

    def send(self, data: bytes, origin: Any) -> None:
        self.heard += map(json.loads, data.splitlines())

    def drop_answer(self, origin: Any) -> None:
        pass


@requirement("vai:host-failed-result")
def test_a_client_is_given_the_content_of_a_failure_and_its_message(run: Run, tmp_path: Path) -> None:
    write_vai_plugin(tmp_path / "plugins", FAILS)

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            failed = await McpClient(server).call("t")
            assert failed["isError"] and failed["structuredContent"] == LEFT["structured_output"]
            assert [item["text"] for item in failed["content"]] == ["3 of 4 rows were written", "the disk is full"]
            assert failed["_meta"]["dev.plugbay/failure"]["detail"]["plugin_code"] == "acme.half"

    run(main)


@requirement("mcp:serve-errors", "mcp:serve-results")
def test_tools_of_any_contract_are_called_and_their_failures_are_for_the_model(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "echo")
    write_plugin(tmp_path / "plugins", "broken", script="echo so sorry >&2; exit 3\n")
    write_plugin(tmp_path / "plugins", "text", tools=[{"name": "t", "input_schema": {"type": "string"}}])

    async def main() -> None:
        async with running_server(tmp_path / "plugins", rule=listing.qualified_name) as (host, server):
            client = McpClient(server)
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
def test_plugins_without_grants_are_not_served(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "wants", capabilities=["network"])
    write_plugin(tmp_path / "plugins", "modest")
    declare(tmp_path / "plugins" / "servers", all="handshake")

    async def main() -> None:
        async with (
            Host(discover([tmp_path / "plugins"]), state_dir=tmp_path / "state") as host,
            McpServer(host) as server,
        ):
            client = McpClient(server)
            assert [tool["name"] for tool in (await client.ask("tools/list"))["tools"]] == ["modest__t"]
            assert {name: failure.code for name, failure in server.refused_plugins().items()} == {
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
            async with running_server(tmp_path / "plugins"):
                pass
        async with running_server(tmp_path / "plugins", only=["two"]) as (_, server):
            assert list(server.listing.tools) == ["t"]
        async with running_server(tmp_path / "plugins", strict=False) as (host, server):
            assert [entry.full_name for entry in server.listing.tools.values()] == ["one/t"]
            assert "two/t would both be served" in host.journal.recent("mcp serve")[-1].text

    run(main)


@requirement("mcp:serve-schemas")
def test_plugins_that_describe_their_tools_when_greeted_are_greeted_first(run: Run, tmp_path: Path) -> None:
    write_nexo_plugin(tmp_path / "plugins", "calm", DESCRIBES, tools=["brew"])

    async def main() -> None:
        async with running_server(tmp_path / "plugins") as (_, server):
            (tool,) = server.listing.offer["tools"]
            assert tool["description"] == "Make tea."
            assert list(tool["inputSchema"]["properties"]) == ["kind"]

    run(main)


@requirement("mcp:serve-list-changed")
def test_a_server_that_takes_long_to_start_comes_later(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="modern"), patience=0) as (_, server):
            client = McpClient(server)
            await until(lambda: bool(client.told("notifications/tools/list_changed")), 20)
            assert len((await client.ask("tools/list"))["tools"]) == 14
            assert len((await client.ask("prompts/list"))["prompts"]) == 2

    run(main)


@requirement("mcp:serve-list-changed")
def test_a_plugin_that_is_given_up_leaves_the_list_and_comes_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(
            declare(tmp_path / "plugins", one="handshake", two="handshake"), rule=listing.qualified_name
        ) as served:
            host, server = served
            client = McpClient(server)
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
def test_a_resource_is_subscribed_once_for_all_clients_until_the_last_leaves(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (host, server):
            one, other, third = McpClient(server), McpClient(server), McpClient(server)
            for client in (one, other):
                assert await client.ask("resources/subscribe", uri="memo://one") == {}
            await third.call("touch", uri="memo://one")
            await until(lambda: bool(other.told("notifications/resources/updated")))
            assert one.told("notifications/resources/updated") == [{"uri": "memo://one"}]
            assert third.told("notifications/resources/updated") == []
            await one.ask("resources/unsubscribe", uri="memo://one")
            server.disconnect(other.connection)
            await until(lambda: not server._subscriptions.uris)
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
        async with running_server(declare(tmp_path / "plugins", all=era)) as (_, server):
            client = McpClient(server, elicitation={})
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
        async with running_server(declare(tmp_path / "plugins", all="modern")) as (_, server):
            clients = {name: McpClient(server, elicitation={}) for name in ("Ada", "Bob")}
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


SAMPLING = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "annotations": {"priority": 1}}]}],
    "maxTokens": 7,
    "stopSequences": ["."],
    "modelPreferences": {"hints": [{"name": "small"}], "costPriority": 1},
}
REPLY = {"role": "assistant", "content": {"type": "text", "text": "Ho"}, "model": "client-model", "stopReason": "x-own"}
FOLDER = [{"uri": "file:///client/work", "name": "work"}]


def declare_asking(folder: Path, era: str, grants: Sequence[str] = ("sampling", "roots")) -> tuple[Path, Config]:
    """A folder with one server that asks, and the configuration that grants it the answers."""
    folder.mkdir(parents=True)
    program = str(Path(__file__).with_name("asking.py"))
    entry = {"command": sys.executable, "args": [program, era]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"srv": entry}}))
    settings = {"plugins": {"srv": {"grants": list(grants)}}, "project": {"id": "own", "root": str(folder)}}
    return folder, Config.model_validate(settings)


async def ask_through(client: McpClient, method: str, reply: Any = None, **params: Any) -> Any:
    """The answer that the hosted server gets to its request; `reply` is what the client replies, if it is asked."""
    client.say(
        {
            "id": "call",
            "method": "tools/call",
            "params": {"name": "ask", "arguments": {"method": method, "params": params}},
        }
    )

    def answered() -> bool:
        return any(each.get("id") == "call" for each in client.heard)

    await until(lambda: client.reply(method, reply) or answered())
    result = await client.answer("call")
    client.heard = [each for each in client.heard if each.get("id") != "call"]
    return json.loads(result["content"][0]["text"])


@requirement("mcp:serve-sampling")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_the_client_samples_for_the_server_that_works_on_its_call(run: Run, tmp_path: Path, era: str) -> None:
    folder, config = declare_asking(tmp_path / "plugins", era)

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client, other = McpClient(server, sampling={}), McpClient(server, sampling={})
            assert await ask_through(client, "sampling/createMessage", {"result": REPLY}, **SAMPLING) == REPLY
            (asked,) = client.told("sampling/createMessage")
            assert {key: value for key, value in asked.items() if key != "_meta"} == SAMPLING
            assert other.told("sampling/createMessage") == []

    run(main)


@requirement("mcp:serve-sampling")
def test_a_client_that_rejects_sampling_has_the_last_word(run: Run, tmp_path: Path) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake")
    rejected = {"code": -1, "message": "User rejected sampling request"}

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client = McpClient(server, sampling={})
            assert await ask_through(client, "sampling/createMessage", {"error": rejected}, **SAMPLING) == rejected

    run(main)


@requirement("mcp:serve-sampling", "mcp:serve-roots")
def test_the_host_answers_for_clients_without_sampling_and_roots(run: Run, tmp_path: Path) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake")

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client = McpClient(server)
            refused = await ask_through(client, "sampling/createMessage", **SAMPLING)
            assert "no default language model" in refused["message"]
            own = {"roots": [{"uri": folder.as_uri(), "name": "own"}]}
            assert await ask_through(client, "roots/list") == own

    run(main)


@requirement("mcp:serve-sampling", "mcp:serve-roots")
@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
def test_without_a_grant_no_client_is_asked(run: Run, tmp_path: Path, method: str) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake", grants=[])

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client = McpClient(server, sampling={}, roots={})
            assert (await ask_through(client, method, **SAMPLING))["code"] == -32601
            assert client.told(method) == []

    run(main)


@requirement("mcp:serve-roots")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_the_roots_of_a_call_are_those_of_its_client(run: Run, tmp_path: Path, era: str) -> None:
    folder, config = declare_asking(tmp_path / "plugins", era)

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client, _ = McpClient(server, roots={}), McpClient(server, roots={})
            assert await ask_through(client, "roots/list", {"result": {"roots": FOLDER}}) == {"roots": FOLDER}

    run(main)


@requirement("mcp:serve-roots-changed")
def test_a_server_learns_the_roots_of_the_only_client_and_their_changes(run: Run, tmp_path: Path) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake")
    own, theirs = {"roots": [{"uri": folder.as_uri(), "name": "own"}]}, {"roots": FOLDER}

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            early = McpClient(server)
            assert await roots_seen(early, 1) == [own]
            client = McpClient(server, roots={"listChanged": True})
            client.say({"method": "notifications/initialized"})
            await client.reply_to("roots/list", theirs)
            assert await roots_seen(early, 2) == [own, theirs]
            client.say({"method": "notifications/roots/list_changed"})
            await client.reply_to("roots/list", {"roots": []})
            assert (await roots_seen(early, 3))[-1] == {"roots": []}
            second = McpClient(server, roots={})
            second.say({"method": "notifications/initialized"})
            assert (await roots_seen(early, 4))[-1] == own, "two clients have roots"
            server.disconnect(second.connection)
            await client.reply_to("roots/list", theirs)
            assert (await roots_seen(early, 5))[-1] == theirs

    run(main)


@requirement("mcp:serve-roots-changed")
def test_a_server_that_asks_for_changed_roots_while_a_call_ends_gets_them(run: Run, tmp_path: Path) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake")

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client = McpClient(server, sampling={}, roots={"listChanged": True})
            sampling = {"method": "sampling/createMessage", "params": SAMPLING}
            call = asyncio.ensure_future(client.call("ask", **sampling))
            await until(lambda: bool(client.told("sampling/createMessage")))
            client.say({"method": "notifications/roots/list_changed"})
            await until(lambda: bool(client.requests("roots/list")))
            client.reply("sampling/createMessage", {"result": REPLY})
            assert json.loads((await call)["content"][0]["text"]) == REPLY
            await client.reply_to("roots/list", {"roots": FOLDER})
            assert (await roots_seen(client, 2))[-1] == {"roots": FOLDER}

    run(main)


async def roots_seen(client: McpClient, count: int) -> list[Any]:
    """The answers to the server's own requests for roots, once there are `count` of them."""
    seen: list[Any] = []
    while len(seen) < count:
        seen = json.loads((await client.call("roots"))["content"][0]["text"])
    return seen


@requirement("mcp:serve-roots-changed")
def test_a_client_that_does_not_list_its_roots_in_time_has_none(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, config = declare_asking(tmp_path / "plugins", "handshake")
    monkeypatch.setattr("plugbay.mcp_server.server.ROOTS_SECONDS", 0.1)

    async def main() -> None:
        async with running_server(folder, config=config) as (_, server):
            client = McpClient(server, roots={})
            client.say({"method": "notifications/initialized"})
            await until(lambda: bool(client.told("notifications/cancelled")))
            assert (await roots_seen(client, 2))[-1] == {"roots": [{"uri": folder.as_uri(), "name": "own"}]}

    run(main)


def test_unknown_names_are_reported(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            client = McpClient(server)
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
        async with running_server(tmp_path / "plugins") as (host, server):
            McpClient(server).connection.receive(b"?\n")
            assert host.journal.counts("mcp client") == {"noise": 1}

    run(main)


@requirement("mcp:serve-end")
def test_leaving_ends_what_clients_still_wait_for(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_server(declare(tmp_path / "plugins", all="handshake")) as (_, server):
            client = McpClient(server)
            waiting = asyncio.ensure_future(client.call("wait"))
            await until(lambda: client.connection.busy == 1)
        assert client.connection.closed
        assert client.connection.busy == 0
        waiting.cancel()

    run(main)


def test_what_plugins_do_for_a_client_belongs_to_the_trace_it_names(run: Run, tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "echo")
    spans = Spans()

    async def main() -> None:
        async with running_server(tmp_path / "plugins", tracer=spans.tracer) as (_, server):
            client = McpClient(server)
            await client.ask("tools/call", name="t", arguments={}, _meta={"traceparent": PARENT})
            await client.ask("tools/call", name="t", arguments={}, _meta={"traceparent": "no such thing"})
            named, unnamed = spans.all()
            assert (named.name, trace_of(named), parent_of(named)) == ("execute_tool t", TRACE, SPAN)
            assert unnamed.parent is None

    run(main)


class Person:
    """A client that answers."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.asked: list[Any] = []

    async def ask(self, op: Any, call: Call) -> Any:
        self.asked.append(op)
        return self.said

    def call(self) -> Call:
        return Call(self, 1, InvokeTool("t", {}), None)  # type: ignore[arg-type]  # asks like a connection


QUESTION = Question("p", "Who?", {"type": "object"})


def ask(questions: QuestionRouter, question: Question = QUESTION) -> Any:
    return asyncio.run(questions.ask(question))


@requirement("mcp:serve-elicitation")
def test_the_client_whose_call_is_worked_on_is_asked() -> None:
    questions, person = QuestionRouter(), Person({"action": "accept", "content": {"name": "Ada"}})
    with (
        questions.serving("p", person.call()),
        questions.serving("p", person.call()),
        questions.serving("q", Person({}).call()),
    ):
        assert ask(questions)["content"] == {"name": "Ada"}
    assert person.asked == [AskUser("Who?", {"type": "object"}, None)]


@requirement("mcp:serve-elicitation")
def test_no_client_is_asked_when_several_wait_for_the_plugin() -> None:
    questions, one, other = QuestionRouter(), Person({"action": "accept"}), Person({"action": "accept"})
    with questions.serving("p", one.call()):
        with questions.serving("p", other.call()):
            assert ask(questions) == {"action": "decline"}
        assert ask(questions) == {"action": "accept"}
    assert ask(questions) == {"action": "decline"}
    assert (len(one.asked), len(other.asked)) == (1, 0)


@requirement("mcp:serve-elicitation")
def test_no_client_is_asked_while_the_plugin_also_works_for_a_caller_that_is_no_client() -> None:
    questions, person = QuestionRouter(), Person({"action": "accept"})
    running = {"p": 2}
    questions.count_running = running.__getitem__
    call = person.call()
    call.forwarded_op = InvokeTool("t", {})
    with questions.serving("p", call):
        assert ask(questions) == {"action": "decline"}
        assert ask(questions, Question("p", "Who?", during=call.forwarded_op)) == {"action": "accept"}
        running["p"] = 1
        assert ask(questions) == {"action": "accept"}


@requirement("mcp:serve-elicitation")
def test_a_question_that_says_to_which_call_it_belongs_goes_to_its_client() -> None:
    questions, people = (
        QuestionRouter(),
        [Person({"action": "accept", "content": {"number": number}}) for number in range(3)],
    )
    calls = [person.call() for person in people]
    operations = [InvokeTool("t", {}) for _ in calls]
    for call, op in zip(calls, operations, strict=True):
        call.forwarded_op = op
    with questions.serving("p", calls[0]), questions.serving("p", calls[1]):
        said = [ask(questions, Question("p", "Who?", during=op)) for op in operations]
    assert said == [people[0].said, people[1].said, {"action": "decline"}]
    assert people[2].asked == []


def test_a_client_that_cannot_ask_has_declined() -> None:
    questions = QuestionRouter()
    with questions.serving("p", Person(Failure(Code.CAPABILITY_NOT_ALLOWED, "no")).call()):
        assert ask(questions) == {"action": "decline"}


class Mute(Person):
    """A client that never answers."""

    def __init__(self) -> None:
        super().__init__(None)
        self.let_go = 0

    async def ask(self, op: Any, call: Call) -> Any:
        self.asked.append(op)
        try:
            await asyncio.Event().wait()
        finally:
            self.let_go += 1


@requirement("mcp:serve-question-over")
def test_a_person_is_no_longer_asked_when_the_client_has_no_call_there_any_more(run: Run) -> None:
    async def main() -> None:
        questions, person = QuestionRouter(), Mute()
        with questions.serving("p", person.call()):
            with questions.serving("p", person.call()):
                asking = asyncio.ensure_future(questions.ask(QUESTION))
                await until(lambda: bool(person.asked))
            with questions.serving("q", person.call()):
                pass
            assert not asking.done() and person.let_go == 0
        assert await asking == {"action": "cancel"}
        assert person.let_go == 1

    run(main)


@requirement("mcp:serve-question-over")
def test_a_plugin_that_does_without_the_answer_lets_the_person_go(run: Run) -> None:
    async def main() -> None:
        questions, person = QuestionRouter(), Mute()
        with questions.serving("p", person.call()):
            asking = asyncio.ensure_future(questions.ask(QUESTION))
            await until(lambda: bool(person.asked))
            asking.cancel()
            await until(lambda: person.let_go == 1)

    run(main)
