"""A plugin under ainb: names, manifest, screens, keys, snapshots, actions and command lines.

Loaded when an ainb host has spoken. Handlers run one at a time: keys first, everything else in order, while the reader
stays free for replies. ainb has no tools, so they are offered as one command line:

    shop                          lists the tools
    shop quote '{"items": []}'    the result is JSON on stdout; an error is `code: message` on stderr
"""

from __future__ import annotations

from plugbay.contracts.ainb.machine import AinbMachine
from plugbay.contracts.ainb.messages import ABI_VERSION, CAPABILITIES, Identity
from plugbay.contracts.base import Role
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallFinished
from plugbay.model.operations import (
    DeliverSnapshot,
    DispatchCli,
    InvokeAction,
    PerformAction,
    PressKey,
    Publish,
    Render,
    SubscribeSnapshot,
    UseMouse,
)
from plugbay.sdk.context import Context, Settings
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.io.stdio import note
from plugbay.sdk.runtime.connection import BlockingClient, Connection
from plugbay.sdk.runtime.dispatch import KEYS, MOUSE, Task, ToolTask
from plugbay.sdk.runtime.executor import SerialQueue
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.screens import inputs
from plugbay.sdk.screens.canvas import Canvas, Picture
from plugbay.sdk.services.brokered import Snapshot, as_bytes
from plugbay.sdk.services.host_client import MODELS, PEOPLE, STORAGE
from plugbay.sdk.types.handlers import Handler
from plugbay.wire.strict_json import Malformed, Unencodable, stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.operations import Operation
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.connection import Reply, Sink
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.runtime.resident import Served
    from plugbay.sdk.types.handlers import Command, Listener, Screen, Tool
    from plugbay.wire.strict_json import Codec

    class Plugin(Served, Protocol):
        """The plugin that is served."""

        @property
        def screens(self) -> Mapping[str, Screen]: ...
        @property
        def keys(self) -> Sequence[Listener]: ...
        @property
        def mice(self) -> Sequence[Listener]: ...
        @property
        def commands(self) -> Mapping[str, Handler]: ...
        @property
        def clis(self) -> Mapping[str, Command]: ...
        @property
        def actions(self) -> Mapping[str, Command]: ...
        @property
        def capabilities(self) -> tuple[str, ...]: ...
        @property
        def topics(self) -> Sequence[str]: ...
        @property
        def snapshots(self) -> Sequence[tuple[str | None, Handler]]: ...
        @property
        def latest(self) -> Sequence[str]: ...
        @property
        def knobs(self) -> Mapping[str, Mapping[str, Any]]: ...
        @property
        def eager(self) -> bool: ...
        @property
        def idle_seconds(self) -> int | None: ...


SHUTDOWN_SHARE = 0.6
"""Of the resident loop's times to leave: 3 s in all. Hosts wait 5 s, and ours hopes for the answer within three."""

UNSUPPORTED = MODELS | STORAGE | PEOPLE | {Publish}
"""Operations that ainb hosts do not support."""

MAX_CELLS = 1 << 20
"""Cells of a screen: thirty times the largest display. A canvas takes 8 bytes for each."""

EVENT_BUS = "event_bus"
"""The capability required for snapshots."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Serve an ainb host; `first` was read already."""
    dispatcher = AinbDispatcher(plugin)
    name = ainb_name(plugin.id)
    namespaces = tuple(cli_namespaces(plugin))
    identity = Identity(name, plugin.version, ainb_manifest_object(plugin), dispatcher.serves(), namespaces)
    machine = AinbMachine(Role.PLUGIN, PictureCodec(codec), identity=identity)
    machine.greet()
    connection, settings = Connection(machine, wire, UNSUPPORTED), Settings()

    def greeted(hello: Mapping[str, Any]) -> None:
        config = hello["config"]
        settings.take(config if isinstance(config, dict) else {}, {})
        if EVENT_BUS in hello["granted"]:
            _subscribe(connection, subscribed_topics(plugin))

    if plugin.clis or plugin.actions:
        from plugbay.sdk.screens.command_lines import route

        route()
    plugin.connect(Context(BlockingClient(connection), name, settings=settings))
    resident = Resident(
        connection,
        dispatcher,
        name,
        plugin.ready_handlers,
        plugin.shutdown_handlers,
        settings=settings,
        greeted=greeted,
        pace=SHUTDOWN_SHARE,
        serial=SerialQueue(),
    )
    wire.attend(resident)
    resident.run(first)


