"""`ClientConnection`: one MCP client and its open requests, over any transport.

Drives the server side of the MCP machine from received bytes to sent bytes. Every frame about a call goes out with the
`origin` that its request came in with, because over HTTP each request has its own response.

A `Link` does not fit here: it writes the frames of all calls of one tick to one stream, and over HTTP each frame has to
go out on the response of its own request. It also holds notifications back until a greeting, which clients of the
modern era do not send. The answering of requests is shared (`link.answers`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from plugbay.link.answers import Answers
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CancelArrived, Fault, Noise, Notified
from plugbay.model.operations import OfferExports

if TYPE_CHECKING:
    from plugbay.contracts.mcp.server import ServerMachine
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation

MAX_CALLS = 512
"""Concurrent calls of one client; an agent makes a few dozen, and each may hold an input of 16 MiB."""

ANSWER_SECONDS = 600.0
"""Time for a person to answer a question."""


class Transport(Protocol):
    """Sends frames to the client."""

    def has_room(self, origin: Any) -> bool:
        """Whether the client reads fast enough for optional messages, such as progress and logs."""

    def send(self, data: bytes, origin: Any) -> None:
        """Send whole frames. `origin` is that of the request they belong to; None: they belong to no request."""

    def drop_answer(self, origin: Any) -> None:
        """A request with this `origin` was cancelled and gets no answer."""


class Service(Protocol):
    """Answers the requests of a connection."""

    def answer(self, call: Call) -> Awaitable[Any]:
        """Return the value for a call, or a `Failure`."""

    def handle_notification(self, client: ClientConnection, op: Operation) -> None:
        """Handle a notification of the client."""

    def report_noise(self, why: str) -> None:
        """Report a message that violates the protocol."""


class Call:
    """One request of the client."""

    __slots__ = ("connection", "forwarded_op", "id", "op", "origin")

    def __init__(self, connection: ClientConnection, id: CallId, op: Operation, origin: Any) -> None:
        self.connection = connection
        self.id = id
        self.op = op
        self.origin = origin
        self.forwarded_op: Any = None
        """The operation that a plugin was asked to do for this request."""

    def progress(self, item: Any) -> None:
        """Send progress to the client; dropped when the client does not read. Never raises."""
        self.connection.progress(self, item)

    async def ask(self, op: Operation) -> Any:
        """Ask the client a question while this call waits; a `Failure` when the client cannot be asked."""
        return await self.connection.ask(op, self)

    def can_ask(self, op: Operation) -> bool:
        """Whether the client offers to answer this question while this call waits."""
        return self.connection.can_ask(op, self)


class ClientConnection:
    """A machine and its open calls, on the running event loop."""

    def __init__(self, machine: ServerMachine, service: Service, transport: Transport) -> None:
        self.machine = machine
        self._service = service
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(machine, MAX_CALLS, "client")
        self._pending: dict[int, asyncio.Future[CallFinished]] = {}
        self._number = 0
        self.closed = False
        machine.greet()

    @property
    def busy(self) -> int:
        """Number of open calls."""
        return len(self._answers)

    # From the client.

    def receive(self, data: bytes, origin: Any = None) -> None:
        """Handle bytes from the client."""
        if self.closed:
            return
        for event in self.machine.receive(data):
            self._handle(event, origin)
        self._flush(origin)

    def close(self) -> None:
        """Close the connection: cancel open calls and fail open questions."""
        if self.closed:
            return
        self.machine.close("the server stops")
        self._flush(None)
        self.closed = True
        self._answers.stop()
        gone = Failure(Code.UNAVAILABLE, "the client has disconnected")
        for number, future in self._pending.items():
            if not future.done():
                future.set_result(CallFinished(number, None, gone))

    async def finished(self) -> None:
        """Wait until no call is running."""
        await self._answers.wait()

    # To the client.

    def notify(self, op: Operation) -> None:
        """Send a notification, if the client asked for this kind. A client that does not read receives only list
        changes.
        """
        if self.closed or not (isinstance(op, OfferExports) or self._transport.has_room(None)):
            return
        refusal = self.machine.notify(op)
        if refusal is not None:
            self._service.report_noise(f"{type(op).__name__} was not sent: {refusal.message}")
        self._flush(None)

    def progress(self, call: Call, item: Any) -> None:
        """Send progress of a call, unless the call is over."""
        if call.id in self._answers and not self.closed and self._transport.has_room(call.origin):
            self.machine.progress(call.id, item)
            self._flush(call.origin)

    def can_ask(self, op: Operation, call: Call) -> bool:
        """Whether the client offers to answer this question during its call."""
        return not self.closed and self.machine.refuse_question(op, call.id) is None

    @property
    def has_roots(self) -> bool:
        """Whether the client can be asked for its roots outside its calls."""
        return not self.closed and self.machine.session_has_roots

    async def ask(self, op: Operation, call: Call | None = None) -> Any:
        """Ask the client a question, during one of its calls if there is one; a `Failure` when it has no answer."""
        if self.closed:
            return Failure(Code.UNAVAILABLE, "the client has disconnected")
        self._number = number = self._number + 1
        refusal = self.machine.call(number, op, None if call is None else call.id)
        if refusal is not None:
            return refusal
        future = self._pending[number] = self._loop.create_future()
        origin = None if call is None else call.origin
        self._flush(origin)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                finished = await future
        except TimeoutError:
            self._cancel_question(number, origin, "the client did not answer")
            return Failure(Code.TIMEOUT, f"the client did not answer within {ANSWER_SECONDS:g} s")
        except asyncio.CancelledError:
            self._cancel_question(number, origin, "it is no longer needed")
            raise
        finally:
            del self._pending[number]
        return finished.failure or finished.value

    def _cancel_question(self, number: int, origin: Any, why: str) -> None:
        if not self.closed:
            self.machine.cancel(number, why)
            self._flush(origin)

    # Events.

    def _handle(self, event: Event, origin: Any) -> None:
        match event:
            case CallArrived():
                call = Call(self, event.id, event.op, origin)
                task = self._answers.start(event, functools.partial(self._flush, origin), self._service.answer, call)
                if task is not None:
                    task.add_done_callback(functools.partial(self._call_done, origin))
            case CancelArrived():
                self._answers.cancel(event.id)
            case CallFinished() if (future := self._pending.get(int(event.id))) is not None and not future.done():
                future.set_result(event)
            case Notified():
                self._service.handle_notification(self, event.op)
            case Noise():
                self._service.report_noise(event.why)
            case Fault():
                self._service.report_noise(event.failure.message)

    def _call_done(self, origin: Any, task: asyncio.Task[None]) -> None:
        """Runs as a done callback: a task that is cancelled before it starts never runs its own `finally`."""
        if task.cancelled():
            self._transport.drop_answer(origin)

    def _flush(self, origin: Any) -> None:
        data = self.machine.outgoing()
        if data and not self.closed:
            self._transport.send(data, origin)
