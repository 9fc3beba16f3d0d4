"""Lists in parts: `limit` and `cursor` of a request, `next_cursor` of an answer. A cursor is opaque to clients."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from fastapi import Depends, Query

from plugbay.server.api.models import Listing
from plugbay.server.domain.errors import invalid
from plugbay.store.metadata import MICROSECONDS
from plugbay.store.pages import Page, Part

LIMIT, MOST = 50, 200
"""Records of one part: unless told otherwise, and at most."""

LONGEST_CURSOR = 512

A = TypeVar("A")
B = TypeVar("B")


def page_of(limit: int, cursor: str | None) -> Page:
    """Which part is meant; raises for a cursor that was never given out."""
    return Page(limit, None if cursor is None else _opened(cursor))


async def _asked(
    limit: Annotated[int, Query(ge=1, le=MOST, description="How many at most.")] = LIMIT,
    cursor: Annotated[
        str | None, Query(max_length=LONGEST_CURSOR, description="The `next_cursor` of the part before.")
    ] = None,
) -> Page:
    return page_of(limit, cursor)


Paging = Annotated[Page, Depends(_asked)]


def listing(part: Part[A], shown: Callable[[A], B]) -> Listing[B]:
    """A part as it is answered."""
    cursor = None if part.after is None else _closed(part.after)
    return Listing(items=[shown(item) for item in part.items], next_cursor=cursor)


def _closed(after: tuple[float, str]) -> str:
    moment, id = after
    return urlsafe_b64encode(msgspec.json.encode([round(moment * MICROSECONDS), id])).decode().rstrip("=")


def _opened(cursor: str) -> tuple[float, str]:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        moment, id = msgspec.json.decode(raw, type=tuple[Annotated[int, msgspec.Meta(ge=0, le=2**62)], str])
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise invalid("request.invalid_cursor", "this cursor is not one that was given out", "cursor") from None
    if "\0" in id:
        raise invalid("request.invalid_cursor", "this cursor is not one that was given out", "cursor")
    return moment / MICROSECONDS, id
