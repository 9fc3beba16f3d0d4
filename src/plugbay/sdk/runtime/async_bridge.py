"""Async handlers: one asyncio loop on a thread of its own, started by the first of them, and services to await.

The only file here that loads asyncio, and only inside functions: 50 ms that a plugin without async handlers never pays.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread

from plugbay.model.events import CallFinished
from plugbay.sdk.declaring import seconds
from plugbay.sdk.errors import failure_of
from plugbay.sdk.runtime.connection import answer, timed_out
from plugbay.sdk.services.cancellation import DEADLINE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any

    from plugbay.model.events import CallId
    from plugbay.model.operations import HostOp
    from plugbay.sdk.runtime.connection import Connection, Reply
    from plugbay.sdk.services.cancellation import Cancellation

    AsyncJob = Callable[[], Coroutine[Any, Any, None]]

MAX_TASKS = 1_024
"""Async handlers in flight. They cost little, but not nothing, and a host may ask without end."""


class Bridge:
    """Where coroutines run."""

    __slots__ = ("_early", "_lock", "_loop", "_open", "_over", "_started", "_tasks")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False
        self._early: list[AsyncJob] = []
        """Jobs that came while the loop was being started."""
        self._open = 0
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, job: AsyncJob) -> bool:
        """Have the coroutine run soon; False when too many do already, or the loop cannot be started."""
        with self._lock:
            if self._open >= MAX_TASKS or not (self._started or self._start()):
                return False
            self._open += 1
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._begin, job)
            else:
                self._early.append(job)
        return True

    def _start(self) -> bool:
        try:
            start_new_thread(self._run, ())
        except RuntimeError:  # the system has no thread to give
            return False
        self._started = True
        return True

    def stop(self) -> None:
        """Have the loop end, and with it whatever still runs there; for processes that go on."""
        with self._lock:
            self._over = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self) -> None:
        import asyncio

        loop = asyncio.new_event_loop()
        with self._lock:
            for job in self._early:
                loop.call_soon(self._begin, job)
            self._loop = loop
        while not self._over:  # a task of the author's that raises SystemExit ends the loop's run, and not the loop
            try:
                loop.run_forever()
            except BaseException as error:
                failure_of(error)
        _wind_up(loop)

    def _begin(self, job: AsyncJob) -> None:
        assert self._loop is not None
        task = self._loop.create_task(job())
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        with self._lock:
            self._open -= 1


def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left, give it a chance to tidy up, and close the loop."""
    import asyncio

    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class CancelledBy:
    """While this lasts, to cancel the call is to cancel the task that does it; its deadline does, too."""

    __slots__ = ("_stop", "_timer")

    def __init__(self, stop: Cancellation) -> None:
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        import asyncio

        loop, task, remaining = asyncio.get_running_loop(), asyncio.current_task(), self._stop.remaining()
        assert task is not None
        self._stop.then(lambda: loop.call_soon_threadsafe(task.cancel))
        if remaining is not None:
            self._timer = loop.call_later(remaining, self._stop.cancel, DEADLINE)

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


class AwaitableClient:
    """Services for async handlers: ask, and await the answer."""

    __slots__ = ("_connection", "within")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.within: CallId | None = None
        """The call that it is for."""

    async def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        replies = _Replies(self._connection, op, timeout, self.within)
        return read(answer(await replies.next()))

    def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> AwaitableStream:
        return AwaitableStream(_Replies(self._connection, op, timeout, self.within), read)

    def tell(self, op: HostOp) -> Done:
        """Told at once; that it can be awaited is for symmetry, so a forgotten `await` loses nothing."""
        self._connection.tell(op)
        return Done()


class Done:
    """Something to await that is over already."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class _Replies:
    """What the host says to one question, on the loop that asked it."""

    __slots__ = ("_connection", "_id", "_inbox", "_loop", "_op", "_timeout")

    def __init__(self, connection: Connection, op: HostOp, timeout: float, within: CallId | None) -> None:
        import asyncio

        seconds("timeout", timeout)
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Reply] = asyncio.Queue()
        self._connection = connection
        self._op = op
        self._timeout = timeout
        self._id = connection.ask(op, self._put, within)

    def _put(self, heard: Reply) -> None:
        try:
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, heard)
        except RuntimeError:
            pass  # that loop was the author's own, and is closed: nobody waits any more

    async def next(self) -> Reply:
        import asyncio

        try:
            return await asyncio.wait_for(self._inbox.get(), self._timeout)
        except TimeoutError:
            self._connection.give_up(self._id)
            raise timed_out(self._op, self._timeout) from None
        except asyncio.CancelledError:
            self._connection.give_up(self._id)
            raise


class AwaitableStream:
    """Pieces of text as they come; `result` is the rest of the answer, once they are all there."""

    __slots__ = ("_read", "_replies", "result")

    def __init__(self, replies: _Replies, read: Callable[[Any], Any]) -> None:
        self._replies = replies
        self._read = read
        self.result: Any = None

    def __aiter__(self) -> AwaitableStream:
        return self

    async def __anext__(self) -> str:
        if self.result is not None:
            raise StopAsyncIteration
        heard = await self._replies.next()
        if not isinstance(heard, CallFinished):
            return str(heard.item)
        self.result = self._read(answer(heard))
        raise StopAsyncIteration
