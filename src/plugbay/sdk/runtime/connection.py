"""The conversation of a resident plugin, shared by its threads: one machine, one wire, and what was asked of the host.

Owns the locks. Bytes leave in the order in which the machine made them, and the machine is never locked while bytes are
written, so a host that reads slowly holds up whoever speaks to it, not whoever listens. Refuses to know handlers.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock

from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.sdk.declaring import seconds
from plugbay.sdk.errors import ServiceError, service_error
from plugbay.sdk.io.stdio import note
from plugbay.sdk.services.host_client import unsupported_service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from plugbay.contracts.base import Machine
    from plugbay.model.events import CallId, CallProgress, Event
    from plugbay.model.operations import HostOp
    from plugbay.sdk.io.stdio import Wire

    Reply = CallFinished | CallProgress
    Sink = Callable[[Reply], None]


class Connection:
    """A machine and its wire, for any number of threads."""

    __slots__ = (
        "_last_id",
        "_lock",
        "_machine",
        "_mute",
        "_over",
        "_waiting",
        "_wire",
        "release_reader",
        "unsupported",
        "writing",
    )

    def __init__(self, machine: Machine, wire: Wire, unsupported: frozenset[type] = frozenset()) -> None:
        self.unsupported = unsupported
        """What this host cannot be asked or told: its contract has no word for it."""
        self.release_reader: Callable[[], None] = _nothing
        """Called by whoever is about to wait for an answer: it may be the one who should be reading."""
        self._machine = machine
        self._wire = wire
        self._lock = allocate_lock()
        self.writing = allocate_lock()
        """Held while something is sent: whoever else has something to say would wait."""
        self._waiting: dict[CallId, Sink] = {}
        self._last_id = 0
        self._over = ""
        self._mute = False

    # What the host says; the reader alone calls these.

    def read(self) -> bytes:
        """What has arrived; b"" at the end of input, however it came."""
        try:
            return self._wire.read()
        except OSError:  # a socket whose other end was killed
            return b""

    def receive(self, data: bytes) -> list[Event]:
        """What these bytes mean; b"" is the end of input. What the machine answers by itself is sent.

        What others have to say they send themselves: to wait for one who speaks to a host that does not read is not for
        whoever listens.
        """
        machine = self._machine
        with self._lock:
            others = machine.has_outgoing
            events = machine.receive(data) if data else machine.receive_eof()
            ours = machine.has_outgoing and not others
        if ours:
            self.flush()
        return events

    def deliver_reply(self, event: Reply) -> None:
        """Hand an answer, or a part of one, to whoever asked; nobody when they gave up."""
        with self._lock:
            last = isinstance(event, CallFinished)
            sink = self._waiting.pop(event.id, None) if last else self._waiting.get(event.id)
        if sink is not None:
            sink(event)

    # What we say.

    def ask(self, op: HostOp, sink: Sink, within: CallId | None = None) -> int:
        """Ask the host; `sink` gets the parts of the answer and then its end, on the reader's thread.

        `within` is the call of the host's that it is asked for, if there is one.
        """
        self._refuse_unsupported(op)
        with self._lock:
            if self._over:
                raise ServiceError(Code.UNAVAILABLE, self._over)
            self._last_id = id = self._last_id + 1
            failure = self._call(id, op, within)
            if failure is None:
                self._waiting[id] = sink
        self._flush_unless(failure)
        return id

    def _call(self, id: int, op: HostOp, within: CallId | None) -> Failure | None:
        """Most contracts do not care what a question is for."""
        return self._machine.call(id, op)

    def give_up(self, id: int) -> None:
        """Nobody waits for this answer any more; where there is a word for that, the host is told."""
        machine = self._machine
        with self._lock:
            others = machine.has_outgoing
            if self._waiting.pop(id, None) is not None:
                machine.cancel(id, "the plugin gave up waiting")
            ours = machine.has_outgoing and not others
        if ours:
            self.flush()

    def tell(self, op: HostOp) -> None:
        self._refuse_unsupported(op)
        with self._lock:
            failure = self._machine.notify(op)
        self._flush_unless(failure)

    def _refuse_unsupported(self, op: HostOp) -> None:
        self._wire.exit_if_forked()
        if type(op) in self.unsupported:
            raise unsupported_service(op, self._machine.CONTRACT)

    def finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        """Answer; what is said goes out with the next `flush`."""
        self._wire.exit_if_forked()
        with self._lock:
            self._machine.finish(id, value, failure)

    def progress(self, id: CallId, item: Any) -> None:
        self._wire.exit_if_forked()
        with self._lock:
            failure = self._machine.progress(id, item)
        self._flush_unless(failure)

    def abandon(self, why: str) -> None:
        """From now on the host answers nothing: whoever waits fails at once, and so does whoever asks later."""
        with self._lock:
            self._over = why
            waiting, self._waiting = self._waiting, {}
        for id, sink in waiting.items():
            sink(CallFinished(id, failure=Failure(Code.UNAVAILABLE, why)))

    def leave(self, status: int, let_go: Callable[[], None]) -> NoReturn:
        self._wire.leave(status, let_go)

    def leave_after(self, seconds: float) -> None:
        self._wire.leave_after(seconds)

    def _flush_unless(self, failure: Failure | None) -> None:
        if failure is not None:
            raise service_error(failure)
        self.flush()

    @property
    def unsent(self) -> bool:
        """Whether there is something to say."""
        return self._machine.has_outgoing

    def flush(self) -> None:
        """Send what there is to say."""
        if not self._machine.has_outgoing:
            return
        with self.writing:
            with self._lock:
                data = self._machine.outgoing()
            if self._mute:
                return
            try:
                self._wire.write(data)
            except OSError as error:
                self._mute = True  # nobody listens; the end of input will follow, or a signal
                note(f"the host no longer reads what this plugin says: {error}")


class BlockingClient:
    """Services for plain code: ask, and wait for the answer."""

    __slots__ = ("_connection", "within")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.within: CallId | None = None
        """The call that it is for."""

    def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        seconds("timeout", timeout)
        inbox: SimpleQueue[Reply] = SimpleQueue()
        id = self._connection.ask(op, inbox.put, self.within)
        return read(answer(self._next(inbox, id, op, timeout)))

    def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> BlockingStream:
        seconds("timeout", timeout)
        inbox: SimpleQueue[Reply] = SimpleQueue()
        id = self._connection.ask(op, inbox.put, self.within)
        return BlockingStream(lambda: self._next(inbox, id, op, timeout), read)

    def tell(self, op: HostOp) -> None:
        self._connection.tell(op)

    def _next(self, inbox: SimpleQueue[Reply], id: int, op: HostOp, timeout: float) -> Reply:
        self._connection.release_reader()
        try:
            return inbox.get(timeout=timeout)
        except Empty:
            self._connection.give_up(id)
            raise timed_out(op, timeout) from None


class BlockingStream:
    """Pieces of text as they come; `result` is the rest of the answer, once they are all there."""

    __slots__ = ("_next_heard", "_read", "result")

    def __init__(self, next_heard: Callable[[], Reply], read: Callable[[Any], Any]) -> None:
        self._next_heard = next_heard
        self._read = read
        self.result: Any = None

    def __iter__(self) -> BlockingStream:
        return self

    def __next__(self) -> str:
        if self.result is not None:
            raise StopIteration
        heard = self._next_heard()
        if not isinstance(heard, CallFinished):
            return str(heard.item)
        self.result = self._read(answer(heard))
        raise StopIteration


def _nothing() -> None:
    """Whoever waits is not in the way."""


def answer(heard: Reply) -> Any:
    """The value of a finished call; its failure is raised."""
    assert isinstance(heard, CallFinished), "only a stream has parts"
    if heard.failure is not None:
        raise service_error(heard.failure)
    return heard.value


def timed_out(op: HostOp, timeout: float) -> ServiceError:
    return ServiceError(Code.TIMEOUT, f"the host did not answer {type(op).__name__} within {timeout:g} s")
