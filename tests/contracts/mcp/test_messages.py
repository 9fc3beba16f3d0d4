"""What a server says it is, and what follows from an offer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugbay.contracts.mcp import messages
from plugbay.contracts.mcp.messages import LEVELS, Server
from plugbay.model.operations import WriteLog
from tests.support.requirements import requirement


def test_a_server_announces_what_its_offer_has() -> None:
    assert Server("s", "1").capabilities == {"tools": {"listChanged": True}, "logging": {}}
    offer: dict[str, Any] = {"prompts": [{"name": "p"}], "resource_templates": [{"uriTemplate": "a:{b}"}]}
    assert Server("s", "1", offer=offer).capabilities == {
        "tools": {"listChanged": True},
        "logging": {},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
    }


def test_a_server_announces_exactly_what_it_is_told_to() -> None:
    assert Server("s", "1", capabilities={"tools": {}}).capabilities == {"tools": {}}


def test_an_offer_has_every_list() -> None:
    tool = {"name": "t"}
    assert Server("s", "1", offer={"tools": [tool]}).offer == {**messages.empty_offer(), "tools": [tool]}


def test_a_title_is_said_where_there_is_one() -> None:
    assert Server("s", "1").info() == {"name": "s", "version": "1"}
    assert Server("s", "1", title="S").info() == {"name": "s", "version": "1", "title": "S"}


@requirement("mcp:wire-client-capabilities")
@pytest.mark.parametrize(
    ("offers", "said"),
    [
        (frozenset(), {}),
        (frozenset({"roots"}), {"roots": {"listChanged": True}}),
        (frozenset({"sampling", "elicitation"}), {"sampling": {}, "elicitation": {"form": {}, "url": {}}}),
        (frozenset({"nonsense"}), {}),
    ],
)
def test_a_host_says_that_it_can_be_asked_what_was_granted(offers: frozenset[str], said: dict[str, Any]) -> None:
    assert messages.client_capabilities(offers, modern=False) == said
    modern = {**said, **({"roots": {}} if "roots" in said else {})}
    assert messages.client_capabilities(offers, modern=True) == modern, "2026-07-28 has no such notification"


@requirement("mcp:wire-meta")
def test_what_is_the_protocols_does_not_travel_on() -> None:
    meta = {"progressToken": 1, messages.VERSION: "x", messages.CLIENT: {}, "traceparent": "00", "com.example/a": [1]}
    assert messages.own_meta(meta) == {"traceparent": "00", "com.example/a": [1]}


def encode(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@requirement("mcp:wire-logging")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("more", [{}, {"logger": "db"}])
@pytest.mark.parametrize("data", ["text", {"message": "m", "host": "x"}, {"a": 1}, [1, 2], None, 5])
def test_a_line_that_is_passed_on_is_the_line_that_came(level: str, more: dict[str, str], data: Any) -> None:
    params = {"level": level, "data": data, **more}
    line = messages.read_log(params, encode)
    assert isinstance(line, WriteLog)
    assert line.level == level
    assert messages.write_log(line) == params


@pytest.mark.parametrize(
    ("data", "text"), [("plain", "plain"), ({"message": "m", "x": 1}, "m"), ({"x": 1}, '{"x":1}'), (None, "null")]
)
def test_a_line_has_a_text_whatever_its_data(data: Any, text: str) -> None:
    line = messages.read_log({"level": "info", "data": data}, encode)
    assert isinstance(line, WriteLog) and line.message == text


@pytest.mark.parametrize("level", [None, "loud", 5, []])
def test_a_level_that_is_none_is_info(level: Any) -> None:
    line = messages.read_log({"level": level, "data": "x"}, encode)
    assert line == WriteLog("info", "x")


def test_a_line_without_data_says_nothing() -> None:
    assert messages.read_log({"level": "info"}, encode) == "a log message needs data"


@pytest.mark.parametrize(
    ("level", "said"), [("trace", "debug"), ("debug", "debug"), ("info", "info"), ("warn", "warning"), ("x", "info")]
)
def test_other_contracts_levels_have_a_word(level: str, said: str) -> None:
    assert messages.write_log(WriteLog(level, "m")) == {"level": said, "data": "m"}


def test_fields_of_a_plugin_travel_with_its_message() -> None:
    assert messages.write_log(WriteLog("info", "m", {"a": 1})) == {"level": "info", "data": {"message": "m", "a": 1}}


@requirement("mcp:wire-logging")
def test_a_level_covers_all_above_it() -> None:
    assert [level for level in LEVELS if messages.is_log_wanted(level, "error")] == [
        "error",
        "critical",
        "alert",
        "emergency",
    ]
