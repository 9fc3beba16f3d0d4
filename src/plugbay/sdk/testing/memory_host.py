"""A host in memory, to test a plugin with: no process, no files, and every rule of the contract.

The machines of host and plugin are the real ones and talk through memory, so names, sizes, schemas and errors are those
of the wire; services are fakes that a test scripts and looks at. Owns what a test says to a plugin. What a real host
does beyond one conversation, to supervise, confine and combine plugins, it refuses to know: `plugbay.testing` has that.
"""

from __future__ import annotations

from plugbay.model.errors import CallFailed, Failure, Origin
from plugbay.model.operations import (
    CallMethod,
    Chat,
    DeliverEvent,
    DeliverSnapshot,
    DispatchCli,
    InvokeAction,
    InvokeTool,
    PerformAction,
    PressKey,
    Render,
    RunHook,
    UseMouse,
)
from plugbay.sdk.contract_support import CONTRACTS, why_not
from plugbay.sdk.contracts.ainb_names import tool_namespaces
from plugbay.sdk.contracts.vai_names import export_id, offers
from plugbay.sdk.declaring import seconds
from plugbay.sdk.events import covers
from plugbay.sdk.io.detect import AINB, KAGED, MCP, NEXO, VAI
from plugbay.sdk.payloads import as_bytes
from plugbay.sdk.testing.called import called_value
from plugbay.sdk.testing.core import BegunCall, Core
from plugbay.sdk.testing.parts import Channel, VectorStore
from plugbay.sdk.testing.screens import CliOutput, Drawing, key_event, mouse_event
from plugbay.sdk.testing.vai import Errand, tool_value
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from plugbay.model.spec import Export
    from plugbay.sdk.plugin import Plugin

__all__ = ["CallFailed", "Failure", "MemoryHost", "contracts_of", "host"]


def contracts_of(plugin: Plugin) -> list[str]:
    """The contracts that carry something of the plugin, for `pytest.mark.parametrize`."""
    return [name for name in CONTRACTS if not why_not(plugin, name) or (name == AINB and tool_namespaces(plugin))]


