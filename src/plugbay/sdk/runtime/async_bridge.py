"""Async handlers: one asyncio loop on its own thread, started by the first of them, and host services to await.

The only module here that loads asyncio, and only inside functions: plugins without async handlers save 50 ms.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread

from plugbay.model.events import CallFinished
from plugbay.sdk.declarations import seconds
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
"""Async handlers in flight. Each costs memory, and a host may send any number of requests."""


class Bridge:
    """Runs coroutines on one event loop, on its own thread."""

    __slots__ = ("_early", "_lock", "_loop", "_open", "_over", "_started", "_tasks")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = False
        self._early: list[AsyncJob] = []
        """Jobs submitted while the loop was starting."""
        self._open = 0
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, job: AsyncJob) -> bool:
        """Run the coroutine soon; False when too many run already, or the loop cannot start."""
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
        """Stop the loop and cancel its tasks; for processes that continue, such as tests."""
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
    """Cancel the remaining tasks, let them clean up, and close the loop."""
    import asyncio

    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class CancelledBy:
    """A context manager in which cancelling the call, or its deadline, cancels the current asyncio task."""

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
    """The host client of async handlers: replies are awaited."""

    __slots__ = ("_connection", "within")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.within: CallId | None = None
        """The host's call that requests are made for."""

    async def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        replies = _Replies(self._connection, op, timeout, self.within)
        return read(answer(await replies.next()))

    def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> AwaitableStream:
        return AwaitableStream(_Replies(self._connection, op, timeout, self.within), read)

    def tell(self, op: HostOp) -> Done:
        """Sent at once, so a forgotten `await` loses nothing; awaitable for symmetry."""
        self._connection.tell(op)
        return Done()


class Done:
    """An awaitable that is done."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class _Replies:
    """The replies to one request, delivered on the loop that made it."""

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
            pass  # the author's own loop, closed meanwhile: nothing waits

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
    """Pieces of text as they arrive; `result` is set after the last one."""

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
