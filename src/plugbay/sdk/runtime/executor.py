"""Runs handlers: plain ones on worker threads, async ones on an event loop, or one at a time where order matters.

Owns the threads, the count of tasks in flight, and the estimate which handlers are quick enough to run on the reader's
thread. Built on `_thread`, because `threading` costs 6 ms of start-up. In the serial queue keys and mouse events go
first; of notifications the oldest is dropped when it is full, and a request is refused.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.context import Context
from plugbay.sdk.io.stdio import exit_copy
from plugbay.sdk.runtime.connection import BlockingClient
from plugbay.sdk.runtime.dispatch import REST
from plugbay.sdk.types.handlers import PLAIN, QUICK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.sdk.context import Settings
    from plugbay.sdk.runtime.async_bridge import AsyncJob, Bridge
    from plugbay.sdk.runtime.connection import Connection
    from plugbay.sdk.runtime.dispatch import Task
    from plugbay.sdk.services.cancellation import Cancellation

    Done = Callable[[Task, Any, Failure | None], None]
    Send = Callable[[Any], None]
    Job = Callable[[], None]
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up

PACE_SHARE = 0.125
"""Weight of the last run in the average time of a handler: one slow run changes little, a hang changes much."""

BUSY_RETRY_MS = 1_000
"""Milliseconds after which a refused host may retry."""


class Executor:
    """Runs the tasks of one plugin."""

    __slots__ = (
        "_bridge",
        "_bridging",
        "_busy",
        "_connection",
        "_inline",
        "_plugin_id",
        "_serial",
        "_settings",
        "_workers",
        "in_flight",
    )

    def __init__(
        self,
        connection: Connection,
        plugin_id: str,
        settings: Settings | None = None,
        serial: SerialQueue | None = None,
        busy: str = Code.UNAVAILABLE,
    ) -> None:
        """With `serial`, handlers run one at a time. `busy` is the failure code when there is no capacity."""
        self._connection = connection
        self._plugin_id = plugin_id
        self._settings = settings
        self._serial = serial
        self._busy = busy
        self._workers = Workers()
        self._bridge: Bridge | None = None
        """Created for the first async handler."""
        self._bridging = allocate_lock()
        self.in_flight = InFlight()
        """The tasks in flight."""
        self._inline = False
        """Whether a task runs on the reader's thread. While it does, no other task counts as quick."""

    def start(self, task: Task, done: Done, drop: Callable[[Task], None] | None = None) -> bool:
        """Run a task on another thread; False when there is no capacity.

        With `drop`, it may also be dropped later, and this is called then.
        """
        self.in_flight.begin()
        if self._serial is not None and not task.concurrent:
            started = self._queue(self._serial, task, done, drop)
        elif task.handler.is_async:
            started = self._await(lambda: self._run_async(task, done))
        else:
            started = self._workers.submit(lambda: self._run(task, done))
        if not started:
            self.in_flight.end()
        return started

    def is_quick(self, task: Task) -> bool:
        """Whether a task probably ends before another thread would have started it."""
        return (
            task.handler.pace < QUICK_SECONDS
            and not self._inline
            and task.then is None
            and (self._serial is None or task.concurrent)
        )

    def run_inline(self, task: Task, done: Done) -> None:
        """Run a task of a plain handler on this thread; the caller has counted it as in flight."""
        self._inline = True
        self._call(task, done)
        self._inline = False

    def run_alone(self, task: Task, seconds: float) -> Failure | None:
        """Run a task and wait for it. On a new thread: all workers may be stuck."""
        ended: SimpleQueue[Failure | None] = SimpleQueue()

        def done(task: Task, value: Any, failure: Failure | None) -> None:
            ended.put(failure)

        self.in_flight.begin()
        if task.handler.is_async:
            self._await(lambda: self._run_async(task, done))
        else:
            start_new_thread(self._run, (task, done))
        try:
            return ended.get(timeout=max(seconds, 0.0))
        except Empty:
            return Failure(Code.TIMEOUT, f"{task.label} did not finish in time", origin=Origin.PLUGIN)

    def stop(self) -> None:
        """End the idle threads; for processes that continue, such as tests."""
        self._workers.stop()
        if self._bridge is not None:
            self._bridge.stop()
        if self._serial is not None:
            self._serial.stop()

    def refusal(self) -> Failure:
        """The failure of a task without capacity."""
        return unavailable("the plugin is busy with other calls", BUSY_RETRY_MS, self._busy)

    # One at a time.

    def _queue(self, serial: SerialQueue, task: Task, done: Done, drop: Callable[[Task], None] | None) -> bool:
        def dropped() -> None:
            if drop is not None:
                drop(task)
            self.in_flight.end()

        turn = QueuedJob(lambda: self._run_in_order(task, done), dropped if drop is not None else None, task.weight)
        return serial.submit(turn, task.lane)

    def _run_in_order(self, task: Task, done: Done) -> None:
        """Run a task to its end, also on the event loop, before the next one starts."""
        over: SimpleQueue[None] = SimpleQueue()

        def ended(task: Task, value: Any, failure: Failure | None) -> None:
            try:
                done(task, value, failure)
            finally:
                over.put(None)

        if not task.handler.is_async:
            self._run(task, ended)
        elif not self._await(lambda: self._run_async(task, ended)):
            self._end(task, ended, None, self.refusal())
        over.get()

    # Running handlers.

    def _run(self, task: Task, done: Done) -> None:
        try:
            self._call(task, done)
        finally:
            self.in_flight.end()

    def _call(self, task: Task, done: Done) -> None:
        began = monotonic()
        value, failure, send = None, None, discard if task.quiet else self._sending(task)
        try:
            value = task.call(self._blocking_context, send)
            if type(value) not in PLAIN and (hasattr(value, "__await__") or hasattr(value, "__aiter__")):
                self._await_result(task, value, done)
                return
            value = task.settle(value, send)
        except BaseException as error:  # SystemExit too: a thread that ends must not take the answer with it
            failure = task.failure(error)
        exit_copy()
        handler = task.handler
        handler.pace += (monotonic() - began - handler.pace) * PACE_SHARE
        done(task, value, failure)

    def _await_result(self, task: Task, value: Any, done: Done) -> None:
        """A plain function returned an awaitable: await it on the event loop."""
        self.in_flight.begin()
        if not self._await(lambda: self._settle_async(task, lambda: value, done)):
            self._end(task, done, None, self.refusal())

    def _await(self, job: AsyncJob) -> bool:
        """Run a coroutine on the event loop; False when there is no capacity."""
        with self._bridging:
            if self._bridge is None:
                from plugbay.sdk.runtime.async_bridge import Bridge

                self._bridge = Bridge()
        return self._bridge.submit(job)

    async def _run_async(self, task: Task, done: Done) -> None:
        await self._settle_async(task, lambda: task.call(self._awaitable_context, self._sending(task)), done)

    async def _settle_async(self, task: Task, begin: Callable[[], Any], done: Done) -> None:
        from plugbay.sdk.runtime.async_bridge import CancelledBy

        value, failure = None, None
        try:
            with CancelledBy(task.stop):
                value = await task.settle_later(begin(), self._sending(task))
        except BaseException as error:
            failure = task.failure(error)
        exit_copy()
        self._end(task, done, value, failure)

    def _end(self, task: Task, done: Done, value: Any, failure: Failure | None) -> None:
        try:
            done(task, value, failure)
        finally:
            self.in_flight.end()

    def _sending(self, task: Task) -> Send:
        """The function that sends parts of the answer."""
        number = task.number
        return discard if number is None else lambda item: self._connection.progress(number, item)

    def _blocking_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        return Context(BlockingClient(self._connection), self._plugin_id, said, self._settings, stop)

    def _awaitable_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        from plugbay.sdk.runtime.async_bridge import AwaitableClient

        return Context(AwaitableClient(self._connection), self._plugin_id, said, self._settings, stop)


