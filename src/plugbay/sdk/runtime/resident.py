"""The life of a resident plugin: read, have done what is asked, and leave in good order.

Whoever reads does what is quick by itself, as nobody else is faster, and leaves the rest to the crew: what takes longer
holds nothing up. The good-bye has a thread of its own, so that the host is heard until the end. Knows no contract: the
machine inside the exchange does, and says what arrived in the words of `model`.
"""

from __future__ import annotations

from _thread import allocate_lock, start_new_thread
from time import monotonic

from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CallProgress, CancelArrived, Fault, Noise, Notified, Ready
from plugbay.model.operations import Shutdown
from plugbay.sdk.io.stdio import note
from plugbay.sdk.runtime.dispatch import Duty
from plugbay.sdk.runtime.executor import Crew, nowhere, unavailable
from plugbay.sdk.runtime.reader import MOMENT, Relay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Protocol

    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation
    from plugbay.sdk.context import Settings
    from plugbay.sdk.runtime.connection import Exchange
    from plugbay.sdk.runtime.executor import Turns
    from plugbay.sdk.types.handlers import Handler

    class Duties(Protocol):
        """What there is to do about what a host asks, and about what it tells."""

        def of(self, op: Operation) -> Duty | Failure: ...
        def about(self, op: Operation) -> Sequence[Duty]: ...
else:
    from _collections import deque  # without the rest of `collections`, which is 2 ms of start-up

FINISH_SHARE = 0.5
"""Of the time that handlers have to finish: after that, those that can be cancelled are."""

DRAIN_SECONDS = 4.0
"""How long handlers may go on after the host asked us to leave; a nexo host waits 5 s for the answer, then kills."""

LEAVE_SECONDS = 4.5
"""How long leaving may take with the author's own farewell, which has what the drain left over, and half a second."""

LAST_SECONDS = 5.0
"""After which we are gone even if nobody reads what we still have to say, on either stream."""

TOGETHER = 16
"""Answers that are written at once: a write for each takes longer, and with one for all the host waits for the last."""


