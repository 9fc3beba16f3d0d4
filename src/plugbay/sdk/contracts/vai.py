"""A plugin under vai: names of packages and exports, invocations, and their `ctx`.

Loaded when a vai host has spoken. Context, settings, secrets, deadline and rights come with each request, so that one
process can work for many callers. `acme/devkit` keeps its name, `example.weather` is `local/example.weather`. Hooks
with one export name are one export; only events with a dot in their name are vai's.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic, time

from plugbay.contracts.base import Role
from plugbay.contracts.vai.machine import VaiMachine
from plugbay.contracts.vai.messages import Identity
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import Compact, InvokeTool, Publish, RunHarness, RunHook
from plugbay.sdk.context import Context, Settings
from plugbay.sdk.errors import INTERNAL
from plugbay.sdk.io.detect import VAI
from plugbay.sdk.results import Deltas, Run, harness_result, make_checkpoint, read_compaction, seed_result
from plugbay.sdk.runtime.connection import Connection
from plugbay.sdk.runtime.dispatch import Streamed, Task, local_deadline
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.services.host_client import BROKERED, MODELS, PEOPLE, STORAGE, Unconnected
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import Any, NoReturn, Protocol

    from plugbay.model.operations import Operation
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.results import Compaction
    from plugbay.sdk.runtime.dispatch import MakeContext, Send
    from plugbay.sdk.runtime.resident import Served
    from plugbay.sdk.services.gateway import Gateway
    from plugbay.sdk.types.handlers import Compactor, Export, Handler, Harness, Tool
    from plugbay.wire.strict_json import Codec

    class Plugin(Served, Protocol):
        """The plugin that is served."""

        @property
        def hooks(self) -> Mapping[str, Export]: ...
        @property
        def compaction(self) -> Compactor | None: ...
        @property
        def harnesses(self) -> Mapping[str, Harness]: ...


SHUTDOWN_SHARE = 0.8
"""Of the resident loop's times to leave: 4 s in all. Hosts give a plugin 5 s after a shutdown, which has no answer."""

UNSUPPORTED = BROKERED | MODELS | STORAGE | PEOPLE | {Publish}
"""Services that hosts of vai do not offer over the pipe: all of them. A call uses the gateway instead."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Serve a vai host; `first` was read already."""
    dispatcher = VaiDispatcher(plugin)
    identity = Identity(package_id(plugin.id), plugin.version, dispatcher.kinds())
    machine = VaiMachine(Role.PLUGIN, codec, identity=identity)
    machine.greet()
    resident = Resident(
        Connection(machine, wire, UNSUPPORTED),
        dispatcher,
        identity.package_id,
        plugin.ready_handlers,
        plugin.shutdown_handlers,
        pace=SHUTDOWN_SHARE,
        busy=Code.OVERLOADED,
    )
    wire.attend(resident)
    resident.run(first)


class ConcurrencyLimit:
    """Limits the concurrent calls of one export to the author's `max_concurrency`."""

    __slots__ = ("_lock", "_most", "_taken")

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken = 0
        self._lock = allocate_lock()

    def try_acquire(self) -> bool:
        with self._lock:
            if self._most is not None and self._taken >= self._most:
                return False
            self._taken += 1
            return True

    def release(self) -> None:
        with self._lock:
            self._taken -= 1


class VaiDispatcher:
    """Finds the invocation for each request. The machine has checked that the export exists."""

    __slots__ = ("_limits", "_offers", "_plugin_id")

    def __init__(self, plugin: Plugin) -> None:
        self._plugin_id = package_id(plugin.id)
        self._offers = offers(plugin)
        self._limits = {id: ConcurrencyLimit(offer.handler.terms.max_concurrency) for id, offer in self._offers.items()}

    def kinds(self) -> dict[str, str]:
        return {id: offer.kind for id, offer in self._offers.items()}

    def task_for(self, op: Operation) -> Task | Failure:
        assert isinstance(op, InvokeTool | RunHook | Compact | RunHarness)
        id = _export(op)
        limit = self._limits[id]
        if not limit.try_acquire():
            what = f"{id} already runs its maximum number of calls"
            return Failure(Code.OVERLOADED, what, origin=Origin.PLUGIN, retryable=True)
        request = InvocationRequest(op.context)
        deadline = local_deadline(self._offers[id].handler) if request.deadline is None else request.deadline
        scope = InvocationScope(self._plugin_id, request, Cancellation(deadline), limit.release)
        task = self._task(id, op, scope)
        if isinstance(task, Failure):
            limit.release()
        return task

    def _task(self, id: str, op: Any, scope: InvocationScope) -> Task | Failure:
        handler: Any = self._offers[id].handler
        match op:
            case InvokeTool():
                return tool_invocation(scope, handler, op.input)
            case RunHook():
                return hook_invocation(scope, self._offers[id].by_event, op)
            case Compact():
                return CompactorInvocation(scope, handler, op)
        return HarnessInvocation(scope, handler, op)

    def tasks_for(self, op: Operation) -> list[Task]:
        """vai has no notifications besides shutdown."""
        return []


