"""The names and limits of kaged, and what a plugin says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.kaged.messages import (
    MAX_READ,
    MAX_SENT,
    Identity,
    Promise,
    build_greeting,
    build_greeting_result,
    check_greeting,
    read_greeting,
    topic,
    wire_name,
)
from plugbay.model.errors import Code, Failure
from tests.contracts.kaged.talk import hello
from tests.support.requirements import requirement


@requirement("kaged:wire-initialize-reply")
def test_a_plugin_names_its_tools_among_its_methods_each_once() -> None:
    identity = Identity(
        "p",
        "0.2.0",
        methods=("p.report.daily", "p.t"),
        tools=("t", "u"),
        notifications=("n",),
        capabilities_used=("c",),
    )
    assert build_greeting_result(identity) == {
        "name": "p",
        "version": "0.2.0",
        "api_version": 1,
        "methods": ["p.report.daily", "p.t", "p.u"],
        "notifications": ["n"],
        "capabilities_used": ["c"],
    }


@requirement("kaged:wire-tool-prefix")
def test_a_tool_carries_the_name_of_its_plugin_and_a_notification_becomes_a_topic() -> None:
    assert wire_name("memory-markdown", "retain") == "memory-markdown.retain"
    assert topic("memory-markdown", "stored") == "plugin.memory-markdown.stored"


@requirement("kaged:wire-limit")
def test_what_we_send_fits_both_readings_of_four_megabytes_and_what_we_read_is_the_larger() -> None:
    assert MAX_SENT == 4 * 10**6
    assert MAX_READ == 4 * 2**20


PROMISE = Promise("p", "0.2.0", 1, ("p.report.daily",), ("t",), ("ticked",), ("kaged:storage:read", "net:[]"))


@requirement("kaged:wire-initialize")
def test_a_host_says_exactly_what_the_contract_lists_and_settings_only_when_it_has_some() -> None:
    plain = build_greeting(PROMISE, False, ("proj_test",), "0.1.0", None, None)
    assert plain == {
        "daemon_version": "0.1.0",
        "api_version": 1,
        "plugin_name": "p",
        "storage_available": False,
        "projects": ["proj_test"],
    }
    assert build_greeting(PROMISE, True, (), "0.1.0", {}, {"token": "s"}) == {
        **plain,
        "storage_available": True,
        "projects": [],
        "config": {},
        "system_config": {"token": "s"},
    }


@requirement("kaged:wire-hello")
@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "not an object"),
        ([], "not an object"),
        (hello(name=...), "name (a string)"),
        (hello(name=5), "name (a string)"),
        (hello(name="q"), "calls itself 'q', not 'p'"),
        (hello(api_version=...), "api_version (a number)"),
        (hello(api_version="1"), "api_version (a number)"),
        (hello(api_version=True), "api_version (a number)"),
        (hello(api_version=1.0), "api_version (a number)"),
        (hello(version=...), "version (a string)"),
        (hello(version=2), "version (a string)"),
        (hello(methods=...), "methods (an array of strings)"),
        (hello(methods={}), "methods (an array of strings)"),
        (hello(methods=[1]), "methods (an array of strings)"),
        (hello(notifications=None), "notifications (an array of strings)"),
        (hello(capabilities_used="net:[]"), "capabilities_used (an array of strings)"),
        (hello(methods=["p.t", "p.other", "q.t"]), "does not declare: p.other, q.t"),
        (hello(methods=["t"]), "does not declare: t"),
    ],
    ids=str,
)
def test_an_answer_that_breaks_the_promise_is_a_failed_handshake(result: Any, words: str) -> None:
    failure = check_greeting(result, PROMISE)
    assert isinstance(failure, Failure)
    assert failure.code == Code.HANDSHAKE_FAILED
    assert words in failure.message


@requirement("kaged:wire-api-version")
@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_of_the_api_is_refused_as_such(version: int) -> None:
    failure = check_greeting(hello(api_version=version), PROMISE)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.detail) == (Code.PROTOCOL_VERSION_MISMATCH, {"expected": 1, "got": version})


@requirement("kaged:wire-capabilities-used")
@pytest.mark.parametrize(
    ("used", "extra"),
    [
        ([], None),
        (["net:[]"], None),
        (["net:[]", "kaged:storage:read"], None),
        (["kaged:storage:write", "net:[]", "net:*", "net:*"], ["kaged:storage:write", "net:*"]),
    ],
)
def test_each_capability_used_beyond_the_declared_ones_is_named(used: list[str], extra: list[str] | None) -> None:
    verdict = check_greeting(hello(capabilities_used=used), PROMISE)
    if extra is None:
        assert isinstance(verdict, dict)
        return
    assert isinstance(verdict, Failure)
    assert (verdict.code, verdict.detail) == (Code.CAPABILITY_NOT_DECLARED, {"undeclared": extra})
    assert all(capability in verdict.message for capability in extra)


@requirement("kaged:wire-hello")
def test_a_plugin_that_keeps_its_promise_is_accepted_without_a_warning() -> None:
    said = {"plugin_id": "p", "server_version": "0.2.0", "exposed_tools": ["t"], "warnings": []}
    assert check_greeting(hello(), PROMISE) == said
    assert check_greeting(hello(more=1), PROMISE) == said


@requirement("kaged:wire-hello-warnings")
@pytest.mark.parametrize(
    ("changes", "tools", "words"),
    [
        ({"version": "0.1.0"}, ["t"], ["version 0.1.0; its manifest says 0.2.0"]),
        ({"methods": ["p.t"]}, ["t"], ["'p.report.daily'"]),
        ({"methods": []}, [], ["'p.report.daily'", "'p.t'"]),
        ({"notifications": ["ticked", "rang", "rang"]}, ["t"], ["'rang'"]),
        ({"notifications": []}, ["t"], []),
    ],
    ids=str,
)
def test_what_is_only_odd_is_a_warning(changes: Any, tools: list[str], words: list[str]) -> None:
    verdict = check_greeting(hello(**changes), PROMISE)
    assert isinstance(verdict, dict)
    assert verdict["exposed_tools"] == tools
    assert len(verdict["warnings"]) == len(words)
    assert all(word in text for word, text in zip(words, verdict["warnings"], strict=True))


def test_a_promise_without_a_version_is_compared_with_nothing() -> None:
    verdict = check_greeting(hello(version="9"), Promise("p", "", 1, ("p.report.daily",), ("t",), ("ticked",), ()))
    assert isinstance(verdict, dict)
    assert verdict["warnings"] == []


NOTHING: dict[str, Any] = {
    "daemon_version": "",
    "api_version": 0,
    "plugin_name": "",
    "storage_available": False,
    "projects": [],
    "config": {},
    "system_config": {},
}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (None, {}),
        ([1], {}),
        ({"storage_available": 1, "projects": "x", "config": [], "api_version": True, "daemon_version": 1}, {}),
        ({"projects": ["a", 1, "b"]}, {"projects": ["a", "b"]}),
        ({"config": {"a": 1}, "system_config": {"s": 2}}, {"config": {"a": 1}, "system_config": {"s": 2}}),
        (
            {"daemon_version": "9", "api_version": 1, "plugin_name": "p", "storage_available": True, "more": 1},
            {"daemon_version": "9", "api_version": 1, "plugin_name": "p", "storage_available": True},
        ),
    ],
    ids=str,
)
def test_a_plugin_forgives_whatever_a_host_says_of_itself(params: Any, said: dict[str, Any]) -> None:
    assert read_greeting(params) == {**NOTHING, **said}
