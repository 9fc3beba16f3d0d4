"""Each canary of ainb passes the axis it is for, and each broken one fails that axis and no other."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from plugbay.conformance.engine.dialects import shared
from plugbay.conformance.engine.plugin_runner import Report, Status, run_conformance
from plugbay.contracts.ainb.manifest import parse
from plugbay.contracts.ainb.spec import FILE_NAME
from plugbay.sdk.manifests import write_ainb
from tests.conformance.company import together
from tests.conformance.complete import assert_complete, unmet
from tests.support.ainb import write_ainb_plugin
from tests.support.canaries import Canary, load_canaries, prepare_canary
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive, first_alone

CANARIES = load_canaries()
AXES = list(shared("ainb", "axes.json"))


def conformed(root: Path, only: Iterable[str] | None = None) -> Report:
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    assert spec is not None, problems
    return run_conformance(spec, only=only)


def assert_found(report: Report, canary: Canary, kind: str) -> None:
    """Its axis says so and no other does, with the check that found it and everything that a reader needs."""
    axis = f"ainb.{canary.axis}"
    assert unmet(report) == [axis], [each.detail for each in report.axes]
    assert f"\ncheck: {canary.broken[kind]}, it " in report.axis(axis).detail
    assert_complete(report.axis(axis))


@requirement("ainb:kit-canaries", "ainb:kit-axes")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_a_canary_passes_its_axis_and_fails_none(canary: Canary, tmp_path: Path) -> None:
    report = conformed(prepare_canary(canary, tmp_path))
    assert [axis.id for axis in report.axes] == AXES
    assert [(axis.id, axis.detail) for axis in report.axes if axis.status in (Status.FAILED, Status.ADVICE)] == []
    assert report.axis(f"ainb.{canary.axis}").status is Status.PASSED


@requirement("ainb:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_a_broken_canary_fails_its_axis_and_no_other(canary: Canary, tmp_path: Path) -> None:
    kind = next(iter(canary.broken))
    assert_found(conformed(prepare_canary(canary, tmp_path, kind)), canary, kind)


@requirement("ainb:kit-axes-catch")
@pytest.mark.parametrize("canary", first_alone(CANARIES), ids=lambda canary: canary.axis)
def test_whatever_else_a_canary_does_wrong_a_check_of_its_axis_says_so(canary: Canary, tmp_path: Path) -> None:
    def run(kind: str) -> Report:
        check = f"ainb.{canary.axis}.{canary.broken[kind]}"
        return conformed(prepare_canary(canary, tmp_path / kind, kind), [check])

    for kind, report in together(run, list(canary.broken)[1:]):
        assert_found(report, canary, kind)


@requirement("ainb:kit-skips")
def test_what_a_manifest_does_not_imply_is_skipped_with_the_reason(tmp_path: Path) -> None:
    report = conformed(prepare_canary(CANARIES[0], tmp_path))
    skipped = {axis.id: axis.detail for axis in report.axes if axis.status is Status.SKIPPED}
    assert skipped == {
        "ainb.capability_gating": "the manifest requests no capabilities",
        "ainb.render_determinism": "the manifest provides no screen",
        "ainb.snapshot_pub_sub": "the manifest asks for no event_bus, provides no snapshot and subscribes to none",
        "ainb.action_timeout": "the manifest provides no namespace of command lines",
        "ainb.log_filtering": "it logs nothing",
        "ainb.fs_path_guard": "the manifest asks to read no files",
        "ainb.cli_dispatch_capture": "the manifest provides no namespace of command lines",
        "ainb.chunked_publish_ordering": (
            "the manifest asks for no event_bus, provides no snapshot and subscribes to none"
        ),
    }


def test_a_plugin_that_does_not_answer_fails_method_dispatch_and_nothing_else_is_tried(tmp_path: Path) -> None:
    root = write_ainb_plugin(tmp_path, body="sys.exit(3)")
    report = conformed(root, ["ainb.method_dispatch.init", "ainb.quarantine"])
    assert unmet(report) == ["ainb.method_dispatch"]
    assert "its output ended (exit code 3)" in report.axis("ainb.method_dispatch").detail
    assert report.axis("ainb.quarantine").detail == "not tried, because ainb.method_dispatch.answers did not pass"


WITH_THE_SDK = """
from plugbay.sdk import ChunkCollector, Plugin, ServiceError, split_chunks
import time

plugin = Plugin(
    "whole",
    version="1.0.0",
    capabilities=["event_bus=whole.*", "read_paths=~/.plugbay-conformance-canary", "network=example.org"],
)
plugin.publishes("whole.usage")
collector = ChunkCollector(3)
pressed = []

@plugin.on_ready
def start(ctx):
    ctx.log.info("ready")
    for piece in split_chunks(range(1000), {"sum": 1}, version=3, published_ns=time.time_ns(), chunk_bytes=1000):
        ctx.snapshots.publish("whole.usage", piece)

@plugin.on_snapshot("whole.calls")
def collect(snapshot):
    collector.add(snapshot)

@plugin.screen("main")
def draw(canvas):
    canvas.box(0, 0, canvas.width, canvas.height)
    canvas.text(1, 1, "keys " + " ".join(pressed), fg="yellow")

@plugin.on_key("main")
def press(key):
    pressed.append(str(key))

@plugin.cli("whole")
def run(argv, ctx):
    for does in (
        lambda: ctx.snapshots.get("whole.calls"),
        lambda: ctx.files.list("~/.plugbay-conformance-canary"),
        lambda: ctx.http.fetch("https://example.org/"),
        lambda: ctx.actions.invoke("whole.other", timeout=1),
    ):
        try:
            print(does(), file=ctx.out)
        except ServiceError as error:
            print(error, file=ctx.err)
    return 0

@plugin.action("whole.sum")
def total(data):
    return data

if __name__ == "__main__":
    plugin.run()
"""


@exhaustive
@requirement("ainb:kit-plugin-axes")
def test_a_plugin_made_with_the_sdk_passes_all_fourteen_axes(tmp_path: Path) -> None:
    root = tmp_path / "whole"
    root.mkdir()
    (root / "plugin.py").write_text(WITH_THE_SDK, "utf-8")
    namespace = runpy.run_path(str(root / "plugin.py"))
    write_ainb(namespace["plugin"], root, python=sys.executable)
    report = conformed(root)
    assert [(axis.id, axis.status, axis.detail) for axis in report.axes] == [(id, Status.PASSED, "") for id in AXES]
