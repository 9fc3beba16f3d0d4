"""Log lines as a response."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from plugbay.host.admin.logs import LogLine
from plugbay.server.api.lines import LineOut, _events
from tests.support.loops import Run

LINE = LogLine("2026-11-15T12:00:00Z", "stderr", "info", "tea")


def test_a_stream_begins_with_the_past_and_goes_on(run: Run) -> None:
    async def fresh() -> AsyncGenerator[LogLine, None]:
        yield LINE

    async def main() -> None:
        past = [LineOut.model_validate(LINE)]
        events = [event async for event in _events(past, fresh())]
        assert [(event.event, event.data["text"]) for event in events] == [("line", "tea")] * 2

    run(main)