def _subscribe(connection: Connection, topics: list[str]) -> None:
    """Subscribe to the topics of handlers; a host that has subscribed the plugin already ignores it."""
    for topic in topics:
        try:
            connection.ask(SubscribeSnapshot(topic), _refusal_of(topic))
        except ServiceError as error:
            note(f"no snapshots of {topic} arrive: {error}")


def _refusal_of(topic: str) -> Sink:
    """Log a refused subscription."""

    def heard(answer: Reply) -> None:
        if isinstance(answer, CallFinished) and answer.failure is not None:
            note(f"no snapshots of {topic} arrive: {answer.failure.message}")

    return heard


class PictureCodec:
    """A codec that sends a `Picture` as the JSON it already is."""

    __slots__ = ("_encode", "decode", "decoder", "dump", "load", "raw_type")

    def __init__(self, codec: Codec) -> None:
        self.raw_type = codec.raw_type
        self.decode, self.decoder, self.load, self.dump = codec.decode, codec.decoder, codec.load, codec.dump
        self._encode = codec.encode

    def encode(self, value: Any) -> bytes:
        return value.json if type(value) is Picture else self._encode(value)


class AinbDispatcher:
    """Finds the tasks for requests and notifications of an ainb host."""

    __slots__ = ("_keys", "_plugin")

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._keys = [(frozenset(map(inputs.canonical, key.names)), key) for key in plugin.keys]
        for listener in (*plugin.keys, *plugin.mice):
            if listener.screen not in plugin.screens:
                raise ValueError(
                    f"a handler listens to keys or the mouse of {listener.screen!r}, which is not a screen"
                )

    def serves(self) -> frozenset[type]:
        """The operations that are answered; a plugin without screens draws an empty one, as hosts always render."""
        return frozenset({Render, DispatchCli, *([InvokeAction] if self._plugin.actions else ())})

    def task_for(self, op: Operation) -> Task | Failure:
        match op:
            case Render():
                return self._render(op)
            case DispatchCli():
                return self._dispatch(op)
            case InvokeAction():
                return self._action(op)
        raise TypeError(f"ainb does not ask a plugin for {type(op).__name__}")

    def tasks_for(self, op: Operation) -> list[Task]:
        match op:
            case PressKey():
                return self._key(op)
            case UseMouse():
                return self._mouse(op)
            case PerformAction():
                return self._command(op)
            case DeliverSnapshot():
                return self._snapshot(op)
        return []

    # Requests.

    def _render(self, op: Render) -> Task | Failure:
        if not self._plugin.screens:
            return Drawing(_NOBODY, 0, 0)
        screen = self._plugin.screens.get(self._screen(op.screen))
        if screen is None:
            return _unknown("screen", op.screen, self._plugin.screens)
        if op.width * op.height > MAX_CELLS:
            return _refused(f"a screen of {op.width} by {op.height} cells is too large for a plugin")
        if op.width < screen.min_width or op.height < screen.min_height:
            return Drawing(_too_small(screen), op.width, op.height)
        return Drawing(screen, op.width, op.height)

    def _dispatch(self, op: DispatchCli) -> Task:
        """One of the author's command lines, an action, or the command line of the tools."""
        command, action = self._plugin.clis.get(op.namespace), self._plugin.actions.get(op.namespace)
        if command is not None:
            from plugbay.sdk.screens.command_lines import CliTask

            return CliTask(command, list(op.argv))
        if action is None:
            return tool_command_task(self._plugin.tools, op.argv)
        if list(op.argv) == ["--help"]:
            return _output_task(f"{op.namespace} [TEXT…]: an action of {self._plugin.id}; TEXT is its data\n", DONE)
        from plugbay.sdk.screens.command_lines import ActionCliTask

        return ActionCliTask(action, " ".join(op.argv).encode())

    def _action(self, op: InvokeAction) -> Task | Failure:
        action = self._plugin.actions.get(op.action)
        if action is None:
            return _unknown("action", op.action, self._plugin.actions)
        return Task(action, op.data, shape=as_bytes, concurrent=action.concurrent)

    # Notifications.

    def _key(self, op: PressKey) -> list[Task]:
        key, screen = inputs.key(op.key), self._screen(op.screen)
        return [
            Task(handler, key, label=f"screen {screen}", lane=KEYS)
            for names, handler in self._keys
            if handler.screen == screen
            and (not names or key.name in names)
            and (handler.releases or key.kind != "release")
        ]

    def _mouse(self, op: UseMouse) -> list[Task]:
        mouse, screen = inputs.mouse(op.mouse), self._screen(op.screen)
        return [
            Task(handler, mouse, label=f"screen {screen}", lane=MOUSE)
            for handler in self._plugin.mice
            if handler.screen == screen
        ]

    def _command(self, op: PerformAction) -> list[Task]:
        handler = self._plugin.commands.get(op.action)
        if handler is None:
            note(f"{self._plugin.id}: there is no command {op.action!r}")
            return []
        return [Task(handler, op.payload, label=op.action)]

    def _snapshot(self, op: DeliverSnapshot) -> list[Task]:
        snapshot = Snapshot(op.topic, op.data)
        return [
            Task(handler, snapshot, label=op.topic, weight=len(op.data))
            for topic, handler in self._plugin.snapshots
            if topic is None or topic == op.topic
        ]

    def _screen(self, name: str) -> str:
        """The screen's name: some hosts have their own name for the only screen, or none."""
        screens = self._plugin.screens
        return next(iter(screens), "") if not name or len(screens) == 1 else name


