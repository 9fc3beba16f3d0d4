"""`Machine`: the interface of every protocol machine. Bytes in, events out.

A machine never awaits, never reads a clock, never draws a random number and never raises for the peer's mistakes: a
broken peer is a `Fault` event. It raises `Misuse` only for our own bugs. One class serves both roles, so host, SDK and
conformance kit cannot drift apart, and a HOST machine can be run against a PLUGIN machine with no process between them.

The legal moves of a machine are a table, `TRANSITIONS`; there is no other state.
"""

from __future__ import annotations

from plugbay.model.events import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, ClassVar

    from plugbay.model.errors import Failure
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import HostOp, PluginOp
    from plugbay.wire.strict_json import Codec


class Role:
    """The end of the link that a machine plays."""

    HOST = "host"
    PLUGIN = "plugin"


class Misuse(RuntimeError):
    """Our own bug: a machine was asked for something its state does not allow."""


class Traffic:
    """The queues of a contract's outgoing notifications: data for the link, which enforces them.

    `urgent` lists operations that overtake all others, in this order; each has a queue of its own of
    `urgent_capacity`, which drops its oldest entry. All other notifications share one queue of `capacity` entries and,
    where a contract has large ones, of `max_bytes`; `drops` is the end that it drops: "newest" or "oldest". Answers and
    calls are never dropped.
    """

    __slots__ = ("capacity", "drops", "max_bytes", "urgent", "urgent_capacity")

    def __init__(
        self,
        capacity: int = 64,
        drops: str = "newest",
        urgent: Iterable[type] = (),
        *,
        urgent_capacity: int = 64,
        max_bytes: int | None = None,
    ) -> None:
        self.capacity = capacity
        self.drops = drops
        self.urgent = tuple(urgent)
        self.urgent_capacity = urgent_capacity
        self.max_bytes = max_bytes


class Machine:
    """Base of the protocol machines: the outgoing buffer and the transition table; contracts add the rest."""

    __slots__ = ("_out", "codec", "role", "state")

    CONTRACT: ClassVar[str] = ""
    FIRST_STATE: ClassVar[str] = "start"
    TRANSITIONS: ClassVar[Mapping[tuple[str, str, str], str]] = {}
    """(role, state, trigger) → state. The diagrams in the docs are drawn from this."""
    SUPPORTS: ClassVar[frozenset[type]] = frozenset()
    """The operations this contract can carry from host to plugin."""
    TRAFFIC: ClassVar[Traffic] = Traffic()
    GOOD_BYE_IS_ANSWERED: ClassVar[bool] = True
    """Whether a plugin answers the shutdown message; where it does not, the end of its input follows at once."""

    def __init__(self, role: str, codec: Codec) -> None:
        self.role = role
        self.codec = codec
        self.state = self.FIRST_STATE
        self._out: list[bytes] = []

    # Input from the peer.

    def receive(self, data: bytes) -> list[Event]:
        """Take bytes from the peer; report events."""
        raise NotImplementedError

    def receive_eof(self) -> list[Event]:
        """The peer will send nothing more; every call still open is finished here."""
        raise NotImplementedError

    # Our own actions. Bytes to send collect in `outgoing`.

    def greet(self) -> None:
        """Open the conversation (HOST), or get ready to be greeted (PLUGIN)."""
        raise NotImplementedError

    def call(self, id: CallId, op: PluginOp | HostOp) -> Failure | None:
        """Send a request; a `Failure` means that nothing was sent and the call is over."""
        raise NotImplementedError

    def notify(self, op: PluginOp | HostOp) -> Failure | None:
        """Send a notification, which has no answer. A `Failure` means that nothing was sent."""
        raise NotImplementedError

    def cancel(self, id: CallId, reason: str) -> None:
        """Cancel our request `id`; a late answer is dropped."""
        raise NotImplementedError

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        """Answer the peer's request `id`."""
        raise NotImplementedError

    def progress(self, id: CallId, item: Any) -> Failure | None:
        """Send progress of the peer's request `id`, before the answer. A `Failure` means that nothing was sent."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Send the shutdown message, where the contract has one."""
        raise NotImplementedError

    def outgoing(self) -> bytes:
        """Take everything that is waiting to be sent."""
        out = self._out
        if not out:
            return b""
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    @property
    def has_outgoing(self) -> bool:
        """Whether anything is waiting to be sent."""
        return bool(self._out)

    @property
    def pending(self) -> int:
        """Bytes of a message that has begun to arrive; 0 between two messages."""
        raise NotImplementedError

    @property
    def has_probe(self) -> bool:
        """Whether every plugin of the contract answers `CheckHealth`."""
        return False

    @property
    def satisfied(self) -> bool:
        """True when the contract expects not one more byte from the peer; the link then stops reading."""
        return False

    # For the contracts.

    def _step(self, trigger: str) -> None:
        """Move along the table; a miss is our own bug."""
        try:
            self.state = self.TRANSITIONS[self.role, self.state, trigger]
        except KeyError:
            raise Misuse(f"{self.CONTRACT} {self.role}: {trigger!r} is not possible in {self.state!r}") from None

    def _may(self, trigger: str) -> bool:
        return (self.role, self.state, trigger) in self.TRANSITIONS

    def _fault(self, failure: Failure) -> list[Event]:
        """The peer broke the contract: change the state, and report it once."""
        self._step("violation")
        return [Fault(failure)]
