"""The nexo examples at work: over a real socket, under Node, on the published SDK with a real memory and real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from plugbay import CallFailed, Code, Host
from plugbay.conformance.engine.plugin_runner import run_conformance
from plugbay.host.discovery.folders import inspect
from plugbay.host.events.bus import Stream
from tests.examples import EVERY_CONTRACT
from tests.support import commands
from tests.support.loops import Run
from tests.support.machine import confined_counters
from tests.support.openai_server import OpenAiServer, Reply, completion, delta, events, streamed
from tests.support.patience import PATIENCE
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/nexo-plugin.toml") if path.parent.name != EVERY_CONTRACT)


def plugbay(*words: str, status: int = 0) -> Any:
    """The JSON that a command prints."""
    done = commands.plugbay(*words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


# Every example.


def test_there_are_examples_on_every_footing() -> None:
    assert {folder.name for folder in FOLDERS} == {"memory-notes", "relay-channel", "text-tools-js", "toy-model"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_has_a_readme_and_no_manifest_problem(folder: Path) -> None:
    told = plugbay("inspect", str(folder))
    assert (told["contract"], told["lifetime"], told["problems"]) == ("nexo", "resident", [])
    assert told["exports"] != []
    assert (folder / "README.md").exists()


@exhaustive
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_an_example_conforms(folder: Path) -> None:
    spec = inspect(folder).spec
    assert spec is not None
    report = run_conformance(spec)
    assert [axis for axis in report.axes if axis.status in ("failed", "advice")] == []
    assert report.passed > 30


def test_every_tool_answers_the_example_in_its_own_schema(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\n')

    async def main() -> None:
        async with Host.load(*FOLDERS, config=config, grant_all=True) as host:
            assert await host.settled(PATIENCE)
            tools = {name: export for name, export in host.exports().items() if export.kind == "tool"}
            assert len(tools) == 4
            for name, export in tools.items():
                assert export.description
                await host.call(name, export.input_schema["examples"][0])

    run(main)


@pytest.mark.parametrize(
    ("folder", "export", "given", "expected"),
    [
        ("relay-channel", "relay_status", {}, {"listening": False, "port": 0, "guests": []}),
        ("text-tools-js", "text_tools_slug", {"text": "Crème brûlée, twice!"}, {"slug": "creme-brulee-twice"}),
        ("text-tools-js", "text_tools_count", {"text": "one two\nthree"}, {"characters": 13, "words": 3, "lines": 2}),
    ],
)
def test_an_example_answers_on_the_command_line(folder: str, export: str, given: Any, expected: Any) -> None:
    told = plugbay("call", str(EXAMPLES / folder), export, json.dumps(given))
    assert (told["status"], told["output"], told["plugin"]["contract"]) == ("succeeded", expected, "nexo")


# The relay: a channel over a real socket.


class Guest:
    """Somebody at the other end of the relay."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer

    def say(self, text: str) -> None:
        self._writer.write(f"{text}\n".encode())

    async def hear(self) -> str:
        return (await self._reader.readline()).decode().removesuffix("\n")


@contextlib.asynccontextmanager
async def guest(port: int) -> AsyncIterator[Guest]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        words = (await reader.readline()).decode().split()
        assert words[:2] == ["you", "are"]
        yield Guest(reader, writer, words[2])
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def payload_of(stream: Stream) -> Any:
    return (await anext(stream)).payload


@contextlib.asynccontextmanager
async def listening(host: Host, instance: str | None = None) -> AsyncIterator[tuple[int, Stream]]:
    """The relay's port, and the stream of what it publishes from then on."""
    async with host.subscribe("plugin.inbound.relay", "plugin.inbound.relay.>") as inbound:
        await host.channels["relay"].start(instance)
        told = await payload_of(inbound)
        assert told["type"] == "listening"
        yield told["port"], inbound


