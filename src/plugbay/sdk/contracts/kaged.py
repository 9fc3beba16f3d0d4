"""A plugin under kaged: names, hooks, settings and errors of this contract.

Loaded when a kaged host has spoken. `example.weather` is called `example-weather` there, and its tool `forecast` is
requested as `example-weather.forecast`; declarations that kaged does not support are not offered. The conversation runs
in the resident loop.
"""

from __future__ import annotations

from _thread import allocate_lock
from time import monotonic, sleep

from plugbay.contracts.base import Role
from plugbay.contracts.kaged.machine import KagedMachine
from plugbay.contracts.kaged.messages import MAX_NOTIFICATIONS, SHUTDOWN_SECONDS, Identity, topic
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import Publish, RunHook
from plugbay.sdk.context import Context, Settings
from plugbay.sdk.errors import INTERNAL, ServiceError
from plugbay.sdk.io.detect import kaged_name
from plugbay.sdk.results import inject
from plugbay.sdk.runtime.connection import BlockingClient, Connection
from plugbay.sdk.runtime.dispatch import Dispatcher, Task, hook_answer
from plugbay.sdk.runtime.resident import LAST_SECONDS, Resident
from plugbay.sdk.services.host_client import BROKERED, MODELS, PEOPLE, STORAGE
from plugbay.sdk.types.handlers import Handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.events import CallId
    from plugbay.model.operations import HostOp, Operation
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.dispatch import Offers
    from plugbay.sdk.types.handlers import Tool
    from plugbay.wire.strict_json import Codec

    class Compacting(Offers, Protocol):
        """Declarations with a compactor."""

        @property
        def compaction(self) -> Handler | None: ...

    from plugbay.sdk.runtime.resident import Served

    class Plugin(Served, Compacting, Protocol):
        """The plugin that is served."""

        @property
        def capabilities(self) -> tuple[str, ...]: ...
        @property
        def notifications(self) -> Sequence[str]: ...
        @property
        def shutdown_seconds(self) -> int | None: ...
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up


WINDOW_SECONDS = 1.1
"""In so many seconds the SDK sends the notifications that the contract allows in one. A host counts when it reads, so
two that were sent a second apart may arrive closer together."""

UNSUPPORTED = BROKERED | MODELS | PEOPLE
"""Operations that kaged hosts do not support."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Serve a kaged host; `first` was read already."""
    dispatcher = KagedDispatcher(plugin, plugin.tools)
    identity = _identity(plugin, dispatcher.serves())
    name = identity.name
    machine = KagedMachine(Role.PLUGIN, codec, identity=identity)
    machine.greet()
    connection, settings = KagedConnection(machine, wire, identity), Settings()

    def greeted(hello: Mapping[str, Any]) -> None:
        settings.take(hello["config"], hello["system_config"])
        connection.unsupported = UNSUPPORTED if hello["storage_available"] else UNSUPPORTED | STORAGE

    plugin.connect(Context(BlockingClient(connection), name, settings=settings))
    resident = Resident(
        connection,
        dispatcher,
        name,
        plugin.ready_handlers,
        plugin.shutdown_handlers,
        settings=settings,
        greeted=greeted,
        pace=(plugin.shutdown_seconds or SHUTDOWN_SECONDS) / LAST_SECONDS,
    )
    wire.attend(resident)
    resident.run(first)


def _identity(plugin: Plugin, serves: frozenset[type]) -> Identity:
    return Identity(
        kaged_name(plugin.id),
        plugin.version,
        methods=tuple(plugin.methods),
        notifications=tuple(plugin.notifications),
        capabilities_used=supported_capabilities(plugin.capabilities),
        serves=serves,
        tools=tuple(plugin.tools),
        hooks=supported_hooks(plugin),
    )