def _export(op: InvokeTool | RunHook | Compact | RunHarness) -> str:
    match op:
        case InvokeTool():
            return op.tool
        case RunHook():
            return op.hook
        case Compact():
            return op.compactor
    return op.harness


MAX_CHECKPOINT = 256 * 1024
"""Bytes of a checkpoint that hosts keep."""


class InvocationScope:
    """One request with its cancellation and the release of its concurrency limit."""

    __slots__ = ("cancellation", "plugin_id", "release", "request")

    def __init__(
        self, plugin_id: str, request: InvocationRequest, cancellation: Cancellation, release: Callable[[], None]
    ) -> None:
        self.plugin_id = plugin_id
        self.request = request
        self.cancellation = cancellation
        self.release = release


class Invocation(Task):
    """A task with a deadline. It never starts if it was cancelled before."""

    __slots__ = ("scope",)

    def __init__(
        self, scope: InvocationScope, handler: Handler, *arguments: Any, keywords: dict[str, Any] | None = None
    ) -> None:
        super().__init__(handler, *arguments, keywords=keywords, stop=scope.cancellation)
        self.scope = scope

    def call(self, context: MakeContext, send: Send) -> Any:
        return super().call(lambda said, stop: self.context(send), send)

    def context(self, send: Send, compaction: Compaction | None = None) -> InvocationContext:
        scope = self.scope
        return InvocationContext(
            scope.plugin_id,
            scope.request,
            scope.cancellation,
            send=send,
            keep=self.keep,
            awaitable=self.handler.is_async,
            compaction=compaction,
        )

    def keep(self, data: Any) -> dict[str, Any]:
        raise TypeError("only a harness has checkpoints")

    def failure(self, error: BaseException) -> Failure:
        return _outcome(super().failure(error))

    def over(self) -> None:
        super().over()
        self.scope.release()


def _outcome(failure: Failure) -> Failure:
    """Map codes that refuse a request to `plugin_error`: handlers cannot refuse."""
    if failure.code in (Code.TOOL_NOT_EXPOSED, Code.OVERLOADED, Code.FRAME_TOO_LARGE):
        return Failure(
            Code.PLUGIN_ERROR,
            failure.message,
            origin=failure.origin,
            detail=failure.detail,
            retryable=failure.retryable,
            retry_after_ms=failure.retry_after_ms,
        )
    return failure


class ToolInvocation(Invocation, Streamed):
    """A tool; yielded pieces are sent as they come. `promises`: it has an output schema."""

    __slots__ = ("promises", "tool")

    def __init__(self, scope: InvocationScope, tool: Tool, keywords: dict[str, Any]) -> None:
        super().__init__(scope, tool, keywords=keywords)
        self.tool = tool
        self.promises = tool.output_schema is not None

    def collector(self, send: Send) -> Deltas:
        return Deltas(send, self.check, self.tool.written, self.promises, self.scope.request.scratch)


def tool_invocation(scope: InvocationScope, tool: Tool, given: Any) -> Invocation | Failure:
    keywords = tool.arguments(given, scope.request.context)
    return keywords if isinstance(keywords, Failure) else ToolInvocation(scope, tool, keywords)


class HookInvocation(Invocation):
    """A hook; its result is ignored. A delivery is repeated after an exception that says nothing else."""

    __slots__ = ()

    def settle(self, value: Any, send: Send) -> None:
        return None

    def failure(self, error: BaseException) -> Failure:
        failure = super().failure(error)
        if failure.detail.get("plugin_code") != INTERNAL:
            return failure
        return Failure(failure.code, failure.message, origin=failure.origin, detail=failure.detail, retryable=True)


def hook_invocation(scope: InvocationScope, hooks: Mapping[str, Export], op: RunHook) -> Invocation | Failure:
    """The handler of an event, among those that are one export."""
    kind = op.event.get("type")
    hook = hooks.get(kind) if isinstance(kind, str) else None
    if hook is None:
        what = f"the hook {op.hook} has no handler of {kind!r:.100}; it has {', '.join(hooks)}"
        return Failure(Code.NOT_FOUND, what, detail={"plugin_code": "hook.unknown_event"})
    return HookInvocation(scope, hook, op.event)


