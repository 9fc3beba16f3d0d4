"""`Connection`: one machine, one wire, and the requests that wait for a reply. `BlockingClient`: for plain handlers.

A resident plugin has one, and the test host has one for the other end. All threads share it. Bytes are sent in the
order in which the machine made them, and the machine's lock is never held during a write: a peer that reads slowly
blocks the threads that send to it, not the one that reads.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock

from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallFinished
from plugbay.sdk.declarations import seconds
from plugbay.sdk.errors import ServiceError, service_error
from plugbay.sdk.io.stdio import note
from plugbay.sdk.services.host_client import unsupported_service

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from plugbay.contracts.base import Machine
    from plugbay.model.events import CallId, CallProgress, Event
    from plugbay.model.operations import HostOp, Operation
    from plugbay.sdk.io.stdio import Wire

    Reply = CallFinished | CallProgress
    Sink = Callable[[Reply], None]


class Connection:
    """A machine and its wire, safe to use from any thread.

    Every call comes through `receive`, `finish` and `flush`. They take their locks by hand: `with` takes three times as
    long as the two calls it makes.
    """

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
        """Operations that the host's contract does not support."""
        self.release_reader: Callable[[], None] = _nothing
        """Called before a thread waits for a reply: it may be the reading thread."""
        self._machine = machine
        self._wire = wire
        self._lock = allocate_lock()
        self.writing = allocate_lock()
        """Held during a write; other senders wait for it."""
        self._waiting: dict[CallId, Sink] = {}
        self._last_id = 0
        self._over: Failure | None = None
        """Why no request is sent any more."""
        self._mute = False

    # Input; called by the reading thread only.

    def read(self) -> bytes:
        """Bytes that have arrived; b"" at the end of input, also after an error."""
        try:
            return self._wire.read()
        except OSError:  # a socket whose other end was killed
            return b""

    def receive(self, data: bytes) -> list[Event]:
        """The events of these bytes; b"" is the end of input. Sends only the machine's own answers.

        Threads send their own messages: the reading thread must not wait for a peer that does not read.
        """
        machine = self._machine
        self._lock.acquire()
        try:
            others = machine.has_outgoing
            events = machine.receive(data) if data else machine.receive_eof()
            ours = machine.has_outgoing and not others
        finally:
            self._lock.release()
        if ours:
            self.flush()
        return events

    def deliver_reply(self, event: Reply) -> None:
        """Pass a reply, or a part of one, to its request; drop it when the request was given up."""
        with self._lock:
            last = isinstance(event, CallFinished)
            sink = self._waiting.pop(event.id, None) if last else self._waiting.get(event.id)
        if sink is not None:
            sink(event)

    # Output.

    def call(self, op: Operation, sink: Sink, within: CallId | None = None) -> int | Failure:
        """Send a request; returns its id, or why it is not sent.

        `sink` gets the parts of the answer and then its end, on the reading thread. `within` is the peer's call that
        the request is made for, if there is one.
        """
        with self._lock:
            if self._over is not None:
                return self._over
            self._last_id = id = self._last_id + 1
            failure = self._call(id, op, within)
            if failure is None:
                self._waiting[id] = sink
        if failure is not None:
            return failure
        self.flush()
        return id

    def _call(self, id: int, op: Operation, within: CallId | None) -> Failure | None:
        """Most contracts ignore `within`."""
        return self._machine.call(id, op)

    def cancel(self, id: CallId, reason: str, *, wait: bool = False) -> None:
        """Cancel a request, and notify the peer if the contract can. With `wait`, its answer still counts."""
        machine = self._machine
        with self._lock:
            others = machine.has_outgoing
            if (self._waiting.get(id) if wait else self._waiting.pop(id, None)) is not None:
                machine.cancel(id, reason)
            ours = machine.has_outgoing and not others
        if ours:
            self.flush()

    def notify(self, op: Operation) -> Failure | None:
        """Send a notification; returns why it is not sent."""
        with self._lock:
            failure = self._machine.notify(op)
        if failure is None:
            self.flush()
        return failure

    # Output of a plugin, whose failures are raised.

    def ask(self, op: HostOp, sink: Sink, within: CallId | None = None) -> int:
        """As `call`; raises `ServiceError`."""
        self._refuse_unsupported(op)
        id = self.call(op, sink, within)
        if isinstance(id, Failure):
            raise service_error(id)
        return id

    def give_up(self, id: int) -> None:
        """Cancel a request that took too long."""
        self.cancel(id, "the plugin gave up waiting")

    def tell(self, op: HostOp) -> None:
        """As `notify`; raises `ServiceError`."""
        self._refuse_unsupported(op)
        _raise(self.notify(op))

    def _refuse_unsupported(self, op: HostOp) -> None:
        self._wire.exit_if_forked()
        if type(op) in self.unsupported:
            raise unsupported_service(op, self._machine.CONTRACT)

    def finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        """Answer a call; the bytes are sent by the next `flush`."""
        self._wire.exit_if_forked()
        self._lock.acquire()
        try:
            self._machine.finish(id, value, failure)
        finally:
            self._lock.release()

    def progress(self, id: CallId, item: Any) -> None:
        self._wire.exit_if_forked()
        with self._lock:
            failure = self._machine.progress(id, item)
        _raise(failure)
        self.flush()

    def abandon(self, failure: Failure) -> None:
        """Fail all waiting requests, and every later one: the peer will not answer."""
        with self._lock:
            self._over = failure
            waiting, self._waiting = self._waiting, {}
        for id, sink in waiting.items():
            sink(CallFinished(id, failure=failure))

    def leave(self, status: int, let_go: Callable[[], None]) -> NoReturn:
        self._wire.leave(status, let_go)

    def leave_after(self, seconds: float) -> None:
        self._wire.leave_after(seconds)

    @property
    def unsent(self) -> bool:
        """Whether bytes wait to be sent."""
        return self._machine.has_outgoing

    def flush(self) -> None:
        """Send all waiting bytes."""
        if not self._machine.has_outgoing:
            return
        self.writing.acquire()
        try:
            self._lock.acquire()
            try:
                data = self._machine.outgoing()
            finally:
                self._lock.release()
            if not self._mute:
                self._wire.write(data)
        except OSError as error:
            self._mute = True  # the host is gone; the end of input or a signal follows
            note(f"the host no longer reads the output of this plugin: {error}")
        finally:
            self.writing.release()


class BlockingClient:
    """The host client of plain handlers: a request blocks until the reply."""

    __slots__ = ("_connection", "within")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.within: CallId | None = None
        """The host's call that requests are made for."""

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
    """Pieces of text as they arrive; `result` is set after the last one."""

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


def _raise(failure: Failure | None) -> None:
    if failure is not None:
        raise service_error(failure)


def _nothing() -> None:
    """The default: no reading thread to release."""


def answer(heard: Reply) -> Any:
    """The value of a finished call; its failure is raised."""
    assert isinstance(heard, CallFinished), "only a stream has parts"
    if heard.failure is not None:
        raise service_error(heard.failure)
    return heard.value


def timed_out(op: HostOp, timeout: float) -> ServiceError:
    return ServiceError(Code.TIMEOUT, f"the host did not answer {type(op).__name__} within {timeout:g} s")
