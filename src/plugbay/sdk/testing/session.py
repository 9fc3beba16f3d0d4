"""One session with a plugin in memory: two pipes, the host's connection, and the thread that serves the plugin.

While a session lasts, the plugin's prints are captured and its services outside of handlers are connected; both are
restored at the end. For tests only.
"""

from __future__ import annotations

import sys
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from threading import Event as Flag
from time import monotonic

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, CallProgress, Closed, Fault, Noise, Notified, Ready
from plugbay.model.operations import InvokeAction
from plugbay.sdk.io.stdio import Wire
from plugbay.sdk.runtime.connection import Connection
from plugbay.sdk.serving import begin, serve_rune
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, NoReturn, Protocol

    from plugbay.contracts.base import Machine
    from plugbay.model.events import CallId, Event
    from plugbay.model.operations import Operation, PluginOp
    from plugbay.sdk.plugin import Plugin
    from plugbay.sdk.runtime.resident import Resident

    class HostServices(Protocol):
        """Answers the plugin's requests and notifications."""

        def answer(self, op: Any, progress: Callable[[Any], None]) -> Any: ...
        def notified(self, op: Any) -> None: ...


END_SECONDS = 6.0
"""Seconds for a plugin to exit; more than any contract gives its handlers."""


class CapturedStderr:
    """A stream that keeps the lines that pass through it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self._parts: list[str] = []

    def write(self, text: str) -> int:
        self._parts.append(text)
        return int(self.stream.write(text))

    @property
    def lines(self) -> list[str]:
        return "".join(self._parts).splitlines()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Session:
    """A plugin and the host's connection with it."""

    def __init__(self, plugin: Plugin, machine: Machine, services: HostServices, seconds: float) -> None:
        """Greets; raises `CallFailed` if the plugin is not ready in time, or the exception of the plugin's code."""
        self._plugin = plugin
        self._wire = MemoryWire()
        self._before = plugin.host
        self._streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
        self._raised: BaseException | None = None
        self._left = False
        self._captured = CapturedStderr(sys.stderr)
        sys.stderr = self._captured
        self.connection = HostConnection(machine, self._wire, services)
        self._thread = Thread(target=self._serve, name=f"plugbay-testing-{plugin.id}", daemon=True)
        self._thread.start()
        failure = self.connection.open(seconds)
        if failure is not None:
            self.close()
            raise CallFailed(failure)

    @property
    def stderr(self) -> list[str]:
        """Lines written to stderr while the plugin was served."""
        return self._captured.lines

    def settle(self, seconds: float) -> None:
        """Wait until all notifications are processed; raises `CallFailed` for a failed handler."""
        until = monotonic() + seconds
        calm = self._wire.settle(seconds) and self._wire.output.wait_until_read(max(until - monotonic(), 0.0))
        failures, self._wire.failures = self._wire.failures, []
        for what, failure in failures[:1]:
            raise CallFailed(failure.with_detail(self._plugin.id, handler=what))
        if not calm:
            raise CallFailed(Failure(Code.TIMEOUT, f"the plugin is still busy after {seconds:g} s"))

    def close(self) -> None:
        """End the session. Raises an exception of the plugin's code outside of handlers."""
        if self._left:
            return
        self._left = True
        try:
            self.connection.close(END_SECONDS)
            self.connection.end()
            self._thread.join(END_SECONDS)
        finally:
            self._put_back()
        if self._raised is not None:
            raise self._raised
        if self._wire.status is None:
            raise CallFailed(Failure(Code.TIMEOUT, f"the plugin did not exit within {END_SECONDS:g} s"))
        if self._wire.status:
            text = f"the plugin exited with status {self._wire.status}"
            raise CallFailed(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, detail={"stderr_tail": self.stderr}))

    def _put_back(self) -> None:
        """Restore the stream, unless it was replaced meanwhile."""
        self._plugin.connect(self._before)
        for name, stream in self._streams.items():
            if _inside(getattr(sys, name)) is stream:
                setattr(sys, name, stream)

    def _serve(self) -> None:
        codec: Any = stdlib_codec()
        wire: Any = self._wire
        try:
            first = begin(self._plugin, wire, codec)
            wire.leave(serve_rune(self._plugin, wire, codec, first))
        except SystemExit:
            pass  # it has left
        except BaseException as error:
            self._raised = error
            wire.output.close()
            wire.input.close()