def host(
    plugin: Plugin,
    contract: str = NEXO,
    *,
    config: Mapping[str, Any] | None = None,
    secrets: Mapping[str, Any] | None = None,
    grants: Iterable[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> MemoryHost:
    """A host of this contract that serves this plugin, as a context manager.

    `grants` None grants whatever the plugin asks for. The manifest follows from the code; with `folder`, it is the one
    that lies there. Raises `ManifestInvalid` for a plugin that the contract would not take, and `ConfigInvalid` for
    settings that break their schema.
    """
    return MemoryHost(plugin, contract, config=config, secrets=secrets, grants=grants, folder=folder)


class MemoryHost(Core):
    """A host of one plugin. The services it has for that plugin are its attributes."""

    _generation = 0
    artifacts: dict[str, bytes] = {}
    """What the last harness left, by path."""

    # Tools and methods.

    def call(
        self, name: str, input: Any = None, *, context: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """What a tool or a method returns; raises `CallFailed`. Its name is the author's, or the contract's.

        The value is the same under every contract: content and structured output are what made them, and under
        ainb, which has no tools, it comes through the command line that tools are behind.
        """
        return self._result(self.begin(name, input, context=context, timeout=timeout))

    def begin(
        self, name: str, input: Any = None, *, context: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> BegunCall:
        """Make a call and do not wait for it: it has `progress`, `cancel()` and `result()`."""
        given = self._json({} if input is None else input)
        if self.contract == AINB:
            return self._begin_words(name, given, timeout)
        export = self._export(name, "tool", "method")
        self._refuse_misfit(export, given)
        if self.contract == MCP:
            return self._begun(InvokeTool(export.name, given), timeout, lambda result: called_value(result, export))
        if self.contract != VAI:
            make = CallMethod if export.kind == "method" else InvokeTool
            return self._begun(make(export.name, given, dict(context or {})), timeout)
        errand = self._errand(export, context, timeout)
        returns = getattr(offers(self.plugin)[export.name].handler, "output_schema", None)
        call = self._begun(errand.tool(given), timeout, lambda result: tool_value(result, returns))
        return call.then(errand.close)

    def _begin_words(self, name: str, given: Any, timeout: float | None) -> BegunCall:
        """A tool by the command line that tools are behind."""
        lines = tool_namespaces(self.plugin)
        if name not in self.plugin.tools or not lines:
            raise CallFailed(self._unknown("tool", name, list(self.plugin.tools) if lines else []))
        words = stdlib_codec().encode(given).decode()
        return self._begun(DispatchCli(lines[0], [name, words]), timeout, self._printed)

    def _printed(self, answer: Mapping[str, Any]) -> Any:
        done = CliOutput.read(answer)
        if done.exit_code == 0:
            return stdlib_codec().decode(done.stdout)
        code, _, message = done.stderr.decode().rstrip("\n").partition(": ")
        raise CallFailed(Failure(code, message, origin=Origin.PLUGIN, plugin=self.spec.id))

    # Hooks, compactors and harnesses.

    def fire(self, hook: str, event: Mapping[str, Any], *, context: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a hook answers; `hook` is what happens, such as `before_message` or `run.completed`."""
        if self.contract == VAI:
            found = [offer.id for offer in offers(self.plugin).values() if hook in offer.by_event]
            export = self._export(found[0] if found else hook, "hook")
            with self._errand(export, context, None) as errand:
                return dict(self.ask(errand.hook({"type": hook, **event})))
        export = self._export(hook, "hook")
        return dict(self.ask(RunHook(export.name, self._json(dict(event)), dict(context or {}))))

    def compact(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        keep: int = 20,
        max_tokens: int | None = None,
        pinned: Iterable[Any] = (),
        context: Mapping[str, Any] | None = None,
    ) -> list[Any] | None:
        """What a compactor leaves of a conversation; None when it leaves that to the host."""
        if self.plugin.compaction is None or self.contract not in (KAGED, VAI):
            raise CallFailed(self._unknown("compactor", "the compactor", []))
        if self.contract == VAI:
            export = self._export(export_id(self.plugin.compaction.name), "compactor")
            with self._errand(export, context, None) as errand:
                return list(self.ask(errand.compactor(messages, pinned, max_tokens))["seed_blocks"])
        event = {"strategy": "drop", "trigger": "manual", "messages": list(map(dict, messages)), "keep": keep}
        answer = self.ask(RunHook("pre_compact", self._json(event), dict(context or {})))
        left: list[Any] | None = answer.get("messages")
        return left

    def run(
        self,
        harness: str,
        text: str = "",
        *,
        trigger: Mapping[str, Any] | None = None,
        checkpoint: Any = None,
        context: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """The result of a harness: summary, checkpoint, references. With a `checkpoint` it goes on from there.

        What it left in files is in `host.artifacts`, what it told on its way in `host.progress`.
        """
        export = self._export(harness, "harness")
        with self._errand(export, context, timeout) as errand:
            result = dict(self.ask(errand.harness(text, trigger, checkpoint), timeout))
            self.artifacts = errand.artifacts(result)
            return result

    # Models, channels and vectors.

    def chat(
        self, provider: str, model: str, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, **request: Any
    ) -> dict[str, Any]:
        """A model's turn, with usage and all; with `stream`, what came before it is in `host.progress`."""
        usual = {"max_tokens": 4096, "temperature": 0.7, "tool_choice": {"kind": "auto"}, "cache_tools": False}
        asked = {"model": model, "messages": list(map(dict, messages)), **usual, **request}
        name = self._export(provider, "llm_provider").name
        return dict(self.ask(Chat(name, model, self._json(asked), stream=stream)))

    def channel(self, kind: str) -> Channel:
        """A channel that the plugin carries: `start`, `send`, `stop`."""
        return Channel(self, self._export(kind, "channel").name)

    def vectors(self, name: str) -> VectorStore:
        """A vector backend: `upsert`, `search`, `delete`."""
        return VectorStore(self, self._export(name, "vector_backend").name)

    # Screens and command lines.

    def render(self, screen: str = "", width: int = 80, height: int = 24) -> Drawing:
        """A picture of a screen, by default of the first."""
        name = screen or next(iter(self.plugin.screens), "")
        return Drawing(self.ask(Render(self._export(name, "screen").name, width, height, self._generation)))

    def press(self, screen: str, *keys: str) -> None:
        """Press keys, by their names: `space`, `ctrl+a`, `q`."""
        name = self._export(screen, "screen").name
        for key in keys:
            self._generation += 1
            self.tell(PressKey(name, key_event(key), self._generation))

    def mouse(self, screen: str, kind: str, x: int, y: int, button: str | None = None) -> None:
        """Use the mouse: `down`, `up` and `drag` with a button, `moved`, `scroll_up`, `scroll_down`."""
        self._generation += 1
        name = self._export(screen, "screen").name
        self.tell(UseMouse(name, mouse_event(kind, x, y, button), self._generation))

    def act(self, command: str, payload: Any = None) -> None:
        """Pick a command of the plugin's palette."""
        self.tell(PerformAction(command, self._json(payload)))

    def invoke(self, action: str, data: Any = b"", *, timeout: float | None = None) -> bytes:
        """Have the plugin do an action; `data` is bytes, a text or a JSON value."""
        return bytes(self.ask(InvokeAction(action, as_bytes(data)), timeout))

    def run_cli(self, namespace: str, argv: Sequence[str] = (), *, timeout: float | None = None) -> CliOutput:
        """Run a command line: what it wrote, byte for byte, and its status."""
        name = self._export(namespace, "cli_namespace").name
        return CliOutput.read(self.ask(DispatchCli(name, list(argv)), timeout))

    # Events and snapshots.

    def deliver(self, topic: str, payload: Any) -> None:
        """Have something happen that the plugin is told of: an event of the bus, or a snapshot.

        Waits until its handlers are done, and raises `CallFailed` when one fails: a real host would not hear of that.
        Raises `ValueError` for a topic that no host would tell this plugin of.
        """
        if self.contract == AINB and topic in self.topics:
            data = as_bytes(payload)
            self.keep(topic, data)
            self.tell(DeliverSnapshot(topic, data))
        elif any(covers(pattern, topic) for pattern in self.spec.subscribes):
            event = {"id": "00000000-0000-4000-8000-000000000000", "timestamp": "2001-02-03T04:05:06Z", "topic": topic}
            self.tell(DeliverEvent(topic, {**event, "source": "test", "session_id": None, "payload": payload}))
        else:
            heard = ", ".join((*self.spec.subscribes, *sorted(self.topics))) or "nothing"
            raise ValueError(f"{self.plugin.id} is not told of {topic!r} under {self.contract}: it hears of {heard}")

    def _errand(self, export: Export, about: Mapping[str, Any] | None, timeout: float | None) -> Errand:
        allowed = export.facts["timeout_ms"] / 1000 if timeout is None else seconds("timeout", timeout)
        return Errand(export, self.terms, about or {}, allowed)
