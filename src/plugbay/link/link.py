"""`Link`: one machine, one byte stream, and the calls that wait between them. `Hooks`: the callbacks of its owner.

Owns the correlation of calls with their callers, their deadlines, and the end of a conversation. `sender` decides when
bytes go out.

There is no reader task: the stream calls `data_received`, the machine turns bytes into events, each event settles its
waiter. A peer's fault becomes the result of every waiting call, never an exception in a task group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from time import monotonic
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Machine
from plugbay.link.answers import Answers
from plugbay.link.deadlines import Deadlines
from plugbay.link.in_flight import DEADLINE, Grace, InFlight
from plugbay.link.incoming import Incoming
from plugbay.link.sender import Sender
from plugbay.link.stream import EXIT_NOTICE, MOMENT, ByteStream, Tap
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.events import (
    CallArrived,
    CallFinished,
    CallProgress,
    CancelArrived,
    Closed,
    Fault,
    Noise,
    Notified,
    Ready,
)

if TYPE_CHECKING:
    from plugbay.link.in_flight import Call
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation

    Handler = Callable[[Operation, Callable[[Any], None]], Awaitable[Any]]
    """(operation, send progress) → value or Failure."""

    Explain = Callable[[Failure, float | None], Failure]

NO_MEMORY = Failure(
    Code.OVERLOADED,
    "the host ran out of memory for a message of the plugin and closed the connection",
    origin=Origin.SYSTEM,
    detail={
        "hint": "give the host more memory, or return less data; write large results to files",
        "execution_outcome": "unknown",
    },
)
"""The answer is lost, so the work may have been done."""


class Hooks:
    """Callbacks in the link's loop; they must not block."""

    __slots__ = ("explain", "faulted", "handler", "noise", "notified", "trace")

    def __init__(
        self,
        *,
        handler: Handler | None = None,
        notified: Callable[[Operation], None] | None = None,
        noise: Callable[[Noise], None] | None = None,
        faulted: Callable[[Failure], None] | None = None,
        explain: Explain | None = None,
        trace: Callable[[str], object] | None = None,
    ) -> None:
        self.handler = handler
        """Answers requests of the peer."""
        self.notified = notified
        self.noise = noise
        self.faulted = faulted
        """Called once, when the link has ended."""
        self.explain = explain
        """Adds the exit status and stderr to a failure before its caller sees it. With the time on `monotonic` at which
        the call was sent, stderr from then on; None for all of it."""
        self.trace = trace
        """Called with the name of each step of the walk."""


