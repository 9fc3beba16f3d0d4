"""Our own lists in pages, for those that do not fit into one message.

Most clients read only the first page, so a page is as large as a message can comfortably be. A cursor says where the
next one begins and of which offer: one of an older offer is refused, not continued in the middle of another list.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

PAGE_BYTES = 8 << 20
"""Bytes of the entries of a page: half of what a message may have, whatever stands around them."""


def page_of(
    entries: Sequence[Mapping[str, Any]], cursor: Any, generation: int, encode: Callable[[Any], bytes]
) -> tuple[list[Mapping[str, Any]], str | None] | None:
    """The page that `cursor` asks for and the cursor of the next one; None when the cursor is none of ours."""
    start = _start(cursor, generation, len(entries))
    if start is None:
        return None
    shown: list[Mapping[str, Any]] = []
    size = 0
    for entry in entries[start:]:
        size += len(encode(entry))
        if shown and size > PAGE_BYTES:
            return shown, f"{generation}.{start + len(shown)}"
        shown.append(entry)
    return shown, None


def _start(cursor: Any, generation: int, length: int) -> int | None:
    """Where a page begins. Null is no cursor."""
    if cursor is None:
        return 0
    if not isinstance(cursor, str):
        return None
    made, _, position = cursor.partition(".")
    if made != str(generation) or not (position.isascii() and position.isdigit() and len(position) < 10):
        return None
    return int(position) if int(position) <= length else None
