"""`Plugin`: the declarations of an author. Handlers are plain or async functions; `run()` serves the host's contract.

    from plugbay.sdk import Plugin

    plugin = Plugin("example.greeter", version="1.0.0")

    @plugin.tool(description="Greet a person.")
    def greet(name: str, excited: bool = False) -> dict:
        return {"text": f"Hello, {name}{'!' if excited else '.'}"}

    plugin.run()

Every plugin loads this module, so it imports nothing that only some contracts need.
"""

from __future__ import annotations

import os
import sys

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.declarations import declare, function_name, refuse_function, refuse_unfit, table, texts, whole_seconds
from plugbay.sdk.io.stdio import ATTACH
from plugbay.sdk.types.handlers import Command, Compactor, Export, Handler, Harness, Listener, Screen, Terms, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, TypeVar, Unpack, overload

    from plugbay.sdk.context import Context
    from plugbay.sdk.types.handlers import Facts, Function

    Thing = TypeVar("Thing")


class Plugin:
    """A plugin: an id, a version, and its exports.

    `manifest` is shown to a nexo host instead of these fields; `server_version` names the running program.
    `config_schema` and `secrets_schema` are JSON Schemas of the operator's settings. `eager` plugins are started with
    their host where a contract lets them say so, and `idle_seconds` is how long an unused one may live there, 0 for
    ever. `full_events`: events published to a nexo host have an id, the time and the session, which nexo's own host
    requires; by default they are as small as the published SDKs write them. Declarations that a contract does not
    support are not offered to its hosts.

    For kaged: `author`, `license` and `homepage` of its manifest, `env` for its process, `shutdown_seconds` (1 to 30)
    to clean up, `health_seconds` (5 to 300) between health checks, `hook_seconds` (1 to 60) for a hook.
    """

    def __init__(
        self,
        id: str,
        version: str = "0.1.0",
        *,
        name: str = "",
        description: str = "",
        capabilities: Iterable[str] = (),
        manifest: dict[str, Any] | None = None,
        server_version: str | None = None,
        config_schema: Mapping[str, Any] | None = None,
        secrets_schema: Mapping[str, Any] | None = None,
        eager: bool = False,
        idle_seconds: int | None = None,
        author: str = "",
        license: str = "",
        homepage: str = "",
        env: Mapping[str, str] | None = None,
        shutdown_seconds: int | None = None,
        health_seconds: int | None = None,
        hook_seconds: int | None = None,
        full_events: bool = False,
    ) -> None:
        self.id = id
        self.version = version
        self.name = name
        self.description = description
        self.capabilities = texts("capabilities", capabilities)
        self.manifest = manifest
        self.server_version = server_version
        self.config_schema = table("config_schema", config_schema)
        self.secrets_schema = table("secrets_schema", secrets_schema)
        self.tools: dict[str, Tool] = {}
        self.methods: dict[str, Tool] = {}
        self.notifications: list[str] = []
        self.knobs: dict[str, dict[str, Any]] = {}
        self.compaction: Compactor | None = None
        self.harnesses: dict[str, Harness] = {}
        self.events: list[tuple[str | None, Handler]] = []
        self.hooks: dict[str, Export] = {}
        self.channels: dict[str, object] = {}
        self.llm_providers: dict[str, Handler] = {}
        self.vector_backends: dict[str, object] = {}
        self.eager = eager
        self.idle_seconds = idle_seconds
        self.author, self.license, self.homepage = author, license, homepage
        self.env = table("env", env) or {}
        self.shutdown_seconds = whole_seconds("shutdown_seconds", shutdown_seconds, 1, 30)
        self.health_seconds = whole_seconds("health_seconds", health_seconds, 5, 300)
        self.hook_seconds = whole_seconds("hook_seconds", hook_seconds, 1, 60)
        self.full_events = full_events
        self.screens: dict[str, Screen] = {}
        self.keys: list[Listener] = []
        self.mice: list[Listener] = []
        self.commands: dict[str, Handler] = {}
        self.clis: dict[str, Command] = {}
        self.actions: dict[str, Command] = {}
        self.snapshots: list[tuple[str | None, Handler]] = []
        self.latest: list[str] = []
        self.topics: list[str] = []
        self.ready_handlers: list[Handler] = []
        self.shutdown_handlers: list[Handler] = []
        self._host: Context | None = None

    @classmethod
    def from_manifest(
        cls,
        text: str,
        *,
        capabilities: Iterable[str] = (),
        server_version: str | None = None,
        full_events: bool = False,
    ) -> Plugin:
        """A plugin described by its `nexo-plugin.toml`; a tool that is not declared there is refused."""
        from plugbay.sdk.contracts.nexo import parse

        manifest = parse(text)
        table = manifest["plugin"]
        return cls(
            table["id"],
            table["version"],
            name=str(table.get("name", "")),
            description=str(table.get("description", "")),
            capabilities=capabilities,
            manifest=manifest,
            server_version=server_version,
            full_events=full_events,
        )

    # Declarations.

    def tool(
        self,
        name: str | None = None,
        *,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        effect: str = "unknown",
        streaming: bool | None = None,
        **facts: Unpack[Facts],
    ) -> Callable[[Function], Function]:
        """Offer a function as a tool; its name and docstring are the defaults.

        `effect` tells whether it may be tried again: `read_only`, `idempotent_write`, `non_idempotent_write` or
        `unknown`. A function that yields is `streaming`. The other facts are those of `Terms`.
        """
        refuse_function("tool", name)
        terms = Terms(**facts)

        def register(function: Function) -> Function:
            refuse_unfit("tool", function)
            called = name or function.__name__
            self._refuse_undeclared(called)
            tool = Tool(
                called,
                description,
                function,
                input_schema,
                terms,
                output_schema=output_schema,
                effect=effect,
                streaming=streaming,
            )
            declare(self.tools, "tools", called, tool)
            return function

        return register

    def method(self, name: str) -> Callable[[Function], Function]:
        """Answer a method of your own, for example `index.rebuild`; it takes parameters as a tool does."""
        refuse_function("method", name)

        def register(function: Function) -> Function:
            refuse_unfit("method", function)
            declare(self.methods, "methods", name, Tool(name, "", function))
            return function

        return register

    def on_event(self, pattern: str | None = None) -> Callable[[Function], Function]:
        """Receive events whose topic matches the pattern (`*` one segment, `>` the rest); without one, all events."""
        refuse_function("on_event", pattern)

        def register(function: Function) -> Function:
            self.events.append((pattern, Handler(function)))
            return function

        return register

    def hook(
        self, name: str, *more: str, export: str | None = None, description: str = "", **facts: Unpack[Facts]
    ) -> Callable[[Function], Function]:
        """Run before or after something happens; one function may serve several events.

        Return `block`, `transform`, `override`, `inject` or nothing; in a hook of a session, a text is injected. Where
        hooks have names of their own, that is `export`, or the name of the function; those with one name are one.
        """
        refuse_function("hook", name)
        terms = Terms(**facts)

        def register(function: Function) -> Function:
            hook = Export(export or function_name(function, "hook"), description, function, terms)
            for event in (name, *more):
                declare(self.hooks, "hooks", event, hook)
            return function

        return register

    if TYPE_CHECKING:

        @overload
        def compactor(self, function: Function) -> Function: ...

        @overload
        def compactor(
            self,
            *,
            export: str | None = None,
            description: str = "",
            target_context: str = "general",
            supports_pinned_items: bool = False,
            **facts: Unpack[Facts],
        ) -> Callable[[Function], Function]: ...

    def compactor(self, function: Any = None, **options: Any) -> Any:
        """Shorten a conversation: take a list of messages, return another, or None to leave it to the host.

        With or without parentheses. `ctx.compaction` has the target size and the pinned items, if the host sends
        them; then a text may be returned, which replaces everything that is not pinned.
        """

        def register(function: Any) -> Any:
            if self.compaction is not None:
                raise ValueError("a plugin has one compactor")
            self.compaction = Compactor(function, **options)
            return function

        return register if function is None else register(function)

    def harness(
        self,
        name: str | None = None,
        *,
        description: str = "",
        mode: str = "composite",
        fidelity: str = "checkpoint",
        supports: Iterable[str] = (),
        **facts: Unpack[Facts],
    ) -> Callable[[Function], Function]:
        """Run a program of several steps: `def triage(run, ctx)` acts through `ctx.gateway`.

        Return a text for the summary, a `HarnessResult` or nothing. `ctx.checkpoint(data)` keeps where it is, and
        `run.checkpoint` is the saved data when it continues after a break, as `fidelity` promises.
        """
        refuse_function("harness", name)
        terms = Terms(**facts)

        def register(function: Function) -> Function:
            called = name or function_name(function, "harness")
            harness = Harness(called, description, function, terms, mode=mode, fidelity=fidelity, supports=supports)
            declare(self.harnesses, "harnesses", called, harness)
            return function

        return register

    def notifies(self, *names: str) -> None:
        """Declare the notifications that the plugin publishes, for hosts that require it."""
        self.notifications += [name for name in dict.fromkeys(names) if name not in self.notifications]

    def knob(self, name: str, *, type: str, label: str, binds_to: str = "", default: Any = None, **facts: Any) -> None:
        """Offer an operator a control for a field of the config, by default the field of the same name.

        `facts` depend on the type: `min`, `max`, `step`; `values`, `labels`; `max_length`; `prefixes`.
        """
        common = {"type": type, "label": label, "binds_to": binds_to or name, "default": default, **facts}
        declare(self.knobs, "knobs", name, {key: value for key, value in common.items() if value is not None})

    def llm_provider(self, name: str) -> Callable[[Function], Function]:
        """Provide a language model: return the text, the whole result, or yield pieces of either."""
        return self._handler(self.llm_providers, "llm_provider", name)

    def channel(self, kind: str) -> Callable[[Thing], Thing]:
        """Provide a message channel: a class or an instance with `start(instance)`, `stop()` and `send(message)`."""
        return self._object(self.channels, "channel", kind)

    def vector_backend(self, name: str) -> Callable[[Thing], Thing]:
        """Provide a vector store: a class, or an instance, with `upsert`, `search` and `delete` of a collection."""
        return self._object(self.vector_backends, "vector_backend", name)

    def screen(self, name: str, *, min_size: tuple[int, int] = (1, 1)) -> Callable[[Function], Function]:
        """Draw a screen: `def draw(canvas, ctx)` paints cells on a `Canvas` as large as the host's.

        Where there is less room than `min_size` (columns, rows), a word about that is shown instead.
        """
        refuse_function("screen", name)

        def register(function: Function) -> Function:
            declare(self.screens, "screens", name, Screen(function, min_size))
            return function

        return register

    def on_key(self, screen: str, *names: str, releases: bool = False) -> Callable[[Function], Function]:
        """Handle the keys of a screen, or those with these names: `def key(key, ctx)`.

        Names are `a`, `A`, `space`, `enter`, `esc`, `page_up`, `f5`, with `ctrl+`, `alt+`, `shift+` or `super+` before
        them. Releases of keys are delivered with `releases` only.
        """
        refuse_function("on_key", screen)

        def register(function: Function) -> Function:
            self.keys.append(Listener(function, screen, names, releases))
            return function

        return register

    def on_mouse(self, screen: str) -> Callable[[Function], Function]:
        """Handle mouse events of a screen: `def mouse(mouse, ctx)`."""
        refuse_function("on_mouse", screen)

        def register(function: Function) -> Function:
            self.mice.append(Listener(function, screen))
            return function

        return register

    def on_action(self, name: str) -> Callable[[Function], Function]:
        """Offer a command of the host's palette: `def command(payload, ctx)`; it has no result."""
        refuse_function("on_action", name)

        def register(function: Function) -> Function:
            declare(self.commands, "commands", name, Handler(function))
            return function

        return register

    def cli(self, namespace: str, *, concurrent: bool = False) -> Callable[[Function], Function]:
        """Answer a command line: `def command(argv, ctx)`.

        Its prints, and its writes to `ctx.out` and `ctx.err`, are the output. Return a text, bytes, an exit
        code, a `CliResult` or nothing; `sys.exit` ends it. With `concurrent` it may run beside other handlers.
        """
        refuse_function("cli", namespace)

        def register(function: Function) -> Function:
            declare(self.clis, "command lines", namespace, Command(function, concurrent))
            return function

        return register

    def action(self, name: str, *, concurrent: bool = False) -> Callable[[Function], Function]:
        """Offer an action to other plugins: `def act(data, ctx)` takes bytes and returns bytes, a text or JSON.

        With `concurrent` it may run beside other handlers.
        """
        refuse_function("action", name)

        def register(function: Function) -> Function:
            declare(self.actions, "actions", name, Command(function, concurrent))
            return function

        return register

    def on_snapshot(self, topic: str | None = None, *, latest: bool = False) -> Callable[[Function], Function]:
        """Receive the snapshots of a topic: `def seen(snapshot, ctx)`. The SDK subscribes to it.

        Without a topic, hear everything that arrives, and subscribe to nothing. `latest`: only the newest matters, so
        the host may stop an idle plugin that waits for it.
        """
        refuse_function("on_snapshot", topic)

        def register(function: Function) -> Function:
            self.snapshots.append((topic, Handler(function)))
            if latest and topic is not None and topic not in self.latest:
                self.latest.append(topic)
            return function

        return register

    def publishes(self, *topics: str) -> None:
        """Declare the topics of the snapshots that this plugin publishes, for hosts that require it."""
        self.topics += [topic for topic in dict.fromkeys(topics) if topic not in self.topics]

    def on_ready(self, function: Function) -> Function:
        """Run the function once, after the host's greeting.

        If handlers run one at a time, this is one of them: start a thread or a task for long work.
        """
        self.ready_handlers.append(Handler(function))
        return function

    def on_shutdown(self, function: Function) -> Function:
        """Run the function before the plugin exits; an exception is reported to the host."""
        self.shutdown_handlers.append(Handler(function))
        return function

    def _handler(self, declared: dict[str, Handler], what: str, name: str) -> Callable[[Function], Function]:
        refuse_function(what, name)

        def register(function: Function) -> Function:
            declare(declared, f"{what}s", name, Handler(function))
            return function

        return register

    def _object(self, declared: dict[str, object], what: str, name: str) -> Callable[[Thing], Thing]:
        refuse_function(what, name)

        def register(thing: Thing) -> Thing:
            declare(declared, f"{what}s", name, thing() if isinstance(thing, type) else thing)
            return thing

        return register

    def _refuse_undeclared(self, tool: str) -> None:
        """Refuse an undeclared tool now: a host would refuse the whole plugin."""
        if self.manifest is None:
            return
        from plugbay.sdk.contracts.nexo import declared_tools, nexo_tool_name

        offered = nexo_tool_name(self.manifest["plugin"]["id"], tool)
        if offered not in declared_tools(self.manifest):
            raise ValueError(f"the manifest does not declare {offered!r} in plugin.extends.tools")

    # Serving.

    @property
    def host(self) -> Context:
        """The host's services for code outside handlers, for example a channel's own threads."""
        if self._host is None:
            from plugbay.sdk.context import unconnected

            return unconnected(self.id)
        return self._host

    @property
    def config(self) -> Mapping[str, Any]:
        """The operator's configuration; empty until the host has sent it."""
        return self.host.config

    @property
    def secrets(self) -> Mapping[str, Any]:
        """The operator's secrets; empty until the host has sent them. Masked when printed."""
        return self.host.secrets

    def connect(self, host: Context) -> None:
        """Set the host's services for code outside of handlers."""
        self._host = host

    def invoke(self, tool: str, given: Any, context: Mapping[str, Any], contract: str = "") -> Any:
        """Run a tool on this thread: its value, or a `Failure`. `contract` is the host's, if there is a host."""
        found = self.tools.get(tool)
        if found is None:
            return Failure(Code.NOT_FOUND, f"there is no tool {tool!r}", origin=Origin.PLUGIN)
        from plugbay.sdk.runtime.single_call import invoke

        return invoke(found, given, context, self.id, contract)

    def run(self) -> NoReturn:
        """Serve the host that started this process, or that it is attached to, then exit. Never returns."""
        if ATTACH in os.environ:
            from plugbay.sdk.attach import serve_attached

            serve_attached(self, os.environ.pop(ATTACH))
        if os.isatty(0):
            sys.stderr.write(_HINT.format(id=self.id, tools=", ".join(self.tools) or "none yet"))
            sys.exit(2)
        from plugbay.sdk.serving import serve

        serve(self)


_HINT = """\
{id} is a plugin: it waits for a host to speak to it on standard input.
Tools: {tools}

  plugbay call . TOOL '{{"key": "value"}}'     call one of them
  plugbay inspect .                           show its exports and capabilities
  plugbay conform .                           check it against its contract
"""