def _inside(stream: Any) -> Any:
    """The stream inside the wrappers of the SDK."""
    from plugbay.sdk.screens.command_lines import Routed

    while isinstance(stream, Routed | CapturedStderr):
        stream = object.__getattribute__(stream, "_stream" if isinstance(stream, Routed) else "stream")
    return stream


DEADLINE = "deadline_exceeded"

CANCELLED = "user_cancelled"
"""The reason of a cancelled call; a contract may send it."""


class HostConnection(Connection):
    """The host's end: a HOST machine over the pipes of a plugin in memory. Starts to read at once."""

    def __init__(self, machine: Machine, wire: MemoryWire, services: HostServices) -> None:
        super().__init__(machine, HostWire(wire))
        self.hello: Mapping[str, Any] = {}
        self.noise: list[str] = []
        """Output of the plugin that was not a message."""
        self.fault: Failure | None = None
        """Why the connection ended; None while it is open."""
        self.over = Flag()
        self._pipes = wire
        self._services = services
        self._greeted = Flag()
        self._reader = Thread(target=self._read_loop, name="plugbay-testing-host", daemon=True)
        self._reader.start()

    def open(self, seconds: float) -> Failure | None:
        """Greet and wait until the plugin is ready; a failure if it is not."""
        with self._lock:
            self._machine.greet()
        self.flush()
        if not self._greeted.wait(seconds):
            return Failure(Code.TIMEOUT, "the plugin did not complete its handshake in time")
        return self.fault

    def notify(self, op: Operation) -> Failure | None:
        return self.fault or super().notify(op)

    def close(self, seconds: float) -> None:
        """Send the shutdown message, or else end the plugin's input, and wait until the plugin has left."""
        with self._lock:
            if self.fault is None:
                self._machine.close("host requested")
            has_message = self._machine.has_outgoing
        self.flush()
        if not has_message:
            self._pipes.input.close()
        self._pipes.output.wait_until_closed(seconds)

    def end(self) -> None:
        """Close both directions."""
        self._pipes.input.close()
        self._pipes.output.close()
        self._reader.join()

    # Input.

    def _read_loop(self) -> None:
        data = b"first"
        while data and self.fault is None:
            data = self.read()
            for event in self.receive(data):
                self._react(event)
        self._fail(Failure(Code.CRASHED, "the plugin has exited", origin=Origin.PLUGIN))

    def _react(self, event: Event) -> None:
        match event:
            case CallFinished() | CallProgress():
                self.deliver_reply(event)
            case Ready():
                self.hello = event.hello
                self._greeted.set()
            case CallArrived(op=InvokeAction()):
                # It may be one of the plugin's own, whose answer this thread has to read.
                Thread(target=self._answer, args=(event.id, event.op), daemon=True).start()
            case CallArrived():
                self._answer(event.id, event.op)
            case Notified():
                self._services.notified(event.op)
            case Noise():
                self.noise.append(event.why)
            case Fault():
                self._fail(event.failure)
            case Closed():
                self._fail(Failure(Code.UNAVAILABLE, "the plugin has exited as asked"))

    def _answer(self, id: CallId, op: Operation) -> None:
        value = self._services.answer(op, lambda item: self.progress(id, item))
        failure = value if isinstance(value, Failure) else None
        if self.fault is None:
            self.finish(id, None if failure else value, failure)
            self.flush()

    def _fail(self, failure: Failure) -> None:
        if self.fault is None:
            self.fault = failure
            self.abandon(failure)
        self._greeted.set()
        self.over.set()


