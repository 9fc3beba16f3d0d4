"""One frame per line: how much of a line is read, and how much is sent.

Owns the limits and where a line ends. Refuses to know methods and states.
"""

from __future__ import annotations

from plugbay.contracts.base import Role
from plugbay.contracts.kaged import messages
from plugbay.contracts.rpc import RpcMachine, last_line
from plugbay.wire.lines import LineDecoder, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from plugbay.model.events import Event
    from plugbay.wire.strict_json import Codec

TOO_LONG = f"a line longer than the maximum of {messages.MAX_READ:,} bytes"


class FramedMachine(RpcMachine):
    """The line-by-line half of the kaged machine."""

    __slots__ = ("_decode", "_lines")

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec, messages.MAX_SENT)
        self._lines = LineDecoder(messages.MAX_READ)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    @property
    def pending(self) -> int:
        return self._lines.pending

    def _frame(self, body: bytes) -> bytes:
        return encode(body)

    def _take_unfinished(self) -> list[Event]:
        """The last line of a plugin need not have had its end; that of a host that is gone is not obeyed."""
        return self.receive(last_line(self._lines, self.codec) + b"\n") if self.role == Role.HOST else []
