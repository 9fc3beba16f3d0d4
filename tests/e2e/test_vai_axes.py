"""The canary of vai passes every axis, and whatever it does wrong, an axis says so: that one and no other."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from plugbay.conformance.engine.dialects import shared
from plugbay.conformance.engine.plugin_runner import Report, Status, run_conformance
from plugbay.host.discovery.folders import discover
from plugbay.sdk.manifests import write_vai
from tests.conformance.company import together
from tests.conformance.complete import assert_complete, unmet
from tests.support.canaries import VAI_EXPORTS, Canary, load_canaries, prepare_vai_canary
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

CANARIES = load_canaries("vai")
AXES = list(shared("vai", "axes.json"))


def conformed(root: Path, only: Iterable[str] | None = None) -> Report:
    (found,) = discover([root])
    assert found.spec is not None, found.problems
    return run_conformance(found.spec, only=only)


def assert_found(report: Report, canary: Canary, kind: str) -> None:
    """Its axis says so and no other does, with the check that found it and everything that a reader needs."""
    axis = f"vai.{canary.axis}"
    assert unmet(report) == [axis], [each.detail for each in report.axes]
    assert f"\ncheck: {canary.broken[kind]}, it " in report.axis(axis).detail
    assert_complete(report.axis(axis))


@exhaustive
@requirement("vai:kit-canary", "vai:kit-axes")
def test_the_canary_passes_every_axis(tmp_path: Path) -> None:
    report = conformed(prepare_vai_canary(tmp_path))
    assert [(axis.id, axis.status, axis.detail) for axis in report.axes] == [(id, Status.PASSED, "") for id in AXES]


@requirement("vai:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_a_broken_canary_fails_its_axis_and_no_other(canary: Canary, tmp_path: Path) -> None:
    kind = next(iter(canary.broken))
    assert_found(conformed(prepare_vai_canary(tmp_path, kind)), canary, kind)


@requirement("vai:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_whatever_else_the_canary_does_wrong_a_check_says_so(canary: Canary, tmp_path: Path) -> None:
    def run(kind: str) -> Report:
        check = f"vai.{canary.axis}.{canary.broken[kind]}"
        return conformed(prepare_vai_canary(tmp_path / kind, kind), [check])

    for kind, report in together(run, list(canary.broken)[1:]):
        assert_found(report, canary, kind)


@requirement("vai:kit-skips")
def test_what_a_manifest_does_not_imply_is_skipped_with_the_reason(tmp_path: Path) -> None:
    report = conformed(prepare_vai_canary(tmp_path, exports=VAI_EXPORTS[1:2]))
    skipped = {axis.id: axis.detail for axis in report.axes if axis.status is Status.SKIPPED}
    assert skipped == {
        "vai.events": "it sends no events",
        "vai.tools": "the plugin offers no tool",
        "vai.compactors": "the plugin is not a compactor",
        "vai.harnesses": "the manifest exports no harness",
        "vai.secrets": "the manifest has no secret slot",
    }
    assert unmet(report) == []


def test_a_tool_that_changes_things_is_not_called_without_an_example(tmp_path: Path) -> None:
    tool = VAI_EXPORTS[0]
    exports = [{**tool, "tool": {"effect_class": "non_idempotent_write", "input_schema": "any.json"}}]
    root = prepare_vai_canary(tmp_path, exports=exports)
    (root / "any.json").write_text('{"type": "object"}')
    report = conformed(root, ["vai.tools.result", "vai.requests.once"])
    why = "every tool has side effects, and no schema has an example of an input that may be used"
    assert report.axis("vai.tools").detail == why
    assert unmet(report) == []


WITH_THE_SDK = """
from plugbay.sdk import Plugin

plugin = Plugin("acme/whole", version="1.0.0")
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

@plugin.tool(effect="read_only", input_schema=TEXT, output_schema=TEXT, capabilities=["secret=token"])
def echo(text, ctx):
    ctx.progress("listening")
    return {"text": text}

@plugin.hook("run.completed")
def note(event, ctx):
    print("noted", ctx.delivery_id)

@plugin.compactor(capabilities=["filesystem=scratch"])
def shorten(messages):
    return [block for block in messages if block["kind"] == "system"] + messages[-2:]

@plugin.harness("walk")
def walk(run, ctx):
    ctx.checkpoint({"step": 1})
    return "walked"

if __name__ == "__main__":
    plugin.run()
"""


@exhaustive
@requirement("vai:kit-plugin-axes")
def test_a_plugin_made_with_the_sdk_passes_every_axis(tmp_path: Path) -> None:
    root = tmp_path / "whole"
    root.mkdir()
    (root / "plugin.py").write_text(WITH_THE_SDK, "utf-8")
    write_vai(runpy.run_path(str(root / "plugin.py"))["plugin"], root, python=sys.executable)
    report = conformed(root)
    assert [(axis.id, axis.status, axis.detail) for axis in report.axes] == [(id, Status.PASSED, "") for id in AXES]
