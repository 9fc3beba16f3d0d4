"""A plugin under vai: its identity there, its machine, and which of its functions does what is asked.

Loaded once a vai host has spoken. Everything about a call comes with it: the context, the settings, the secrets, the
deadline. The conversation itself is the resident loop's.
"""

from __future__ import annotations

from _thread import allocate_lock

from plugbay.contracts.base import Role
from plugbay.contracts.vai.machine import VaiMachine
from plugbay.contracts.vai.messages import Identity
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.operations import Compact, InvokeTool, Publish, RunHarness, RunHook
from plugbay.sdk.contracts.vai_dispatch import CompactorInvocation, HarnessInvocation, Order, of_hook, of_tool
from plugbay.sdk.contracts.vai_names import offers, package_id
from plugbay.sdk.invocation import Setting
from plugbay.sdk.runtime.connection import Exchange
from plugbay.sdk.runtime.dispatch import local_deadline
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.services.cancellation import Cancellation
from plugbay.sdk.services.host_client import BROKERED, MODELS, PEOPLE, STORAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.operations import Operation
    from plugbay.sdk.contracts.vai_names import Named
    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.dispatch import Duty
    from plugbay.sdk.types.handlers import Handler
    from plugbay.wire.strict_json import Codec

    class Plugin(Named, Protocol):
        """What is served."""

        @property
        def version(self) -> str: ...
        @property
        def welcomes(self) -> Sequence[Handler]: ...
        @property
        def farewells(self) -> Sequence[Handler]: ...


FAREWELL_SHARE = 0.8
"""Of the resident loop's times to leave: 4 s in all. Hosts give a plugin 5 s after a shutdown, which has no answer."""

LACKS = BROKERED | MODELS | STORAGE | PEOPLE | {Publish}
"""What hosts of vai do not offer over the pipe: everything. What a call may use is behind its gateway."""


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Talk to a vai host, of which `first` was heard already."""
    duties = VaiDuties(plugin)
    identity = Identity(package_id(plugin.id), plugin.version, duties.kinds())
    machine = VaiMachine(Role.PLUGIN, codec, identity=identity)
    machine.greet()
    resident = Resident(
        Exchange(machine, wire, LACKS),
        duties,
        identity.package_id,
        plugin.welcomes,
        plugin.farewells,
        pace=FAREWELL_SHARE,
        busy=Code.OVERLOADED,
    )
    wire.attend(resident)
    resident.run(first)


class Places:
    """How many calls of one export may run at once, where its author says so, and how many do."""

    __slots__ = ("_lock", "_most", "_taken")

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken = 0
        self._lock = allocate_lock()

    def take(self) -> bool:
        with self._lock:
            if self._most is not None and self._taken >= self._most:
                return False
            self._taken += 1
            return True

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1


class VaiDuties:
    """An author's declarations, by what a host may ask. The machine has seen to it that the export exists."""

    __slots__ = ("_offers", "_places", "_plugin_id")

    def __init__(self, plugin: Plugin) -> None:
        self._plugin_id = package_id(plugin.id)
        self._offers = offers(plugin)
        self._places = {id: Places(offer.handler.terms.max_concurrency) for id, offer in self._offers.items()}

    def kinds(self) -> dict[str, str]:
        return {id: offer.kind for id, offer in self._offers.items()}

    def of(self, op: Operation) -> Duty | Failure:
        assert isinstance(op, InvokeTool | RunHook | Compact | RunHarness)
        id = _export(op)
        places = self._places[id]
        if not places.take():
            what = f"{id} runs as often as it may at once"
            return Failure(Code.OVERLOADED, what, origin=Origin.PLUGIN, retryable=True)
        setting = Setting(op.context)
        deadline = local_deadline(self._offers[id].handler) if setting.deadline is None else setting.deadline
        order = Order(self._plugin_id, setting, Cancellation(deadline), places.give_back)
        duty = self._duty(id, op, order)
        if isinstance(duty, Failure):
            places.give_back()
        return duty

    def _duty(self, id: str, op: Any, order: Order) -> Duty | Failure:
        handler: Any = self._offers[id].handler
        match op:
            case InvokeTool():
                return of_tool(order, handler, op.input)
            case RunHook():
                return of_hook(order, self._offers[id].by_event, op)
            case Compact():
                return CompactorInvocation(order, handler, op)
        return HarnessInvocation(order, handler, op)

    def about(self, op: Operation) -> list[Duty]:
        """A host of vai tells nothing but that it is over."""
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
