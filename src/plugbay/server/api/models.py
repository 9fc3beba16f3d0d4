"""Shared parts of requests and answers: strict bodies, ids, names, times, traces, and lists with `limit`, `cursor` and
`next_cursor`.

An answer is made from a record with `model_validate`. Cursors are opaque to clients.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Depends, Header, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from plugbay.server.domain.clock import stamp
from plugbay.server.domain.errors import invalid
from plugbay.server.domain.ids import ID_PATTERN, parse_traceparent
from plugbay.store.metadata import MICROSECONDS
from plugbay.store.pages import Page, Part

T = TypeVar("T")

PLAIN = r"^[^\x00-\x1f\x7f]*$"
"""One line without control characters."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PLAIN)]
"""A display name."""

ChosenId = Annotated[str, StringConstraints(pattern=f"^{ID_PATTERN}$")]
"""An id chosen or named by the caller."""

PathId = Annotated[str, Path(description="An id returned by the API.")]
"""An id in a path; an invalid one is not found."""

IdFilter = Annotated[str | None, Query(max_length=64)]
"""An id that filters a list."""

MAX_KEYS = 64
"""Keys of metadata: labels, not a database."""

Metadata = Annotated[dict[str, Any], Field(max_length=MAX_KEYS)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=300)]


def one_of(*names: str) -> Any:
    """A string field whose values the database constrains; listed in the OpenAPI document."""
    return Field(json_schema_extra={"enum": list(names)})


WorkStatus = Annotated[str, one_of("queued", "running", "succeeded", "failed", "cancelled", "retryable_failure")]


def _format_time(value: float | str) -> str:
    return value if isinstance(value, str) else stamp(value)


Time = Annotated[str, BeforeValidator(_format_time)]
"""A time of a record, in seconds, as RFC 3339."""


def to_seconds(moment: datetime | None) -> float | None:
    """A time of a request as records have it."""
    return None if moment is None else moment.timestamp()


async def _trace_id(
    traceparent: Annotated[str | None, Header(max_length=512, description="W3C trace context.")] = None,
) -> str | None:
    return parse_traceparent(traceparent)


TraceId = Annotated[str | None, Depends(_trace_id)]
"""The trace id in the `traceparent` of a request; None if there is none."""


class Body(BaseModel):
    """A request body; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


def example(**fields: Any) -> ConfigDict:
    """The `model_config` of a body with an example, for OpenAPI and docs/control-plane.md. Tests send it."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Answer(BaseModel):
    """A response body."""

    model_config = ConfigDict(from_attributes=True)


class FailureOut(Answer):
    """A failure of a plugin."""

    code: str
    origin: str
    message: str
    retryable: bool
    retry_after_ms: int | None
    detail: dict[str, Any] = Field(
        description="As in `plugbay call --json`: exit code, cause and last lines of stderr, where there are any."
    )


class Listing(BaseModel, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None = Field(description="`cursor` for the next page; null: the last page.")


class ErrorBody(BaseModel):
    """Why a request failed."""

    type: str
    code: str = Field(description="`family.reason`; the only field that programs should branch on.")
    message: str
    param: str | None
    request_id: str | None
    retryable: bool
    retry_after: float | None = Field(description="Seconds.")
    details: dict[str, Any]


class ErrorEnvelope(BaseModel):
    """Every response that is not a success."""

    error: ErrorBody


LIMIT, MOST = 50, 200
"""Default and maximum records per page."""

LONGEST_CURSOR = 512

A = TypeVar("A")
B = TypeVar("B")


def parse_page(limit: int, cursor: str | None) -> Page:
    """The requested page; raises for an invalid cursor."""
    return Page(limit, None if cursor is None else _decode_cursor(cursor))


async def _page_query(
    limit: Annotated[int, Query(ge=1, le=MOST, description="Maximum number of items.")] = LIMIT,
    cursor: Annotated[
        str | None, Query(max_length=LONGEST_CURSOR, description="The `next_cursor` of the previous page.")
    ] = None,
) -> Page:
    return parse_page(limit, cursor)


Paging = Annotated[Page, Depends(_page_query)]


def listing(part: Part[A], shown: Callable[[A], B]) -> Listing[B]:
    """A page as a response."""
    cursor = None if part.after is None else _encode_cursor(part.after)
    return Listing(items=[shown(item) for item in part.items], next_cursor=cursor)


def _encode_cursor(after: tuple[float, str]) -> str:
    moment, id = after
    return urlsafe_b64encode(msgspec.json.encode([round(moment * MICROSECONDS), id])).decode().rstrip("=")


def _decode_cursor(cursor: str) -> tuple[float, str]:
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        moment, id = msgspec.json.decode(raw, type=tuple[Annotated[int, msgspec.Meta(ge=0, le=2**62)], str])
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise invalid("request.invalid_cursor", "this is not a cursor of this API", "cursor") from None
    if "\0" in id:
        raise invalid("request.invalid_cursor", "this is not a cursor of this API", "cursor")
    return moment / MICROSECONDS, id
