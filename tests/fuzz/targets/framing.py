"""Lines and Content-Length frames: bounded, never an exception, and the pieces in which bytes come change nothing."""

from __future__ import annotations

from plugbay.model.errors import Code
from plugbay.wire import content_length, lines
from plugbay.wire.content_length import OPEN_HEADERS, STRICT_HEADERS, ContentLengthDecoder, FrameFault, HeaderRules
from plugbay.wire.lines import LineDecoder, TooLong
from tests.fuzz.targets import pieces

MAX_LINE, SLACK = 64, 16
MAX_BODY = 128
RULES = [
    HeaderRules(96, MAX_BODY, base.unknown_headers, base.repeated_length, base.plus_sign)
    for base in (STRICT_HEADERS, OPEN_HEADERS)
]


def check(data: bytes) -> None:
    """The first byte says how large the pieces are."""
    if not data:
        return
    size, stream = data[0], data[1:]
    _check_lines(stream, size)
    for rules in RULES:
        _check_frames(stream, size, rules)


def _check_lines(stream: bytes, size: int) -> None:
    whole = _read_lines([stream])
    assert _read_lines(pieces(stream, size)) == whole
    for item in whole:
        if isinstance(item, bytes):
            assert len(item) <= MAX_LINE and item == item.strip() and b"\n" not in item
        elif item is not None:
            assert MAX_LINE < item.seen <= MAX_LINE + SLACK + 1 and len(item.head) <= lines.HEAD_BYTES
    good = [item for item in whole if isinstance(item, bytes)]
    again = _read_lines([b"".join(map(lines.encode, good))])
    assert again == [*good, None]


def _read_lines(chunks: list[bytes]) -> list[bytes | TooLong | None]:
    decoder = LineDecoder(MAX_LINE, SLACK)
    found: list[bytes | TooLong | None] = []
    for chunk in chunks:
        found += decoder.feed(chunk)
        assert len(decoder._buffer) <= MAX_LINE + SLACK
    return [*found, decoder.eof()]


def _check_frames(stream: bytes, size: int, rules: HeaderRules) -> None:
    whole = _read_frames([stream], rules)
    assert _read_frames(pieces(stream, size), rules) == whole
    bodies = [item for item in whole if isinstance(item, bytes)]
    faults = [item for item in whole if isinstance(item, FrameFault)]
    assert all(len(body) <= MAX_BODY for body in bodies)
    assert len(faults) <= 1 and (not faults or whole[-1] is faults[0]), "a fault is the last item, and the only one"
    for fault in faults:
        assert fault.code in (Code.MALFORMED_RESPONSE, Code.FRAME_TOO_LARGE)
        assert len(fault.head) <= content_length.HEAD_BYTES
    again = b"".join(content_length.encode(body, MAX_BODY) for body in bodies)
    assert _read_frames([again], rules) == bodies


def _read_frames(chunks: list[bytes], rules: HeaderRules) -> list[bytes | FrameFault]:
    decoder = ContentLengthDecoder(rules)
    found: list[bytes | FrameFault] = []
    for chunk in chunks:
        found += decoder.feed(chunk)
        assert decoder.pending <= rules.max_header + rules.max_body
    end = decoder.eof()
    return found if end is None else [*found, end]
