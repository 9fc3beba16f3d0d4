"""The long texts of a hook: a host sends strings and nothing else in their place, and never more than fits one line.

Owns which parameters are texts and how they are cut. A plugin reads any other value there as empty, without a word, so
a list of messages goes as the JSON text of it. What is cut is the beginning: the newest words are the ones a hook is
about. Refuses to know calls and frames.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TEXTS = ("transcript", "messages_being_compacted", "messages_remaining", "strategy", "trigger")
"""The parameters that a plugin reads as strings."""

MARKER_ROOM = 64
"""Bytes kept for the words that say how much was cut."""

LONGEST_PIECE = 1 << 16
"""Characters measured at once; a text is walked from its end in such pieces, then in ever smaller ones."""


def as_texts(event: dict[str, Any], encode: Callable[[Any], bytes]) -> dict[str, Any]:
    """The event with a string for every text; null says nothing and is left out."""
    said = {key: value for key, value in event.items() if value is not None or key not in TEXTS}
    return {key: _text(value, encode) if key in TEXTS else value for key, value in said.items()}


def _text(value: Any, encode: Callable[[Any], bytes]) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def fitted(params: dict[str, Any], room: int, encode: Callable[[Any], bytes]) -> dict[str, Any]:
    """The parameters with their texts cut so that they encode to at most `room` bytes, if texts can make them fit.

    Every text may have an equal part of the room; what a short one leaves goes to the longer ones.
    """
    sizes = {key: _size(params[key], encode) for key in TEXTS if key in params}
    left = room - len(encode({**params, **dict.fromkeys(sizes, "")}))
    cut = dict(params)
    for position, key in enumerate(sorted(sizes, key=lambda key: sizes[key])):
        share = max(left, 0) // (len(sizes) - position)
        if sizes[key] > share:
            cut[key] = _ending(params[key], share - MARKER_ROOM, encode)
        left -= min(sizes[key], share)
    return cut


def _ending(text: str, room: int, encode: Callable[[Any], bytes]) -> str:
    """The end of `text` that encodes to at most `room` bytes, after a word about the rest."""
    begin, step = len(text), LONGEST_PIECE
    while begin and step:
        piece = text[max(begin - step, 0) : begin]
        size = _size(piece, encode)
        if size <= room:
            begin -= len(piece)
            room -= size
        else:
            step //= 2
    return f"[{begin:,} characters cut] {text[begin:]}"


def _size(text: str, encode: Callable[[Any], bytes]) -> int:
    """Bytes of a text inside its quotes; they add up, since every character is escaped for itself."""
    return len(encode(text)) - 2
