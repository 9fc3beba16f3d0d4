"""`Plugin`: what an author writes. Handlers are plain or async functions; `run()` speaks the contract that greets it.

    from plugbay.sdk import Plugin

    plugin = Plugin("example.greeter", version="1.0.0")

    @plugin.tool(description="Greet somebody.")
    def greet(name: str, excited: bool = False) -> dict:
        return {"text": f"Hello, {name}{'!' if excited else '.'}"}

    plugin.run()

Owns the author's declarations. Knows no wire format, and nothing of when a handler runs.
"""

from __future__ import annotations

import os
import sys

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.handlers import Handler, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, TypeVar

    from plugbay.sdk.context import Context

    Function = TypeVar("Function", bound=Callable[..., Any])
    Thing = TypeVar("Thing")


class Plugin:
    """A plugin: an id, a version, and what it offers.

    `manifest` is what a nexo host is shown instead of these few fields; `server_version` names the running program.
    `config_schema` and `secrets_schema` are JSON Schemas of what an operator may set. What a contract cannot carry is
    not offered to its hosts.
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
    ) -> None:
        self.id = id
        self.version = version
        self.name = name
        self.description = description
        self.capabilities = tuple(capabilities)
        self.manifest = manifest
        self.server_version = server_version
        self.config_schema = None if config_schema is None else dict(config_schema)
        self.secrets_schema = None if secrets_schema is None else dict(secrets_schema)
        self.tools: dict[str, Tool] = {}
        self.methods: dict[str, Tool] = {}
        self.notifications: list[str] = []
        self.knobs: dict[str, dict[str, Any]] = {}
        self.compaction: Handler | None = None
        self.events: list[tuple[str | None, Handler]] = []
        self.hooks: dict[str, Handler] = {}
        self.channels: dict[str, object] = {}
        self.llm_providers: dict[str, Handler] = {}
        self.vector_backends: dict[str, object] = {}
        self.welcomes: list[Handler] = []
        self.farewells: list[Handler] = []
        self._host: Context | None = None

    @classmethod
    def from_manifest(cls, text: str, *, capabilities: Iterable[str] = (), server_version: str | None = None) -> Plugin:
        """A plugin that is what its `nexo-plugin.toml` says; a tool that is not declared there is refused."""
        from plugbay.sdk.manifest import parse

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
        )

    # What an author declares.

    def tool(
        self, name: str | None = None, *, description: str = "", input_schema: Mapping[str, Any] | None = None
    ) -> Callable[[Function], Function]:
        """Offer a function as a tool; its name and docstring are the defaults."""
        _refuse_function("tool", name)

        def register(function: Function) -> Function:
            _refuse_object("tool", function)
            called = name or function.__name__
            self._refuse_undeclared(called)
            text = description or (function.__doc__ or "").strip().split("\n")[0]
            _add(self.tools, "tools", called, Tool(called, text, function, input_schema))
            return function

        return register

    def method(self, name: str) -> Callable[[Function], Function]:
        """Answer a method of your own, such as `index.rebuild`; its parameters are given as those of a tool are."""
        _refuse_function("method", name)

        def register(function: Function) -> Function:
            _refuse_object("method", function)
            _add(self.methods, "methods", name, Tool(name, "", function))
            return function

        return register

    def on_event(self, pattern: str | None = None) -> Callable[[Function], Function]:
        """Hear the events whose topic the pattern covers (`*` one segment, `>` the rest); without one, every event."""
        _refuse_function("on_event", pattern)

        def register(function: Function) -> Function:
            self.events.append((pattern, Handler(function)))
            return function

        return register

    def hook(self, name: str) -> Callable[[Function], Function]:
        """Have a say before or after something happens.

        Return `block`, `transform`, `override`, `inject` or nothing; in a hook of a session, a text is injected.
        """
        return self._handler(self.hooks, "hook", name)

    def compactor(self, function: Function) -> Function:
        """Make a conversation shorter: take a list of messages, return another, or None to leave it to the host."""
        if self.compaction is not None:
            raise ValueError("a plugin has one compactor")
        self.compaction = Handler(function)
        return function

    def notifies(self, *names: str) -> None:
        """Declare what may be published where hosts want to know that beforehand."""
        self.notifications += [name for name in dict.fromkeys(names) if name not in self.notifications]

    def knob(self, name: str, *, type: str, label: str, binds_to: str = "", default: Any = None, **facts: Any) -> None:
        """Offer an operator a control for a field of the config, by default the field of the same name.

        `facts` are what the type needs: `min`, `max`, `step`; `values`, `labels`; `max_length`; `prefixes`.
        """
        common = {"type": type, "label": label, "binds_to": binds_to or name, "default": default, **facts}
        _add(self.knobs, "knobs", name, {key: value for key, value in common.items() if value is not None})

    def llm_provider(self, name: str) -> Callable[[Function], Function]:
        """Answer for a language model: return the text, the whole result, or yield pieces of either."""
        return self._handler(self.llm_providers, "llm_provider", name)

    def channel(self, kind: str) -> Callable[[Thing], Thing]:
        """Carry messages: a class, or an instance of one, with `start(instance)`, `stop()` and `send(message)`."""
        return self._object(self.channels, "channel", kind)

    def vector_backend(self, name: str) -> Callable[[Thing], Thing]:
        """Store vectors: a class, or an instance, with `upsert`, `search` and `delete` of a collection."""
        return self._object(self.vector_backends, "vector_backend", name)

    def on_ready(self, function: Function) -> Function:
        """Run the function once the host has greeted us."""
        self.welcomes.append(Handler(function))
        return function

    def on_shutdown(self, function: Function) -> Function:
        """Run the function before we leave; what it raises is told to the host."""
        self.farewells.append(Handler(function))
        return function

    def _handler(self, declared: dict[str, Handler], what: str, name: str) -> Callable[[Function], Function]:
        _refuse_function(what, name)

        def register(function: Function) -> Function:
            _add(declared, f"{what}s", name, Handler(function))
            return function

        return register

    def _object(self, declared: dict[str, object], what: str, name: str) -> Callable[[Thing], Thing]:
        _refuse_function(what, name)

        def register(thing: Thing) -> Thing:
            _add(declared, f"{what}s", name, thing() if isinstance(thing, type) else thing)
            return thing

        return register

    def _refuse_undeclared(self, tool: str) -> None:
        """A host turns away a plugin that offers what its manifest does not declare; better to hear it now."""
        if self.manifest is None:
            return
        from plugbay.sdk.manifest import declared_tools, offered_name

        offered = offered_name(self.manifest["plugin"]["id"], tool)
        if offered not in declared_tools(self.manifest):
            raise ValueError(f"the manifest does not declare {offered!r} in plugin.extends.tools")

    # What serves it.

    @property
    def host(self) -> Context:
        """The host's services for code outside handlers, such as a channel's own threads."""
        if self._host is None:
            from plugbay.sdk.context import unconnected

            return unconnected(self.id)
        return self._host

    @property
    def config(self) -> Mapping[str, Any]:
        """What the operator configured, once the host has said it."""
        return self.host.config

    @property
    def secrets(self) -> Mapping[str, Any]:
        """What the operator keeps secret, once the host has said it; masked when it is printed."""
        return self.host.secrets

    def connect(self, host: Context) -> None:
        """From now on there is a host with services."""
        self._host = host

    def invoke(self, tool: str, given: Any, context: Mapping[str, Any]) -> Any:
        """What the wire asks for: the tool's value, or a `Failure`."""
        found = self.tools.get(tool)
        if found is None:
            return Failure(Code.NOT_FOUND, f"there is no tool {tool!r}", origin=Origin.PLUGIN)
        return found.invoke(given, context)

    def run(self) -> NoReturn:
        """Serve the host that started this process, then leave. Never returns."""
        if os.isatty(0):
            sys.stderr.write(_HINT.format(id=self.id, tools=", ".join(self.tools) or "none yet"))
            sys.exit(2)
        from plugbay.sdk.serving import serve

        serve(self)


_HINT = """\
{id} is a plugin: it waits for a host to speak to it on standard input.
Tools: {tools}

  plugbay call . TOOL '{{"key": "value"}}'     call one of them
  plugbay inspect .                           what this plugin is
  plugbay conform .                           does it keep its contract
"""


def _refuse_function(what: str, name: object) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"write @plugin.{what}() with parentheses")


def _refuse_object(what: str, function: Any) -> None:
    if not hasattr(function, "__code__") or hasattr(function, "__self__"):
        raise TypeError(f"a {what} must be a plain function, not {function!r}; wrap it in one")


def _add(declared: dict[str, Any], what: str, name: str, thing: object) -> None:
    if name in declared:
        raise ValueError(f"two {what} are called {name!r}")
    declared[name] = thing