class Resident:
    """One plugin and its host, until one of them leaves."""

    __slots__ = (
        "_crew",
        "_duties",
        "_ended",
        "_events",
        "_exchange",
        "_farewells",
        "_greeted",
        "_leaving",
        "_open",
        "_pace",
        "_plugin_id",
        "_relay",
        "_until",
        "_welcomes",
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
        self._exchange = exchange
        self._duties = duties
        self._plugin_id = plugin_id
        self._welcomes = welcomes
        self._farewells = farewells
        self._greeted = greeted or nowhere
        self._pace = pace
        self.report = self._note_failure
        """Told what failed of what nobody waits for, and why."""
        self._open: dict[CallId, Duty] = {}
        """What is being done and will be answered."""
        self._crew = Crew(exchange, plugin_id, settings, turns, busy)
        self._relay = Relay(self._lead)
        exchange.make_way = self._relay.make_way
        self._events: deque[Event] = deque()
        """What has arrived and was not seen to yet; of whoever reads, as the next."""
        self._ended = False
        """Whether that was all."""
        self._until = 0.0
        """By the monotonic clock: how long things may be done here before somebody looks what else has arrived."""
        self._leaving = allocate_lock()
        """Taken by whoever sees the end first, and never given back."""

    def run(self, first: bytes) -> NoReturn:
        """Serve until the host asks us to leave, or is gone. `first` was read already."""
        self._take_in(first)
        self._relay.run()

    def leave_soon(self, why: str, answer_to: CallId | None = None) -> None:
        """Begin to leave, once, while the reader goes on."""
        if self._leaving.acquire(blocking=False):
            try:
                start_new_thread(self._leave, (why, answer_to))
            except RuntimeError:  # the system has no thread to give
                self._leave(why, answer_to)

    # What arrives.

    def _lead(self) -> None:
        """React and read on, until another thread does."""
        self._send_what_is_left()
        while self._see_to_all():
            if self._events:
                continue  # while we sent something another thread led, and left these when we took the baton back
            if self._ended:
                self._leaving.acquire()
                self._leave("the host closed our input", None)
            self._take_in(self._exchange.read())

    def _send_what_is_left(self) -> None:
        """Whoever led before may be held up with answers unsent. Elsewhere: the host may not be reading."""
        if self._exchange.unsent:
            try:
                start_new_thread(self._exchange.flush, ())
            except RuntimeError:  # the system has no thread to give
                self._exchange.flush()

    def _see_to_all(self) -> bool:
        """React to what has arrived; False when another thread does by now."""
        self._crew.tally.begin()
        unsent = False
        try:
            while self._events:
                duty = self._react(self._events.popleft())
                if duty is None:
                    continue
                unsent = len(self._events) % TOGETHER > 0
                if not self._relay.aside(self._crew.do, duty, self._conclude if unsent else self._finish):
                    self._exchange.flush()
                    return False
            return not unsent or self._relay.aside(self._exchange.flush)
        finally:
            self._crew.tally.end()

    def _take_in(self, data: bytes) -> None:
        self._ended = not data
        self._events.extend(self._exchange.receive(data))
        self._until = monotonic() + MOMENT

    def _react(self, event: Event) -> Duty | None:
        """See to it; what is quick is left to be done here."""
        match event:
            case CallArrived(op=Shutdown()):
                self.leave_soon("the host asked us to leave", event.id)
            case CallArrived():
                return self._serve(event.id, event.op)
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
                self._exchange.leave(1, self._crew.stop)
        return None

    def _begin(self, hello: Mapping[str, Any]) -> None:
        self._greeted(hello)
        for handler in self._welcomes:
            self._crew.start(Duty(handler, label="on_ready"), self._ignore)

    def _serve(self, id: CallId, op: Operation) -> Duty | None:
        """Have a request answered; what is left to do for that here."""
        if self._leaving.locked():
            self._refuse(id, unavailable("the plugin is shutting down"))
            return None
        duty = self._duties.of(op)
        if isinstance(duty, Failure):
            self._refuse(id, duty)
            return None
        duty.number = id
        self._open[id] = duty
        if self._is_for_here(duty):
            return duty
        if not self._crew.start(duty, self._finish if duty.then is None else self._go_on):
            self._finish(duty, None, self._crew.refusal())
        return None

    def _is_for_here(self, duty: Duty) -> bool:
        """Whether to do it before anything else is read: not for long, and not when its answer would have to wait."""
        return (
            self._crew.is_quick(duty)
            and duty.then is None
            and monotonic() < self._until
            and not self._exchange.writing.locked()
        )

    def _cancel(self, id: CallId) -> None:
        duty = self._open.get(id)
        if duty is not None:
            duty.cancel("the host cancelled it")

    def _deliver(self, op: Operation) -> None:
        for duty in () if self._leaving.locked() else self._duties.about(op):
            if not self._crew.start(duty, self._ignore, self._note_dropped):
                self._note_dropped(duty)

    def _note_dropped(self, duty: Duty) -> None:
        note(f"{self._plugin_id}: dropped an event on {duty.label}: too many handlers are busy")

    # What has been done.

    def _conclude(self, duty: Duty, value: Any, failure: Failure | None) -> None:
        """Answer, with whatever is written next. By then there is room for what the host asks next."""
        assert duty.number is not None, "nobody asked for it"
        del self._open[duty.number]
        duty.over()
        self._exchange.finish(duty.number, value, failure)

    def _finish(self, duty: Duty, value: Any, failure: Failure | None) -> None:
        """Answer, at once."""
        self._conclude(duty, value, failure)
        self._exchange.flush()

    def _refuse(self, id: CallId, failure: Failure) -> None:
        self._exchange.finish(id, None, failure)
        self._exchange.flush()

    def _go_on(self, duty: Duty, before: Any, failure: Failure | None) -> None:
        """Have the second half of an answer made; the first is left out when it failed, and noted."""
        assert duty.then is not None, "there is no second half"
        if failure is not None:
            self.report("the first of two handlers", failure)
        known = before if failure is None else {}

        def done(_: Duty, value: Any, failure: Failure | None) -> None:
            self._finish(duty, {**known, **value} if failure is None else None, failure)

        if not self._crew.start(duty.then, done):
            self._finish(duty, None, self._crew.refusal())

    def _ignore(self, duty: Duty, value: Any, failure: Failure | None) -> None:
        """Nobody waits for it: only a failure is worth a word."""
        if failure is not None:
            self.report(duty.label, failure)

    def _note_failure(self, what: str, failure: Failure) -> None:
        note(f"{self._plugin_id}: the handler of {what} failed: {failure.message}")

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
                self._exchange.flush()
        finally:
            self._exchange.leave(0, self._crew.stop)

    def settle(self, seconds: float) -> int:
        """Wait until nothing is being done, or for so long; how much still is. For one waiter."""
        return self._crew.tally.wait(seconds)

    def _drain(self, seconds: float) -> int:
        """Wait for handlers, and in the end ask them to stop; how many did not."""
        unfinished = self._crew.tally.wait(seconds * FINISH_SHARE)
        if unfinished:
            for duty in list(self._open.values()):
                duty.cancel("the plugin is shutting down")
            unfinished = self._crew.tally.wait(seconds * (1 - FINISH_SHARE))
        return unfinished

    def _say_farewell(self, deadline: float) -> Failure | None:
        """Run the author's on_shutdown handlers, one after the other; the first failure of them."""
        first: Failure | None = None
        for handler in self._farewells:
            failure = self._crew.do_alone(Duty(handler, label="on_shutdown"), deadline - monotonic())
            first = first or failure
        return first
