"""One frame per line: how much of a line is read, and writing nothing that the other end would drop.

Owns the limits and what happens to a frame that passes them: a call is refused, an answer becomes an error, a
notification is refused. Refuses to know methods and states.
"""

from __future__ import annotations

from plugbay.contracts.base import Machine
from plugbay.contracts.kaged import errors, messages
from plugbay.model.errors import Code, Failure
from plugbay.wire.json_gate import Malformed, gate
from plugbay.wire.lines import LineDecoder, encode
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.wire.strict_json import Codec

    Id = int | float | str | None


TOO_LONG = f"a line longer than the maximum of {messages.MAX_READ:,} bytes"

_BEFORE_ID = (b'"method"', b'"params"', b'"result"', b'"error"')


def answered_id(head: bytes) -> int | None:
    """Which call a line answers, seen from its beginning: its reader could not use the rest.

    None where that is not certain: the id must stand before anything that might hold another one.
    """
    before, found, after = head.partition(b'"id":')
    digits = after.lstrip().partition(b",")[0].rstrip()
    certain = found and not any(word in before for word in _BEFORE_ID) and b'"method"' not in after
    return int(digits) if certain and digits.isdigit() and len(digits) < 16 else None


class FramedMachine(Machine):
    """The line-by-line half of the kaged machine."""

    __slots__ = ("_decode", "_lines")

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec)
        self._lines = LineDecoder(messages.MAX_READ)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    # Writing.

    def _send(self, body: bytes) -> Failure | None:
        """One frame, or why the peer would not read it."""
        try:
            gate(body)
        except Malformed as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        size = len(body)
        if size > messages.MAX_SENT:
            what = f"the message has {size:,} bytes; at most {messages.MAX_SENT:,} are sent"
            return Failure(Code.FRAME_TOO_LARGE, what, detail={"size": size, "limit": messages.MAX_SENT})
        self._out.append(encode(body))
        return None

    def _say(self, message: dict[str, Any]) -> Failure | None:
        try:
            body = self.codec.encode({"jsonrpc": "2.0", **message})
        except Unencodable as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        return self._send(body)

    def _ask(self, id: int, method: str, params: bytes) -> Failure | None:
        name = self.codec.encode(method)
        return self._send(b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}' % (id, name, params))

    def _tell(self, method: str, params: Any) -> Failure | None:
        """A notification; null is no parameters."""
        return self._say({"method": method} if params is None else {"method": method, "params": params})

    def _reply(self, id: Id, result: Any) -> Failure | None:
        return self._say({"id": id, "result": result})

    def _error(self, id: Id, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        """An error answer; data that cannot be sent is left out, the error is not."""
        error: dict[str, Any] = {"code": code, "message": message[: errors.MAX_ERROR_TEXT]}
        if data is None or self._say({"id": id, "error": {**error, "data": data}}) is not None:
            self._say({"id": id, "error": error})
