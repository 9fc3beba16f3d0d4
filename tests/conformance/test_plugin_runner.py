"""Good plugins pass every axis, and for every axis there is a plugin that fails it, in words that help."""

from __future__ import annotations

import asyncio
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.plugin_runner import AxisResult, Status, run_conformance, tools_to_call
from plugbay.conformance.scenario import load_all
from plugbay.model.errors import PlugbayError
from tests.conformance.plugins import MANIFEST, PYTHON, SDK, SHELL, SOURCE, mutated, plugin_spec

EVERY_AXIS = [scenario.id for scenario in load_all("rune")]
SDK_PROCESS = {**MANIFEST["process"], "args": ["plugin.py"], "env": [f"PYTHONPATH={SOURCE}"]}
SHELL_PROCESS = {"command": "/bin/sh", "args": ["plugin.sh"]}

GOOD: dict[str, dict[str, Any]] = {
    "sdk": {"source": SDK, "process": SDK_PROCESS},
    "sh": {"source": SHELL, "file": "plugin.sh", "process": SHELL_PROCESS},
    "python": {"source": PYTHON},
}


@pytest.mark.parametrize("language", sorted(GOOD))
def test_a_good_plugin_passes_every_axis(language: str, tmp_path: Path) -> None:
    told: list[AxisResult] = []
    report = run_conformance(plugin_spec(tmp_path, **GOOD[language]), told.append)
    assert [(axis.id, axis.detail) for axis in report.axes] == [(axis_id, "") for axis_id in EVERY_AXIS]
    assert report.passed == len(EVERY_AXIS)
    assert tuple(told) == report.axes


BAD_FIRST_WORDS: dict[str, tuple[str, str, str]] = {
    "wrong_version": (
        '"rterm.plugin.v1"',
        '"rterm.plugin.v2"',
        'expected "rterm.plugin.v1", got "rterm.plugin.v2"',
    ),
    "other_id": (
        '"plugin_id": "example.good"',
        '"plugin_id": "example.evil"',
        "$.manifest.plugin_id: expected",
    ),
    "no_tools": ('["example.echo", "example.size"]', "[]", "expected an array that is not empty, got []"),
    "banner": ("hello = line()", 'print("welcome")\nhello = line()', "not one JSON object on one line"),
    "blank_line": ("hello = line()", "print()\nhello = line()", "a blank line"),
    "array": ('say({"type": "handshake", "manifest": HELLO})', "say([HELLO])", "JSON, but not an object"),
    "exits_at_once": ("hello = line()", "sys.exit(3)", "its output ended (exit code 3)"),
    "slow": ("hello = line()", "hello = line()\ntime.sleep(30)", "nothing came within 2 s"),
    "traceback": ("hello = line()", 'raise RuntimeError("no luck")', "stderr: RuntimeError: no luck"),
}


@pytest.mark.parametrize("name", sorted(BAD_FIRST_WORDS))
def test_a_plugin_no_host_would_talk_to_fails_the_handshake_and_nothing_else_is_tried(
    name: str, tmp_path: Path
) -> None:
    old, new, words = BAD_FIRST_WORDS[name]
    spec = plugin_spec(tmp_path, mutated(old, new))
    report = run_conformance(spec, only=["rune.handshake.answers", "rune.leave.after_ok", "rune.input.crlf"])
    failed = report.axis("rune.handshake.answers")
    assert failed.status is Status.FAILED
    assert words in failed.detail
    assert "rule: one handshake line within 2 s" in failed.detail
    for other in ("rune.leave.after_ok", "rune.input.crlf"):
        assert report.axis(other).detail == "not tried, because rune.handshake.answers did not pass"