class CompactorInvocation(Invocation):
    """A compactor. The conversation is read when the task runs: it may be a large file."""

    __slots__ = ("_blocks", "_compaction", "_request")

    _blocks: list[Any]
    _compaction: Compaction

    def __init__(self, scope: InvocationScope, compactor: Compactor, op: Compact) -> None:
        super().__init__(scope, compactor)
        self._request = op.request

    def call(self, context: MakeContext, send: Send) -> Any:
        self._blocks, self._compaction = read_compaction(self._request, self.scope.request.scratch)
        self.arguments = (list(self._blocks),)
        return super().call(context, send)

    def context(self, send: Send, compaction: Compaction | None = None) -> InvocationContext:
        return super().context(send, self._compaction)

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        return seed_result(value, self._blocks, self._compaction)


class HarnessInvocation(Invocation):
    """A harness. Its last checkpoint is part of the answer, also of a failure."""

    __slots__ = ("_fidelity", "_kept")

    def __init__(self, scope: InvocationScope, harness: Harness, op: RunHarness) -> None:
        super().__init__(scope, harness, Run(op.request))
        self._fidelity = harness.fidelity
        self._kept: Any = None

    def keep(self, data: Any) -> dict[str, Any]:
        checkpoint = make_checkpoint(self._fidelity, data)
        size = len(stdlib_codec().encode(checkpoint))
        if size > MAX_CHECKPOINT:
            raise ValueError(f"a checkpoint of {size:,} bytes exceeds the limit of {MAX_CHECKPOINT:,}")
        self._kept = data
        return checkpoint

    def settle(self, value: Any, send: Send) -> dict[str, Any]:
        return harness_result(value, self._fidelity, self._kept, self.scope.request.scratch)

    def failure(self, error: BaseException) -> Failure:
        failure = super().failure(error)
        if self._kept is None:
            return failure
        return failure.with_detail(result={"checkpoint": make_checkpoint(self._fidelity, self._kept)})


TOOL, HOOK, COMPACTOR, HARNESS = "tool", "hook", "compactor", "harness"

LOCAL = "local"
"""The publisher of ids without one."""

LONGEST = 64
"""Characters of a publisher, of a name and of an export."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"

_DIGITS = "0123456789"


def package_id(id: str) -> str:
    """An id as a publisher and a name, in lower case, with `-` for characters that are not in vai's alphabet."""
    publisher, slash, name = id.partition("/")
    return f"{_part(publisher)}/{_part(name)}" if slash else f"{LOCAL}/{_part(id)}"


def _part(text: str) -> str:
    return _spell(text, "._-", "-").lstrip("._-")[:LONGEST] or "x"


def export_id(name: str) -> str:
    """The name of an export: lower case, a letter first, and `_` for characters that are not in vai's alphabet."""
    spelt = _spell(name, "_", "_")
    return (spelt if spelt[:1] in set(_LETTERS) else f"x{spelt}")[:LONGEST]


def _spell(text: str, marks: str, otherwise: str) -> str:
    known = frozenset(_LETTERS + _DIGITS + marks)
    return "".join(char if char in known else otherwise for char in text.lower())


class Offer:
    """One export: its kind and handler; for a hook, the handler of each event."""

    __slots__ = ("by_event", "handler", "id", "kind")

    def __init__(self, kind: str, handler: Export) -> None:
        self.id = export_id(handler.name)
        self.kind = kind
        self.handler = handler
        self.by_event: dict[str, Export] = {}


def offers(plugin: Plugin) -> dict[str, Offer]:
    """Every export by its id; raises ValueError when two have one."""
    found: dict[str, Offer] = {}
    for offer in (*_offers(plugin), *_hooks(plugin)):
        other = found.setdefault(offer.id, offer)
        if other is not offer:
            raise ValueError(f"a {other.kind} and a {offer.kind} of {plugin.id} are both called {offer.id!r} under vai")
    return found


def _offers(plugin: Plugin) -> list[Offer]:
    compactors = () if plugin.compaction is None else (plugin.compaction,)
    kinds: tuple[tuple[str, Iterable[Export]], ...] = (
        (HARNESS, plugin.harnesses.values()),
        (TOOL, plugin.tools.values()),
        (COMPACTOR, compactors),
    )
    return [Offer(kind, handler) for kind, handlers in kinds for handler in handlers]


