"""A host in memory, to test a plugin with: no process, no files, and every rule of the contract.

The machines of host and plugin are the real ones and talk through memory, so names, sizes, schemas and errors are those
of the wire; services are fakes that a test scripts and inspects. Supervision, confinement and several plugins at once
are tested with `plugbay.testing`.
"""

from __future__ import annotations

from binascii import a2b_base64
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.operations import (
    CallMethod,
    Chat,
    Compact,
    DeleteVectors,
    DeliverEvent,
    DeliverSnapshot,
    DispatchCli,
    InvokeAction,
    InvokeTool,
    PerformAction,
    PressKey,
    Render,
    RunHarness,
    RunHook,
    SearchVectors,
    SendOutbound,
    StartChannel,
    StopChannel,
    UpsertVectors,
    UseMouse,
)
from plugbay.model.topics import matches
from plugbay.model.values import Value
from plugbay.sdk.contract_support import CONTRACTS, unsupported_reason
from plugbay.sdk.contracts.ainb import tool_namespaces
from plugbay.sdk.contracts.mcp import tool_name
from plugbay.sdk.contracts.nexo import nexo_tool_name
from plugbay.sdk.contracts.vai import export_id, offers
from plugbay.sdk.declarations import seconds
from plugbay.sdk.io.detect import AINB, KAGED, MCP, NEXO, RUNE, VAI
from plugbay.sdk.results import KINDS, RESULT, read_artifact
from plugbay.sdk.screens.canvas import width
from plugbay.sdk.screens.inputs import MODS, SHIFT, canonical
from plugbay.sdk.services.brokered import as_bytes
from plugbay.sdk.testing.services import HostServices, bus_event
from plugbay.sdk.testing.session import Pending, Session
from plugbay.sdk.testing.spec import OperatorSettings, check, spec_of, with_greeting
from plugbay.wire.strict_json import Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Protocol, Self

    from plugbay.model.operations import PluginOp
    from plugbay.model.spec import Export
    from plugbay.sdk.plugin import Plugin

    class Asks(Protocol):
        def ask(self, op: PluginOp, timeout: float | None = None) -> Any: ...


__all__ = ["CallFailed", "Failure", "MemoryHost", "contracts_of", "host"]

SETTLE_SECONDS = 5.0
"""Seconds for a plugin to process notifications."""

LOOK_SECONDS = 0.002
"""Seconds between two checks of a condition."""


