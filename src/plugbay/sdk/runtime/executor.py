"""Who does what the host wants done: plain handlers on worker threads, async ones on a loop of their own.

Where a contract wants order, they take turns instead. Owns how a duty is performed and what its outcome is, how much is
being done, and which handlers are quick enough for whoever reads. Knows no calls: an outcome goes to a function.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.model.errors import Code, Failure, Origin
from plugbay.sdk.context import Context
from plugbay.sdk.io.stdio import leave_copy
from plugbay.sdk.runtime.connection import BlockingLine
from plugbay.sdk.types.handlers import QUICK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping
    from typing import Any

    from plugbay.sdk.context import Settings
    from plugbay.sdk.runtime.async_bridge import AsyncJob, Bridge
    from plugbay.sdk.runtime.connection import Exchange
    from plugbay.sdk.runtime.dispatch import Duty
    from plugbay.sdk.services.cancellation import Cancellation

    Done = Callable[[Duty, Any, Failure | None], None]
    Send = Callable[[Any], None]
    Job = Callable[[], None]
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up

PACE_SHARE = 0.125
"""Of the last run in the pace of a handler: one that waited for the processor changes little, one that hung does."""

BUSY_RETRY_MS = 1_000
"""When a host that was told we are busy may try again."""


class Crew:
    """Everybody who works for one plugin."""

    __slots__ = (
        "_bridge",
        "_bridging",
        "_busy",
        "_exchange",
        "_here",
        "_plugin_id",
        "_settings",
        "_turns",
        "_workers",
        "tally",
    )

    def __init__(
        self,
        exchange: Exchange,
        plugin_id: str,
        settings: Settings | None = None,
        turns: Turns | None = None,
        busy: str = Code.UNAVAILABLE,
    ) -> None:
        """With `turns`, handlers run one at a time. `busy` is the code of what is refused because there is no room."""
        self._exchange = exchange
        self._plugin_id = plugin_id
        self._settings = settings
        self._turns = turns
        self._busy = busy
        self._workers = Workers()
        self._bridge: Bridge | None = None
        """Loaded for the first async handler: that is 1 % of a start."""
        self._bridging = allocate_lock()
        self.tally = Tally()
        """How much is being done."""
        self._here = False
        """Whether something is being done where it was read. If it takes long, that is not tried again meanwhile."""

    def start(self, duty: Duty, done: Done, drop: Callable[[Duty], None] | None = None) -> bool:
        """Have a duty done elsewhere; False when there is no room for it.

        With `drop`, it may also be dropped later, and this is called then.
        """
        self.tally.begin()
        if self._turns is not None and not duty.concurrent:
            started = self._queue(self._turns, duty, done, drop)
        elif duty.handler.is_async:
            started = self._await(lambda: self._perform_async(duty, done))
        else:
            started = self._workers.submit(lambda: self._perform(duty, done))
        if not started:
            self.tally.end()
        return started

    def is_quick(self, duty: Duty) -> bool:
        """Whether a duty is likely to be done before another thread would have begun with it."""
        quick = duty.handler.pace < QUICK_SECONDS and not self._here
        return quick and (self._turns is None or duty.concurrent)

    def do(self, duty: Duty, done: Done) -> None:
        """Do a duty of a plain handler here and now, by somebody who is counted already."""
        self._here = True
        self._call(duty, done)
        self._here = False

    def do_alone(self, duty: Duty, seconds: float) -> Failure | None:
        """Do one thing and wait for it. Not on a worker: all of them may be stuck."""
        ended: SimpleQueue[Failure | None] = SimpleQueue()

        def done(duty: Duty, value: Any, failure: Failure | None) -> None:
            ended.put(failure)

        self.tally.begin()
        if duty.handler.is_async:
            self._await(lambda: self._perform_async(duty, done))
        else:
            start_new_thread(self._perform, (duty, done))
        try:
            return ended.get(timeout=max(seconds, 0.0))
        except Empty:
            return Failure(Code.TIMEOUT, f"{duty.label} did not finish in time", origin=Origin.PLUGIN)

    def stop(self) -> None:
        """Where the process goes on: end the threads that wait for work."""
        self._workers.stop()
        if self._bridge is not None:
            self._bridge.stop()
        if self._turns is not None:
            self._turns.stop()

    def refusal(self) -> Failure:
        """Why there is no room."""
        return unavailable("the plugin is busy with other calls", BUSY_RETRY_MS, self._busy)

    # Taking turns.

    def _queue(self, turns: Turns, duty: Duty, done: Done, drop: Callable[[Duty], None] | None) -> bool:
        def dropped() -> None:
            if drop is not None:
                drop(duty)
            self.tally.end()

        turn = Turn(lambda: self._take_turn(duty, done), dropped if drop is not None else None, duty.weight)
        return turns.submit(turn, duty.lane)

    def _take_turn(self, duty: Duty, done: Done) -> None:
        """Do it from beginning to end, wherever it runs: then others may."""
        over: SimpleQueue[None] = SimpleQueue()

        def ended(duty: Duty, value: Any, failure: Failure | None) -> None:
            try:
                done(duty, value, failure)
            finally:
                over.put(None)

        if not duty.handler.is_async:
            self._perform(duty, ended)
        elif not self._await(lambda: self._perform_async(duty, ended)):
            self._end(duty, ended, None, self.refusal())
        over.get()

    # Doing it.

    def _perform(self, duty: Duty, done: Done) -> None:
        try:
            self._call(duty, done)
        finally:
            self.tally.end()

    def _call(self, duty: Duty, done: Done) -> None:
        began = monotonic()
        value, failure = None, None
        try:
            send = self._sending(duty)
            value = duty.call(self._blocking_context, send)
            if hasattr(value, "__await__") or hasattr(value, "__aiter__"):
                self._pass_on(duty, value, done)
                return
            value = duty.settle(value, send)
        except BaseException as error:  # SystemExit too: a thread that ends must not take the answer with it
            failure = duty.failure(error)
        leave_copy()
        handler = duty.handler
        handler.pace += (monotonic() - began - handler.pace) * PACE_SHARE
        done(duty, value, failure)

    def _pass_on(self, duty: Duty, value: Any, done: Done) -> None:
        """A plain function returned something to await: it goes on where that is possible."""
        self.tally.begin()
        if not self._await(lambda: self._settle_async(duty, lambda: value, done)):
            self._end(duty, done, None, self.refusal())

    def _await(self, job: AsyncJob) -> bool:
        """Have a coroutine run; False when there is no room for it."""
        with self._bridging:
            if self._bridge is None:
                from plugbay.sdk.runtime.async_bridge import Bridge

                self._bridge = Bridge()
        return self._bridge.submit(job)

    async def _perform_async(self, duty: Duty, done: Done) -> None:
        await self._settle_async(duty, lambda: duty.call(self._awaitable_context, self._sending(duty)), done)

    async def _settle_async(self, duty: Duty, begin: Callable[[], Any], done: Done) -> None:
        from plugbay.sdk.runtime.async_bridge import CancelledBy

        value, failure = None, None
        try:
            with CancelledBy(duty.stop):
                value = await duty.settle_later(begin(), self._sending(duty))
        except BaseException as error:
            failure = duty.failure(error)
        leave_copy()
        self._end(duty, done, value, failure)

    def _end(self, duty: Duty, done: Done, value: Any, failure: Failure | None) -> None:
        try:
            done(duty, value, failure)
        finally:
            self.tally.end()

    def _sending(self, duty: Duty) -> Send:
        """What takes parts of its answer before the end."""
        number = duty.number
        return nowhere if number is None else lambda item: self._exchange.progress(number, item)

    def _blocking_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        return Context(BlockingLine(self._exchange), self._plugin_id, said, self._settings, stop)

    def _awaitable_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        from plugbay.sdk.runtime.async_bridge import AwaitableLine

        return Context(AwaitableLine(self._exchange), self._plugin_id, said, self._settings, stop)


def nowhere(item: object) -> None:
    """For what nobody streams."""


def unavailable(why: str, retry_after_ms: int | None = None, code: str = Code.UNAVAILABLE) -> Failure:
    """A refusal that is worth another try."""
    return Failure(code, why, origin=Origin.PLUGIN, retryable=True, retry_after_ms=retry_after_ms)


MAX_THREADS = 32
"""Handlers that run at once. Plain handlers mostly wait for something; more than these wait for a thread."""

MAX_WAITING = 1_024
"""Jobs that wait for a thread. A host that is further ahead than that is told so, at once."""


class Workers:
    """A bounded pool."""

    __slots__ = ("_jobs", "_lock", "_open", "_size", "_threads", "_waiting")

    def __init__(self, size: int = MAX_THREADS, waiting: int = MAX_WAITING) -> None:
        self._size = size
        self._waiting = waiting
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._lock = allocate_lock()
        self._threads = 0
        self._open = 0

    def submit(self, job: Job) -> bool:
        """Have the job done soon; False when too much is waiting already."""
        with self._lock:
            if self._open >= self._size + self._waiting:
                return False
            if self._open >= self._threads and self._threads < self._size and not self._start():
                return False
            self._open += 1
        self._jobs.put(job)
        return True

    def _start(self) -> bool:
        """One thread more; without it the job still gets done if there is any thread at all."""
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no more to give
            return self._threads > 0
        self._threads += 1
        return True

    def stop(self) -> None:
        """Have every thread end after what it does; for processes that go on."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._open -= 1


