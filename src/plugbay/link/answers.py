"""`Answers`: answers the requests of one peer, each in its own task, up to a limit.

A handler needs its own task: one that awaited the peer inside the reader would wait for bytes that no task reads. The
link uses it for plugins, `mcp_server` for its clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from plugbay.model.events import CallArrived, CallId

MAX_HANDLERS = 32
"""Requests of one plugin that are answered at the same time; more are refused as overloaded."""


class Finisher(Protocol):
    """The part of a machine that answers."""

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None: ...


class Answers:
    """Requests being answered for one peer."""

    __slots__ = ("_limit", "_machine", "_over", "_peer", "_running", "_tasks", "_within")

    def __init__(self, machine: Finisher, limit: int = MAX_HANDLERS, peer: str = "plugin") -> None:
        self._machine = machine
        self._limit = limit
        self._peer = peer
        self._tasks: dict[CallId, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        """All tasks, also those that were cancelled and have not ended."""
        self._within: dict[CallId, CallId] = {}
        """By request: the call of ours that it belongs to, where that is known."""
        self._over = False

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, id: CallId) -> bool:
        return id in self._tasks

    def start(
        self,
        event: CallArrived,
        send: Callable[[], object],
        handler: Callable[..., Awaitable[Any]],
        *arguments: Any,
        context: Context | None = None,
    ) -> asyncio.Task[None] | None:
        """Start answering with the value or `Failure` of a handler; None if the request is refused at once.

        `send` is called when the machine has an answer to send. `context` None: a copy of the caller's.
        """
        if len(self._tasks) >= self._limit:
            why = f"{self._limit} requests of this {self._peer} are already in progress"
            self._machine.finish(event.id, None, Failure(Code.OVERLOADED, why, retryable=True))
            send()
            return None
        answering = self._answer(event.id, send, handler, arguments)
        task = asyncio.get_running_loop().create_task(answering, context=context)
        self._tasks[event.id] = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if event.within is not None:
            self._within[event.id] = event.within
        return task

    def cancel(self, id: CallId) -> None:
        """The peer no longer wants this answer: cancel its handler."""
        task = self._tasks.pop(id, None)  # here: a task that never began would not give its place back
        self._within.pop(id, None)
        if task is not None:
            task.cancel()

    def abandon(self, call: CallId) -> None:
        """The caller of this call of ours has left: cancel the requests that the peer made because of it."""
        for id in [id for id, within in self._within.items() if within == call]:
            self.cancel(id)

    def stop(self) -> None:
        """Cancel all handlers; no answer is sent any more."""
        self._over = True
        for id in list(self._tasks):
            self.cancel(id)

    async def wait(self) -> None:
        """Wait until no handler is running."""
        if self._running:
            await asyncio.wait(list(self._running))

    async def _answer(
        self, id: CallId, send: Callable[[], object], handler: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]
    ) -> None:
        try:
            answer = await handler(*arguments)
        except CallFailed as error:
            answer = error.failure
        except Exception as error:
            answer = Failure(Code.INTERNAL, f"a bug in plugbay: {error!r}")
        finally:
            if self._tasks.pop(id, None) is not None:
                self._within.pop(id, None)
        if self._over:
            return
        if isinstance(answer, Failure):
            self._machine.finish(id, None, answer)
        else:
            self._machine.finish(id, answer)
        send()
