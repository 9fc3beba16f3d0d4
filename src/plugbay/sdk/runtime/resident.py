"""The main loop of a resident plugin: read events, dispatch them, answer, and shut down in order.

The thread that reads runs quick handlers itself, which saves two thread switches, and leaves the others to the
executor. Shutting down has a thread of its own, so that input is read until the end. The loop is the same for every
contract: the machine inside the connection turns bytes into events of `model`.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CallProgress, CancelArrived, Fault, Noise, Notified, Ready
from plugbay.model.operations import Shutdown
from plugbay.sdk.io.stdio import note
from plugbay.sdk.runtime.dispatch import Task
from plugbay.sdk.runtime.executor import Executor, discard, unavailable
from plugbay.sdk.runtime.reader import MOMENT, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation
    from plugbay.sdk.context import Context, Settings
    from plugbay.sdk.runtime.connection import Connection
    from plugbay.sdk.runtime.executor import SerialQueue
    from plugbay.sdk.types.handlers import Handler, Tool

    class Served(Protocol):
        """The part of a plugin that every contract serves; the plugin of each contract adds its own."""

        @property
        def id(self) -> str: ...
        @property
        def version(self) -> str: ...
        @property
        def name(self) -> str: ...
        @property
        def description(self) -> str: ...
        @property
        def tools(self) -> Mapping[str, Tool]: ...
        @property
        def ready_handlers(self) -> Sequence[Handler]: ...
        @property
        def shutdown_handlers(self) -> Sequence[Handler]: ...
        def connect(self, host: Context) -> None: ...

    class Dispatcher(Protocol):
        """Finds the tasks for requests and notifications."""

        def task_for(self, op: Operation) -> Task | Failure: ...
        def tasks_for(self, op: Operation) -> Sequence[Task]: ...
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up

FINISH_SHARE = 0.5
"""Share of the drain time after which handlers are cancelled."""

DRAIN_SECONDS = 4.0
"""Seconds for running handlers after a shutdown request; a nexo host waits 5 s for the answer, then kills."""

LEAVE_SECONDS = 4.5
"""Seconds for the drain and the author's `on_shutdown` handlers together."""

LAST_SECONDS = 5.0
"""Seconds after which the process exits even if a write to either stream blocks."""

TOGETHER = 16
"""Answers per write: one write each is slow, and one for all delays the first answer."""