class Tally:
    """How much is being done, for whoever wants to wait until nothing is."""

    __slots__ = ("_calm", "_count", "_lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._count = 0
        self._calm: SimpleQueue[None] | None = None

    def begin(self) -> None:
        with self._lock:
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._calm is not None:
                self._calm.put(None)

    def wait(self, seconds: float) -> int:
        """Return when nothing is being done, or after so many seconds; how much still is. For one waiter."""
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


KEYS, MOUSE, REST = range(3)
"""The lanes, the first of them first."""

MAX_URGENT = 64
"""Keys that wait, and as many moves of the mouse; what hosts keep for a plugin. Who is further behind wants the last of
them, not the first."""

MAX_IN_A_ROW = 32
"""Turns that keys and the mouse may take before something else has one: a key that is held down freezes no screen."""

MAX_QUEUED = 1_024
"""Everything else that waits."""

MAX_QUEUED_BYTES = 64 << 20
"""Of what waits: a publisher in pieces of 2 MiB may be thirty of them ahead, and a plugin stays small."""


class Turn:
    """Something to do; what is done instead when it has to give way, and how many bytes wait with it."""

    __slots__ = ("drop", "run", "weight")

    def __init__(self, run: Job, drop: Job | None = None, weight: int = 0) -> None:
        self.run = run
        self.drop = drop
        """None for what somebody waits for."""
        self.weight = weight


class Lane:
    """What waits, in order."""

    __slots__ = ("_capacity", "_most", "_turns", "_weight")

    def __init__(self, capacity: int, most: int) -> None:
        self._turns: deque[Turn] = deque()
        self._capacity = capacity
        self._most = most
        self._weight = 0

    def add(self, turn: Turn) -> list[Turn]:
        """Take it in; what had to give way for it. It is among them when there was no room at all."""
        self._turns.append(turn)
        self._weight += turn.weight
        dropped: list[Turn] = []
        while len(self._turns) > self._capacity or (self._weight > self._most and len(self._turns) > 1):
            victim = next((waiting for waiting in self._turns if waiting.drop is not None), turn)
            self._turns.remove(victim)
            self._weight -= victim.weight
            dropped.append(victim)
        return dropped

    def next(self) -> Turn | None:
        if not self._turns:
            return None
        turn = self._turns.popleft()
        self._weight -= turn.weight
        return turn


class Turns:
    """A thread that does one thing after the other."""

    __slots__ = ("_bell", "_lanes", "_lock", "_over", "_row", "_started")

    def __init__(
        self, urgent: int = MAX_URGENT, waiting: int = MAX_QUEUED, waiting_bytes: int = MAX_QUEUED_BYTES
    ) -> None:
        self._lanes = tuple(Lane(capacity, waiting_bytes) for capacity in (urgent, urgent, waiting))
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = allocate_lock()
        self._row = 0
        """How many of the last turns in a row were urgent."""
        self._started = False
        self._over = False

    def submit(self, turn: Turn, lane: int = REST) -> bool:
        """Have it done when its turn comes; False when there is no room and it cannot give way."""
        with self._lock:
            if not self._started and not self._start():
                return False
            dropped = self._lanes[lane].add(turn)
        self._bell.put(None)
        for victim in dropped:
            if victim.drop is not None:
                victim.drop()
        return turn.drop is not None or turn not in dropped

    def stop(self) -> None:
        """Have the thread end after the turn that it is in; for processes that go on."""
        self._over = True
        self._bell.put(None)

    def _start(self) -> bool:
        try:
            start_new_thread(self._work, ())
        except RuntimeError:  # the system has no thread to give
            return False
        self._started = True
        return True

    def _work(self) -> None:
        while not self._over:
            self._bell.get()
            with self._lock:
                turn = self._next()
            if turn is not None:  # the bell rings for those, too, that had to give way
                turn.run()

    def _next(self) -> Turn | None:
        """What is first, unless the last lane has waited long enough."""
        keys, mouse, rest = self._lanes
        turn = rest.next() if self._row >= MAX_IN_A_ROW else None
        if turn is None and (turn := keys.next() or mouse.next()) is not None:
            self._row += 1
            return turn
        self._row = 0
        return turn or rest.next()