class Drawing(Task):
    """A screen to draw. The canvas is created when the task runs, so that waiting tasks stay small."""

    __slots__ = ("_height", "_width")

    def __init__(self, handler: Handler, width: int, height: int) -> None:
        super().__init__(handler)
        self._width = width
        self._height = height

    def call(self, context: MakeContext, send: Send) -> Any:
        self.arguments = (Canvas(self._width, self._height),)
        return super().call(context, send)

    def settle(self, value: Any, send: Send) -> Picture:
        canvas: Canvas = self.arguments[0]
        return canvas.picture()


_NOBODY = Handler(lambda canvas: None)


def _too_small(screen: Screen) -> Handler:
    text = f"needs {screen.min_width}x{screen.min_height}"
    return Handler(lambda canvas: canvas.text(0, 0, text, dim=True))


def _unknown(what: str, name: str, known: Mapping[str, object]) -> Failure:
    return _refused(f"there is no {what} {name!r}; there is {', '.join(known)}")


def _refused(why: str) -> Failure:
    return Failure(Code.INVALID_INPUT, why, origin=Origin.PLUGIN)


KINDS = {"path": "path", "text": "string", "multiline": "string", "boolean": "bool", "enum": "enum", "int_range": "int"}
"""The type of setting for each type of knob; other knobs are left out."""


def ainb_name(id: str) -> str:
    """An id as the name of a folder and of the program in it."""
    return "".join("-" if char in "/\\" or not char.isprintable() else char for char in id).lstrip(".")


def cli_namespaces(plugin: Plugin) -> list[str]:
    """Every command line. Actions are among them: hosts look for the plugin of an action by such a name."""
    return list(dict.fromkeys([*plugin.clis, *plugin.actions, *tool_namespaces(plugin)]))


def tool_namespaces(plugin: Plugin) -> list[str]:
    """The command line for all tools, unless its name is taken."""
    name = "-".join(ainb_name(plugin.id).split()).lstrip("-")
    return [name] if plugin.tools and name not in {*plugin.clis, *plugin.actions} else []


def subscribed_topics(plugin: Plugin) -> list[str]:
    """The topics that handlers are declared for."""
    return list(dict.fromkeys(topic for topic, _ in plugin.snapshots if topic is not None))


def supported_capabilities(capabilities: Iterable[str]) -> dict[str, bool | list[str]]:
    """ainb's capabilities as grants: `network` requests all hosts, `network=HOST` one."""
    grants: dict[str, bool | list[str]] = {}
    for capability in capabilities:
        name, narrowed, target = capability.partition("=")
        if name not in CAPABILITIES:
            continue
        grant = grants.setdefault(name, [])
        if not narrowed:
            grants[name] = True
        elif isinstance(grant, list) and target not in grant:
            grant.append(target)
    return grants


def ainb_manifest_object(plugin: Plugin) -> dict[str, Any]:
    """The manifest as an object, without empty sections."""
    known = {"name": ainb_name(plugin.id), "version": plugin.version, "abi_version": ABI_VERSION}
    description = plugin.description or plugin.name
    sections: dict[str, Any] = {
        "plugin": {**known, **({"description": description} if description else {})},
        "capabilities": supported_capabilities(plugin.capabilities),
        "provides": _said(
            screens=list(plugin.screens),
            commands=list(plugin.commands),
            cli_namespaces=cli_namespaces(plugin),
            snapshots=list(plugin.topics),
        ),
        "subscribes": _said(snapshots=subscribed_topics(plugin), latest_state=list(plugin.latest)),
        "lifecycle": {
            **({"spawn": "eager"} if plugin.eager else {}),
            **({} if plugin.idle_seconds is None else {"idle_reap_secs": plugin.idle_seconds}),
        },
        "config": [_setting(name, facts) for name, facts in plugin.knobs.items() if facts["type"] in KINDS],
    }
    return {name: section for name, section in sections.items() if section}


