"""The life of a resident plugin: read, have handlers do the work elsewhere, and leave in good order.

The calling thread reads and never works: plain handlers run on worker threads, async ones on a loop of their own, and
the good-bye on a thread of its own, so that the host is heard until the end. Where a contract wants order, handlers
take turns instead. Knows no contract: the machine inside the exchange does, and says what arrived in the words of
`model`.
"""

from __future__ import annotations

from _queue import Empty, SimpleQueue
from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, CallProgress, CancelArrived, Fault, Noise, Notified, Ready
from plugbay.model.operations import Shutdown
from plugbay.sdk.async_bridge import AwaitableLine, Bridge, CancelledBy
from plugbay.sdk.context import Context
from plugbay.sdk.duties import Duty
from plugbay.sdk.exchange import BlockingLine
from plugbay.sdk.stdio import note
from plugbay.sdk.turns import Turn
from plugbay.sdk.workers import Tally, Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation
    from plugbay.sdk.cancelling import Cancellation
    from plugbay.sdk.exchange import Exchange
    from plugbay.sdk.handlers import Handler
    from plugbay.sdk.settings import Settings
    from plugbay.sdk.turns import Turns

    Done = Callable[[Any, Failure | None], None]

    class Duties(Protocol):
        """What there is to do about what a host asks, and about what it tells."""

        def of(self, op: Operation) -> Duty | Failure: ...
        def about(self, op: Operation) -> Sequence[Duty]: ...


FINISH_SHARE = 0.5
"""Of the time that handlers have to finish: after that, those that can be cancelled are."""

DRAIN_SECONDS = 4.0
"""How long handlers may go on after the host asked us to leave; a nexo host waits 5 s for the answer, then kills."""

LEAVE_SECONDS = 4.5
"""How long leaving may take with the author's own farewell, which has what the drain left over, and half a second."""

LAST_SECONDS = 5.0
"""After which we are gone even if nobody reads what we still have to say, on either stream."""

BUSY_RETRY_MS = 1_000
"""When a host that was told we are busy may try again."""


