"""The canary of MCP passes every axis, and whatever it does wrong, an axis says so: that one and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from plugbay.conformance.engine.dialects import shared
from plugbay.conformance.engine.plugin_runner import Report, Status, run_conformance
from plugbay.host.discovery.folders import discover
from tests.conformance.company import together
from tests.conformance.complete import assert_complete, unmet
from tests.support.canaries import Canary, load_canaries, prepare_mcp_canary
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

CANARIES = load_canaries("mcp")
AXES = list(shared("mcp", "axes.json"))


def conformed(root: Path, only: Iterable[str] | None = None) -> Report:
    (found,) = discover([root])
    assert found.spec is not None, found.problems
    return run_conformance(found.spec, only=only)


def assert_found(report: Report, canary: Canary, kind: str) -> None:
    """Its axis says so, with the check that found it and everything that a reader needs."""
    axis = f"mcp.{canary.axis}"
    assert unmet(report) == [axis], [each.detail for each in report.axes]
    assert f"\ncheck: {canary.broken[kind]}, it " in report.axis(axis).detail
    assert_complete(report.axis(axis))


@requirement("mcp:kit-canary", "mcp:kit-axes")
def test_the_canary_passes_every_axis(tmp_path: Path) -> None:
    report = conformed(prepare_mcp_canary(tmp_path))
    assert [(axis.id, axis.status, axis.detail) for axis in report.axes] == [(id, Status.PASSED, "") for id in AXES]


SLOW = """
import json, sys, threading, time
def say(id, **message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, **message}) + "\\n"); sys.stdout.flush()
def call(id):
    time.sleep(SECONDS)
    say(id, result={"content": []})
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        hello = {"protocolVersion": version, "capabilities": {"tools": {}, "logging": {}}}
        say(id, result={**hello, "serverInfo": {"name": "slow", "version": "1"}})
    elif method == "tools/list":
        tool = {"name": "slow", "description": "Slow.", "inputSchema": {"type": "object"}}
        say(id, result={"tools": [{**tool, "annotations": {"readOnlyHint": True}}]})
    elif method == "tools/call":
        threading.Thread(target=call, args=(id,)).start()
    elif method == "logging/setLevel" and message["params"]["level"] == "plugbay":
        say(id, error={"code": -32603, "message": "no such level"})
    elif method in ("ping", "logging/setLevel"):
        say(id, result={})
    elif id is not None:
        say(id, error={"code": -32601, "message": "method not found"})
"""
"""A server whose tool is slow by design, and which finishes its work before it exits, like a reference server."""


@requirement("mcp:kit-slow-tools", "mcp:kit-should")
def test_a_tool_that_is_slow_by_design_breaks_no_rule(tmp_path: Path) -> None:
    report = conform_slow(tmp_path / "one", 12, ["mcp.concurrency.one_tool", "mcp.logging"])
    assert report.axis("mcp.concurrency").status is Status.PASSED
    assert report.axis("mcp.logging").status is Status.ADVICE
    # Half-way between the 10 s in which it should exit and the 30 s in which it must answer.
    report = conform_slow(tmp_path / "two", 20, ["mcp.leaving.at_work"])
    assert report.axis("mcp.leaving").status is Status.ADVICE


def conform_slow(folder: Path, seconds: int, only: list[str]) -> Report:
    """These scenarios with the slow server; none fails."""
    folder.mkdir()
    (folder / "server.py").write_text(SLOW.replace("SECONDS", str(seconds)))
    entry = {"command": sys.executable, "args": ["server.py"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}))
    report = conformed(folder, only)
    assert report.failed == 0, [axis.detail for axis in report.axes]
    return report


@requirement("mcp:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_a_broken_canary_fails_its_axis_and_no_other(canary: Canary, tmp_path: Path) -> None:
    kind = next(iter(canary.broken))
    assert_found(conformed(prepare_mcp_canary(tmp_path, kind)), canary, kind)


@requirement("mcp:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_whatever_else_the_canary_does_wrong_a_check_says_so(canary: Canary, tmp_path: Path) -> None:
    def run(kind: str) -> Report:
        check = f"mcp.{canary.axis}.{canary.broken[kind]}"
        return conformed(prepare_mcp_canary(tmp_path / kind, kind), [check])

    for kind, report in together(run, list(canary.broken)[1:]):
        assert_found(report, canary, kind)


SMALL = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        answer = {"result": {"initialize": result, "ping": {}}.get(message["method"])}
        if answer["result"] is None:
            answer = {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@requirement("mcp:kit-skips")
def test_what_a_server_does_not_offer_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SMALL)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"s": {"command": "python3", "args": ["server.py"]}}}')
    only = [f"mcp.{axis}" for axis in ("handshake", "versions", "lists", "tools", "calls", "resources", "modern")]
    report = conformed(tmp_path / ".mcp.json", only)
    assert {axis.id: axis.detail for axis in report.axes if axis.status is Status.SKIPPED} == {
        "mcp.lists": "it declares no tools",
        "mcp.tools": "the manifest declares no tool",
        "mcp.calls": "the plugin offers no tool",
        "mcp.resources": "the server offers no resource",
        "mcp.modern": "it speaks no revision without a handshake",
    }
    assert unmet(report) == []
