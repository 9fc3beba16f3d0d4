"""One message per line: how long a line may be, and what is in it when it is no single message.

Owns the limit, where a line ends, and batches, which are taken apart. Refuses to know methods and states.
"""

from __future__ import annotations

from plugbay.contracts.mcp import messages
from plugbay.contracts.rpc import OVER, RpcMachine, last_line, noise, plain_chunk
from plugbay.model.errors import Code
from plugbay.wire.json_gate import Malformed
from plugbay.wire.lines import HEAD_BYTES, LineDecoder, TooLong, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec

TOO_LONG = f"a line longer than the maximum of {messages.MAX_LINE:,} bytes"


MAX_BATCH = 1_000
"""Messages of a batch, 10 ms of work; a line has room for 400,000, during which nobody else would be heard."""


class FramedMachine(RpcMachine):
    """The line-by-line half of the MCP machine."""

    __slots__ = ("_decode", "_lines")

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec, messages.MAX_LINE)
        self._lines = LineDecoder(messages.MAX_LINE)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    @property
    def pending(self) -> int:
        return self._lines.pending

    def receive(self, data: bytes) -> list[Event]:
        events: list[Event] = []
        if self.state in OVER:
            return events
        plain = plain_chunk(self._lines, data)
        for line in self._lines.feed(data):
            if isinstance(line, TooLong):
                events += self._skip_unreadable(line.head, Code.FRAME_TOO_LARGE, TOO_LONG)
            elif line:
                events += self._read(line, plain)
            if self.state in OVER:
                break
        return events

    def _read(self, line: bytes, plain: bool = False) -> list[Event]:
        try:
            message = self._decode(line, plain)
        except Malformed as error:
            if line.startswith(b"["):
                return self._batch(line)
            return self._skip_unreadable(line[:HEAD_BYTES], Code.MALFORMED_RESPONSE, f"malformed line: {error}")
        return self._take(message, line)

    def _batch(self, line: bytes) -> list[Event]:
        """Several messages in one array (2025-03-26): each is taken as if it had come alone."""
        try:
            items = self.codec.decode(line)
        except Malformed as error:
            return noise(line, f"malformed line: {error}")
        if not 0 < len(items) <= MAX_BATCH:
            return noise(line, f"a batch of {len(items):,} messages; there may be 1 to {MAX_BATCH:,}")
        events: list[Event] = []
        for item in items:
            body = self.codec.encode(item)
            events += self._read(body) if isinstance(item, dict) else noise(body, "not an object")
            if self.state in OVER:
                break
        return events

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line need not have had its end; half a message is no JSON."""
        return self.receive(last_line(self._lines, self.codec) + b"\n")

    # For the machine to fill in.

    def _take(self, message: Any, line: bytes) -> list[Event]:
        """One message."""
        raise NotImplementedError

    def _skip_unreadable(self, head: bytes, code: str, why: str) -> list[Event]:
        """A line that cannot be read, of which only the beginning is there."""
        raise NotImplementedError


def requested_id(head: bytes) -> int | None:
    """Which request of the peer's a line is, seen from its beginning; None where that is not certain.

    As our own do, real clients write a number, and write it before the parameters.
    """
    before, found, _ = head.partition(b'"params"')
    _, _, after = before.partition(b'"id":')
    digits = after.partition(b",")[0].strip()
    certain = found and b'"method"' in before and digits.isdigit() and len(digits) <= 15
    return int(digits) if certain else None
