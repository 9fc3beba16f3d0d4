"""There is a canary for each axis, and whatever one can do wrong is listed with the check that finds it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from plugbay.conformance.engine.dialects import shared
from plugbay.conformance.engine.scenario import load_all
from plugbay.contracts.ainb.manifest import parse
from plugbay.contracts.ainb.spec import FILE_NAME
from plugbay.host.discovery.folders import discover
from tests.support.canaries import (
    PROGRAMS,
    Canary,
    load_canaries,
    prepare_canary,
    prepare_mcp_canary,
    prepare_vai_canary,
)
from tests.support.requirements import requirement

CANARIES = load_canaries()
AINB_PROGRAMS = PROGRAMS / "ainb"


@requirement("ainb:kit-canaries")
def test_each_axis_has_a_canary_and_a_program() -> None:
    axes = [axis.removeprefix("ainb.") for axis in shared("ainb", "axes.json")]
    assert [canary.axis for canary in CANARIES] == axes
    assert {path.stem for path in AINB_PROGRAMS.glob("*.py")} == set(axes)


@requirement("ainb:kit-axes")
def test_the_axes_are_the_fourteen_of_the_contract_in_its_order() -> None:
    assert ", ".join(shared("ainb", "axes.json").values()) == (
        "manifest round-trip, framing, method dispatch, capability gating, render determinism, snapshot pub/sub, "
        "action timeout, log filtering, fs path guard, graceful shutdown, crash recovery, quarantine, "
        "CLI dispatch capture, chunked publish ordering"
    )


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.axis)
def test_whatever_a_canary_can_do_wrong_it_is_asked_to_do(canary: Canary) -> None:
    source = (AINB_PROGRAMS / f"{canary.axis}.py").read_text("utf-8")
    unknown = [kind for kind in canary.broken if not re.search(rf"\b{kind}\b", source)]
    assert unknown == []
    named = {*re.findall(r'KIND == "(\w+)"', source), *re.findall(r'^    "(\w+)": ', source, re.MULTILINE)}
    assert named <= canary.broken.keys()


@requirement("ainb:kit-axes-catch")
def test_each_check_finds_something_that_a_canary_does_wrong() -> None:
    found = {f"ainb.{canary.axis}.{check}" for canary in CANARIES for check in canary.broken.values()}
    assert found == {scenario.id for scenario in load_all("ainb")}


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: canary.axis)
def test_a_canary_becomes_a_folder_whose_manifest_has_no_problem(canary: Canary, tmp_path: Path) -> None:
    root = prepare_canary(canary, tmp_path, "some_kind")
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    assert problems == []
    assert spec is not None
    assert Path(spec.command[0]).read_text("utf-8").endswith(f"{canary.axis}.py some_kind\n")


# vai

VAI_CANARIES = load_canaries("vai")
VAI_WAYS = [PROGRAMS / "vai" / name for name in ("talking.py", "working.py")]


@requirement("vai:kit-axes")
def test_each_axis_of_vai_has_ways_to_break_it() -> None:
    assert [f"vai.{canary.axis}" for canary in VAI_CANARIES] == list(shared("vai", "axes.json"))


@requirement("vai:kit-axes-catch")
def test_each_check_of_vai_finds_something_that_the_canary_does_wrong() -> None:
    found = {f"vai.{canary.axis}.{check}" for canary in VAI_CANARIES for check in canary.broken.values()}
    assert found == {scenario.id for scenario in load_all("vai")}


@pytest.mark.parametrize("kind", [kind for canary in VAI_CANARIES for kind in canary.broken])
def test_whatever_the_canary_of_vai_is_asked_to_do_wrong_it_can_do(kind: str, tmp_path: Path) -> None:
    assert [f"def {kind}() -> None:" in path.read_text("utf-8") for path in VAI_WAYS].count(True) == 1


def test_the_canary_of_vai_has_all_four_kinds_and_a_manifest_without_a_problem(tmp_path: Path) -> None:
    (found,) = discover([prepare_vai_canary(tmp_path, "some_kind")])
    assert found.spec is not None and not found.problems
    assert [export.kind for export in found.spec.exports] == ["tool", "hook", "compactor", "harness"]
    assert found.spec.command[-1] == "some_kind"


# MCP

MCP_CANARIES = load_canaries("mcp")
MCP_WAYS = [PROGRAMS / "mcp" / name for name in ("talking.py", "working.py")]


@requirement("mcp:kit-axes")
def test_each_axis_of_mcp_has_ways_to_break_it() -> None:
    axes = [f"mcp.{canary.axis}" for canary in MCP_CANARIES]
    assert sorted(axes) == sorted(shared("mcp", "axes.json"))
    assert len(set(axes)) == len(axes)


@requirement("mcp:kit-axes-catch")
def test_each_check_of_mcp_finds_something_that_the_canary_does_wrong() -> None:
    found = {f"mcp.{canary.axis}.{check}" for canary in MCP_CANARIES for check in canary.broken.values()}
    assert found == {scenario.id for scenario in load_all("mcp")}


@pytest.mark.parametrize("kind", [kind for canary in MCP_CANARIES for kind in canary.broken])
def test_whatever_the_canary_of_mcp_is_asked_to_do_wrong_it_can_do(kind: str) -> None:
    assert sum(f"def {kind}(" in path.read_text("utf-8") for path in MCP_WAYS) == 1


def test_the_canary_of_mcp_has_a_manifest_without_a_problem(tmp_path: Path) -> None:
    (found,) = discover([prepare_mcp_canary(tmp_path, "some_kind")])
    assert found.spec is not None and not found.problems
    assert (found.spec.id, found.spec.command[-1]) == ("canary", "some_kind")
