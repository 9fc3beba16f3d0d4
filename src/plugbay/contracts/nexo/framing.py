"""One frame per line: how much of a line each end reads, and how much it sends.

Owns the two limits in force and where a line ends. Refuses to know methods and states.
"""

from __future__ import annotations

from plugbay.contracts.base import Role
from plugbay.contracts.nexo import messages
from plugbay.contracts.rpc import RpcMachine
from plugbay.model.events import Noise
from plugbay.wire.lines import LineDecoder, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.lines import TooLong
    from plugbay.wire.strict_json import Codec


class FramedMachine(RpcMachine):
    """The line-by-line half of the nexo machine."""

    __slots__ = ("_decode", "_lines", "_longest")

    def __init__(self, role: str, codec: Codec) -> None:
        host = role == Role.HOST
        super().__init__(role, codec, messages.MAX_HOST_LINE - 1 if host else messages.MAX_CHILD_LINE)
        self._longest = messages.MAX_CHILD_LINE if host else messages.MAX_HOST_LINE
        self._lines = LineDecoder(self._longest)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    @property
    def pending(self) -> int:
        return self._lines.pending

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line need not have had its end."""
        return self.receive(b"\n")

    def _too_long(self, line: TooLong) -> Event:
        return Noise(line.head, f"dropped a line longer than the maximum of {self._longest:,} bytes")