def contracts_of(plugin: Plugin) -> list[str]:
    """The contracts that support any of the plugin's declarations, for `pytest.mark.parametrize`."""
    return [
        name for name in CONTRACTS if not unsupported_reason(plugin, name) or (name == AINB and tool_namespaces(plugin))
    ]


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

    `grants` None grants everything that the plugin requests. The manifest is generated from the code, or read from
    `folder`. Raises `ManifestInvalid` for a plugin that the contract refuses, and `ConfigInvalid` for settings that
    break their schema.
    """
    return MemoryHost(plugin, contract, config=config, secrets=secrets, grants=grants, folder=folder)


class StartedCall:
    """A started call. `progress` collects the progress before its answer."""

    def __init__(self, pending: Pending, read: Callable[[Any], Any], plugin_id: str) -> None:
        self.progress = pending.progress
        self.cancel = pending.cancel
        self._pending = pending
        self._read = read
        self._plugin_id = plugin_id
        self._ends: list[Callable[[], None]] = []

    def then(self, end: Callable[[], None]) -> Self:
        """Run `end` when the call is over, also after a failure."""
        self._ends.append(end)
        return self

    def result(self) -> Any:
        """Wait for the result; raises `CallFailed`."""
        try:
            finished = self._pending.finished()
            if finished.failure is not None:
                raise CallFailed(finished.failure.with_detail(self._plugin_id))
            return self._read(finished.value)
        finally:
            for end in self._ends:
                end()


class MemoryHost(HostServices):
    """A host of one plugin. The services it has for that plugin are its attributes."""

    def __init__(
        self,
        plugin: Plugin,
        contract: str,
        *,
        config: Mapping[str, Any] | None = None,
        secrets: Mapping[str, Any] | None = None,
        grants: Iterable[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.plugin = plugin
        self.contract = contract
        self.spec = spec_of(plugin, contract, folder)
        self.terms = OperatorSettings(self.spec, grants, config, secrets)
        super().__init__(self.spec, self.terms.gate)
        self.progress: list[Any] = []
        """Progress of the last call."""
        self.artifacts: dict[str, bytes] = {}
        """Artifacts of the last harness, by path."""
        self._session: Session | None = None
        self._stderr: list[str] = []
        self._generation = 0

    def __enter__(self) -> Self:
        if self.contract != RUNE:  # where every call has a process of its own
            self._session = self._begin_session()
            self.spec = with_greeting(self.spec, self._hello())
            self.settle()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        session, self._session = self._session, None
        try:
            if session is not None:
                self._end_session(session)
        except CallFailed:
            if error is None:
                raise

    def _begin_session(self) -> Session:
        return Session(self.plugin, self.terms.machine(self.spec), self, self.spec.timeouts.handshake)

    @property
    def stderr(self) -> list[str]:
        """Lines on stderr while the plugin was served: logs and tracebacks, if the contract has no message for them."""
        return self._stderr + (self._session.stderr if self._session else [])

    def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Wait until all notifications are processed; raises `CallFailed` for a failed handler."""
        if self._session is not None:
            self._session.settle(seconds)

    def until(self, condition: Callable[[], Any], seconds: float = SETTLE_SECONDS) -> None:
        """Wait until the condition is true; for work in the plugin's own threads or tasks."""
        deadline = monotonic() + seconds
        while not condition():
            if monotonic() > deadline:
                raise AssertionError(f"the condition was not true within {seconds:g} s")
            sleep(LOOK_SECONDS)

    # Any request and notification.

    def ask(self, op: PluginOp, timeout: float | None = None) -> Any:
        """The answer to any operation, as the contract has it; raises `CallFailed`."""
        return self._result(self._start_call(op, timeout))

    def tell(self, op: PluginOp) -> None:
        """Send a notification, and wait until it is processed."""
        if self._session is None:
            raise CallFailed(Failure(Code.UNAVAILABLE, f"no process takes notifications under {self.contract}"))
        refusal = self._session.connection.notify(op)
        if refusal is not None:
            raise CallFailed(refusal)
        self.settle()

    def _start_call(
        self, op: PluginOp, timeout: float | None, read: Callable[[Any], Any] = lambda value: value
    ) -> StartedCall:
        """Start a call; `read` converts its answer."""
        session = self._session
        if session is None and self.contract != RUNE:
            raise CallFailed(Failure(Code.UNAVAILABLE, "the host is not running: with testing.host(…) as host:"))
        patience = self.spec.patience.get(type(op).__name__, self.spec.timeouts.call)
        allowed = patience if timeout is None else seconds("timeout", timeout)
        talk = session or self._begin_session()
        pending = Pending(talk.connection, op, allowed, self.spec.timeouts.grace)
        call = StartedCall(pending, read, self.spec.id)
        return call if session is not None else call.then(lambda: self._end_session(talk))

    def _end_session(self, session: Session) -> None:
        try:
            session.close()
        finally:
            self._stderr += session.stderr

    def _result(self, call: StartedCall) -> Any:
        self.progress = call.progress
        return call.result()

    # Exports.

    def _export(self, name: str, *kinds: str) -> Export:
        """The export with the author's `name`, or its name in the contract."""
        called = {name.removeprefix(f"{self.spec.id}/"), self._spell(name)}
        offered = [export for export in self.spec.exports if export.kind in kinds]
        for export in offered:
            if export.name in called:
                refusal = self.terms.missing(self.spec, export)
                if refusal is not None:
                    raise CallFailed(refusal)
                return export
        raise CallFailed(self._unknown(kinds[0], name, [export.name for export in offered]))

    def _spell(self, name: str) -> str:
        if self.contract == NEXO:
            return nexo_tool_name(self.spec.id, name)
        if self.contract == MCP:
            return tool_name(name)
        return export_id(name) if self.contract == VAI else name

    def _unknown(self, kind: str, name: str, known: Sequence[str]) -> Failure:
        noun = kind.replace("_", " ")
        there = f"there is {', '.join(known)}" if known else f"it has none under {self.contract}"
        return Failure(Code.NOT_FOUND, f"{self.plugin.id} has no {noun} {name!r}: {there}", plugin=self.spec.id)

    def _refuse_misfit(self, export: Export, given: Any) -> None:
        learned = {tool["name"]: tool.get("input_schema") for tool in self._hello().get("tools", ())}
        schema = learned.get(export.name, export.input_schema)
        if schema is not None:
            check(schema, given, export.name, self.spec.id)

    def _hello(self) -> Mapping[str, Any]:
        return {} if self._session is None else self._session.connection.hello

    def _json(self, value: Any) -> Any:
        """A copy of the value through JSON, as on the wire."""
        try:
            return stdlib_codec().decode(stdlib_codec().encode(value))
        except Unencodable as error:
            raise CallFailed(Failure(Code.INVALID_INPUT, f"the input is not JSON: {error}")) from None

    # Tools and methods.

    def call(
        self, name: str, input: Any = None, *, context: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """The result of a tool or a method; raises `CallFailed`. Its name is the author's, or the contract's.

        The value is the same under every contract: content and structured output are converted back, and under ainb,
        which has no tools, it comes through the command line of the tools.
        """
        return self._result(self.begin(name, input, context=context, timeout=timeout))

    def begin(
        self, name: str, input: Any = None, *, context: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> StartedCall:
        """Start a call and do not wait for it: it has `progress`, `cancel()` and `result()`."""
        given = self._json({} if input is None else input)
        if self.contract == AINB:
            return self._begin_words(name, given, timeout)
        export = self._export(name, "tool", "method")
        self._refuse_misfit(export, given)
        if self.contract == MCP:
            return self._start_call(
                InvokeTool(export.name, given), timeout, lambda result: called_value(result, export)
            )
        if self.contract != VAI:
            make = CallMethod if export.kind == "method" else InvokeTool
            return self._start_call(make(export.name, given, dict(context or {})), timeout)
        vai_request = self._vai_request(export, context, timeout)
        returns = getattr(offers(self.plugin)[export.name].handler, "output_schema", None)
        call = self._start_call(vai_request.tool(given), timeout, lambda result: tool_value(result, returns))
        return call.then(vai_request.close)

    def _begin_words(self, name: str, given: Any, timeout: float | None) -> StartedCall:
        """Call a tool through its command line."""
        lines = tool_namespaces(self.plugin)
        if name not in self.plugin.tools or not lines:
            raise CallFailed(self._unknown("tool", name, list(self.plugin.tools) if lines else []))
        words = stdlib_codec().encode(given).decode()
        return self._start_call(DispatchCli(lines[0], [name, words]), timeout, self._printed)

    def _printed(self, answer: Mapping[str, Any]) -> Any:
        done = CliOutput.read(answer)
        if done.exit_code == 0:
            return stdlib_codec().decode(done.stdout)
        code, _, message = done.stderr.decode().rstrip("\n").partition(": ")
        raise CallFailed(Failure(code, message, origin=Origin.PLUGIN, plugin=self.spec.id))

    # Hooks, compactors and harnesses.

    def fire(self, hook: str, event: Mapping[str, Any], *, context: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer of a hook; `hook` is an event, for example `before_message` or `run.completed`."""
        if self.contract == VAI:
            found = [offer.id for offer in offers(self.plugin).values() if hook in offer.by_event]
            export = self._export(found[0] if found else hook, "hook")
            with self._vai_request(export, context, None) as vai_request:
                return dict(self.ask(vai_request.hook({"type": hook, **event})))
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
        """The messages that a compactor keeps; None if it leaves compaction to the host."""
        if self.plugin.compaction is None or self.contract not in (KAGED, VAI):
            raise CallFailed(self._unknown("compactor", "the compactor", []))
        if self.contract == VAI:
            export = self._export(export_id(self.plugin.compaction.name), "compactor")
            with self._vai_request(export, context, None) as vai_request:
                return list(self.ask(vai_request.compactor(messages, pinned, max_tokens))["seed_blocks"])
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
        """The result of a harness: summary, checkpoint, references. With a `checkpoint` it continues from there.

        Its files are in `host.artifacts`, its progress in `host.progress`.
        """
        export = self._export(harness, "harness")
        with self._vai_request(export, context, timeout) as vai_request:
            result = dict(self.ask(vai_request.harness(text, trigger, checkpoint), timeout))
            self.artifacts = vai_request.artifacts(result)
            return result

    # Models, channels and vectors.

    def chat(
        self, provider: str, model: str, messages: Sequence[Mapping[str, Any]], *, stream: bool = False, **request: Any
    ) -> dict[str, Any]:
        """The complete answer of a model; with `stream`, the pieces are in `host.progress`."""
        usual = {"max_tokens": 4096, "temperature": 0.7, "tool_choice": {"kind": "auto"}, "cache_tools": False}
        asked = {"model": model, "messages": list(map(dict, messages)), **usual, **request}
        name = self._export(provider, "llm_provider").name
        return dict(self.ask(Chat(name, model, self._json(asked), stream=stream)))

    def channel(self, kind: str) -> Channel:
        """A channel of the plugin: `start`, `send`, `stop`."""
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
        """Run a command of the plugin's palette."""
        self.tell(PerformAction(command, self._json(payload)))

    def invoke(self, action: str, data: Any = b"", *, timeout: float | None = None) -> bytes:
        """Invoke an action of the plugin; `data` is bytes, a text or a JSON value."""
        return bytes(self.ask(InvokeAction(action, as_bytes(data)), timeout))

    def run_cli(self, namespace: str, argv: Sequence[str] = (), *, timeout: float | None = None) -> CliOutput:
        """Run a command line: its output, byte for byte, and its status."""
        name = self._export(namespace, "cli_namespace").name
        return CliOutput.read(self.ask(DispatchCli(name, list(argv)), timeout))

    # Events and snapshots.

    def deliver(self, topic: str, payload: Any) -> None:
        """Deliver an event of the bus or a snapshot to the plugin.

        Waits until its handlers are done, and raises `CallFailed` when one fails: a real host would not notice.
        Raises `ValueError` for a topic that the plugin is not subscribed to.
        """
        if self.contract == AINB and topic in self.topics:
            data = as_bytes(payload)
            self.keep(topic, data)
            self.tell(DeliverSnapshot(topic, data))
        elif any(matches(pattern, topic) for pattern in self.spec.subscribes):
            self.tell(DeliverEvent(topic, bus_event(topic, "test", payload)))
        else:
            heard = ", ".join((*self.spec.subscribes, *sorted(self.topics))) or "none"
            raise ValueError(f"{self.plugin.id} gets no event of {topic!r} under {self.contract}; its topics: {heard}")

    def _vai_request(self, export: Export, about: Mapping[str, Any] | None, timeout: float | None) -> VaiRequest:
        allowed = export.facts["timeout_ms"] / 1000 if timeout is None else seconds("timeout", timeout)
        return VaiRequest(export, self.terms, about or {}, allowed)


def called_value(result: Mapping[str, Any], tool: Export) -> Any:
    """The tool's value, from an MCP result."""
    content, output = result.get("content") or [], result.get("structuredContent")
    if output is None:
        texts = [item["text"] for item in content if item.get("type") == "text"]
        return "".join(texts) if content and len(texts) == len(content) else content or None
    return output[RESULT] if set(output) == {RESULT} and not _promises_more(tool) else output


def _promises_more(tool: Export) -> bool:
    """Whether `result` is a key of the author: then its schema has another form than a generated one."""
    schema = tool.output_schema
    return schema is not None and schema.get("required") != [RESULT]


class Channel:
    """One kind of channel."""

    def __init__(self, host: Asks, kind: str) -> None:
        self._host = host
        self._kind = kind

    def start(self, instance: str | None = None) -> None:
        self._host.ask(StartChannel(self._kind, instance))

    def send(self, message: Mapping[str, Any] | str, to: str = "ada") -> dict[str, Any]:
        """The receipt of a message, or of a text to a recipient: `{message_id, sent_at_unix}`."""
        whole = {"kind": "text", "to": to, "body": message} if isinstance(message, str) else dict(message)
        return dict(self._host.ask(SendOutbound(self._kind, whole)))

    def stop(self) -> None:
        self._host.ask(StopChannel(self._kind))


class VectorStore:
    """One vector backend."""

    def __init__(self, host: Asks, name: str) -> None:
        self._host = host
        self._name = name

    def upsert(self, collection: str, records: Sequence[Mapping[str, Any]]) -> int:
        """How many of `{id, content, embedding, metadata}` were stored."""
        return int(self._host.ask(UpsertVectors(self._name, collection, list(map(dict, records))))["count"])

    def search(self, collection: str, embedding: Sequence[float], limit: int = 10, **query: Any) -> list[Any]:
        whole = {"embedding": list(embedding), "limit": limit, **query}
        return list(self._host.ask(SearchVectors(self._name, collection, whole))["matches"])

    def delete(self, collection: str, ids: Sequence[str]) -> int:
        return int(self._host.ask(DeleteVectors(self._name, collection, list(ids)))["count"])


class CliOutput(Value):
    """The output of a command line, byte for byte, and its exit status."""

    __slots__ = ("exit_code", "stderr", "stdout")

    def __init__(self, stdout: bytes, stderr: bytes, exit_code: int) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> CliOutput:
        return cls(a2b_base64(answer["stdout"]), a2b_base64(answer["stderr"]), answer["exit_code"])


class Drawing:
    """One picture of a screen. `cells` are `{symbol, fg, bg, modifier}` by (x, y)."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        buffer = answer["buffer"]
        self.width: int = buffer["width"]
        self.height: int = buffer["height"]
        self.cells: dict[tuple[int, int], dict[str, Any]] = {(at["x"], at["y"]): cell for at, cell in buffer["cells"]}
        self.redraw: bool = answer.get("redraw", False)
        self.captures_text: bool = answer.get("captures_text", False)

    def lines(self) -> list[str]:
        """The text of each row, without the blanks at its end."""
        return [self._line(y) for y in range(self.height)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines()).rstrip("\n")

    def _line(self, y: int) -> str:
        symbols, x = [], 0
        while x < self.width:
            symbols.append(self.cells.get((x, y), {"symbol": " "})["symbol"])
            x += max(width(symbols[-1]), 1)
        return "".join(symbols).rstrip(" ")


def key_event(name: str) -> dict[str, Any]:
    """A host's description of a key, by its name in `on_key`: `space`, `ctrl+a`, `page_up`, `é`."""
    *held, last = canonical(name).split("+") if not name.endswith("+") else [*name[:-1].rstrip("+").split("+"), "+"]
    mods = sum(MODS[word] for word in held if word)
    return {"code": _code(last), "mods": mods | (SHIFT if len(last) == 1 and last.isupper() else 0), "kind": "press"}


def _code(last: str) -> dict[str, Any]:
    if len(last) == 1 or last == "space":
        return {"type": "char", "ch": " " if last == "space" else last}
    if last[:1] == "f" and last[1:].isdigit():
        return {"type": "f", "n": int(last[1:])}
    return {"type": last}


def mouse_event(kind: str, x: int, y: int, button: str | None = None, mods: int = 0) -> dict[str, Any]:
    """A host's description of a mouse event: `down`, `up`, `drag` with a button, `moved`, `scroll_up` and the like."""
    pressed = {} if button is None else {"button": {"type": button}}
    return {"kind": {"type": kind, **pressed}, "col": x, "row": y, "mods": mods}


IDS = ("org_id", "project_id", "session_id", "chain_id", "run_id")
"""Ids that a caller may set for a call."""

ENOUGH_TOKENS = 100_000
"""Default of the tokens of a compacted conversation."""

NONE = "none"

_numbers = count(1)


class VaiRequest:
    """One request: its context, deadline, settings, and scratch folder, which `close` removes."""

    def __init__(self, export: Export, terms: OperatorSettings, about: Mapping[str, Any], seconds: float) -> None:
        self._export = export
        self._terms = terms
        self._about = dict(about)
        self._until = datetime.fromtimestamp(time() + seconds, UTC)
        self.number = next(_numbers)
        asked = export.facts.get("permissions") or {}
        self._permissions = {
            "network": asked.get("network", NONE) if "network" in terms.granted else NONE,
            "filesystem": self._granted("filesystem", asked.get("filesystem", NONE)),
        }
        self._slots = [slot for slot in asked.get("secret_slots", ()) if f"secret={slot}" in terms.granted]
        self._folder = (
            TemporaryDirectory(prefix="plugbay-scratch-") if self._permissions["filesystem"] != NONE else None
        )
        self.scratch = None if self._folder is None else str(Path(self._folder.name).resolve())

    def _granted(self, name: str, value: str) -> str:
        return value if f"{name}={value}" in self._terms.granted else NONE

    def __enter__(self) -> VaiRequest:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def tool(self, given: Any) -> InvokeTool:
        return InvokeTool(self._export.name, given, {**self._beside(), "tool_execution_id": f"toolx_{self.number}"})

    def hook(self, event: Mapping[str, Any]) -> RunHook:
        beside = {**self._beside(), "delivery_id": f"del_{self.number}", "attempt": self._about.get("attempt", 1)}
        return RunHook(self._export.name, dict(event), beside)

    def compactor(self, messages: Iterable[Mapping[str, Any]], pinned: Iterable[Any], most: int | None) -> Compact:
        blocks = [block(message) for message in messages]
        projection = {"transport": "inline", "blocks": blocks, "pinned_items": list(pinned)}
        request = {
            "compaction_id": f"cmp_{self.number}",
            "source": {"chain_id": self._about.get("chain_id"), "projection": projection},
            "target": {"max_input_tokens": most or ENOUGH_TOKENS},
            "policy": {},
        }
        return Compact(self._export.name, request, self._beside())

    def harness(self, text: str, trigger: Mapping[str, Any] | None, checkpoint: Any) -> RunHarness:
        default = {"type": "user_request", "input": [{"type": "text", "text": text}] if text else []}
        target = {"session_id": None, "chain_id": None, "execution_id": f"exec_{self.number}"}
        request = {"mode": "start", "target": target, "trigger": dict(trigger or default), "policy": {}}
        if checkpoint is not None:
            kept = {"kind": self._export.facts.get("fidelity", "checkpoint"), "data": checkpoint}
            request |= {"mode": "resume", "checkpoint": kept}
        return RunHarness(self._export.name, request, self._beside())

    def artifacts(self, result: Mapping[str, Any]) -> dict[str, bytes]:
        """The files of a harness, by path; they are removed with the scratch folder."""
        return {ref["path"]: read_artifact(self.scratch, ref) for ref in result.get("artifacts") or ()}

    def _beside(self) -> dict[str, Any]:
        context = {
            "invocation_id": f"inv_{self.number}",
            "trace_id": f"tr_{self.number}",
            "org_id": "default",
            **{name: self._about.get(name) for name in IDS if name != "org_id"},
            **({"org_id": self._about["org_id"]} if "org_id" in self._about else {}),
            "deadline_at": self._until.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "scratch_dir": self.scratch,
            "gateway": {"base_url": None, "delegation_token": None, "scopes": []},
            "permissions": self._permissions,
        }
        secrets = {name: self._terms.secrets[name] for name in self._slots if name in self._terms.secrets}
        return {"context": context, "config": self._terms.config, "secrets": secrets}


def block(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as a block of a conversation; a block as it is."""
    if "kind" in message:
        return dict(message)
    content = message.get("content", "")
    items = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"kind": KINDS.get(str(message.get("role")), "input"), "content": items}


def tool_value(result: Mapping[str, Any], schema: Any) -> Any:
    """The value of a tool, from content and structured output; `schema` is that of its results."""
    content, output = result.get("content") or [], result.get("structured_output")
    text = "".join(str(item.get("text", "")) for item in content)
    if result.get("is_error"):
        raise CallFailed(Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN))
    if output is None:
        return text if all(item.get("type") == "text" for item in content) and content else content or None
    kinds = (schema or {}).get("type", ())
    is_object = "object" in ([kinds] if isinstance(kinds, str) else kinds)
    return output[RESULT] if set(output) == {RESULT} and not is_object else output
