"""`Answers`: answers the requests of the peer, each in its own task, under a cap.

A handler needs its own task: one that awaited the peer inside the reader would wait for bytes that nobody reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Machine
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.events import CallArrived, CancelArrived

if TYPE_CHECKING:
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation

    Handler = Callable[[Operation, Callable[[Any], None]], Awaitable[Any]]
    """(operation, send progress) → value or Failure."""

MAX_HANDLERS = 32
"""Requests of one peer answered at the same time; more are refused as overloaded."""


class Answers:
    """Requests being answered for one link."""

    __slots__ = ("_handler", "_has_room", "_machine", "_send", "_tasks", "_within")

    def __init__(
        self,
        machine: Machine,
        handler: Handler | None,
        send: Callable[[int], None],
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """`has_room`: whether the peer reads well enough for pieces of an answer; the answer itself always goes."""
        self._machine = machine
        self._handler = handler
        self._send = send
        self._has_room = has_room
        self._tasks: dict[CallId, asyncio.Task[None]] = {}
        self._within: dict[CallId, CallId] = {}
        """By request: the call of ours that it belongs to, where that is known."""

    def __len__(self) -> int:
        return len(self._tasks)

    def arrived(self, event: CallArrived) -> None:
        """Start answering, or refuse at once."""
        if self._handler is None:
            self._finish(event.id, Failure(Code.NOT_FOUND, "nobody here answers requests"))
        elif len(self._tasks) >= MAX_HANDLERS:
            why = f"{MAX_HANDLERS} requests of this plugin are being answered already"
            self._finish(event.id, Failure(Code.OVERLOADED, why, retryable=True))
        else:
            # In a context of its own: ours is that of whoever made the peer start, and has nothing to do with this.
            self._tasks[event.id] = asyncio.get_running_loop().create_task(
                self._answer(event, self._handler), context=Context()
            )
            if event.within is not None:
                self._within[event.id] = event.within

    def cancelled(self, event: CancelArrived) -> None:
        """The peer no longer wants this answer; its handler is cancelled and says nothing more."""
        task = self._tasks.pop(event.id, None)  # here: a task that never began would not give its place back
        self._within.pop(event.id, None)
        if task is not None:
            task.cancel()

    def abandoned(self, call: CallId) -> None:
        """Nobody waits for this call of ours any more, nor for what was asked because of it."""
        for id in [id for id, within in self._within.items() if within == call]:
            self.cancelled(CancelArrived(id))

    def stop(self) -> None:
        """Nobody will read an answer any more."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def _answer(self, event: CallArrived, handler: Handler) -> None:
        def progress(item: Any) -> None:
            if not self._has_room():
                why = "the plugin does not read the pieces it asked for"
                raise CallFailed(Failure(Code.OVERLOADED, why, retryable=True))
            self._machine.progress(event.id, item)
            self._send(len(self._tasks))

        try:
            answer = await handler(event.op, progress)
        except CallFailed as error:
            answer = error.failure
        except Exception as error:
            answer = Failure(Code.INTERNAL, f"{type(error).__name__}: {error}")
        finally:
            self._tasks.pop(event.id, None)
            self._within.pop(event.id, None)
        self._finish(event.id, answer)

    def _finish(self, id: CallId, answer: Any) -> None:
        if isinstance(answer, Failure):
            self._machine.finish(id, None, answer)
        else:
            self._machine.finish(id, answer)
        self._send(len(self._tasks))
