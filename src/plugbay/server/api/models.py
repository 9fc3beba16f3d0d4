"""What all requests and answers have in common: bodies without unknown fields, lists in parts, ids and names.

class OrgIn(Body): ...
Listing[OrgOut]
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from plugbay.server.domain.errors import invalid
from plugbay.server.domain.ids import LONGEST
from plugbay.store.metadata import MICROSECONDS
from plugbay.store.pages import Page, Part

T = TypeVar("T")

PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""A line that is shown as it is: no control characters."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PLAIN)]
"""What a person calls something."""

ChosenId = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}$")]
"""An id that the caller may choose, or names."""

PathId = Annotated[str, Path(description="An id, as the API gave it.")]
"""An id in a path: what cannot be one is simply not found."""


class Body(BaseModel):
    """What a request says; a field that nobody knows is an error, for it would do nothing."""

    model_config = ConfigDict(extra="forbid")


class Answer(BaseModel):
    """What is answered."""

    model_config = ConfigDict(from_attributes=True)


class Listing(BaseModel, Generic[T]):
    """One part of a list."""

    items: list[T]
    next_cursor: str | None = Field(description="What `cursor` must be for the next part; null: this is the end.")


class ErrorBody(BaseModel):
    """Why a request was not granted."""

    type: str
    code: str = Field(description="`family.reason`; the only field that programs should branch on.")
    message: str
    param: str | None
    request_id: str | None
    retryable: bool
    retry_after: float | None = Field(description="Seconds.")
    details: dict[str, Any]


class ErrorEnvelope(BaseModel):
    """Every answer that is not a success."""

    error: ErrorBody


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