class Resident:
    """The loop of one plugin, until the host or the plugin leaves."""

    __slots__ = (
        "_connection",
        "_dispatcher",
        "_ended",
        "_events",
        "_executor",
        "_greeted",
        "_leaving",
        "_open",
        "_pace",
        "_plugin_id",
        "_reader",
        "_ready_handlers",
        "_shutdown_handlers",
        "_until",
        "report",
    )

    def __init__(
        self,
        connection: Connection,
        dispatcher: Dispatcher,
        plugin_id: str,
        ready_handlers: Sequence[Handler] = (),
        shutdown_handlers: Sequence[Handler] = (),
        *,
        settings: Settings | None = None,
        greeted: Callable[[Mapping[str, Any]], None] | None = None,
        pace: float = 1.0,
        serial: SerialQueue | None = None,
        busy: str = Code.UNAVAILABLE,
    ) -> None:
        """`greeted` gets the host's greeting; `pace` is the share of the times above that the contract allows.

        With `serial`, handlers run one at a time. `busy` is the code of a refusal because too many handlers run.
        """
        self._connection = connection
        self._dispatcher = dispatcher
        self._plugin_id = plugin_id
        self._ready_handlers = ready_handlers
        self._shutdown_handlers = shutdown_handlers
        self._greeted = greeted or discard
        self._pace = pace
        self.report = self._note_failure
        """Called with the failure of a handler whose result is not awaited."""
        self._open: dict[CallId, Task] = {}
        """Calls that are not answered yet."""
        self._executor = Executor(connection, plugin_id, settings, serial, busy)
        self._reader = Reader(self._read_loop)
        connection.release_reader = self._reader.release_reader
        self._events: deque[Event] = deque()
        """Events not yet processed; used by the reading thread only, as are the next two."""
        self._ended = False
        """Whether the input has ended."""
        self._until = 0.0
        """Until when, by the monotonic clock, handlers may run inline before input is read again."""
        self._leaving = allocate_lock()
        """Taken by the first thread that shuts down, and never released."""

    def run(self, first: bytes) -> NoReturn:
        """Serve until shutdown or the end of input. `first` was read already."""
        self._receive(first)
        self._reader.run()

    def shut_down(self, why: str, answer_to: CallId | None = None) -> None:
        """Start shutting down, once, while reading continues."""
        if self._leaving.acquire(blocking=False):
            try:
                start_new_thread(self._leave, (why, answer_to))
            except RuntimeError:  # the system has no thread to give
                self._leave(why, answer_to)

    # Input.

    def _read_loop(self) -> None:
        """Process events and read, until another thread does."""
        self._flush_elsewhere()
        while self._process_events():
            if self._events:
                continue  # another thread read while this one was sending, and left these
            if self._ended:
                self._leaving.acquire()
                self._leave("the host closed our input", None)
            self._receive(self._connection.read())

    def _flush_elsewhere(self) -> None:
        """Send answers that a blocked thread left, on another thread: the host may not be reading."""
        if self._connection.unsent:
            try:
                start_new_thread(self._connection.flush, ())
            except RuntimeError:  # the system has no thread to give
                self._connection.flush()

    def _process_events(self) -> bool:
        """Process all events; False when another thread reads by now."""
        events, executor, run_inline = self._events, self._executor, self._reader.run_inline
        executor.in_flight.begin()
        unsent = False
        try:
            while events:
                event = events.popleft()
                if not isinstance(event, CallArrived):
                    self._react(event)
                    continue
                task = self._serve(event.id, event.op)
                if task is None:
                    continue
                unsent = len(events) % TOGETHER > 0
                if not run_inline(executor.run_inline, task, self._conclude if unsent else self._finish):
                    self._connection.flush()
                    return False
            return not unsent or run_inline(self._connection.flush)
        finally:
            executor.in_flight.end()

    def _receive(self, data: bytes) -> None:
        self._ended = not data
        self._events.extend(self._connection.receive(data))
        self._until = monotonic() + MOMENT

    def _react(self, event: Event) -> None:
        """Process any other event than a request."""
        match event:
            case CancelArrived():
                self._cancel(event.id)
            case CallFinished() | CallProgress():
                self._connection.deliver_reply(event)
            case Notified(op=Shutdown()):
                self.shut_down("the host asked this plugin to shut down")
            case Notified():
                self._deliver(event.op)
            case Noise():
                note(f"{self._plugin_id}: {event.why}")
            case Ready():
                self._begin(event.hello)
            case Fault():
                note(f"{self._plugin_id}: the host broke the contract: {event.failure.message}")
                self._connection.leave(1, self._executor.stop)

    def _begin(self, hello: Mapping[str, Any]) -> None:
        self._greeted(hello)
        for handler in self._ready_handlers:
            self._executor.start(Task(handler, label="on_ready"), self._ignore)

    def _serve(self, id: CallId, op: Operation) -> Task | None:
        """Start the task of a request; return it if it is to run inline: if it is quick, for a limited time, and not
        while a write blocks.
        """
        if type(op) is Shutdown:
            self.shut_down("the host asked this plugin to shut down", id)
            return None
        if self._leaving.locked():
            self._refuse(id, unavailable("the plugin is shutting down"))
            return None
        task = self._dispatcher.task_for(op)
        if isinstance(task, Failure):
            self._refuse(id, task)
            return None
        task.number = id
        self._open[id] = task
        if self._executor.is_quick(task) and monotonic() < self._until and not self._connection.writing.locked():
            return task
        if not self._executor.start(task, self._finish if task.then is None else self._run_second_handler):
            self._finish(task, None, self._executor.refusal())
        return None

    def _cancel(self, id: CallId) -> None:
        task = self._open.get(id)
        if task is not None:
            task.cancel("the host cancelled it")

    def _deliver(self, op: Operation) -> None:
        for task in () if self._leaving.locked() else self._dispatcher.tasks_for(op):
            if not self._executor.start(task, self._ignore, self._note_dropped):
                self._note_dropped(task)

    def _note_dropped(self, task: Task) -> None:
        note(f"{self._plugin_id}: dropped an event on {task.label}: too many handlers are busy")

    # Results.

    def _conclude(self, task: Task, value: Any, failure: Failure | None) -> None:
        """Answer with the next write."""
        assert task.number is not None, "the task has no request"
        del self._open[task.number]
        task.over()
        self._connection.finish(task.number, value, failure)

    def _finish(self, task: Task, value: Any, failure: Failure | None) -> None:
        """Answer at once."""
        self._conclude(task, value, failure)
        self._connection.flush()

    def _refuse(self, id: CallId, failure: Failure) -> None:
        self._connection.finish(id, None, failure)
        self._connection.flush()

    def _run_second_handler(self, task: Task, before: Any, failure: Failure | None) -> None:
        """Run the second task of an answer; a failure of the first is reported and its part left out."""
        assert task.then is not None, "there is no second half"
        if failure is not None:
            self.report("the first of two handlers", failure)
        known = before if failure is None else {}

        def done(_: Task, value: Any, failure: Failure | None) -> None:
            self._finish(task, {**known, **value} if failure is None else None, failure)

        if not self._executor.start(task.then, done):
            self._finish(task, None, self._executor.refusal())

    def _ignore(self, task: Task, value: Any, failure: Failure | None) -> None:
        """Ignore the result of a notification; report a failure."""
        if failure is not None:
            self.report(task.label, failure)

    def _note_failure(self, what: str, failure: Failure) -> None:
        note(f"{self._plugin_id}: the handler of {what} failed: {failure.message}")

    # Shutdown.

    def _leave(self, why: str, answer_to: CallId | None) -> NoReturn:
        """Drain handlers, run `on_shutdown`, answer, and exit."""
        self._connection.leave_after(LAST_SECONDS * self._pace)
        try:
            drain, deadline = DRAIN_SECONDS * self._pace, monotonic() + LEAVE_SECONDS * self._pace
            self._connection.abandon(unavailable(why))
            unfinished = self._drain(drain)
            if unfinished:
                note(f"{self._plugin_id}: {unfinished} handlers did not finish within {drain:g} s")
            failure = self._run_shutdown_handlers(deadline)
            if answer_to is not None:
                self._connection.finish(answer_to, None, failure)
                self._connection.flush()
        finally:
            self._connection.leave(0, self._executor.stop)

    def settle(self, seconds: float) -> int:
        """Wait until nothing is in flight, or for `seconds`; the number still in flight. For one waiter."""
        return self._executor.in_flight.wait(seconds)

    def _drain(self, seconds: float) -> int:
        """Wait for handlers, then cancel them; the number that did not end."""
        unfinished = self._executor.in_flight.wait(seconds * FINISH_SHARE)
        if unfinished:
            for task in list(self._open.values()):
                task.cancel("the plugin is shutting down")
            unfinished = self._executor.in_flight.wait(seconds * (1 - FINISH_SHARE))
        return unfinished

    def _run_shutdown_handlers(self, deadline: float) -> Failure | None:
        """Run the `on_shutdown` handlers in order; the first failure."""
        first: Failure | None = None
        for handler in self._shutdown_handlers:
            failure = self._executor.run_alone(Task(handler, label="on_shutdown"), deadline - monotonic())
            first = first or failure
        return first
