"""Log lines as a response: the last ones, or a stream of those and of all that follow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field

from plugbay.host.admin.logs import MAX_TAIL, LogLine
from plugbay.server.api.models import Answer
from plugbay.server.api.sse import Event, event_stream

Tail = Annotated[int, Query(ge=0, le=MAX_TAIL, description="Number of past lines.")]
Follow = Annotated[bool, Query(description="Stream new lines as events.")]


class LineOut(Answer):
    at: str
    source: str
    level: str
    text: str
    node: str = Field(default="", description="The node that it is from; empty: the machine of the server.")


class Lines(Answer):
    lines: list[LineOut]


def log_response(request: Request, past: Iterable[LogLine], fresh: AsyncGenerator[LogLine, None] | None) -> Any:
    """The past lines; with `fresh`, a stream that goes on with those."""
    lines = [LineOut.model_validate(line) for line in past]
    return Lines(lines=lines) if fresh is None else event_stream(request, _events(lines, fresh))


async def _events(past: list[LineOut], fresh: AsyncGenerator[LogLine, None]) -> AsyncIterator[Event]:
    for line in past:
        yield Event(line.model_dump(), "line")
    async with aclosing(fresh):
        async for each in fresh:
            yield Event(LineOut.model_validate(each).model_dump(), "line")