def discard(item: object) -> None:
    """Takes the parts of a task that has no call."""


def unavailable(why: str, retry_after_ms: int | None = None, code: str = Code.UNAVAILABLE) -> Failure:
    """A refusal that may be retried."""
    return Failure(code, why, origin=Origin.PLUGIN, retryable=True, retry_after_ms=retry_after_ms)


MAX_THREADS = 32
"""Plain handlers that run at once; further ones wait for a thread."""

MAX_WAITING = 1_024
"""Jobs that wait for a thread. Beyond that, requests are refused at once."""


class Workers:
    """A bounded pool of threads, started on demand; they end with the process."""

    __slots__ = ("_jobs", "_lock", "_open", "_size", "_threads", "_waiting")

    def __init__(self, size: int = MAX_THREADS, waiting: int = MAX_WAITING) -> None:
        self._size = size
        self._waiting = waiting
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = allocate_lock()
        self._threads = 0
        self._open = 0

    def submit(self, job: Job) -> bool:
        """Run the job soon; False when too many wait."""
        with self._lock:
            if self._open >= self._size + self._waiting:
                return False
            if self._open >= self._threads and self._threads < self._size and not self._start():
                return False
            self._open += 1
        self._jobs.put(job)
        return True

    def _start(self) -> bool:
        """Start one more thread. Without it the job still runs if there is any thread."""
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no more to give
            return self._threads > 0
        self._threads += 1
        return True

    def stop(self) -> None:
        """End every thread after its job; for processes that continue."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._open -= 1


class InFlight:
    """Counts tasks in flight; `wait` returns when there are none."""

    __slots__ = ("_calm", "_count", "_lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._count = 0
        self._calm: SimpleQueue[None] | None = None

    # Every call comes through these two: `with` takes three times as long as the two calls it makes.

    def begin(self) -> None:
        self._lock.acquire()
        self._count += 1
        self._lock.release()

    def end(self) -> None:
        self._lock.acquire()
        self._count -= 1
        calm = self._calm if self._count == 0 else None
        self._lock.release()
        if calm is not None:
            calm.put(None)

    def wait(self, seconds: float) -> int:
        """Wait until nothing is in flight, or for `seconds`; the number still in flight. For one waiter."""
        with self._lock:
            if self._count == 0:
                return 0
            calm = self._calm = SimpleQueue()
        try:
            calm.get(timeout=max(seconds, 0.0))
        except Empty:
            pass
        with self._lock:
            return self._count


MAX_URGENT = 64
"""Waiting keys, and as many moves of the mouse, as hosts keep for a plugin. Beyond that the oldest are dropped: the
last ones matter."""

MAX_IN_A_ROW = 32
"""Urgent jobs (keys, mouse) that may run before one of the rest does: a key that is held down freezes no screen."""

MAX_QUEUED = 1_024
"""Other jobs that wait."""

MAX_QUEUED_BYTES = 64 << 20
"""Bytes held by waiting jobs: about thirty chunks of 2 MiB."""


class QueuedJob:
    """A job, the callback when it is dropped, and the bytes it holds while waiting."""

    __slots__ = ("drop", "run", "weight")

    def __init__(self, run: Job, drop: Job | None = None, weight: int = 0) -> None:
        self.run = run
        self.drop = drop
        """None for a request, which is never dropped."""
        self.weight = weight


class Lane:
    """A bounded queue of jobs, in order."""

    __slots__ = ("_capacity", "_most", "_serial", "_weight")

    def __init__(self, capacity: int, most: int) -> None:
        self._serial: deque[QueuedJob] = deque()
        self._capacity = capacity
        self._most = most
        self._weight = 0

    def add(self, turn: QueuedJob) -> list[QueuedJob]:
        """Add a job and return the dropped ones; the new job is among them if there was no room."""
        self._serial.append(turn)
        self._weight += turn.weight
        dropped: list[QueuedJob] = []
        while len(self._serial) > self._capacity or (self._weight > self._most and len(self._serial) > 1):
            victim = next((waiting for waiting in self._serial if waiting.drop is not None), turn)
            self._serial.remove(victim)
            self._weight -= victim.weight
            dropped.append(victim)
        return dropped

    def next(self) -> QueuedJob | None:
        if not self._serial:
            return None
        turn = self._serial.popleft()
        self._weight -= turn.weight
        return turn


class SerialQueue:
    """One thread that runs one job after the other."""

    __slots__ = ("_lanes", "_lock", "_over", "_row", "_started", "_wake")

    def __init__(
        self, urgent: int = MAX_URGENT, waiting: int = MAX_QUEUED, waiting_bytes: int = MAX_QUEUED_BYTES
    ) -> None:
        self._lanes = tuple(Lane(capacity, waiting_bytes) for capacity in (urgent, urgent, waiting))
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._lock = allocate_lock()
        self._row = 0
        """Urgent jobs run in a row."""
        self._started = False
        self._over = False

    def submit(self, turn: QueuedJob, lane: int = REST) -> bool:
        """Queue a job; False when the queue is full and the job cannot be dropped."""
        with self._lock:
            if not self._started and not self._start():
                return False
            dropped = self._lanes[lane].add(turn)
        self._wake.put(None)
        for victim in dropped:
            if victim.drop is not None:
                victim.drop()
        return turn.drop is not None or turn not in dropped

    def stop(self) -> None:
        """End the thread after its current job; for processes that continue."""
        self._over = True
        self._wake.put(None)

    def _start(self) -> bool:
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no thread to give
            return False
        self._started = True
        return True

    def _work(self) -> None:
        while not self._over:
            self._wake.get()
            with self._lock:
                turn = self._next()
            if turn is not None:  # dropped jobs wake the thread, too
                turn.run()

    def _next(self) -> QueuedJob | None:
        """The job of the highest priority, unless the last lane has waited long enough."""
        keys, mouse, rest = self._lanes
        turn = rest.next() if self._row >= MAX_IN_A_ROW else None
        if turn is None and (turn := keys.next() or mouse.next()) is not None:
            self._row += 1
            return turn
        self._row = 0
        return turn or rest.next()