def _said(**lists: list[str]) -> dict[str, list[str]]:
    return {name: items for name, items in lists.items() if items}


def _setting(name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A knob; its default is a text for every type."""
    default = facts.get("default")
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return {
        "key": str(facts["binds_to"]).removeprefix("config."),
        "kind": KINDS[facts["type"]],
        "label": facts["label"],
        **({} if default is None else {"default": text}),
        **({"choices": list(facts["values"])} if "values" in facts else {}),
    }


DONE, FAILED, MISUSED = 0, 1, 2
"""Exit codes: a result, an error of the tool, or a wrong command line."""


def tool_command_task(tools: Mapping[str, Tool], argv: Sequence[str]) -> Task:
    """The task of a tool's command line; it always ends with an exit code."""
    if not argv:
        return _output_task(_listed(tools), DONE)
    name, *rest = argv
    tool = tools.get(name)
    if tool is None:
        return _output_task(
            _error(Code.TOOL_NOT_EXPOSED, f"there is no tool {name!r}; there is {', '.join(tools)}"), MISUSED
        )
    keywords = _arguments(tool, rest)
    if isinstance(keywords, Failure):
        return _output_task(_error(keywords.code, keywords.message), MISUSED)
    return ToolCommandTask(tool, keywords)


def _listed(tools: Mapping[str, Tool]) -> str:
    width = max(map(len, tools))
    return "".join(f"{name:{width}}  {tool.description}".rstrip() + "\n" for name, tool in tools.items())


def _arguments(tool: Tool, words: Sequence[str]) -> dict[str, Any] | Failure:
    if len(words) > 1:
        return _refused(f"{tool.name} needs its input as one JSON value, not as {len(words)} words")
    try:
        given = stdlib_codec().decode(words[0].encode()) if words else None
    except (Malformed, UnicodeEncodeError) as error:
        return _refused(f"the input of {tool.name} is not JSON: {error}")
    return tool.arguments(given, {})


class ToolCommandTask(Task):
    """Runs a tool and writes its result or error. Tools run concurrently."""

    __slots__ = ("_inner",)

    def __init__(self, tool: Tool, keywords: dict[str, Any]) -> None:
        super().__init__(tool, concurrent=True)
        self._inner = ToolTask(tool, keywords, stop=self.stop)

    def call(self, context: MakeContext, send: Send) -> Any:
        try:
            return self._inner.call(context, send)
        except BaseException as error:  # SystemExit too
            return self.failure(error)

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        try:
            return _written(value if isinstance(value, Failure) else self._inner.settle(value, send))
        except BaseException as error:
            return _written(self.failure(error))

    async def settle_later(self, value: Any, send: Send) -> dict[str, Any]:
        try:
            return _written(value if isinstance(value, Failure) else await self._inner.settle_later(value, send))
        except BaseException as error:
            return _written(self.failure(error))


def _written(value: Any) -> dict[str, Any]:
    """A result, or a `Failure`, as the output of a command."""
    if isinstance(value, Failure):
        text = _error(value.code, value.message).encode("utf-8", "backslashreplace")
        return _output(b"", text, FAILED)
    try:
        return _output(stdlib_codec().encode(value) + b"\n", b"", DONE)
    except Unencodable as error:
        return _written(Failure(Code.PLUGIN_ERROR, f"the result cannot be sent: {error}", origin=Origin.PLUGIN))


def _error(code: str, message: str) -> str:
    return f"{code}: {message}\n"


def _output(stdout: bytes, stderr: bytes, exit_code: int) -> dict[str, Any]:
    return {"stdout": stdout, "stderr": stderr, "exit_code": exit_code}


def _output_task(text: str, exit_code: int) -> Task:
    """A task that prints a text: to stdout on success, otherwise to stderr."""
    said = text.encode("utf-8", "backslashreplace")
    output = _output(said, b"", DONE) if exit_code == DONE else _output(b"", said, exit_code)
    return Task(Handler(lambda: output), concurrent=True)