class KagedConnection(Connection):
    """Sends declared notifications only and no more than the contract allows, and failures with kaged's codes."""

    __slots__ = ("_identity", "_sent", "_turn")

    def __init__(self, machine: KagedMachine, wire: Wire, identity: Identity) -> None:
        super().__init__(machine, wire, UNSUPPORTED)
        self._identity = identity
        self._sent: deque[float] = deque(maxlen=MAX_NOTIFICATIONS)
        """When the last notifications were sent, by the monotonic clock; used by the holder of `_turn`."""
        self._turn = allocate_lock()

    def tell(self, op: HostOp) -> None:
        if not isinstance(op, Publish):
            super().tell(op)
            return
        self._refuse_undeclared(op.topic.removeprefix(topic(self._identity.name, "")))
        if not self._turn.acquire(blocking=False):
            self.release_reader()
            self._turn.acquire()
        try:
            self._wait_for_rate()
            super().tell(op)
        finally:
            self._turn.release()

    def _wait_for_rate(self) -> None:
        """A host drops notifications that come too fast, so wait here."""
        sent = self._sent
        rest = sent[0] + WINDOW_SECONDS - monotonic() if len(sent) == MAX_NOTIFICATIONS else 0.0
        if rest > 0:
            self.release_reader()
            sleep(rest)
        sent.append(monotonic())

    def _refuse_undeclared(self, name: str) -> None:
        """A host silently drops undeclared notifications, so raise here."""
        if name not in self._identity.notifications:
            raise ServiceError(Code.INVALID_INPUT, f"{name!r} is not declared; plugin.notifies({name!r}) does that")

    def finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        super().finish(id, value, failure and kaged_failure(failure))


def kaged_failure(failure: Failure) -> Failure:
    """A failure whose `detail` is the `data` of the error, with a name for the cause; a bug has its number only."""
    detail = failure.detail
    if detail.get("plugin_code") == INTERNAL:
        return Failure(Code.INTERNAL, f"Internal error: {failure.message}")
    wait = {} if failure.retry_after_ms is None else {"retry_after_ms": failure.retry_after_ms}
    more = {key: value for key, value in detail.items() if key != "kind"}
    return Failure(failure.code, failure.message, detail={"plugin_code": failure.code, **wait, **more})


class KagedDispatcher(Dispatcher):
    """Dispatch with a compactor inside `pre_compact`; a hook's text is injected."""

    __slots__ = ("_compaction",)

    def __init__(self, offers: Compacting, tools: Mapping[str, Tool]) -> None:
        super().__init__(offers, tools)
        self._compaction = offers.compaction

    def serves(self) -> frozenset[type]:
        return super().serves() | (frozenset() if self._compaction is None else {RunHook})

    def task_for(self, op: Operation) -> Task | Failure:
        return self._hook_task(op) if isinstance(op, RunHook) else super().task_for(op)

    def _hook_task(self, op: RunHook) -> Task:
        """The hook runs first, then the compactor; both make one answer."""
        observer = self._offers.hooks.get(op.hook, _NOBODY)
        return Task(observer, op.event, shape=_said, said=op.context, then=self._compactor_task(op))

    def _compactor_task(self, op: RunHook) -> Task | None:
        """The compactor's task; None when the host sends no messages."""
        messages = op.event.get("messages") if op.hook == PRE_COMPACT else None
        if self._compaction is None or not isinstance(messages, list):
            return None
        return Task(self._compaction, messages, shape=_compacted, said=op.context)


_NOBODY = Handler(lambda event: None)


def _said(value: Any) -> dict[str, Any]:
    return inject(value) if isinstance(value, str) else hook_answer(value)


def _compacted(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise TypeError("a compactor returns a list of messages, or None to leave it to the host")
    return {"messages": value}


PRE_COMPACT = "pre_compact"

HOOKS = ("on_session_start", "on_session_idle", PRE_COMPACT, "post_compact")
"""All hooks, in the order of a session."""

GRANTS = ("read:fs:", "write:fs:", "exec:", "net:", "kaged:storage:")
"""Prefixes of kaged's capabilities; a kaged host refuses all others."""


def supported_hooks(plugin: Plugin) -> tuple[str, ...]:
    """The hooks offered to the host, with `pre_compact` for a compactor."""
    declared = {*plugin.hooks, *((PRE_COMPACT,) if plugin.compaction is not None else ())}
    return tuple(hook for hook in HOOKS if hook in declared)


def supported_capabilities(capabilities: Iterable[str]) -> tuple[str, ...]:
    return tuple(capability for capability in capabilities if capability.startswith(GRANTS))