def test_a_line_becomes_an_event_and_an_event_a_line(run: Run) -> None:
    async def main() -> None:
        relay = Host.load(EXAMPLES / "relay-channel")
        async with relay as host, listening(host) as (port, inbound), guest(port) as ada, guest(port) as ben:
            ada.say("héllo")
            event = await anext(inbound)
            assert (event.topic, event.source) == ("plugin.inbound.relay", "relay")
            assert event.payload == {"type": "message", "from": ada.name, "text": "héllo"}
            host.publish("plugin.outbound.relay", {"text": "for Ada", "to": ada.name})
            host.publish("plugin.outbound.relay.anywhere", {"text": "for\nall"})
            assert [await ada.hear(), await ada.hear()] == ["for Ada", "for all"]
            assert await ben.hear() == "for all"
            status = await host.call("relay_status")
            assert status == {"listening": True, "port": port, "guests": sorted([ada.name, ben.name])}

    run(main)


def test_an_instance_has_a_topic_of_its_own(run: Run) -> None:
    async def main() -> None:
        relay = Host.load(EXAMPLES / "relay-channel")
        async with relay as host, listening(host, "primary") as (port, inbound), guest(port) as ada:
            ada.say("hi")
            assert (await anext(inbound)).topic == "plugin.inbound.relay.primary"

    run(main)


def test_messages_of_all_three_kinds_are_sent_and_have_a_receipt(run: Run) -> None:
    async def main() -> None:
        relay = Host.load(EXAMPLES / "relay-channel")
        async with relay as host, listening(host) as (port, _), guest(port) as ada:
            channel = host.channels["relay"]
            receipt = await channel.send({"kind": "text", "to": ada.name, "body": "hi"})
            assert receipt["message_id"] == "relay-1" and receipt["sent_at_unix"] > 0
            await channel.send({"kind": "media", "to": ada.name, "url": "http://x/y.png", "caption": "a picture"})
            await channel.send({"kind": "custom", "mood": "sunny"})
            heard = [await ada.hear() for _ in range(3)]
            assert heard == ["hi", "a picture: http://x/y.png", '{"mood": "sunny"}']

    run(main)


@pytest.mark.parametrize(
    ("message", "code", "kind", "detail"),
    [
        (
            {"kind": "text", "to": "nobody", "body": "x"},
            Code.INVALID_INPUT,
            "recipient_invalid",
            {"recipient": "nobody", "reason": "nobody of that name is connected"},
        ),
        (
            {"kind": "text"},
            Code.NOT_FOUND,
            "unsupported_feature",
            {"feature": 'a message like {"kind": "text"}'},
        ),
    ],
)
def test_what_cannot_be_sent_is_a_typed_error(
    run: Run, message: Any, code: str, kind: str, detail: dict[str, str]
) -> None:
    async def main() -> None:
        async with Host.load(EXAMPLES / "relay-channel") as host, listening(host):
            with pytest.raises(CallFailed) as caught:
                await host.channels["relay"].send(message)
            assert (caught.value.code, caught.value.failure.origin) == (code, "plugin")
            assert caught.value.failure.detail.items() >= {"kind": kind, **detail}.items()

    run(main)


def test_a_guest_who_does_not_read_is_refused_more_and_a_broadcast_passes_him_by(run: Run) -> None:
    async def main() -> None:
        relay = Host.load(EXAMPLES / "relay-channel")
        async with relay as host, listening(host) as (port, _), guest(port) as deaf, guest(port) as ben:
            channel = host.channels["relay"]
            message = {"kind": "text", "to": deaf.name, "body": "x" * 500_000}
            failure = None
            while failure is None:  # the kernel's buffers fill first, and then the plugin's own
                try:
                    await channel.send(message)
                except CallFailed as error:
                    failure = error.failure
            assert (failure.code, failure.retryable, failure.retry_after_ms) == (Code.OVERLOADED, True, 1000)
            await channel.send({"kind": "custom", "n": 1})
            assert await ben.hear() == '{"n": 1}'

    run(main)