class Resident:
    """One plugin and its host, until one of them leaves."""

    __slots__ = (
        "_bridge",
        "_busy",
        "_duties",
        "_exchange",
        "_farewells",
        "_greeted",
        "_leaving",
        "_open",
        "_pace",
        "_plugin_id",
        "_settings",
        "_tally",
        "_turns",
        "_welcomes",
        "_workers",
        "report",
    )

    def __init__(
        self,
        exchange: Exchange,
        duties: Duties,
        plugin_id: str,
        welcomes: Sequence[Handler] = (),
        farewells: Sequence[Handler] = (),
        *,
        settings: Settings | None = None,
        greeted: Callable[[Mapping[str, Any]], None] | None = None,
        pace: float = 1.0,
        turns: Turns | None = None,
        busy: str = Code.UNAVAILABLE,
    ) -> None:
        """`greeted` hears what the host said of itself; `pace` is the share of the times above that it gives us.

        With `turns`, handlers run one at a time. `busy` is the code of what is refused because too much is being done.
        """
        self._busy = busy
        self._open: dict[CallId, Duty] = {}
        """What is being done and will be answered."""
        self._turns = turns
        self._settings = settings
        self._greeted = greeted or _nowhere
        self._pace = pace
        self._exchange = exchange
        self._duties = duties
        self._plugin_id = plugin_id
        self._welcomes = welcomes
        self._farewells = farewells
        self.report = self._note_failure
        """Told what failed of what nobody waits for, and why."""
        self._workers = Workers()
        self._bridge = Bridge()
        self._tally = Tally()
        self._leaving = allocate_lock()
        """Taken by whoever sees the end first, and never given back."""

    def run(self, first: bytes) -> NoReturn:
        """Serve until the host asks us to leave, or is gone. `first` was read already."""
        data = first
        while True:
            for event in self._exchange.receive(data):
                self._react(event)
            if not data:
                self._leaving.acquire()
                self._leave("the host closed our input", None)
            data = self._exchange.read()

    def leave_soon(self, why: str, answer_to: CallId | None = None) -> None:
        """Begin to leave, once, while the reader goes on."""
        if self._leaving.acquire(blocking=False):
            start_new_thread(self._leave, (why, answer_to))

    # What arrives.

    def _react(self, event: Event) -> None:
        match event:
            case CallArrived(op=Shutdown()):
                self.leave_soon("the host asked us to leave", event.id)
            case CallArrived():
                self._serve(event.id, event.op)
            case CancelArrived():
                self._cancel(event.id)
            case CallFinished() | CallProgress():
                self._exchange.heard(event)
            case Notified(op=Shutdown()):
                self.leave_soon("the host asked us to leave")
            case Notified():
                self._deliver(event.op)
            case Noise():
                note(f"{self._plugin_id}: {event.why}")
            case Ready():
                self._begin(event.hello)
            case Fault():
                note(f"{self._plugin_id}: the host broke the contract: {event.failure.message}")
                self._exchange.leave(1, self._let_go)

    def _begin(self, hello: Mapping[str, Any]) -> None:
        self._greeted(hello)
        for handler in self._welcomes:
            self._start(Duty(handler), self._heedless("on_ready"), _nowhere)

    def _serve(self, id: CallId, op: Operation) -> None:
        if self._leaving.locked():
            self._finish(id, None, _unavailable("the plugin is shutting down"))
            return
        duty = self._duties.of(op)
        if isinstance(duty, Failure):
            self._finish(id, None, duty)
            return
        duty.number = id
        self._open[id] = duty
        if not self._start(duty, self._answer(id, duty.then), lambda item: self._exchange.progress(id, item)):
            self._finish(id, None, self._refusal())

    def _finish(self, id: CallId, value: Any, failure: Failure | None) -> None:
        """Answer. By then there is room for what the host asks next."""
        duty = self._open.pop(id, None)
        if duty is not None:
            duty.over()
        self._exchange.finish(id, value, failure)

    def _cancel(self, id: CallId) -> None:
        duty = self._open.get(id)
        if duty is not None:
            duty.cancel("the host cancelled it")

    def _refusal(self) -> Failure:
        return _unavailable("the plugin is busy with other calls", BUSY_RETRY_MS, self._busy)

    def _deliver(self, op: Operation) -> None:
        for duty in () if self._leaving.locked() else self._duties.about(op):
            if not self._start(duty, self._heedless(duty.label), _nowhere, may_drop=True):
                self._note_dropped(duty)

    def _note_dropped(self, duty: Duty) -> None:
        note(f"{self._plugin_id}: dropped an event on {duty.label}: too many handlers are busy")

    def _answer(self, id: CallId, then: Duty | None = None) -> Done:
        """What to do with the outcome of a duty: go on with what follows it, and answer in the end."""
        if then is None:
            return lambda value, failure: self._finish(id, value, failure)
        return lambda value, failure: self._go_on(id, then, value, failure)

    def _go_on(self, id: CallId, duty: Duty, before: Any, failure: Failure | None) -> None:
        """The second half of an answer; the first is left out when it failed, and noted."""
        self._heedless("the first of two handlers")(None, failure)
        known = before if failure is None else {}

        def done(value: Any, failure: Failure | None) -> None:
            self._finish(id, {**known, **value} if failure is None else None, failure)

        if not self._start(duty, done, _nowhere):
            self._finish(id, None, self._refusal())

    def _heedless(self, what: str) -> Done:
        """For handlers nobody waits for: only a failure is worth a word."""

        def done(value: Any, failure: Failure | None) -> None:
            if failure is not None:
                self.report(what, failure)

        return done

    def _note_failure(self, what: str, failure: Failure) -> None:
        note(f"{self._plugin_id}: the handler of {what} failed: {failure.message}")

    # Doing it.

    def _start(self, duty: Duty, done: Done, send: Callable[[Any], None], *, may_drop: bool = False) -> bool:
        """Have a duty done elsewhere; False when there is no room for it."""
        self._tally.begin()
        if self._turns is not None and not duty.concurrent:
            started = self._queue(self._turns, duty, done, send, may_drop)
        elif duty.handler.is_async:
            started = self._bridge.submit(lambda: self._perform_async(duty, done, send))
        else:
            started = self._workers.submit(lambda: self._perform(duty, done, send))
        if not started:
            self._tally.end()
        return started

    def _queue(self, turns: Turns, duty: Duty, done: Done, send: Callable[[Any], None], may_drop: bool) -> bool:
        def drop() -> None:
            self._note_dropped(duty)
            self._tally.end()

        turn = Turn(lambda: self._take_turn(duty, done, send), drop if may_drop else None, duty.weight)
        return turns.submit(turn, duty.lane)

    def _take_turn(self, duty: Duty, done: Done, send: Callable[[Any], None]) -> None:
        """Do it from beginning to end, wherever it runs: then others may."""
        over: SimpleQueue[None] = SimpleQueue()

        def ended(value: Any, failure: Failure | None) -> None:
            try:
                done(value, failure)
            finally:
                over.put(None)

        if not duty.handler.is_async:
            self._perform(duty, ended, send)
        elif not self._bridge.submit(lambda: self._perform_async(duty, ended, send)):
            self._end(ended, None, self._refusal())
        over.get()

    def _perform(self, duty: Duty, done: Done, send: Callable[[Any], None]) -> None:
        value, failure = None, None
        try:
            value = duty.call(self._blocking_context, send)
            if hasattr(value, "__await__") or hasattr(value, "__aiter__"):
                self._pass_on(duty, value, done, send)
                return
            value = duty.settle(value, send)
        except BaseException as error:  # SystemExit too: a thread that ends must not take the answer with it
            failure = duty.failure(error)
        self._end(done, value, failure)

    def _pass_on(self, duty: Duty, value: Any, done: Done, send: Callable[[Any], None]) -> None:
        """A plain function returned something to await: it goes on where that is possible."""
        if not self._bridge.submit(lambda: self._settle_async(duty, lambda: value, done, send)):
            self._end(done, None, self._refusal())

    async def _perform_async(self, duty: Duty, done: Done, send: Callable[[Any], None]) -> None:
        await self._settle_async(duty, lambda: duty.call(self._awaitable_context, send), done, send)

    async def _settle_async(
        self, duty: Duty, begin: Callable[[], Any], done: Done, send: Callable[[Any], None]
    ) -> None:
        value, failure = None, None
        try:
            with CancelledBy(duty.stop):
                value = await duty.settle_later(begin(), send)
        except BaseException as error:
            failure = duty.failure(error)
        self._end(done, value, failure)

    def _end(self, done: Done, value: Any, failure: Failure | None) -> None:
        try:
            done(value, failure)
        finally:
            self._tally.end()

    def _blocking_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        return Context(BlockingLine(self._exchange), self._plugin_id, said, self._settings, stop)

    def _awaitable_context(self, said: Mapping[str, Any] | None, stop: Cancellation) -> Context:
        return Context(AwaitableLine(self._exchange), self._plugin_id, said, self._settings, stop)

    # Leaving.

    def _leave(self, why: str, answer_to: CallId | None) -> NoReturn:
        """Let handlers finish, say good-bye, answer, and end the process without waiting for anybody."""
        self._exchange.leave_after(LAST_SECONDS * self._pace)
        try:
            drain, deadline = DRAIN_SECONDS * self._pace, monotonic() + LEAVE_SECONDS * self._pace
            self._exchange.abandon(why)
            unfinished = self._drain(drain)
            if unfinished:
                note(f"{self._plugin_id}: {unfinished} handlers did not finish within {drain:g} s")
            failure = self._say_farewell(deadline)
            if answer_to is not None:
                self._exchange.finish(answer_to, None, failure)
        finally:
            self._exchange.leave(0, self._let_go)

    def settle(self, seconds: float) -> int:
        """Wait until nothing is being done, or for so long; how much still is. For one waiter."""
        return self._tally.wait(seconds)

    def _let_go(self) -> None:
        """Where the process goes on: end the threads that wait for work."""
        self._workers.stop()
        self._bridge.stop()
        if self._turns is not None:
            self._turns.stop()

    def _drain(self, seconds: float) -> int:
        """Wait for handlers, and in the end ask them to stop; how many did not."""
        unfinished = self._tally.wait(seconds * FINISH_SHARE)
        if unfinished:
            for duty in list(self._open.values()):
                duty.cancel("the plugin is shutting down")
            unfinished = self._tally.wait(seconds * (1 - FINISH_SHARE))
        return unfinished

    def _say_farewell(self, deadline: float) -> Failure | None:
        """Run the author's on_shutdown handlers, one after the other; the first failure of them."""
        first: Failure | None = None
        for handler in self._farewells:
            failure = self._run_alone(Duty(handler), deadline - monotonic())
            first = first or failure
        return first

    def _run_alone(self, duty: Duty, seconds: float) -> Failure | None:
        """Do one thing and wait for it. Not on a worker: all of them may be stuck."""
        ended: SimpleQueue[Failure | None] = SimpleQueue()
        self._tally.begin()
        if duty.handler.is_async:
            self._bridge.submit(lambda: self._perform_async(duty, lambda _, failure: ended.put(failure), _nowhere))
        else:
            start_new_thread(self._perform, (duty, lambda _, failure: ended.put(failure), _nowhere))
        try:
            return ended.get(timeout=max(seconds, 0.0))
        except Empty:
            return Failure(Code.TIMEOUT, "on_shutdown did not finish in time", origin=Origin.PLUGIN)


def _nowhere(item: Any) -> None:
    """For what nobody streams."""


def _unavailable(why: str, retry_after_ms: int | None = None, code: str = Code.UNAVAILABLE) -> Failure:
    return Failure(code, why, origin=Origin.PLUGIN, retryable=True, retry_after_ms=retry_after_ms)