MUTATIONS: dict[str, tuple[str, str, str]] = {
    "rune.handshake.answers": ('"plugin_version": "1.0.0"', '"plugin_version": " "', "not blank"),
    "rune.handshake.capabilities": (
        '["tool.execute"]',
        '["tool.execute", "net"]',
        "$.manifest.capabilities[1]",
    ),
    "rune.handshake.declares_capabilities": ('["tool.execute"]', "[]", "not empty"),
    "rune.handshake.exposes_tools": (', "example.size"]', "]", 'expected "example.size" among its items'),
    "rune.handshake.matches_manifest": ('"plugin_version": "1.0.0"', '"plugin_version": "2.0.0"', '"1.0.0"'),
    "rune.handshake.once": (
        "asked = line()",
        'say({"type": "log"})\nasked = line()',
        "although nothing was asked",
    ),
    "rune.handshake.extra_fields": (
        "json.loads(hello)",
        "(lambda type, protocol_version: 1)(**json.loads(hello))",
        "exit code 1",
    ),
    "rune.handshake.any_spelling": (
        "greeting = json.loads(hello)",
        """assert hello.startswith(b'{"type"')""",
        "AssertionError",
    ),
    "rune.request.answers": (
        '"request_id": request["request_id"]',
        '"request_id": "plugin_req_0"',
        "$.request_id",
    ),
    "rune.request.every_tool": ("len(given)}", "1 // len(given)}", "case: tool example.size"),
    "rune.response.ok": ('"output": {"text"', '"error": {}, "output": {"text"', "expected"),
    "rune.response.once": ("sys.stdin.buffer.read()", 'sys.stdin.buffer.read()\nprint("bye")', "line: bye"),
    "rune.response.only_protocol": (
        "sys.stdin.buffer.read()",
        'print("done")\nsys.stdin.buffer.read()',
        "line: done",
    ),
    "rune.response.within_limit": ('given["text"][:1000]', 'given["text"]', "more than 1,048,576 bytes"),
    "rune.request.unknown_tool": (
        '    return {"status": "error", "error": {"code": "not_found", "message": "there is no such tool"}}',
        "    raise KeyError(tool)",
        "stderr: KeyError",
    ),
    "rune.request.wrong_input": ("not isinstance(given, dict)", "given is None", "case: with"),
    "rune.request.extra_fields": (
        "request = json.loads(asked)",
        "request = json.loads(asked)\nassert len(request) == 5",
        "AssertionError",
    ),
    "rune.request.context": (
        "result = run",
        'assert "role_id" not in request["context"]\nresult = run',
        'role_id": "developer',
    ),
    "rune.input.crlf": (
        "request = json.loads(asked)",
        'assert asked.endswith(b"}\\n")\nrequest = json.loads(asked)',
        "AssertionError",
    ),
    "rune.input.byte_by_byte": (
        "return sys.stdin.buffer.readline()",
        "return os.read(0, 65536)",
        "its output ended",
    ),
    "rune.input.over_64_kib": ("asked = line()", "asked = os.read(0, 65536)", "its output ended"),
    "rune.input.over_1_mib": (
        "asked = line()",
        "asked = sys.stdin.buffer.readline(1 << 20)",
        "its output ended",
    ),
    "rune.input.unicode_raw": ("json.loads(asked)", 'json.loads(asked.decode("latin-1"))', "unchanged"),
    "rune.input.unicode_escaped": (
        "json.loads(asked)",
        'json.loads(asked.replace(b"\\\\u", b"u"))',
        "unchanged",
    ),
    "rune.input.unicode_html_escaped": (
        "json.loads(asked)",
        'json.loads(asked.replace(b"\\\\u003c", b"("))',
        "unchanged",
    ),
    "rune.leave.after_ok": (
        "sys.stdin.buffer.read()",
        "sys.stdin.buffer.read()\nsys.exit(4)",
        "exit code 4, not with exit code 0",
    ),
    "rune.leave.not_early": ("sys.stdin.buffer.read()", "", "it left by itself (exit code 0)"),
    "rune.leave.before_handshake": (
        "if not hello:\n    sys.exit(0)",
        "if not hello:\n    time.sleep(60)",
        "still running 2 s later",
    ),
    "rune.leave.before_request": (
        "if not asked:\n    sys.exit(0)",
        "if not asked:\n    time.sleep(60)",
        "still running 2 s later",
    ),
    "rune.leave.no_orphans": (
        "sys.stdin.buffer.read()",
        'sys.stdin.buffer.read()\nos.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", "600"])',
        "it left, but not what it started",
    ),
    "rune.environment.only_the_manifest": (
        "result = run",
        'os.environ["PATH"]\nresult = run',
        "stderr: KeyError: 'PATH'",
    ),
}


@pytest.mark.parametrize("axis_id", EVERY_AXIS)
def test_each_axis_catches_a_plugin_that_breaks_its_rule(axis_id: str, tmp_path: Path) -> None:
    old, new, words = MUTATIONS[axis_id]
    axis = run_conformance(plugin_spec(tmp_path, mutated(old, new)), only=[axis_id]).axis(axis_id)
    clause = next(scenario.clause for scenario in load_all("rune") if scenario.id == axis_id)
    assert axis.status is Status.FAILED, axis.detail
    assert words in axis.detail
    assert f"rule: {clause}" in axis.detail


BREAKS_ONLY = {
    "dies_in_the_call": (
        "result = run",
        "sys.exit(1)\nresult = run",
        {"rune.request.answers", "rune.request.unknown_tool"},
    ),
    "lingers_after_eof": (
        "sys.stdin.buffer.read()",
        "sys.stdin.buffer.read()\ntime.sleep(60)",
        {"rune.leave.after_ok", "rune.leave.no_orphans"},
    ),
    "exits_early": ("sys.stdin.buffer.read()", "", {"rune.leave.not_early"}),
    "prints_after_the_answer": (
        "sys.stdin.buffer.read()",
        'print("done")\nsys.stdin.buffer.read()',
        {"rune.response.once", "rune.response.only_protocol"},
    ),
}


