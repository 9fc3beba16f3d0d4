"""The host's end of a conversation in memory: a HOST machine, and the calls that wait for its answers.

Owns the lock and the thread that reads. What a plugin asks or tells is for a desk to answer. Knows no contract: the
machine does, and the rules that hold here hold on the wire. For tests alone.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread
from time import monotonic

from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, CallProgress, Closed, Fault, Noise, Notified, Ready
from plugbay.model.operations import InvokeAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    from plugbay.contracts.base import Machine
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation, PluginOp
    from plugbay.sdk.testing.wire import MemoryWire

    class Desk(Protocol):
        """Where a plugin asks and tells."""

        def answer(self, op: Any, progress: Callable[[Any], None]) -> Any: ...
        def notified(self, op: Any) -> None: ...

    Sink = Callable[[CallFinished | CallProgress], None]

DEADLINE = "deadline_exceeded"
CANCELLED = "user_cancelled"
"""Why a call is called off, in words that a contract may pass on."""


class Conversation:
    """A HOST machine and its peer. Starts to read at once."""

    def __init__(self, machine: Machine, wire: MemoryWire, desk: Desk) -> None:
        self.hello: Mapping[str, Any] = {}
        self.noise: list[str] = []
        """What the peer said that was no message."""
        self.fault: Failure | None = None
        """Why the conversation is over; None while it lives."""
        self.over = Flag()
        self._machine = machine
        self._wire = wire
        self._desk = desk
        self._lock = Lock()
        self._greeted = Flag()
        self._waiting: dict[CallId, Sink] = {}
        self._last_id = 0
        self._reader = Thread(target=self._read, name="plugbay-testing-host", daemon=True)
        self._reader.start()

    # What we say.

    def open(self, seconds: float) -> Failure | None:
        """Greet, and wait until the peer is ready; why it is not."""
        with self._lock:
            self._machine.greet()
            self._flush()
        if not self._greeted.wait(seconds):
            return Failure(Code.TIMEOUT, "the plugin did not complete its handshake in time")
        return self.fault

    def ask(self, op: PluginOp, sink: Sink) -> CallId | Failure:
        """Ask; `sink` gets what comes before the answer, and the answer, on the reader's thread."""
        with self._lock:
            if self.fault is not None:
                return self.fault
            self._last_id = id = self._last_id + 1
            refusal = self._machine.call(id, op)
            if refusal is not None:
                return refusal
            self._waiting[id] = sink
            self._flush()
        return id

    def tell(self, op: PluginOp) -> Failure | None:
        with self._lock:
            refusal = self.fault or self._machine.notify(op)
            self._flush()
        return refusal

    def call_off(self, id: CallId, reason: str, *, wait: bool) -> None:
        """Tell the peer, where there is a word for it, that nobody wants the answer; with `wait` it still counts."""
        with self._lock:
            if id in self._waiting and self.fault is None:
                self._machine.cancel(id, reason)
                self._flush()
            if not wait:
                self._waiting.pop(id, None)

    def close(self, seconds: float) -> None:
        """Say good-bye, by the end of its input where there is no word for it, and wait until the peer has left."""
        with self._lock:
            if self.fault is None:
                self._machine.close("host requested")
            in_words = self._machine.has_outgoing
            self._flush()
        if not in_words:
            self._wire.heard.close()
        self._wire.said.wait_until_closed(seconds)

    def end(self) -> None:
        """Nothing more is said, and nobody listens."""
        self._wire.heard.close()
        self._wire.said.close()
        self._reader.join()

    def _flush(self) -> None:
        data = self._machine.outgoing()
        if data:
            try:
                self._wire.heard.write(data)
            except BrokenPipeError:
                pass  # it has left; the reader will see that

    # What the peer says.

    def _read(self) -> None:
        data = b"first"
        while data and self.fault is None:
            data = self._wire.said.read()
            with self._lock:
                events = self._machine.receive(data) if data else self._machine.receive_eof()
                self._flush()
            for event in events:
                self._take(event)
        self._end(Failure(Code.CRASHED, "the plugin is gone", origin=Origin.PLUGIN))

    def _take(self, event: Event) -> None:
        match event:
            case CallFinished() | CallProgress():
                self._heard(event)
            case Ready():
                self.hello = event.hello
                self._greeted.set()
            case CallArrived(op=InvokeAction()):
                # It may be one of the plugin's own, whose answer this thread has to read.
                Thread(target=self._answer, args=(event.id, event.op), daemon=True).start()
            case CallArrived():
                self._answer(event.id, event.op)
            case Notified():
                self._desk.notified(event.op)
            case Noise():
                self.noise.append(event.why)
            case Fault():
                self._end(event.failure)
            case Closed():
                self._end(Failure(Code.UNAVAILABLE, "the plugin has left in good order"))

    def _heard(self, event: CallFinished | CallProgress) -> None:
        with self._lock:
            last = isinstance(event, CallFinished)
            sink = self._waiting.pop(event.id, None) if last else self._waiting.get(event.id)
        if sink is not None:
            sink(event)

    def _answer(self, id: CallId, op: Operation) -> None:
        def progress(item: Any) -> None:
            with self._lock:
                self._machine.progress(id, item)
                self._flush()

        value = self._desk.answer(op, progress)
        failure = value if isinstance(value, Failure) else None
        with self._lock:
            if self.fault is None:
                self._machine.finish(id, None if failure else value, failure)
                self._flush()

    def _end(self, failure: Failure) -> None:
        with self._lock:
            if self.fault is None:
                self.fault = failure
            waiting, self._waiting = self._waiting, {}
        for id, sink in waiting.items():
            sink(CallFinished(id, failure=self.fault))
        self._greeted.set()
        self.over.set()


