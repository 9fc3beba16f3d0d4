"""`plugbay conform PATH`: run the contract's conformance axes against a plugin.

Owns how the run is shown and where its report goes. What an axis is, and when it passes, is the kit's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import folders, output
from plugbay.cli.exit_codes import Exit

if TYPE_CHECKING:
    from plugbay.conformance.report import AxisResult, OnAxis, Report
    from plugbay.host.discovery import Found
    from plugbay.model.spec import PluginSpec

MARKS = {
    "passed": (output.OK, output.GOOD_STYLE),
    "failed": (output.BAD, output.BAD_STYLE),
    "skipped": (output.SKIP, output.DIM),
}


def conform(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The plugin's folder; with --fixture, also a program.")],
    contract: Annotated[
        str | None, typer.Option(metavar="C", help="The contract to hold it to; its own by default.")
    ] = None,
    fixture: Annotated[
        bool, typer.Option("--fixture", help="Test an SDK: PATH takes --print-capabilities and --config JSON.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --fixture: a capability it lacks is a failure.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Check that a plugin keeps its contract, axis by axis.

    Exits with 9 when an axis failed, with 3 when the manifest has errors, with 4 when there is no plugin.
    """
    _check_name(contract)
    if strict and not fixture:
        raise typer.BadParameter("it says how strict to be with a fixture; add --fixture", param_hint="--strict")
    if fixture and path.is_file() and not _is_manifest(path):
        spec = _program(path, contract)
    else:
        spec = _plugin(path, contract, as_json)
    if not as_json:
        words = "an SDK's fixture" if fixture else f"{spec.id} {spec.version}"
        output.err().line((f"{words}, held to {spec.contract}", output.DIM))
    report = _report(spec, fixture, strict, None if as_json else show_axis)
    if junit is not None:
        junit.write_text(report.to_junit(), "utf-8")
    if as_json:
        output.print_json(report.to_json())
    else:
        _conclude(report)
    raise typer.Exit(Exit.FINDINGS if report.failed else Exit.OK)


def _report(spec: PluginSpec, fixture: bool, strict: bool, on_axis: OnAxis | None) -> Report:
    if fixture:
        from plugbay.conformance.fixture_runner import run_fixture

        return run_fixture(spec, on_axis, strict=strict)
    from plugbay.conformance.plugin_runner import run_conformance

    return run_conformance(spec, on_axis)


def _is_manifest(path: Path) -> bool:
    return folders.folder_of(path) != path


def _plugin(path: Path, contract: str | None, as_json: bool) -> PluginSpec:
    """The plugin at `path`; leaves with the status that says why there is none to test."""
    found = folders.look(path)
    status = _refuse(found, contract)
    if found.spec is None or status != Exit.OK:
        if as_json:
            output.print_json(_nothing_tried(found.contract))
        raise typer.Exit(status)
    return found.spec


def _program(path: Path, contract: str | None) -> PluginSpec:
    """A fixture that is one file; a Python source needs no execute bit."""
    from plugbay.model.spec import PluginSpec

    file = path.resolve()
    command = (sys.executable, str(file)) if file.suffix == ".py" else (str(file),)
    return PluginSpec("fixture", "0", contract or "nexo", file.parent, command)


def _nothing_tried(contract: str) -> dict[str, Any]:
    return {"contract": contract or None, "passed": 0, "failed": 0, "skipped": 0, "axes": []}


def _check_name(contract: str | None) -> None:
    from plugbay.contracts.registry import CONTRACTS

    if contract is not None and contract not in CONTRACTS:
        known = ", ".join(CONTRACTS)
        raise typer.BadParameter(
            f"{contract!r} is no contract plugbay knows; it knows {known}", param_hint="--contract"
        )


def _refuse(found: Found, contract: str | None) -> int:
    """0 when the plugin can be tested; otherwise the status to leave with, after saying why."""
    if found.spec is None:
        return folders.refuse(found, "conform")
    if contract in (None, found.contract):
        return Exit.OK
    output.problem(
        f"{found.root} has a manifest of {found.contract}, none of {contract}",
        hint=f"leave out --contract, or add a manifest of {contract} to the plugin",
    )
    return Exit.INVALID


LABELS = frozenset("check rule step case sent line exit stderr hint".split())
"""How the kit begins the lines that say more about a failure."""


def show_axis(axis: AxisResult) -> None:
    """One axis: a line, and below it what went wrong."""
    page = output.out()
    mark, style = MARKS[axis.status]
    aside = {"failed": f"  {axis.id}", "skipped": f"  {axis.detail}"}.get(axis.status, "")
    page.field(mark, axis.title, (aside, output.DIM), indent=0, width=2, label_style=style)
    before = ""
    for line in axis.detail.splitlines() if axis.status == "failed" else ():
        label, _, rest = line.partition(": ")
        if label in LABELS:
            page.field("" if label == before else label, rest, indent=4)
        else:
            page.line(line, indent=4)
        before = label


def _conclude(report: Report) -> None:
    style = output.BAD_STYLE if report.failed else output.GOOD_STYLE
    verdict = f"{report.failed} failed" if report.failed else "conforms"
    counts = f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped"
    page = output.out()
    page.blank()
    page.line((f"{report.contract}: {verdict}", style), (f"  {counts}", output.DIM))
