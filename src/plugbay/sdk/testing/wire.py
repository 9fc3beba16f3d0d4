"""A conversation in memory: two pipes, and the end of them that a plugin serves instead of its process's.

Owns when a reader has read everything, which no real pipe tells. Refuses to know messages. For tests alone.
"""

from __future__ import annotations

from threading import Condition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from plugbay.model.errors import Failure
    from plugbay.sdk.runtime.resident import Resident


class Pipe:
    """Bytes in one direction, in order; any number of them wait."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._bytes = bytearray()
        self._closed = False
        self._is_read = False

    def write(self, data: bytes) -> None:
        with self._changed:
            if self._closed:
                raise BrokenPipeError("nobody is at the other end")
            self._bytes += data
            self._changed.notify_all()

    def read(self) -> bytes:
        """What has arrived, at least one byte; b"" at the end."""
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
        """Whether, within so many seconds, the reader has dealt with everything and waits for more."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or (self._is_read and not self._bytes), seconds)

    def wait_until_closed(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._closed, seconds)


class MemoryWire:
    """What a plugin in memory has for a wire. To leave is to end the conversation; the process goes on."""

    def __init__(self) -> None:
        self.heard, self.said = Pipe(), Pipe()
        self.status: int | None = None
        """What the process would have left with."""
        self.missed: list[tuple[str, Failure]] = []
        """What failed of what nobody waits for."""
        self._resident: Resident | None = None

    # What `stdio.Wire` does, too.

    def read(self) -> bytes:
        data = self.heard.read()
        if self.status is not None:
            raise SystemExit
        return data

    def write(self, data: bytes) -> None:
        self.said.write(data)

    def is_heard(self) -> bool:
        return self.status is None

    def attend(self, resident: Resident) -> None:
        self._resident = resident
        resident.report = self._report

    def leave(self, status: int, let_go: Callable[[], None] = lambda: None) -> NoReturn:
        self.status = status
        let_go()
        self.said.close()
        self.heard.close()
        raise SystemExit

    def leave_after(self, seconds: float) -> None:
        """Whoever tests sees for himself who does not leave."""

    def refuse_copies(self) -> None:
        """The copy of a process that tests a plugin is the tester's."""

    # What a tester wants to know.

    def settle(self, seconds: float) -> bool:
        """Whether, within so many seconds, everything that was said to the plugin is done."""
        if not self.heard.wait_until_read(seconds):
            return False
        return self._resident is None or self._resident.settle(seconds) == 0

    def _report(self, what: str, failure: Failure) -> None:
        self.missed.append((what, failure))
