"""Lines of logs on pages, and filters of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from plugbay.host.admin.logs import LogLine
from plugbay.server.dashboard.text import moment, time_of_day
from plugbay.server.dashboard.views.tones import BAD, CALM, WARN
from plugbay.store.calls import StoredCall

LEVELS = {"error": BAD, "warn": WARN}


AROUND = 2.0
"""Seconds after a call in which log lines still count as its own: pipes are read with delay."""


LINES_OF_A_CALL = 100


class LogRow(msgspec.Struct, frozen=True):
    """A log line of a plugin, or a note of the host about it."""

    at: str
    time: str
    source: str
    tone: str
    text: str
    node: str = ""
    """The node that it is from; empty: the machine of the server."""


def log_row(line: LogLine) -> LogRow:
    return LogRow(line.at, time_of_day(line.at), line.source, LEVELS.get(line.level, CALM), line.text, line.node)


class LogFilter(msgspec.Struct, frozen=True):
    """The log lines that are shown."""

    words: str = ""
    """Words that are all in the line; the case does not matter."""
    source: str = ""

    def accepts(self, line: LogLine) -> bool:
        text = line.text.lower()
        return self.source in ("", line.source) and all(word in text for word in self.words.lower().split())


def lines_of_call(lines: Iterable[LogLine], call: StoredCall) -> list[LogRow]:
    """Log lines of a plugin during a call and shortly after. Some timestamps have seconds only."""
    begin, end = math.floor(call.started_at), call.started_at + call.duration_ms / 1000 + AROUND
    within = [line for line in lines if begin <= (moment(line.at) or 0.0) <= end]
    return [log_row(line) for line in within[-LINES_OF_A_CALL:]]
