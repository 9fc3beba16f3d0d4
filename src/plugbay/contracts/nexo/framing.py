"""One frame per line: how much of a line each end reads, and writing nothing that the other would drop.

Owns the two limits in force and what happens to a frame that passes them: a call is refused, an answer becomes an
error, a notification is refused. Refuses to know methods and states.
"""

from __future__ import annotations

from plugbay.contracts.base import Machine, Role
from plugbay.contracts.nexo import errors, messages
from plugbay.model.errors import Code, Failure
from plugbay.model.events import Noise
from plugbay.wire.json_gate import Malformed, gate
from plugbay.wire.lines import LineDecoder, encode
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.model.events import Event
    from plugbay.wire.lines import TooLong
    from plugbay.wire.strict_json import Codec


class FramedMachine(Machine):
    """The line-by-line half of the nexo machine."""

    __slots__ = ("_decode", "_lines", "_longest", "_most")

    def __init__(self, role: str, codec: Codec) -> None:
        super().__init__(role, codec)
        host = role == Role.HOST
        self._longest = messages.MAX_CHILD_LINE if host else messages.MAX_HOST_LINE
        self._most = messages.MAX_HOST_LINE - 1 if host else messages.MAX_CHILD_LINE
        self._lines = LineDecoder(self._longest)
        self._decode = codec.decoder(messages.READS, messages.READS_RAW)

    # Reading.

    def _too_long(self, line: TooLong) -> Event:
        return Noise(line.head, f"dropped a line longer than the maximum of {self._longest:,} bytes")

    # Writing.

    def _say(self, message: dict[str, Any]) -> Failure | None:
        """One frame, or why the peer would not read it."""
        try:
            body = self.codec.encode(message)
            gate(body)
        except (Unencodable, Malformed) as error:
            return Failure(Code.INVALID_INPUT, f"it cannot be sent as JSON: {error}")
        if len(body) > self._most:
            return self._too_large(len(body))
        self._out.append(encode(body))
        return None

    def _too_large(self, size: int) -> Failure:
        what = f"the message has {size:,} bytes; the peer reads at most {self._most:,}"
        return Failure(Code.FRAME_TOO_LARGE, what, detail={"size": size, "limit": self._most})

    def _ask(self, id: int, method: str, params: dict[str, Any]) -> Failure | None:
        return self._say({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def _tell(self, method: str, params: dict[str, Any]) -> Failure | None:
        return self._say({"jsonrpc": "2.0", "method": method, "params": params})

    def _reply(self, id: int | str | None, result: Any) -> Failure | None:
        return self._say({"jsonrpc": "2.0", "id": id, "result": result})

    def _error(self, id: int | str | None, code: int, message: str, data: dict[str, Any] | None = None) -> None:
        """An error answer; data that cannot be sent is left out, the error is not."""
        error: dict[str, Any] = {"code": code, "message": message[: errors.MAX_ERROR_TEXT]}
        envelope = {"jsonrpc": "2.0", "id": id}
        if data is None or self._say({**envelope, "error": {**error, "data": data}}) is not None:
            self._say({**envelope, "error": error})