def test_a_stopped_channel_lets_everybody_go_and_can_be_started_again(run: Run) -> None:
    async def main() -> None:
        async with Host.load(EXAMPLES / "relay-channel") as host:
            channel = host.channels["relay"]
            async with listening(host) as (port, _), guest(port) as ada:
                await channel.stop()
                assert await ada.hear() == ""
                await channel.stop()
                with pytest.raises(OSError):
                    await asyncio.open_connection("127.0.0.1", port)
                with pytest.raises(CallFailed, match="not started"):
                    await channel.send({"kind": "custom"})
            async with listening(host) as (port, inbound), guest(port) as ada:
                ada.say("again")
                assert (await payload_of(inbound))["text"] == "again"

    run(main)


def test_a_port_that_is_taken_is_a_connection_that_failed(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"

    async def main() -> None:
        taken = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        config.write_text(f'[plugins.relay]\nenv = {{ RELAY_PORT = "{port}" }}\n')
        async with taken, Host.load(EXAMPLES / "relay-channel", config=config) as host:
            with pytest.raises(CallFailed, match=f"cannot listen on port {port}") as caught:
                await host.channels["relay"].start()
            assert caught.value.failure.detail["kind"] == "connection_failed"
            assert caught.value.failure.retryable

    run(main)


def test_a_relay_that_is_killed_comes_back_and_carries_messages_again(run: Run) -> None:
    async def main() -> None:
        async with Host.load(EXAMPLES / "relay-channel") as host:
            await host.settled()
            lifecycle = host.subscribe("plugin.lifecycle.relay.>")
            async with lifecycle, listening(host) as (port, _), guest(port) as ada:
                pid = host.plugins()[0].pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                assert await ada.hear() == ""
                told = [(await anext(lifecycle)).topic.rsplit(".", 1)[1] for _ in range(4)]
                assert told == ["crashed", "respawning", "started", "respawned"]
            async with listening(host) as (port, inbound), guest(port) as ada:
                ada.say("still there?")
                assert (await payload_of(inbound))["text"] == "still there?"

    run(main)


# Text tools: JavaScript, no SDK.


def test_the_hook_hides_addresses_and_leaves_other_messages_alone(run: Run) -> None:
    async def main() -> None:
        async with Host.load(EXAMPLES / "text-tools-js") as host:
            outcome = await host.fire("before_message", {"sender": "ada", "body": "write to ada@example.org, please"})
            assert (outcome.blocked, outcome.decision) == (False, "transform")
            assert outcome.event == {"sender": "ada", "body": "write to [e-mail], please"}
            untouched = await host.fire("before_message", {"sender": "ada", "body": "good morning"})
            assert (untouched.event["body"], untouched.decision, untouched.skipped) == ("good morning", None, ())

    run(main)


def test_its_own_refusal_has_code_and_details(run: Run, tmp_path: Path) -> None:
    """The host refuses what does not fit the schema; to hear the plugin refuse, the schema has to go."""
    folder = tmp_path / "lax"
    folder.mkdir()
    source = (EXAMPLES / "text-tools-js" / "plugin.mjs").read_text("utf-8")
    assert 'required: ["text"]' in source
    (folder / "plugin.mjs").write_text(source.replace('required: ["text"]', "required: []"), "utf-8")
    (folder / "nexo-plugin.toml").write_text((EXAMPLES / "text-tools-js" / "nexo-plugin.toml").read_text("utf-8"))

    async def main() -> None:
        async with Host.load(folder) as host:
            failure = (await host.attempt("text_tools_slug", {})).failure
            assert failure is not None
            assert (failure.code, failure.origin) == (Code.INVALID_INPUT, "plugin")
            assert failure.detail["plugin_code"] == -33402
            assert failure.detail["details"] == {"field": "text", "got": "undefined"}

    run(main)


# Memory notes: the published SDK, with what the host offers.

QUESTION = {"question": "What does Ada like to drink?", "provider": "local", "model": "any"}


@contextlib.asynccontextmanager
async def notes(tmp_path: Path, *replies: Reply) -> AsyncIterator[tuple[Host, OpenAiServer]]:
    """A host with a memory and a model behind real HTTP."""
    config = tmp_path / "plugbay.toml"
    async with OpenAiServer(*replies) as server:
        config.write_text(
            '[memory]\npath = "memory.db"\n\n'
            f'[llm.providers.local]\nkind = "openai"\nbase_url = "{server.url}"\nmax_retries = 0\n\n'
            '[plugins.memory_notes]\ngrants = ["memory.recall", "llm.complete"]\n'
        )
        async with Host.load(EXAMPLES / "memory-notes", config=config) as host:
            await host.memory.remember("demo", "Ada drinks tea.")
            await host.memory.remember("demo", "Ben plays chess.")
            yield host, server


@requirement("nexo:host-published-sdk")
def test_a_plugin_on_the_published_sdk_recalls_and_completes(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with notes(tmp_path, completion("Tea.")) as (host, server):
            answer = await host.call("memory_notes_ask", QUESTION)
            assert answer == {"answer": "Tea.", "notes": 1, "pieces": 1}
            asked = server.seen[0].body
            assert asked["model"] == "any" and asked["temperature"] == 0.0
            assert [message["role"] for message in asked["messages"]] == ["system", "user"]
            assert "Ada drinks tea." in asked["messages"][0]["content"]
            assert "Ben" not in asked["messages"][0]["content"]

    run(main)


@requirement("nexo:host-published-sdk")
def test_a_plugin_on_the_published_sdk_gets_a_completion_in_pieces(run: Run, tmp_path: Path) -> None:
    pieces = events(delta(content="Te"), delta(content="a"), delta(content="."), delta("stop"))

    async def main() -> None:
        async with notes(tmp_path, streamed([pieces])) as (host, server):
            answer = await host.call("memory_notes_ask", {**QUESTION, "stream": True})
            assert (answer["answer"], answer["pieces"]) == ("Tea.", 3)
            assert server.seen[0].body["stream"] is True

    run(main)


def test_what_an_agent_remembers_is_for_that_agent_alone(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with notes(tmp_path, completion("I do not know.")) as (host, _):
            answer = await host.call("memory_notes_ask", QUESTION, context={"agent_id": "another"})
            assert answer["notes"] == 0

    run(main)


@pytest.mark.parametrize(
    ("grants", "reason"),
    [(["memory.recall"], "llm.complete is not granted"), (["llm.complete"], "memory.recall is not granted")],
)
def test_a_service_that_is_not_granted_is_refused_by_name(
    run: Run, tmp_path: Path, grants: list[str], reason: str
) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text(f'[memory]\npath = "memory.db"\n\n[plugins.memory_notes]\ngrants = {json.dumps(grants)}\n')

    async def main() -> None:
        async with Host.load(EXAMPLES / "memory-notes", config=config) as host:
            failure = (await host.attempt("memory_notes_ask", QUESTION)).failure
            assert failure is not None and failure.code == Code.UNAVAILABLE
            assert reason in failure.message
            assert host.plugins()[0].counters == confined_counters(service_refused=1)

    run(main)


def test_one_plugin_answers_with_the_model_of_another(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "plugbay.toml"
    config.write_text('[memory]\npath = "memory.db"\n')
    question = {"question": "What does Ada drink?", "provider": "toy", "model": "quote"}

    async def main() -> None:
        async with Host.load(EXAMPLES, config=config, grant_all=True) as host:
            await host.memory.remember("demo", "Ada drinks tea.")
            plain = await host.call("memory_notes_ask", question)
            assert (plain["answer"], plain["pieces"]) == ("Ada drinks tea.", 1)
            streamed = await host.call("memory_notes_ask", {**question, "stream": True})
            assert (streamed["answer"], streamed["pieces"]) == ("Ada drinks tea.", 3)
            failure = (await host.attempt("memory_notes_ask", {**question, "model": "huge"})).failure
            assert failure is not None and "there is no model 'huge'" in failure.message

    run(main)