@pytest.mark.parametrize("name", sorted(BREAKS_ONLY))
def test_a_broken_rule_does_not_make_others_fail(name: str, tmp_path: Path) -> None:
    old, new, expected = BREAKS_ONLY[name]
    report = run_conformance(plugin_spec(tmp_path, mutated(old, new)))
    assert {axis.id for axis in report.axes if axis.status is Status.FAILED} == expected


def test_a_plugin_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path, process={"command": "./missing"})
    report = run_conformance(spec, only=["rune.handshake.answers"])
    assert "it cannot be started" in report.axes[0].detail
    assert "does not exist" in report.axes[0].detail


def test_a_plugin_that_floods_its_output_is_not_read_for_ever(tmp_path: Path) -> None:
    flood = mutated("hello = line()", 'while True:\n    print("{}")')
    axis = run_conformance(plugin_spec(tmp_path, flood), only=["rune.handshake.answers"]).axes[0]
    assert axis.status is Status.FAILED
    assert "$.type: expected" in axis.detail


def test_an_axis_that_needs_a_surface_the_plugin_lacks_is_skipped_with_a_reason(tmp_path: Path) -> None:
    tools = [{"name": "example.size", "input_schema": {"type": "object", "additionalProperties": False}}]
    source = mutated('["tool.execute"]', "[]")
    report = run_conformance(
        plugin_spec(tmp_path, source, tools=tools, capabilities=[]),
        only=["rune.handshake.declares_capabilities", "rune.input.unicode_raw"],
    )
    assert report.axis("rune.handshake.declares_capabilities").detail == "the manifest requests no capabilities"
    assert report.axis("rune.input.unicode_raw").detail == "no tool takes a text of any kind"
    assert report.skipped == 2


def test_an_error_answer_leaves_the_rules_about_ok_untried(tmp_path: Path) -> None:
    source = mutated("if not isinstance(given, dict):", "if True:")
    report = run_conformance(plugin_spec(tmp_path, source), only=["rune.leave.after_ok", "rune.response.ok"])
    for axis_id in ("rune.leave.after_ok", "rune.response.ok"):
        axis = report.axis(axis_id)
        assert axis.status is Status.SKIPPED
        assert '"examples" of its input_schema' in axis.detail


def test_a_tool_that_changes_things_is_called_only_with_an_example_of_its_author(tmp_path: Path) -> None:
    example = {"type": "object", "examples": [{"text": "really"}]}
    tools = [
        {"name": "example.wipe", "mutating": True},
        {"name": "example.drop", "approval_tier": "destructive", "input_schema": {"type": "object"}},
        {"name": "example.size"},
        {"name": "example.echo", "mutating": True, "input_schema": example},
    ]
    spec = plugin_spec(tmp_path, tools=tools)
    assert [tool.name for tool in tools_to_call(spec)] == ["example.echo", "example.size"]
    refused = plugin_spec(tmp_path, tools=tools[:2])
    report = run_conformance(refused, only=["rune.request.answers"])
    assert report.axis("rune.request.answers").status is Status.SKIPPED


def test_the_report_of_a_run_is_json_and_junit(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path, mutated('"plugin_version": "1.0.0"', '"plugin_version": "2.0.0"'))
    report = run_conformance(spec, only=["rune.handshake.matches_manifest"])
    assert report.to_json() == {
        "contract": "rune",
        "passed": 1,
        "failed": 1,
        "skipped": 0,
        "axes": [axis.to_json() for axis in report.axes],
    }
    suite = ET.fromstring(report.to_junit().partition("\n")[2]).find("testsuite")
    assert suite is not None
    assert suite.get("failures") == "1"


def test_an_unknown_axis_and_an_unknown_contract_are_refused(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path)
    with pytest.raises(PlugbayError, match=r"no axis 'rune\.no\.such'"):
        run_conformance(spec, only=["rune.no.such"])
    with pytest.raises(PlugbayError, match="no conformance scenarios for 'other'"):
        run_conformance(replace(spec, contract="other"))


def test_nothing_of_a_run_is_left(tmp_path: Path) -> None:
    fork = 'os.spawnv(os.P_NOWAIT, "/bin/sleep", ["sleep", str(os.getpid())])\n'
    run_conformance(
        plugin_spec(tmp_path, mutated("hello = line()", fork + "hello = line()")),
        only=["rune.leave.no_orphans"],
    )
    assert [pid for pid in Path("/proc").glob("[0-9]*") if _runs_in(pid, tmp_path)] == []


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return (process / "cwd").readlink() == folder
    except OSError:
        return False


def test_a_run_needs_a_loop_of_its_own(tmp_path: Path) -> None:
    spec = plugin_spec(tmp_path)

    async def inside() -> None:
        run_conformance(spec, only=["rune.handshake.answers"])

    with pytest.raises(RuntimeError, match="running event loop"):
        asyncio.run(inside())