class Pending:
    """A started call. `progress` collects the progress before its answer."""

    def __init__(self, connection: HostConnection, op: PluginOp, seconds: float, grace: float = 0.0) -> None:
        """`grace`: seconds to wait for the answer to a cancelled call."""
        self.progress: list[Any] = []
        self._connection = connection
        self._answers: SimpleQueue[CallFinished] = SimpleQueue()
        self._until = monotonic() + seconds
        self._grace = grace
        self._reason = ""
        id = connection.call(op, self._hear)
        self._id: CallId = 0
        if isinstance(id, Failure):
            self._answers.put(CallFinished(0, failure=id))
        else:
            self._id = id

    def cancel(self) -> None:
        """Cancel the call."""
        self._cancel_call(CANCELLED, Failure(Code.CANCELLED, "the caller cancelled the call"))

    def finished(self) -> CallFinished:
        """Wait for the result, or until the timeout."""
        answer = self._next(self._until - monotonic())
        if answer is None:
            self._cancel_call(DEADLINE, Failure(Code.TIMEOUT, "no answer within the time allowed for the call"))
            answer = self._next(self._grace)
        if answer is None:
            answer = CallFinished(self._id, failure=Failure(Code.TIMEOUT, "it was asked to stop and did not answer"))
        return self._check_reply(answer)

    def _check_reply(self, answer: CallFinished) -> CallFinished:
        """A call that was cancelled by its timeout is reported as timed out."""
        failure = answer.failure
        if failure is None or failure.code != Code.CANCELLED:
            return answer
        if DEADLINE not in (self._reason, failure.detail.get("plugin_code")):
            return answer
        return CallFinished(
            answer.id, failure=Failure(Code.TIMEOUT, "it was stopped at the deadline", detail=failure.detail)
        )

    def _cancel_call(self, reason: str, failure: Failure) -> None:
        self._reason = self._reason or reason
        self._connection.cancel(self._id, reason, wait=self._grace > 0)
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


class Pipe:
    """Bytes in one direction, in order, without a limit."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._bytes = bytearray()
        self._closed = False
        self._is_read = False

    def write(self, data: bytes) -> None:
        with self._changed:
            if self._closed:
                raise BrokenPipeError("the other end is closed")
            self._bytes += data
            self._changed.notify_all()

    def read(self) -> bytes:
        """Bytes that have arrived, at least one; b"" at the end."""
        with self._changed:
            self._is_read = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._bytes or self._closed)
            self._is_read = False
            data = bytes(self._bytes)
            self._bytes.clear()
            return data

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_until_read(self, seconds: float) -> bool:
        """Whether, within so many seconds, the reader has processed everything and waits for more."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or (self._is_read and not self._bytes), seconds)

    def wait_until_closed(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, seconds)


class MemoryWire:
    """The wire of a plugin in memory. Leaving ends the conversation, not the process."""

    def __init__(self) -> None:
        self.input, self.output = Pipe(), Pipe()
        self.status: int | None = None
        """The exit status that the process would have had."""
        self.failures: list[tuple[str, Failure]] = []
        """Failures of handlers whose result is not awaited."""
        self._resident: Resident | None = None

    # The methods of `stdio.Wire`.

    def read(self) -> bytes:
        data = self.input.read()
        if self.status is not None:
            raise SystemExit
        return data

    def write(self, data: bytes) -> None:
        self.output.write(data)

    def has_reader(self) -> bool:
        return self.status is None

    def attend(self, resident: Resident) -> None:
        self._resident = resident
        resident.report = self._report

    def leave(self, status: int, let_go: Callable[[], None] = lambda: None) -> NoReturn:
        self.status = status
        let_go()
        self.output.close()
        self.input.close()
        raise SystemExit

    def leave_after(self, seconds: float) -> None:
        """Not needed: the test waits with its own timeout."""

    def exit_if_forked(self) -> None:
        """Not needed: forks belong to the test."""

    # For tests.

    def settle(self, seconds: float) -> bool:
        """Whether all input is processed within `seconds`."""
        if not self.input.wait_until_read(seconds):
            return False
        return self._resident is None or self._resident.settle(seconds) == 0

    def _report(self, what: str, failure: Failure) -> None:
        self.failures.append((what, failure))


class HostWire(Wire):
    """The other end of a `MemoryWire`."""

    __slots__ = ("_pipes",)

    def __init__(self, pipes: MemoryWire) -> None:
        self._pipes = pipes

    def read(self) -> bytes:
        return self._pipes.output.read()

    def write(self, data: bytes) -> None:
        try:
            self._pipes.input.write(data)
        except BrokenPipeError:
            pass  # the plugin has left; the reading thread will see that

    def exit_if_forked(self) -> None:
        """Not needed: forks belong to the test."""
