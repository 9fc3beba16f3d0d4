"""What all requests and answers have in common: bodies without unknown fields, lists in parts, ids and names.

class OrgIn(Body): ...
Listing[OrgOut]
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from plugbay.server.domain.ids import LONGEST

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
