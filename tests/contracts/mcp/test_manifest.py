"""`.mcp.json`: several servers, each a plugin; every problem at once, with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugbay.contracts.mcp.manifest import not_ours, parse, parse_servers
from plugbay.contracts.mcp.spec import FILE_NAME
from plugbay.model.errors import Problem
from plugbay.model.spec import PluginSpec
from tests.support.requirements import requirement

ROOT = Path("/project")
ENVIRON = {"HOME": "/home/me", "WORK": "/w"}


def servers(**entries: Any) -> str:
    return json.dumps({"mcpServers": entries}, indent=1)


def one(**entry: Any) -> tuple[PluginSpec | None, list[Problem]]:
    ((_, spec, problems),) = parse_servers(servers(s=entry), ROOT, ENVIRON)
    return spec, problems


def made(**entry: Any) -> PluginSpec:
    spec, problems = one(**entry)
    assert spec is not None, problems
    return spec


def codes(problems: list[Problem]) -> list[tuple[str, str, str]]:
    return [(problem.severity, problem.code, problem.path) for problem in problems]


@requirement("mcp:manifest-servers")
def test_each_server_of_the_file_is_a_plugin() -> None:
    text = servers(
        files={"command": "npx", "args": ["-y", "server", "${HOME}"], "env": {"A": "secret://a/b"}, "type": "stdio"},
        notes={"command": "./notes", "cwd": "sub", "description": "d"},
    )
    (first, files, no), (second, notes, none) = parse_servers(text, ROOT, ENVIRON)
    assert (first, second, no, none) == ("files", "notes", [], [])
    assert files is not None and notes is not None
    assert (files.id, files.contract, files.command) == ("files", "mcp", ("npx", "-y", "server", "/home/me"))
    assert (files.env, files.root, files.cwd) == ((("A", "secret://a/b"),), ROOT, None)
    assert (notes.command, notes.cwd, notes.description) == (("./notes",), ROOT / "sub", "d")


@requirement("mcp:manifest-references")
@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("${WORK}/x", "/w/x"),
        ("${WORK:-/other}", "/w"),
        ("${NONE:-/other}", "/other"),
        ("a${NONE:-}b", "ab"),
        ("$WORK ${1} ${a b}", "$WORK ${1} ${a b}"),
    ],
)
def test_variables_in_a_command_are_filled_in(text: str, filled: str) -> None:
    assert made(command="run", args=[text]).command == ("run", filled)
    assert made(command=text).command == (filled,)


@requirement("mcp:manifest-references")
def test_a_variable_that_nobody_has_set_is_a_problem() -> None:
    spec, problems = one(command="${NO}", args=["${NONE}", "x", "${NONE}"], cwd="${NOWHERE}")
    assert spec is None
    assert codes(problems) == [
        ("error", "unset_variable", "mcpServers.s.command"),
        ("error", "unset_variable", "mcpServers.s.args[0]"),
        ("error", "unset_variable", "mcpServers.s.args[2]"),
        ("error", "unset_variable", "mcpServers.s.cwd"),
    ]


@requirement("mcp:manifest-references")
def test_references_in_variables_are_resolved_when_the_server_is_started_and_not_before() -> None:
    env = {"A": "${NOT_SET}", "B": "secret://vault/b", "C": ""}
    assert made(command="run", env=env).env == tuple(env.items())


@requirement("mcp:manifest-remote")
@pytest.mark.parametrize("kind", [{}, {"type": "http"}, {"type": "streamable-http"}, {"transport": "streamableHttp"}])
def test_a_server_on_the_network_is_a_plugin_with_a_url(kind: dict[str, Any]) -> None:
    spec, problems = one(url="https://example.com/mcp", headers={"Authorization": "Bearer ${TOKEN}"}, **kind)
    assert spec is not None and problems == []
    assert spec.url == "https://example.com/mcp"
    assert ("PLUGBAY_MCP_HEADER_Authorization", "Bearer ${TOKEN}") in spec.env


@requirement("mcp:manifest-remote")
@pytest.mark.parametrize(
    ("entry", "code", "words"),
    [
        ({"type": "sse", "url": "https://example.com/sse"}, "remote_server", "streamable HTTP"),
        ({"transport": "sse"}, "remote_server", "streamable HTTP"),
        ({"type": "ws", "url": "https://example.com/"}, "remote_server", "no transport 'ws'"),
        ({"type": "http", "command": "x"}, "missing_field", "required"),
        ({"url": "http://example.com/mcp"}, "invalid_value", "https://"),
        ({"url": "https://${HOST_THAT_IS_NOT_SET}/mcp"}, "unset_variable", "HOST_THAT_IS_NOT_SET"),
        ({"url": "https://example.com/", "headers": {"Host": "x"}}, "invalid_value", "set by the host"),
        ({"url": "https://example.com/", "headers": {"X": 1}}, "invalid_type", "object of strings"),
    ],
)
def test_a_server_on_the_network_that_cannot_be_used_says_why(entry: dict[str, Any], code: str, words: str) -> None:
    spec, problems = one(**entry)
    assert spec is None
    assert problems[0].code == code
    assert words in problems[0].message


@requirement("mcp:manifest-all-problems")
def test_all_problems_come_at_once_each_with_its_line() -> None:
    text = """{
  "mcpServers": {
    "a": {
      "args": [
        1,
        "ok"
      ],
      "env": {
        "X=Y": "1",
        "N": 5
      },
      "cwd": 7,
      "comand": "x"
    },
    "b": 5,
    "c/d": {"command": " "}
  }
}"""
    (_, a, in_a), (_, b, in_b), (_, c, in_c) = parse_servers(text, ROOT, ENVIRON)
    assert (a, b, c) == (None, None, None)
    assert [(problem.code, problem.path, problem.line) for problem in in_a] == [
        ("missing_field", "mcpServers.a.command", 3),
        ("invalid_type", "mcpServers.a.args[0]", 5),
        ("invalid_value", "mcpServers.a.env.X=Y", 9),
        ("invalid_type", "mcpServers.a.env.N", 10),
        ("invalid_type", "mcpServers.a.cwd", 12),
        ("unknown_key", "mcpServers.a.comand", 13),
    ]
    assert "did you mean 'command'?" in in_a[-1].message
    assert [(problem.code, problem.line) for problem in in_b] == [("invalid_type", 15)]
    assert [(problem.code, problem.line) for problem in in_c] == [("invalid_value", 16), ("invalid_type", 16)]


@pytest.mark.parametrize("entry", [{"args": "x"}, {"env": []}, {"command": 5}, {"cwd": ""}])
def test_a_value_of_the_wrong_kind_is_an_error(entry: dict[str, Any]) -> None:
    spec, (problem,) = one(**{"command": "x", **entry})
    assert (spec, problem.code) == (None, "invalid_type")


@requirement("mcp:manifest-null")
def test_null_is_the_same_as_nothing() -> None:
    spec = made(command="x", args=None, env=None, cwd=None, description=None, url=None)
    assert (spec.command, spec.env, spec.cwd) == (("x",), (), None)


def test_what_clients_add_for_themselves_is_no_mistake() -> None:
    _, problems = one(command="x", autoApprove=["a"], timeout=5, disabled=False)
    assert problems == []


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}])
def test_that_a_server_is_switched_off_elsewhere_is_said(off: dict[str, bool]) -> None:
    spec, (problem,) = one(command="x", **off)
    assert spec is not None
    assert (problem.severity, problem.code) == ("warning", "disabled_elsewhere")


@requirement("mcp:manifest-file")
@pytest.mark.parametrize("text", ["", "{", "[]", "5", "{}", '{"mcpServers": []}', '{"a": 1, "a": 2}'])
def test_a_file_that_is_no_list_of_servers_is_one_problem(text: str) -> None:
    ((name, spec, (problem,)),) = parse_servers(text, ROOT, ENVIRON)
    assert (name, spec, problem.severity) == ("", None, "error")


def test_a_file_without_servers_is_worth_a_warning() -> None:
    ((name, spec, (problem,)),) = parse_servers(servers(), ROOT, ENVIRON)
    assert (name, spec, problem.severity, problem.code) == ("", None, "warning", "no_servers")


@requirement("mcp:manifest-file")
def test_a_folder_with_one_server_is_one_plugin() -> None:
    spec, problems = parse(servers(s={"command": "x"}), ROOT, ENVIRON)
    assert spec is not None and (spec.id, problems) == ("s", [])
    spec, (problem,) = parse(servers(a={"command": "x"}, b={"command": "y"}), ROOT, ENVIRON)
    assert (spec, problem.code) == (None, "several_plugins")
    assert "a, b" in problem.message


@requirement("mcp:manifest-file")
@pytest.mark.parametrize(
    ("text", "ours"),
    [
        (servers(), True),
        ('{"mcpServers": broken', True),
        ('{"manifest_version": "0.2", "server": {}}', True),
        ('{"dxt_version": "0.1", "server": {}}', True),
        ('{"manifest_version": 3, "name": "browser extension"}', False),
        ('{"name": "web app"}', False),
        ("[]", False),
        ("{", False),
    ],
)
def test_other_programs_files_are_left_alone(text: str, ours: bool) -> None:
    assert (not_ours(text) is None) is ours


def test_the_file_has_its_name() -> None:
    assert FILE_NAME == ".mcp.json"
