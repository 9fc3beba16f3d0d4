"""Who a child may say it is, and what it may offer."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.nexo import greeting
from plugbay.model.errors import Code, Failure
from tests.contracts.nexo.talk import MANIFEST, TOOL, hello
from tests.support.requirements import requirement


def judge(result: Any, expected: str = "p", declared: tuple[str, ...] = ("p_t",)) -> Any:
    return greeting.judge(result, expected, declared)


def test_a_good_child_is_described() -> None:
    result = hello(tools=[{**TOOL, "extra": 1}], new_key=1)
    assert judge(result) == {"plugin_id": "p", "server_version": "p-0.2.0", "tools": [TOOL], "warnings": []}


BAD: list[tuple[str, Any, str]] = [
    ("no object", [], "not an object"),
    ("null", None, "not an object"),
    ("no manifest", hello(manifest=...), "no manifest"),
    ("manifest null", hello(manifest=None), "no manifest"),
    ("manifest without plugin", hello(manifest={}), "no manifest"),
    ("plugin of the wrong type", hello(manifest={"plugin": "p"}), "no manifest"),
    ("id of the wrong type", hello(manifest={"plugin": {"id": 1}}), "no manifest"),
    ("another id", hello(manifest={"plugin": {"id": "q"}}), "'q', not 'p'"),
    ("an id in another case", hello(manifest={"plugin": {"id": "P"}}), "'P', not 'p'"),
    ("tools null", hello(tools=None), "not an array"),
    ("tools an object", hello(tools={}), "not an array"),
    ("a tool that is none", hello(tools=["p_t"]), "tools[0]"),
    ("a tool without name", hello(tools=[TOOL, {**TOOL, "name": ""}]), "tools[1]"),
    ("a tool without description", hello(tools=[{"name": "p_t", "input_schema": {}}]), "tools[0]"),
    ("a tool without schema", hello(tools=[{"name": "p_t", "description": ""}]), "tools[0]"),
    ("a schema that is none", hello(tools=[{**TOOL, "input_schema": None}]), "tools[0]"),
    ("a tool twice", hello(tools=[TOOL, TOOL]), "'p_t' twice"),
    ("a tool nobody declared", hello(tools=[TOOL, {**TOOL, "name": "p_u"}]), "p_u"),
]


@requirement("nexo:wire-identity", "nexo:wire-catalogue")
@pytest.mark.parametrize(("result", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_child_that_is_not_what_it_should_be_must_go(result: Any, words: str) -> None:
    failure = judge(result)
    assert isinstance(failure, Failure)
    assert failure.code == Code.HANDSHAKE_FAILED
    assert words in failure.message


def test_both_ids_and_the_drift_are_in_the_detail() -> None:
    assert judge(hello(), "q").detail == {"expected_id": "q", "plugin_id": "p"}
    assert judge(hello(), declared=()).detail == {"undeclared": ["p_t"]}


@pytest.mark.parametrize(("expected", "good"), [("p.eu", True), ("p.eu.2", True), ("q.p", False), ("pp", False)])
def test_an_instance_answers_with_the_id_it_is_an_instance_of(expected: str, good: bool) -> None:
    assert isinstance(judge(hello(), expected), dict) is good


@requirement("nexo:wire-catalogue-missing")
@pytest.mark.parametrize("tools", [..., []])
def test_a_tool_that_was_declared_and_not_offered_is_a_warning(tools: Any) -> None:
    said = judge(hello(tools=tools))
    assert said["tools"] == []
    assert ["'p_t'" in warning for warning in said["warnings"]] == [True]


@pytest.mark.parametrize("version", [..., None, 1, {}])
def test_a_child_without_a_server_version_is_warned_about(version: Any) -> None:
    said = judge({"manifest": MANIFEST, **hello(server_version=version)})
    assert said["server_version"] == ""
    assert said["warnings"] == ["does not say its server_version"]
