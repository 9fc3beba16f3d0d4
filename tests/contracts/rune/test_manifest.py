"""`rterm-plugin.json`: every field, default and rule, all problems at once with their lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.rune.manifest import parse
from plugbay.contracts.rune.spec import TIMEOUTS
from plugbay.model.spec import Lifetime

ROOT = Path("/plugins/p")


def whole(**changes: Any) -> dict[str, Any]:
    base = {
        "plugin_id": "example.p",
        "plugin_version": "1.2.3",
        "protocol_version": "rterm.plugin.v1",
        "process": {"command": "./run", "args": ["-v"], "env": ["A=1", "B=x=y"]},
        "tools": [{"name": "t"}],
    }
    return {key: value for key, value in (base | changes).items() if value is not ...}


def codes(**changes: Any) -> list[tuple[str, str, str]]:
    spec, problems = parse(json.dumps(whole(**changes)), ROOT)
    errors = [problem for problem in problems if problem.severity == "error"]
    assert (spec is None) == bool(errors)
    return [(problem.severity, problem.code, problem.path) for problem in problems]


def test_a_comment_is_for_people_and_no_unknown_key() -> None:
    assert codes(**{"$comment": "Written from plugin.py."}) == []
    assert codes(**{"comment": "Written from plugin.py."}) == [("warning", "unknown_key", "comment")]


def test_a_manifest_becomes_a_spec_with_the_contracts_facts() -> None:
    spec, problems = parse(json.dumps(whole(display_name="P", description="does p", capabilities=["a"])), ROOT)
    assert problems == []
    assert spec is not None
    assert (spec.id, spec.version, spec.contract, spec.name, spec.description) == (
        "example.p",
        "1.2.3",
        "rune",
        "P",
        "does p",
    )
    assert spec.command == ("./run", "-v")
    assert spec.env == (("A", "1"), ("B", "x=y"))
    assert spec.env_inherit == ()
    assert spec.lifetime is Lifetime.PER_CALL
    assert spec.clean_exit_required
    assert spec.cancelled_is_timeout
    assert spec.capabilities == ("a",)
    assert spec.timeouts == TIMEOUTS
    assert (TIMEOUTS.launch, TIMEOUTS.handshake, TIMEOUTS.call, TIMEOUTS.teardown) == (2.0, 2.0, 5.0, 0.5)


def test_what_a_tool_leaves_out_has_the_contracts_defaults_and_no_schema_accepts_anything() -> None:
    spec, _ = parse(json.dumps(whole()), ROOT)
    assert spec is not None
    (tool,) = spec.exports
    assert (tool.kind, tool.name, tool.input_schema) == ("tool", "t", None)
    assert tool.facts == {"approval_tier": "safe", "mutating": False, "target_kind": "workspace"}


def test_capability_lists_are_trimmed_and_lose_their_repeats() -> None:
    spec, problems = parse(json.dumps(whole(capabilities=[" a ", "a", "", "b"])), ROOT)
    assert problems == []
    assert spec is not None
    assert spec.capabilities == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"plugin_id": ...}, ("error", "missing_field", "plugin_id")),
        ({"plugin_id": "a/b"}, ("error", "invalid_value", "plugin_id")),
        ({"plugin_id": ".."}, ("error", "invalid_value", "plugin_id")),
        ({"plugin_id": " "}, ("error", "invalid_value", "plugin_id")),
        ({"plugin_id": 5}, ("error", "invalid_type", "plugin_id")),
        ({"plugin_version": ""}, ("error", "invalid_value", "plugin_version")),
        ({"protocol_version": "rterm.plugin.v2"}, ("error", "invalid_value", "protocol_version")),
        ({"process": ...}, ("error", "missing_field", "process")),
        ({"process": {}}, ("error", "missing_field", "process.command")),
        ({"process": {"command": " "}}, ("error", "invalid_value", "process.command")),
        ({"process": {"command": "x", "args": "y"}}, ("error", "invalid_type", "process.args")),
        ({"process": {"command": "x", "env": ["NOPE"]}}, ("error", "invalid_value", "process.env")),
        ({"process": {"command": "x", "env": ["=1"]}}, ("error", "invalid_value", "process.env")),
        ({"tools": []}, ("error", "invalid_value", "tools")),
        ({"tools": [{"name": ""}]}, ("error", "invalid_value", "tools[0].name")),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, ("error", "duplicate_tool", "tools[1].name")),
        (
            {"tools": [{"name": "a", "approval_tier": "yolo"}]},
            ("error", "invalid_value", "tools[0].approval_tier"),
        ),
        (
            {"tools": [{"name": "a", "target_kind": "moon"}]},
            ("error", "invalid_value", "tools[0].target_kind"),
        ),
        ({"tools": [{"name": "a", "mutating": "yes"}]}, ("error", "invalid_type", "tools[0].mutating")),
        (
            {"capabilities": ["x"], "tools": [{"name": "a", "capabilities": ["y"]}]},
            ("error", "undeclared_capability", "tools[0].capabilities"),
        ),
        ({"plugin_idd": "x"}, ("warning", "unknown_key", "plugin_idd")),
        ({"tools": [{"name": "a", "descripton": "x"}]}, ("warning", "unknown_key", "tools[0].descripton")),
        (
            {"tools": [{"name": "a", "input_schema": {"type": 5}}]},
            ("warning", "invalid_schema", "tools[0].input_schema"),
        ),
    ],
    ids=str,
)
def test_each_rule_has_its_own_problem(changes: dict[str, Any], expected: tuple[str, str, str]) -> None:
    assert codes(**changes) == [expected]


def test_a_tool_may_name_any_capability_when_the_plugin_names_none() -> None:
    assert codes(tools=[{"name": "a", "capabilities": ["y"]}]) == []


def test_every_field_wrong_at_once_is_reported_at_once_with_its_line() -> None:
    text = """{
  "plugin_id": "a/b",
  "plugin_version": 7,
  "protocol_version": "rterm.plugin.v9",
  "display_name": [],
  "description": null,
  "capabilities": "all",
  "process": {
    "command": "",
    "args": {},
    "dir": 1,
    "env": ["A"]
  },
  "tools": [
    {"name": 1, "description": 2, "capabilities": 3, "approval_tier": 4, "mutating": 5, "target_kind": 6},
    "not a tool"
  ]
}"""
    spec, problems = parse(text, ROOT)
    assert spec is None
    lines = [(problem.path, problem.line) for problem in problems]
    assert lines == [
        ("plugin_id", 2),
        ("plugin_version", 3),
        ("protocol_version", 4),
        ("display_name", 5),
        ("description", 6),
        ("capabilities", 7),
        ("process.command", 9),
        ("process.args", 10),
        ("process.dir", 11),
        ("process.env", 12),
        *[
            (f"tools[0].{key}", 15)
            for key in "name description capabilities approval_tier mutating target_kind".split()
        ],
        ("tools[1]", 16),
    ]


@pytest.mark.parametrize("text", ["", "[]", "null", '"x"', "{", '{"a": NaN}'])
def test_text_that_is_no_manifest_at_all_is_one_problem(text: str) -> None:
    spec, problems = parse(text, ROOT)
    assert spec is None
    assert len(problems) == 1
