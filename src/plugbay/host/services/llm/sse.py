"""Server-sent events: cuts a byte stream into the data of its events, within a bound.

Owns where an event ends and which of its fields count: `data` alone, for the streams of language models name nothing
else. Blanks around a line are trimmed, which JSON does not notice. An event without its closing blank line was cut off
and never comes out. Refuses to know what the data means, and never raises for what a server sends.
"""

from __future__ import annotations

from plugbay.wire.lines import LineDecoder, TooLong

MAX_EVENT = 1 << 20
"""Bytes of one event's data. One piece of an answer has a few hundred; a whole tool call some thousands."""


class EventDecoder:
    """Feed chunks, get the data of each complete event. After a `TooLong` in its place nothing can be trusted."""

    __slots__ = ("_after_return", "_data", "_lines", "_max_event", "_size")

    def __init__(self, max_event: int = MAX_EVENT) -> None:
        self._max_event = max_event
        self._lines = LineDecoder(max_event + len(b"data:"))
        self._after_return = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The events that `data` completes, in order."""
        events: list[bytes | TooLong] = []
        for line in self._lines.feed(self._newlines(data)):
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def _newlines(self, data: bytes) -> bytes:
        """`data` with every line end, `\\r\\n` and `\\r` too, as `\\n`, wherever the stream was cut."""
        if not data:
            return data
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if data:
            self._after_return = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _take(self, line: bytes | TooLong) -> bytes | TooLong | None:
        """What a line completes, if anything."""
        if isinstance(line, TooLong):
            return line
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name != b"data":
            return None
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > self._max_event + 1:
            return TooLong(self._size, value[:200])
        self._data.append(value)
        return None

    def _dispatch(self) -> bytes | None:
        if not self._data:
            return None
        event = b"\n".join(self._data)
        self._data, self._size = [], 0
        return event
