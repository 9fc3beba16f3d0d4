"""Log lines to and from the host's log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.contracts.mcp import logs
from plugbay.contracts.mcp.messages import LEVELS
from plugbay.model.operations import WriteLog
from tests.support.requirements import requirement


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@requirement("mcp:wire-logging")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("more", [{}, {"logger": "db"}])
@pytest.mark.parametrize("data", ["text", {"message": "m", "host": "x"}, {"a": 1}, [1, 2], None, 5])
def test_a_line_that_is_passed_on_is_the_line_that_came(level: str, more: dict[str, str], data: Any) -> None:
    params = {"level": level, "data": data, **more}
    line = logs.heard(params, encode)
    assert isinstance(line, WriteLog)
    assert line.level == level
    assert logs.said(line) == params


@pytest.mark.parametrize(
    ("data", "text"), [("plain", "plain"), ({"message": "m", "x": 1}, "m"), ({"x": 1}, '{"x":1}'), (None, "null")]
)
def test_a_line_has_a_text_whatever_its_data(data: Any, text: str) -> None:
    line = logs.heard({"level": "info", "data": data}, encode)
    assert isinstance(line, WriteLog) and line.message == text


@pytest.mark.parametrize("level", [None, "loud", 5, []])
def test_a_level_that_is_none_is_info(level: Any) -> None:
    line = logs.heard({"level": level, "data": "x"}, encode)
    assert line == WriteLog("info", "x")


def test_a_line_without_data_says_nothing() -> None:
    assert logs.heard({"level": "info"}, encode) == "a log message needs data"


@pytest.mark.parametrize(
    ("level", "said"), [("trace", "debug"), ("debug", "debug"), ("info", "info"), ("warn", "warning"), ("x", "info")]
)
def test_other_contracts_levels_have_a_word(level: str, said: str) -> None:
    assert logs.said(WriteLog(level, "m")) == {"level": said, "data": "m"}


def test_fields_of_a_plugin_travel_with_its_message() -> None:
    assert logs.said(WriteLog("info", "m", {"a": 1})) == {"level": "info", "data": {"message": "m", "a": 1}}


@requirement("mcp:wire-logging")
def test_a_level_covers_all_above_it() -> None:
    assert [level for level in LEVELS if logs.is_wanted(level, "error")] == ["error", "critical", "alert", "emergency"]