class Pending:
    """A call that was made. `progress` is what was said before its answer, as it comes."""

    def __init__(self, conversation: Conversation, op: PluginOp, seconds: float, grace: float = 0.0) -> None:
        """`grace`: how long the answer to a call that was called off is waited for."""
        self.progress: list[Any] = []
        self._conversation = conversation
        self._answers: SimpleQueue[CallFinished] = SimpleQueue()
        self._until = monotonic() + seconds
        self._grace = grace
        self._reason = ""
        id = conversation.ask(op, self._hear)
        self._id: CallId = 0
        if isinstance(id, Failure):
            self._answers.put(CallFinished(0, failure=id))
        else:
            self._id = id

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self._call_off(CANCELLED, Failure(Code.CANCELLED, "the caller cancelled the call"))

    def finished(self) -> CallFinished:
        """How it ended; waits until it has, or until its time is over."""
        answer = self._next(self._until - monotonic())
        if answer is None:
            self._call_off(DEADLINE, Failure(Code.TIMEOUT, "no answer within the time allowed for the call"))
            answer = self._next(self._grace)
        if answer is None:
            answer = CallFinished(self._id, failure=Failure(Code.TIMEOUT, "it was told to stop and did not answer"))
        return self._judged(answer)

    def _judged(self, answer: CallFinished) -> CallFinished:
        """What stopped because its time was over has timed out, whatever it says."""
        failure = answer.failure
        if failure is None or failure.code != Code.CANCELLED:
            return answer
        if DEADLINE not in (self._reason, failure.detail.get("plugin_code")):
            return answer
        return CallFinished(
            answer.id, failure=Failure(Code.TIMEOUT, "it was stopped at the deadline", detail=failure.detail)
        )

    def _call_off(self, reason: str, failure: Failure) -> None:
        self._reason = self._reason or reason
        self._conversation.call_off(self._id, reason, wait=self._grace > 0)
        if not self._grace:
            self._answers.put(CallFinished(self._id, failure=failure))
        self._until = min(self._until, monotonic() + self._grace)

    def _next(self, seconds: float) -> CallFinished | None:
        try:
            return self._answers.get(timeout=max(seconds, 0.0))
        except Empty:
            return None

    def _hear(self, event: CallFinished | CallProgress) -> None:
        if isinstance(event, CallFinished):
            self._answers.put(event)
        else:
            self.progress.append(event.item)
