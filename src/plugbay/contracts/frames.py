"""Frames as tools see them that watch or imitate a conversation: taps, recordings, replays, the conformance kit.

`Framing` cuts messages out of bytes, by lines or by Content-Length. `FrameRules` tells requests, answers and notices
apart. Both are strict: a violation is reported as a problem, and nothing is guessed. A contract chooses its framing and
its rules in `contract.py`; protocol machines use neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from plugbay.wire.content_length import OPEN_HEADERS, STRICT_HEADERS, ContentLengthDecoder, FrameFault, HeaderRules
from plugbay.wire.lines import LineDecoder, TooLong

# From bytes to messages.


class Piece(NamedTuple):
    """The bytes of one message; with a problem, bytes that are no message."""

    body: bytes
    problem: str = ""


class Framing(Protocol):
    """Reads one direction of one conversation, and wraps messages for it."""

    where: str
    """The place of one message, for texts: `on one line`."""
    empty: str
    """The name of a message without bytes."""

    def feed(self, data: bytes) -> list[Piece]: ...

    def eof(self) -> Piece | None:
        """The bytes that are left over at the end of the stream."""

    def wrap(self, body: bytes, mark: str | None = None) -> bytes:
        """The message as it is sent; `mark` replaces the usual line end or header."""


class Lines:
    """A message ends with its line."""

    where = "on one line"
    empty = "a blank line"

    def __init__(self, max_line: int) -> None:
        self._max_line = max_line
        self._decoder = LineDecoder(max_line)

    def feed(self, data: bytes) -> list[Piece]:
        return [self._piece(line) for line in self._decoder.feed(data)]

    def eof(self) -> Piece | None:
        rest = self._decoder.eof()
        return None if rest is None else self._piece(rest)

    def wrap(self, body: bytes, mark: str | None = None) -> bytes:
        return body + (mark or "\n").encode()

    def _piece(self, line: bytes | TooLong) -> Piece:
        if isinstance(line, TooLong):
            return Piece(line.head, f"a line of more than {self._max_line:,} bytes")
        return Piece(line)


class Lengths:
    """A header gives the length of the message behind it. Nothing is read after the first violation."""

    where = "in one frame"
    empty = "a frame without a body"
    rules: ClassVar[HeaderRules] = STRICT_HEADERS

    def __init__(self, max_body: int) -> None:
        self._decoder = ContentLengthDecoder(self.rules.with_max_body(max_body))

    def feed(self, data: bytes) -> list[Piece]:
        return [_framed(item) for item in self._decoder.feed(data)]

    def eof(self) -> Piece | None:
        fault = self._decoder.eof()
        return None if fault is None else _framed(fault)

    def wrap(self, body: bytes, mark: str | None = None) -> bytes:
        """`{}` in the mark becomes the length."""
        return (mark or "Content-Length: {}\r\n\r\n").format(len(body)).encode() + body


class OpenLengths(Lengths):
    """The same, with other headers allowed beside the length; they are ignored."""

    rules = OPEN_HEADERS


def _framed(item: bytes | FrameFault) -> Piece:
    return Piece(item.head, item.reason) if isinstance(item, FrameFault) else Piece(item)


# From messages to a conversation.

REQUEST, ANSWER, PIECE, CANCEL, NOTICE = "request", "answer", "piece", "cancel", "notice"

GREETING = "greeting"
"""The id of a greeting where the contract gives it none."""

MAX_NAME = 80
"""Characters of a name that are shown: a plugin chooses them."""

NOT_RECORDED = "not_recorded"
"""The code of a refusal where codes are words."""


class Turn(NamedTuple):
    """One frame, as a part of a conversation."""

    kind: str
    """A `request` expects an `answer`; a `piece` comes before one; a `cancel` cancels the request; a `notice` expects
    nothing."""
    name: str
    """The method or export; empty where the id tells it."""
    id: Any = None
    """The id of the request that it makes, answers or cancels. Each side counts its own."""
    failed: str = ""
    """The message of an error."""


class FrameRules(NamedTuple):
    """How the frames of one contract are read and written."""

    read: Callable[[str, dict[str, Any]], Turn]
    """(the sender's role, the frame) → its role in the conversation."""
    with_id: Callable[[dict[str, Any], Any], dict[str, Any]]
    """The same frame with another request id."""
    refusal: Callable[[Turn, str], dict[str, Any]]
    """A plugin's error as the answer to a request of its host."""
    volatile: tuple[str, ...] = ()
    """Values that a host changes in every run: JSON pointers in which `*` is any step."""

    def turn(self, speaker: str, frame: Any) -> Turn:
        """The role of a frame; one that fits no rule is a notice without a name."""
        turn = self.read(speaker, frame) if isinstance(frame, dict) else Turn(NOTICE, "")
        return turn._replace(name=turn.name[:MAX_NAME])


def error_message(error: Any) -> str:
    """The message of an error, or its code; empty for None."""
    if error is None:
        return ""
    said = error if isinstance(error, dict) else {}
    text = said.get("message")
    return str(text if isinstance(text, str) and text.strip() else said.get("code", "an error"))


# JSON-RPC 2.0, for the contracts that use it.


def read_rpc(speaker: str, frame: dict[str, Any]) -> Turn:
    method = frame.get("method")
    if not isinstance(method, str):
        return Turn(ANSWER, "", frame.get("id"), error_message(frame.get("error")))
    return Turn(REQUEST if "id" in frame else NOTICE, method, frame.get("id"))


def rpc_with_id(frame: dict[str, Any], id: Any) -> dict[str, Any]:
    return {**frame, "id": id} if "id" in frame else frame


def rpc_refusal(id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def rpc_rules(code: int, *volatile: str) -> FrameRules:
    """The rules of plain JSON-RPC; `code` is the error code of a refusal."""
    return FrameRules(
        read_rpc, rpc_with_id, lambda turn, message: rpc_refusal(turn.id, code, message), ("/id", *volatile)
    )
