"""Lines of a plugin: which are kept, what they look like, and how many."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugbay.host.inbound.log_lines import LINE_BURST, LogDesk
from plugbay.host.journal import LEVELS
from plugbay.model.operations import WriteLog
from tests.support.requirements import requirement

Lines = list[tuple[str, str, str]]


def desk(level: str) -> tuple[LogDesk, Lines]:
    lines: Lines = []
    return LogDesk(level, lambda kind, text, *, level: lines.append((kind, text, level)), lambda: 0.0), lines


@requirement("ainb:host-log-levels")
@pytest.mark.parametrize("lowest", LEVELS)
def test_what_is_below_the_level_is_dropped(lowest: str) -> None:
    log, lines = desk(lowest)
    for level in LEVELS:
        log.write(WriteLog(level, level))
    assert [text for _, text, _ in lines] == list(LEVELS[LEVELS.index(lowest) :])
    assert all((kind, level) == (f"log.{text}", text) for kind, text, level in lines)


def test_a_level_nobody_knows_is_information() -> None:
    log, lines = desk("info")
    log.write(WriteLog("notice", "x"))
    assert lines == [("log.info", "x", "info")]


@requirement("ainb:host-log-fields")
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (None, "said"),
        ({}, "said"),
        ([], "said"),
        ({"n": 1, "who": "me"}, 'said {"n":1,"who":"me"}'),
        (msgspec.Raw(b'{"n": 1}'), 'said {"n": 1}'),
        ("more", 'said "more"'),
        (0, "said 0"),
        ({"bad": float("nan")}, "said"),
    ],
)
def test_fields_stand_behind_the_text(fields: Any, text: str) -> None:
    log, lines = desk("info")
    log.write(WriteLog("info", "said", fields))
    assert [line for _, line, _ in lines] == [text]


def test_a_flood_is_cut_off_and_counted_and_what_is_too_low_costs_nothing() -> None:
    log, lines = desk("info")
    for number in range(int(LINE_BURST) + 5):
        log.write(WriteLog("debug", "nothing"))
        log.write(WriteLog("info", str(number)))
    kinds = [kind for kind, _, _ in lines]
    assert kinds.count("log.info") == LINE_BURST
    assert kinds[-5:] == ["log_dropped"] * 5
