"""A promise that does not hold: no body has more than 7 bytes. It proves that fuzzing finds what is broken."""

from __future__ import annotations

from plugbay.wire.content_length import STRICT_HEADERS, ContentLengthDecoder

LONGEST = 7
"""The longest body in the corpus of `framing`."""


def check(data: bytes) -> None:
    bodies = [item for item in ContentLengthDecoder(STRICT_HEADERS).feed(data[1:]) if isinstance(item, bytes)]
    assert all(len(body) <= LONGEST for body in bodies)
