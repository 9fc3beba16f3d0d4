"""`ClientConnection`: one MCP client, and what it has asked that is not answered yet.

Drives a machine in the part of the server, from bytes that somebody brings to bytes that somebody takes away: a pipe, a
session over HTTP, a single request. Whatever is said about a call goes out with the `origin` it came in with, because
over HTTP each request has a way back of its own. Refuses to know what is served, and how bytes travel.

(A `Link` is made for the other end: it greets a child and watches over it, has at most 32 requests of it, and does not
tell its owner which of them is being answered.)
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Protocol

from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CancelArrived, Fault, Noise, Notified
from plugbay.model.operations import OfferExports

if TYPE_CHECKING:
    from plugbay.contracts.mcp.machine import McpMachine
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation

MAX_CALLS = 512
"""Calls of one client at the same time; an agent has a few dozen, and each may hold an input of 16 MiB."""

ANSWER_SECONDS = 600.0
"""For a person to answer a question; who takes longer is taken for gone."""


class Transport(Protocol):
    """The way to the client."""

    def has_room(self, origin: Any) -> bool:
        """Whether the client reads well enough to be told what it could do without."""

    def send(self, data: bytes, origin: Any) -> None:
        """Whole frames; `origin` is what the request came with that they are about, None for any other."""

    def unanswered(self, origin: Any) -> None:
        """A request that came with `origin` was called off: nothing more will be said about it."""


class Service(Protocol):
    """What is behind the conversation."""

    def answer(self, call: Call) -> Awaitable[Any]:
        """The value for a call, or a `Failure`."""

    def told(self, client: ClientConnection, op: Operation) -> None:
        """The client says something that wants no answer."""

    def puzzled(self, why: str) -> None:
        """The client said something that cannot be understood."""


class Call:
    """One thing that the client asked."""

    __slots__ = ("conversation", "id", "op", "origin", "passed_on")

    def __init__(self, conversation: ClientConnection, id: CallId, op: Operation, origin: Any) -> None:
        self.conversation = conversation
        self.id = id
        self.op = op
        self.origin = origin
        self.passed_on: Any = None
        """What a plugin is asked because of it."""

    def progress(self, item: Any) -> None:
        """Tell the client how far this is; left out when it does not read. Never raises."""
        self.conversation.progress(self, item)

    async def ask(self, op: Operation) -> Any:
        """Ask the client something while this call waits; a `Failure` when it cannot be asked."""
        return await self.conversation.ask(op, self)


class ClientConnection:
    """A machine and its tasks, on the running loop."""

    def __init__(self, machine: McpMachine, service: Service, transport: Transport) -> None:
        self.machine = machine
        self._service = service
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[CallId, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[CallFinished]] = {}
        self._number = 0
        self.closed = False
        machine.greet()

    @property
    def busy(self) -> int:
        """Calls that are not answered yet."""
        return len(self._tasks)

    # What the client does.

    def receive(self, data: bytes, origin: Any = None) -> None:
        """Bytes as they came from the client."""
        if self.closed:
            return
        for event in self.machine.receive(data):
            self._take(event, origin)
        self._flush(origin)

    def close(self) -> None:
        """The client is gone, or is to go: what it still waits for is given up."""
        if self.closed:
            return
        self.machine.close("the server stops")
        self._flush(None)
        self.closed = True
        for task in self._tasks.values():
            task.cancel()
        gone = Failure(Code.UNAVAILABLE, "the client has gone")
        for number, future in self._asked.items():
            if not future.done():
                future.set_result(CallFinished(number, None, gone))

    async def finished(self) -> None:
        """Wait until no call runs any more."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    # What we do.

    def tell(self, op: Operation) -> None:
        """Tell the client something, if it wants to hear it; who does not read hears only that its lists changed."""
        if self.closed or not (isinstance(op, OfferExports) or self._transport.has_room(None)):
            return
        refusal = self.machine.notify(op)
        if refusal is not None:
            self._service.puzzled(f"{type(op).__name__} was not sent: {refusal.message}")
        self._flush(None)

    def progress(self, call: Call, item: Any) -> None:
        """Say how far a call is, which may be over by now."""
        if call.id in self._tasks and not self.closed and self._transport.has_room(call.origin):
            self.machine.progress(call.id, item)
            self._flush(call.origin)

    async def ask(self, op: Operation, call: Call) -> Any:
        """What the client answers to a question that came up in a call of its own; a `Failure` when it cannot."""
        if self.closed:
            return Failure(Code.UNAVAILABLE, "the client has gone")
        self._number = number = self._number + 1
        refusal = self.machine.call(number, op, call.id)
        if refusal is not None:
            return refusal
        future = self._asked[number] = self._loop.create_future()
        self._flush(call.origin)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                finished = await future
        except TimeoutError:
            self._give_up(number, call, "nobody answered")
            return Failure(Code.TIMEOUT, f"nobody answered within {ANSWER_SECONDS:g} s")
        except asyncio.CancelledError:
            self._give_up(number, call, "it is no longer needed")
            raise
        finally:
            del self._asked[number]
        return finished.failure or finished.value

    def _give_up(self, number: int, call: Call, why: str) -> None:
        if not self.closed:
            self.machine.cancel(number, why)
            self._flush(call.origin)

    # Events.

    def _take(self, event: Event, origin: Any) -> None:
        match event:
            case CallArrived():
                self._arrived(Call(self, event.id, event.op, origin))
            case CancelArrived() if (task := self._tasks.get(event.id)) is not None:
                task.cancel()
            case CallFinished() if (future := self._asked.get(int(event.id))) is not None and not future.done():
                future.set_result(event)
            case Notified():
                self._service.told(self, event.op)
            case Noise():
                self._service.puzzled(event.why)
            case Fault():
                self._service.puzzled(event.failure.message)

    def _arrived(self, call: Call) -> None:
        if len(self._tasks) >= MAX_CALLS:
            why = f"{MAX_CALLS} calls of this client are being answered already"
            self.machine.finish(call.id, None, Failure(Code.OVERLOADED, why, retryable=True))
            return
        self._tasks[call.id] = task = self._loop.create_task(self._run(call))
        task.add_done_callback(functools.partial(self._ended, call))

    def _ended(self, call: Call, task: asyncio.Task[None]) -> None:
        """Not in the task itself: one that is called off before it began never gets to say so."""
        del self._tasks[call.id]
        if task.cancelled():
            self._transport.unanswered(call.origin)

    async def _run(self, call: Call) -> None:
        """A call that is called off says nothing more."""
        try:
            answer = await self._service.answer(call)
        except CallFailed as error:
            answer = error.failure
        except Exception as error:
            answer = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        if self.closed:
            return
        if isinstance(answer, Failure):
            self.machine.finish(call.id, None, answer)
        else:
            self.machine.finish(call.id, answer)
        self._flush(call.origin)

    def _flush(self, origin: Any) -> None:
        data = self.machine.outgoing()
        if data and not self.closed:
            self._transport.send(data, origin)