class Link:
    """The live conversation with one peer."""

    __slots__ = tuple(
        "_answers _deadlines _eof_timer _graces _greeted _has_process _hooks _in_flight _incoming _loop _number "
        "_parting _progress _send _sender _stream _tap _trace fault hello late machine noise silence".split()
    )

    def __init__(
        self,
        machine: Machine,
        stream: ByteStream,
        deadlines: Deadlines,
        hooks: Hooks | None = None,
        *,
        has_process: bool = False,
    ) -> None:
        self.machine = machine
        self._stream = stream
        self._deadlines = deadlines
        self._hooks = hooks or Hooks()
        self._trace = self._hooks.trace
        self._tap: Tap | None = None
        self._has_process = has_process
        self._loop = asyncio.get_running_loop()
        self._in_flight = InFlight(deadlines, self._expire)
        self.silence = self._in_flight.silence
        self._progress: dict[CallId, Callable[[Any], None]] = {}
        self._graces: dict[CallId, Grace] = {}
        self._number = 0
        self._incoming = Incoming(stream, deadlines, self.fail)
        self._sender = Sender(machine, stream, self._incoming, self._untold, self._trace)
        self._send = self._sender.send
        self._answers = Answers(machine)
        self._eof_timer: asyncio.TimerHandle | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._parting: asyncio.Future[Failure | None] | None = None
        self.hello: Ready | None = None
        self.fault: Failure | None = None
        """Why the link has ended; None while it is open."""
        self.late = 0  # answers that came after their call was over
        self.noise = 0  # pieces of output that were no message

    # Opening and closing.

    async def open(self, timeout: float) -> Failure | None:
        """Greet, and wait until the peer is ready. A `Failure` means the link is dead."""
        self._greeted = self._loop.create_future()
        self._stream.open(self)
        self.machine.greet()
        self._send()
        self._deadlines.add(timeout, self._greeted, self._never_greeted)
        try:
            await self._greeted
        finally:
            self._deadlines.discard(self._greeted)
            self._greeted = None
        return self.fault

    def _never_greeted(self, greeted: asyncio.Future[None]) -> None:
        hint = "flush all output and import less; more time: timeouts = { handshake = N } in plugbay.toml"
        self.fail(Failure(Code.TIMEOUT, "the plugin did not complete its handshake in time", detail={"hint": hint}))

    async def farewell(self, timeout: float) -> Failure | None:
        """Send the shutdown request, let the peer finish open calls, and wait for its answer; then close the input.

        Where the contract has no answer to it, does not wait. Returns a `Failure` if the shutdown went wrong. Answers
        of open calls may arrive until the owner ends the process.
        """
        parted = self.fault
        if self.fault is None and not self.machine.GOOD_BYE_IS_ANSWERED:
            self.machine.close("host requested")
            self._sender.send_now()
        elif self.fault is None:
            self._parting = self._loop.create_future()
            self._deadlines.add(timeout, self._parting, _never_parted)
            self.machine.close("host requested")
            self._send()
            try:
                parted = await self._parting
            finally:
                self._deadlines.discard(self._parting)
        self._stream.close_write()
        return parted

    def close_input(self) -> None:
        """Close the peer's input; answers may still arrive."""
        self.machine.close("done")
        self._send()
        self._stream.close_write()

    def close(self, failure: Failure | None = None) -> None:
        """Close at once. Waiting calls end with `failure`."""
        if self.fault is None:
            self._end(failure or Failure(Code.UNAVAILABLE, "the link was closed"))
        if self._eof_timer is not None:
            self._eof_timer.cancel()
        self._stream.close()

    def peer_exited(self) -> None:
        """The process has exited: read the rest of its output, and end the link even if a child holds the pipe open."""
        self._has_process = False
        self._incoming.wake()
        self._stream.read_available()
        self._end_of_output()

    def tap(self, tap: Tap | None) -> None:
        """From now on, show every byte that is read or written to `tap`; None ends that."""
        self._tap = self._sender.tap = tap

    # Asking.

    async def call(
        self,
        op: Operation,
        timeout: float,
        on_progress: Callable[[Any], None] | None = None,
        grace: Grace | None = None,
        over: Callable[[], None] | None = None,
    ) -> CallFinished:
        """Ask the peer and wait. The answer carries a value or a failure; only cancellation raises.

        With a `grace`, an answer counts that arrives within it after the deadline, or after the cancellation. `over` is
        called when the call has ended, however it ended.
        """
        self._number = id = self._number + 1
        if self._trace is not None:
            self._trace("link.call")
            self._trace("machine.call")
        try:
            if self.fault is not None or (self._stream.buffered and not self._sender.admits_call()):
                return CallFinished(id, None, self.fault or self._overloaded())
            refusal = self.machine.call(id, op)
            if refusal is not None:
                return CallFinished(id, None, refusal)
            future: asyncio.Future[CallFinished] = self._loop.create_future()
            self._in_flight.add(id, future, timeout, op)
            if on_progress is not None:
                self._progress[id] = on_progress
            if grace is not None:
                self._graces[id] = grace
                grace.begin(lambda: self._call_off(id, grace))
            self._send(len(self._in_flight.calls))
            return await future
        except asyncio.CancelledError:
            self._abandon(id, "the caller cancelled")
            raise
        finally:
            if on_progress is not None:
                self._progress.pop(id, None)
            if grace is not None and self._graces.pop(id, None) is not None:
                grace.end()
            if over is not None:
                over()

    def notify(self, op: Operation) -> None:
        """Send a notification, in order; it waits in a bounded lane while the peer is not ready or not reading."""
        self._sender.notify(op)

    @property
    def has_room(self) -> bool:
        """Whether the peer reads fast enough to be sent more."""
        return self._sender.has_room()

    @property
    def waiting(self) -> int:
        """Calls in flight."""
        return len(self._in_flight)

    @property
    def open_until(self) -> float | None:
        """The latest deadline of the calls in flight, on the loop's clock; None without calls. Probes do not count."""
        return self._in_flight.latest()

    @property
    def answering(self) -> int:
        """Requests of the peer that are being answered."""
        return len(self._answers)

    @property
    def unread(self) -> tuple[float, int] | None:
        """As `Sender.unread`."""
        return self._sender.unread

    @property
    def dropped(self) -> int:
        """Notifications dropped because the peer did not keep up, or could not have read them."""
        return self._sender.outbox.dropped

    @property
    def urgent_dropped(self) -> int:
        """The same of the urgent ones: keys that the peer did not read in time."""
        return self._sender.outbox.urgent_dropped

    def _overloaded(self) -> Failure:
        return Failure(Code.OVERLOADED, f"{self._stream.buffered:,} bytes wait because the plugin does not read them")

    def _abandon(self, id: CallId, reason: str) -> None:
        if self._in_flight.take(id) is not None and self.fault is None:
            self.machine.cancel(id, reason)
            self._answers.abandon(id)
            self._send()

    def _expire(self, id: CallId) -> None:
        grace = self._graces.get(id)
        if grace is not None and grace.cancel(DEADLINE):
            return
        failure = Failure(Code.TIMEOUT, "no answer within the time allowed for the call")
        self._give_up(id, DEADLINE, failure if grace is None else grace.ignored())

    def _call_off(self, id: CallId, grace: Grace) -> None:
        """Send the cancellation; the grace is the new deadline of the call."""
        if id in self._in_flight and self.fault is None:
            self._in_flight.extend(id, grace.seconds)
            self.machine.cancel(id, grace.reason)
            self._send()

    def _give_up(self, id: CallId, reason: str, failure: Failure) -> None:
        if id in self._in_flight:
            call = self._in_flight.calls[id]
            self._abandon(id, reason)
            self._settle(call, CallFinished(id, None, failure))

    def _untold(self, op: Operation, refusal: Failure) -> None:
        self._noticed(Noise(b"", f"{type(op).__name__} was not sent: {refusal.message}"))

    # The stream's listener.

    def data_received(self, data: bytes) -> None:
        self.silence.heard = began = monotonic()
        waiting = len(self._in_flight.calls)
        if self._tap is not None:
            self._tap.received(data, self.machine.pending)
        if self._trace is not None:
            self._trace("stream.read")
            self._trace("machine.receive")
        try:
            events = self.machine.receive(data)
        except Exception as error:
            events = self._broken(error)
        self._take(events)
        if (pending := self.machine.pending) or self._incoming.pending:
            self._incoming.read(len(data), pending)
        if self.fault is not None:
            return
        if self.machine.satisfied:
            self._incoming.end()
        if self.machine.has_outgoing:
            self._sender.send_now()
        busy = monotonic() - began
        if busy > MOMENT and self._has_process and self.hello is not None and len(self._in_flight.calls) >= waiting:
            self._incoming.rest(busy)

    def eof_received(self) -> None:
        if self._has_process and self._eof_timer is None:
            self._eof_timer = self._loop.call_later(EXIT_NOTICE, self._end_of_output)
        else:
            self._end_of_output()

    def write_drained(self) -> None:
        self._sender.drained()

    def _end_of_output(self) -> None:
        if self._eof_timer is not None:
            self._eof_timer.cancel()
        try:
            events = self.machine.receive_eof()
        except MemoryError:  # an unfinished message is lost; its call fails below
            events = []
        self._take(events)
        self.fail(Failure(Code.CRASHED, "the plugin has exited", origin=Origin.PLUGIN))

    def _broken(self, error: Exception) -> list[Event]:
        if isinstance(error, MemoryError):
            return [Fault(NO_MEMORY)]
        self._loop.call_exception_handler({"message": "protocol machine raised", "exception": error})
        return [Fault(Failure(Code.INTERNAL, f"a bug in the {self.machine.CONTRACT} machine: {error!r}"))]

    # Events.

    def _take(self, events: list[Event]) -> None:
        """Settle the calls that are answered; dispatch all other events."""
        waiting = self._in_flight.calls
        for event in events:
            if type(event) is not CallFinished:
                self._dispatch(event)
            elif (found := waiting.pop(event.id, None)) is None:
                self.late += 1
            else:
                self._settle(found, event)

    def _settle(self, call: Call, event: CallFinished) -> None:
        if self._trace is not None:
            self._trace("link.settle")
        if event.failure is not None and self._hooks.explain is not None:
            event.failure = self._hooks.explain(event.failure, _stderr_since(event.id, call[3]))
        if self._progress:
            self._progress.pop(event.id, None)
        if not call[0].done():
            call[0].set_result(event)

    def _dispatch(self, event: Event) -> None:
        match event:
            case CallProgress():
                self._progressed(event)
            case Ready():
                self._ready(event)
            case CallArrived():
                self._answer(event)
            case CancelArrived():
                self._answers.cancel(event.id)
            case Notified() if self._hooks.notified is not None:
                self._hooks.notified(event.op)
            case Noise():
                self._noticed(event)
            case Fault():
                self.fail(event.failure)
            case Closed():
                self._part(None)
                self.fail(Failure(Code.UNAVAILABLE, "the plugin has exited as asked"))

    def _answer(self, event: CallArrived) -> None:
        """Start answering a request of the peer."""

        def send() -> None:
            self._send(len(self._answers))

        def progress(item: Any) -> None:
            if not self._sender.has_room():
                why = "the plugin does not read the progress that it asked for"
                raise CallFailed(Failure(Code.OVERLOADED, why, retryable=True))
            self.machine.progress(event.id, item)
            send()

        if self._hooks.handler is None:
            self.machine.finish(event.id, None, Failure(Code.NOT_FOUND, "requests are not answered here"))
            send()
        else:
            # An empty context: the current one belongs to the caller that started the peer.
            self._answers.start(event, send, self._hooks.handler, event.op, progress, context=Context())

    def _ready(self, event: Ready) -> None:
        self.hello = event
        if self._trace is not None:
            self._trace("link.ready")
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(None)
        self._sender.ready()

    def _progressed(self, event: CallProgress) -> None:
        on_progress = self._progress.get(event.id)
        if on_progress is None:
            self.late += event.id not in self._in_flight
            return
        try:
            on_progress(event.item)
        except Exception as error:  # one caller's bug must not cost the others their answers
            self._give_up(event.id, "the caller failed", Failure(Code.INTERNAL, f"on_progress raised {error!r}"))

    def _noticed(self, event: Noise) -> None:
        self.noise += 1
        if self._hooks.noise is not None:
            self._hooks.noise(event)

    def fail(self, failure: Failure) -> None:
        """End the link: all waiting calls fail with the reason, once."""
        if self.fault is None:
            self._end(failure, self._hooks.explain)

    def _part(self, failure: Failure | None) -> None:
        if self._parting is not None and not self._parting.done():
            self._parting.set_result(failure)

    def _end(self, reason: Failure, explain: Explain | None = None) -> None:
        self.fault = failure = reason if explain is None else explain(reason, None)
        self._sender.over = True
        self._part(failure)
        self._incoming.end()
        for id, future, sent in self._in_flight.end():
            if not future.done():
                own = failure if explain is None else explain(reason, _stderr_since(id, sent))
                future.set_result(CallFinished(id, None, own))
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(None)
        self._answers.stop()
        if self._hooks.faulted is not None:
            self._hooks.faulted(failure)


FIRST_CALL: CallId = 1


def _stderr_since(id: CallId, sent: float) -> float | None:
    """From when on stderr belongs to a call: the first one has also what was written at the start."""
    return None if id == FIRST_CALL else sent


def _never_parted(parting: asyncio.Future[Failure | None]) -> None:
    if not parting.done():
        parting.set_result(Failure(Code.TIMEOUT, "the plugin did not answer the shutdown in time"))
