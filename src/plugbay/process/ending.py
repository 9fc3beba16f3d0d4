"""`Ending`: how a process ended, told once to everybody who asked, before or afterwards.

Owns the waiting. Refuses to know how an end is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugbay.process.status import ExitStatus

Callback = Callable[[ExitStatus], object]


class Ending:
    """The end of one process, still to come while `status` is None."""

    __slots__ = ("_callbacks", "_label", "_loop", "status")

    def __init__(self, loop: asyncio.AbstractEventLoop, label: str) -> None:
        self.status: ExitStatus | None = None
        self._loop = loop
        self._label = label
        self._callbacks: list[Callback] = []

    def tell(self, callback: Callback) -> None:
        """Call once, in the loop, with how the process ended; at the next tick if it is dead already."""
        if self.status is None:
            self._callbacks.append(callback)
        else:
            self._loop.call_soon(callback, self.status)

    async def wait(self, timeout: float | None) -> ExitStatus | None:
        """How the process ended; None when it still runs after `timeout`."""
        if self.status is None:
            ended: asyncio.Future[None] = self._loop.create_future()

            def wake(status: ExitStatus) -> None:
                if not ended.done():
                    ended.set_result(None)

            self._callbacks.append(wake)
            try:
                await asyncio.wait({ended}, timeout=timeout)
            finally:
                if wake in self._callbacks:
                    self._callbacks.remove(wake)
        return self.status

    def come(self, status: ExitStatus) -> None:
        """It has ended: tell everybody, also when some of them fail."""
        self.status = status
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(status)
            except Exception as error:
                context = {"message": f"exit callback of {self._label} failed", "exception": error}
                self._loop.call_exception_handler(context)
