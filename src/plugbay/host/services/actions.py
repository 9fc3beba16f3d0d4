"""`Actions`: named actions of the host that plugins invoke, bytes in and bytes out, each with a time limit.

An action that is not in the host's table goes to `forward`, which may find a plugin for it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from plugbay.host.services.threads import on_thread
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.sizes import MAX_PAYLOAD

DEFAULT_SECONDS = 30.0
"""For an invocation without a timeout."""

LONGEST_SECONDS = 3600.0
"""The upper bound of every timeout."""

MAX_ACTION = 256
"""Characters of a name."""

MAX_RUNNING = 32
"""Running actions of one caller, including those that timed out and have not stopped."""

Handler = Callable[[bytes], Awaitable[bytes] | bytes]
"""An async function, or a plain one, which runs on a thread of its own."""

Forward = Callable[[str, str, bytes, float], Awaitable[bytes | None]]
"""(caller, action, data, seconds) → the result; None when no plugin has the action. Raises `CallFailed`."""


class _Action(msgspec.Struct, frozen=True):
    handler: Handler
    spawns: bool


class Actions:
    """The actions of one host."""

    def __init__(self, forward: Forward | None = None) -> None:
        self._table: dict[str, _Action] = {}
        self._forward = forward
        self._running: Counter[str] = Counter()

    def register(self, name: str, handler: Handler, *, spawns: bool = False) -> None:
        """Add an action for all plugins. With `spawns` it starts a process, so callers need that permission.

        Raises `ValueError` for a name that is taken or invalid.
        """
        if not name or len(name) > MAX_ACTION or not name.isprintable():
            raise ValueError(f"an action's name has 1 to {MAX_ACTION} printable characters")
        if name in self._table:
            raise ValueError(f"the action {name!r} already exists")
        self._table[name] = _Action(handler, spawns)

    def names(self) -> list[str]:
        """The host's own actions."""
        return sorted(self._table)

    async def invoke(self, caller: str, action: str, data: bytes, timeout_ms: int = 0, *, may_spawn: bool) -> bytes:
        """The result of an action; raises `CallFailed`, with `timeout` when it was not done in time."""
        seconds = min(timeout_ms / 1000 or DEFAULT_SECONDS, LONGEST_SECONDS)
        known = self._table.get(action)
        if known is not None and known.spawns and not may_spawn:
            text = f"the action {action} starts a process, which is not granted"
            detail = {"capability": "spawn_subprocess"}
            raise CallFailed(Failure(Code.CAPABILITY_NOT_ALLOWED, text, origin=Origin.POLICY, detail=detail))
        if self._running[caller] >= MAX_RUNNING:
            text = f"{MAX_RUNNING} actions of {caller} are already running"
            raise CallFailed(Failure(Code.OVERLOADED, text, retryable=True))
        work = _run(known.handler, data) if known else self._forwarded(caller, action, data, seconds)
        answer = await self._wait(seconds, caller, action, work)
        if not isinstance(answer, bytes | bytearray | memoryview):
            raise CallFailed(Failure(Code.INTERNAL, f"the action {action} did not return bytes"))
        if len(answer) > MAX_PAYLOAD:
            raise CallFailed(Failure(Code.INTERNAL, f"the action {action} returned {len(answer):,} bytes"))
        return bytes(answer)

    def _forwarded(self, caller: str, action: str, data: bytes, seconds: float) -> asyncio.Future[Any]:
        async def forward() -> bytes:
            answer = None if self._forward is None else await self._forward(caller, action, data, seconds)
            if answer is None:
                raise CallFailed(
                    Failure(Code.INVALID_INPUT, f"neither the host nor a plugin has an action {action[:MAX_ACTION]!r}")
                )
            return answer

        return asyncio.ensure_future(forward())

    async def _wait(self, seconds: float, caller: str, action: str, work: asyncio.Future[Any]) -> Any:
        """Wait for the result or the timeout. Work that does not stop then is not waited for."""
        self._running[caller] += 1
        work.add_done_callback(lambda _: self._done(caller, work))
        try:
            await asyncio.wait({work}, timeout=seconds)
            if not work.done():
                text = f"action timed out: {action} did not finish within {seconds:g} s"
                raise CallFailed(Failure(Code.TIMEOUT, text))
            return work.result()
        except (CallFailed, asyncio.CancelledError):
            raise
        except Exception as error:
            raise CallFailed(Failure(Code.INTERNAL, f"the action {action} failed: {error!r}")) from error
        finally:
            if isinstance(work, asyncio.Task):  # a thread cannot be stopped, and counts until it ends by itself
                work.cancel()

    def _done(self, caller: str, work: asyncio.Future[Any]) -> None:
        """Count the end, and retrieve the exception: asyncio would log one that was not retrieved."""
        self._running[caller] -= 1
        if not work.cancelled():
            work.exception()


def _run(handler: Handler, data: bytes) -> asyncio.Future[Any]:
    """An async handler as a task; a plain one on a thread."""
    if inspect.iscoroutinefunction(handler):
        return asyncio.get_running_loop().create_task(handler(data))
    return on_thread(lambda: handler(data), "plugbay-action")