def _hooks(plugin: Plugin) -> list[Offer]:
    found: dict[str, Offer] = {}
    for event, hook in plugin.hooks.items():
        if "." in event:
            found.setdefault(export_id(hook.name), Offer(HOOK, hook)).by_event[event] = hook
    return list(found.values())


HIDDEN = "gateway"
"""The part of the context with the token; hidden from handlers."""


class InvocationRequest:
    """The context, settings and rights of one request."""

    __slots__ = (
        "_gateway",
        "attempt",
        "context",
        "deadline",
        "delivery_id",
        "scratch",
        "settings",
        "tool_execution_id",
    )

    def __init__(self, said: Mapping[str, Any]) -> None:
        context = _object(said, "context")
        self._gateway = _object(context, HIDDEN)
        self.context = {name: value for name, value in context.items() if name != HIDDEN}
        self.deadline = _deadline(self.context.get("deadline_at"))
        """The deadline, by the monotonic clock."""
        self.scratch = text(self.context, "scratch_dir")
        self.settings = Settings()
        self.settings.take(_object(said, "config"), _object(said, "secrets"))
        self.tool_execution_id = text(said, "tool_execution_id")
        self.delivery_id = text(said, "delivery_id")
        self.attempt: int | None = said.get("attempt")

    def remaining(self) -> float | None:
        return None if self.deadline is None else max(self.deadline - monotonic(), 0.0)

    def gateway(self, awaitable: bool) -> Gateway | None:
        """The client of this call, if it was given a token."""
        base_url, token = text(self._gateway, "base_url"), text(self._gateway, "delegation_token")
        if not (base_url and token and token.isascii() and token.isprintable()):
            return None  # an error about a token that is not a header would show it
        from plugbay.sdk.services.gateway import AwaitableGateway, Gateway

        scopes = self._gateway.get("scopes")
        make = AwaitableGateway if awaitable else Gateway
        return make(
            base_url,
            token,
            tuple(scopes) if isinstance(scopes, list) else (),
            text(self.context, "invocation_id") or "",
            self.remaining,
        )


class InvocationContext(Context):
    """`ctx` under vai."""

    __slots__ = (
        "_gateway",
        "_keep",
        "_request",
        "_send",
        "attempt",
        "chain_id",
        "compaction",
        "deadline_at",
        "delivery_id",
        "invocation_id",
        "org_id",
        "run_id",
        "tool_execution_id",
        "trace_id",
    )

    def __init__(
        self,
        plugin_id: str,
        request: InvocationRequest,
        cancellation: Cancellation,
        *,
        send: Callable[[Any], None],
        keep: Callable[[Any], dict[str, Any]],
        awaitable: bool,
        compaction: Compaction | None = None,
    ) -> None:
        """`keep` takes the data of a checkpoint, and returns it as the contract has it."""
        said = request.context
        super().__init__(Unconnected(VAI), plugin_id, said, request.settings, cancellation)
        self._request = request
        self._send = send
        self._keep = keep
        self._gateway = request.gateway(awaitable)
        self.invocation_id = text(said, "invocation_id")
        self.trace_id = text(said, "trace_id")
        self.org_id = text(said, "org_id")
        self.chain_id = text(said, "chain_id")
        self.run_id = text(said, "run_id")
        self.deadline_at = text(said, "deadline_at")
        self.tool_execution_id = request.tool_execution_id
        self.delivery_id = request.delivery_id
        self.attempt = request.attempt
        self.compaction = compaction

    def progress(self, message: str = "", **more: Any) -> None:
        self._send({"type": "progress", "message": message, **more})

    def checkpoint(self, data: Any) -> None:
        self._send({"type": "checkpoint", "checkpoint": self._keep(data)})

    @property
    def scratch(self) -> Path | None:
        if self._request.scratch is None:
            return None
        from pathlib import Path

        return Path(self._request.scratch)

    @property
    def gateway(self) -> Gateway | None:
        return self._gateway


def text(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    return value if isinstance(value, str) and value else None


def _object(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name)
    return value if isinstance(value, dict) else {}


def _deadline(said: Any) -> float | None:
    """A time of the wall clock as one of the monotonic clock, which is never set; None for an invalid time."""
    if not isinstance(said, str):
        return None
    from _datetime import datetime  # type: ignore[import-not-found]  # `datetime` is 3 ms of start-up

    try:
        at = datetime.fromisoformat(said)
    except ValueError:
        return None
    return None if at.tzinfo is None else float(monotonic() + at.timestamp() - time())
