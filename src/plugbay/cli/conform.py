"""`plugbay conform PATH`: run the contract's conformance axes against a plugin.

Tests a plugin's folder, a program in place of the one its manifest names, a program without a manifest, an MCP server
on the network, or the fixture of an SDK. `plugbay.conformance` runs the axes; this module selects, prints and writes
reports.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli import exit_codes, local_host, lookup
from plugbay.cli.exit_codes import Exit, Refusal
from plugbay.cli.help import HelpCommand
from plugbay.cli.options import AsJson
from plugbay.cli.render import output
from plugbay.contracts.mcp import remote

if TYPE_CHECKING:
    from plugbay.conformance.reports.report import AxisResult, OnAxis, Report
    from plugbay.host.discovery.folders import Found
    from plugbay.model.spec import PluginSpec

MCP = "mcp"

PROGRAM = "plugbay.conform.program"
"""Key in the context for the arguments after `--`."""


class ConformCommand(HelpCommand):
    """The arguments after `--` are a program to test."""

    tail = "[-- CMD…]"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[PROGRAM] = args[:at], args[at + 1 :]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


def conform(
    context: typer.Context,
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="The plugin's folder, or the name or URL of an MCP server; with --fixture, also a program.",
            show_default=False,
        ),
    ] = None,
    contract: Annotated[
        str | None, typer.Option(metavar="C", help="The contract to check; default: that of the manifest.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="AXIS", help="Run this axis and its prerequisites; repeatable.")
    ] = None,
    fixture: Annotated[
        bool, typer.Option("--fixture", help="Test an SDK: PATH accepts --print-capabilities and --config JSON.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Advice counts as failed; with --fixture, a missing capability too.")
    ] = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an HTML report.")] = None,
    badge: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an SVG badge for a README.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a plugin conforms to its contract, axis by axis.

    A command after -- is tested in place of the command of the manifest, in this directory. Without PATH no manifest is
    needed: the handshake of the program declares its exports.

    A server on the network is tested through plugbay's bridge; rules about a process are skipped.

    A rule that is not in the text of the contract is advice. Advice fails only with --strict.

    Exits with 9 when an axis failed, with 3 when the manifest has errors, with 4 when there is no plugin.
    """
    program = context.meta.get(PROGRAM)
    url = place if place is not None and remote.is_url(place) else None
    path = None if place is None or url is not None else Path(place)
    _check_usage(path, contract, program, url, fixture=fixture)
    on_axis = None if as_json else show_axis
    if fixture:
        spec = _fixture_at(path, contract, program or [], as_json)
        report = _try_fixture(spec, strict, only, on_axis)
    else:
        found = [_server_at(url)] if url is not None else _find(path, contract, program, as_json)
        found = [_as_started(item, is_declared=url is None) if _spec(item).url else item for item in found]
        spec = _spec(found[0])
        report = _merge([_report(item, only, on_axis, strict) for item in _select(found, only)])
    shown = [spec.url] if url is not None else [str(path)] if path else []
    words = ["plugbay", "conform", *shown, *(["--contract", contract] if contract else [])]
    words += (["--fixture"] if fixture else []) + (["--strict"] if strict else [])
    Files(junit, html, badge).write(report, spec, words, program or ())
    if as_json:
        output.print_json(report.to_json())
    else:
        show_summary(report)
    raise typer.Exit(Exit.FINDINGS if report.failed else Exit.OK)


def _check_usage(
    path: Path | None, contract: str | None, program: list[str] | None, url: str | None, *, fixture: bool
) -> None:
    _check_name(contract)
    if url is not None:
        if program is not None or fixture or contract not in (None, MCP):
            raise typer.BadParameter("a URL takes no command and no --fixture", param_hint="PATH")
        return
    if program == []:
        raise typer.BadParameter("a command must follow", param_hint="--")
    if path is None and program is None:
        raise typer.BadParameter("name the plugin's folder, or a command after --", param_hint="PATH")
    if program is not None and path is not None and fixture:
        raise typer.BadParameter("name the fixture by PATH, or by a command after --, not by both", param_hint="--")
    if path is None and contract is None and not fixture:
        raise typer.BadParameter("a command without a manifest needs a contract", param_hint="--contract")


# Selecting the plugin.


def _find(path: Path | None, contract: str | None, program: list[str] | None, as_json: bool) -> list[Found]:
    """The plugin, once for each contract to test."""
    if path is None:
        assert contract is not None and program is not None
        return [_without_manifest(contract, program)]
    names = [contract] if contract or _is_manifest(path) else _contracts_in(path)
    found = [_plugin(path, name, as_json) for name in names]
    if program is None:
        return found
    from msgspec.structs import replace

    command = _command(program)
    return [replace(item, spec=replace(_spec(item), command=command, cwd=Path.cwd())) for item in found]


def _server_at(url: str) -> Found:
    """An MCP server that is not declared; raises `typer.BadParameter`."""
    from msgspec.structs import replace

    from plugbay.host.discovery.folders import BRIDGE, Found

    parsed = remote.read_url(url)
    if isinstance(parsed, str):
        raise typer.BadParameter(f"the URL {parsed}", param_hint="PATH")
    # The bridge names the server in its hints, such as `plugbay mcp login NAME`.
    spec = remote.remote_spec("NAME", url, parsed, Path.cwd())
    return Found(Path.cwd(), MCP, replace(spec, id=parsed.host, name=parsed.host, command=BRIDGE))


def _as_started(found: Found, *, is_declared: bool) -> Found:
    """A server on the network with its headers and login, as a host would start its bridge, unconfined.

    Raises `Refusal` if it cannot be greeted: no rule could be tried.
    """
    from msgspec.structs import replace

    from plugbay.host.confinement.policy import Confinement
    from plugbay.host.supervision.instance import launch_of

    spec = _spec(found)
    bindings = local_host.make_bindings(local_host.load_config(None), (), grant_all=True)
    bound = bindings.bind(spec, make=is_declared)
    refusal = None if bound.refusal is bound.confinement.refusal else bound.refusal
    binding = replace(bound, confinement=Confinement(), refusal=refusal)
    failure, _, _ = local_host.greet(binding, bindings)
    if failure is None:
        launch = launch_of(binding)
        return replace(found, spec=replace(spec, command=launch.argv, env=tuple(launch.env.items())))
    if not is_declared:
        hint = f"{failure.detail.get('hint', '')}; plugbay mcp add NAME {spec.url} declares it first".removeprefix("; ")
        failure = failure.replace_detail(hint=hint)
    reason = Refusal(failure)
    reason.document = _empty_report(MCP)
    raise reason


def _without_manifest(contract: str, program: list[str]) -> Found:
    from plugbay.conformance.engine.manifestless import spec_from_greeting
    from plugbay.host.discovery.folders import Found

    return Found(Path.cwd(), contract, spec_from_greeting(contract, _command(program), Path.cwd()))


def _command(program: list[str]) -> tuple[str, ...]:
    """The command with an absolute path, so that it starts from any folder; a bare name is searched in PATH."""
    first = os.path.abspath(program[0]) if os.sep in program[0] else program[0]
    return (first, *program[1:])


def _select(found: list[Found], only: list[str] | None) -> list[Found]:
    """The plugins whose contract has one of the axes in `only`."""
    contracts = {item.contract for item in found}
    for axis in only or ():
        if axis.partition(".")[0] not in contracts:
            text = f"{' or '.join(sorted(contracts))} has no axis {axis!r}; plugbay conform --json lists the ids"
            raise typer.BadParameter(text, param_hint="--only")
    return [item for item in found if not only or _axes_of(only, item.contract)]


def _axes_of(only: list[str], contract: str) -> list[str]:
    return [axis for axis in only if axis.partition(".")[0] == contract]


def _spec(found: Found) -> PluginSpec:
    assert found.spec is not None
    return found.spec


# Running.


def _try_fixture(spec: PluginSpec, strict: bool, only: list[str] | None, on_axis: OnAxis | None) -> Report:
    from plugbay.conformance.engine.fixture_runner import run_fixture

    _announce("an SDK's fixture", spec, on_axis)
    return run_fixture(spec, on_axis, strict=strict, only=only)


def _report(found: Found, only: list[str] | None, on_axis: OnAxis | None, strict: bool) -> Report:
    """Run every axis of the contract, and the drift axis if the manifest was generated from a source."""
    from plugbay.cli.manifest import generated
    from plugbay.conformance.engine.plugin_runner import run_conformance
    from plugbay.conformance.reports.report import Report
    from plugbay.host.disk import release
    from plugbay.process.diagnose import LaunchFailed

    spec = _spec(found)
    try:
        if release.is_release(spec.root):
            release.verify(spec.root)
    except LaunchFailed as error:
        raise exit_codes.refusal(error.message, error.hint, Exit.INTEGRITY) from None
    _announce(output.name_with_version(spec.id, spec.version), spec, on_axis)
    wanted = (
        None if only is None else [axis for axis in _axes_of(only, spec.contract) if not axis.endswith(generated.AXIS)]
    )
    report = Report(spec.contract, ()) if wanted == [] else run_conformance(spec, on_axis, only=wanted, strict=strict)
    own = (
        generated.check_drift(found) if only is None or len(_axes_of(only, spec.contract)) > len(wanted or ()) else None
    )
    if own is None:
        return report
    if on_axis is not None:
        on_axis(own)
    return Report(report.contract, (*report.axes, own))


def _announce(words: str, spec: PluginSpec, on_axis: OnAxis | None) -> None:
    if on_axis is not None:
        output.err().line((f"{words}, contract {spec.contract}", output.DIM))


def _merge(reports: list[Report]) -> Report:
    """Merge the reports of several contracts; axis ids begin with the contract."""
    from plugbay.conformance.reports.report import Report

    if len(reports) == 1:
        return reports[0]
    return Report(
        " + ".join(report.contract for report in reports), tuple(axis for each in reports for axis in each.axes)
    )


def _contracts_in(path: Path) -> list[str | None]:
    """Each contract with a manifest in the folder, or `[None]`."""
    from plugbay.host.discovery.folders import contracts_in

    return [*contracts_in(path)] or [None]


def _is_manifest(path: Path) -> bool:
    return lookup.folder_of(path) != path


def _plugin(path: Path, contract: str | None, as_json: bool) -> Found:
    """The plugin at `path`; exits with the status of the reason when it cannot be tested."""
    found = local_host.find_plugin(path, local_host.load_config(None), contract)
    if found.spec is None and lookup.is_absent(found):
        found = lookup.find(path)  # a manifest of another contract makes a better message
    reason = _refusal(found, contract)
    if reason is not None:
        reason.document = _empty_report(found.contract)
        raise reason
    return found


def _fixture_at(path: Path | None, contract: str | None, program: list[str], as_json: bool) -> PluginSpec:
    """The spec of a fixture: a plugin's folder, one file, or a command. A Python source needs no execute bit."""
    from plugbay.model.spec import PluginSpec

    if path is None:
        return PluginSpec("fixture", "0", contract or "nexo", Path.cwd(), _command(program))
    if not path.is_file() or _is_manifest(path):
        return _spec(_plugin(path, contract, as_json))
    file = path.resolve()
    command = (sys.executable, str(file)) if file.suffix == ".py" else (str(file),)
    return PluginSpec("fixture", "0", contract or "nexo", file.parent, command)


def _empty_report(contract: str) -> dict[str, Any]:
    return {"contract": contract or None, "passed": 0, "failed": 0, "advice": 0, "skipped": 0, "axes": []}


def _check_name(contract: str | None) -> None:
    from plugbay.contracts.registry import CONTRACTS

    if contract is not None and contract not in CONTRACTS:
        known = ", ".join(CONTRACTS)
        raise typer.BadParameter(f"there is no contract {contract!r}; there are {known}", param_hint="--contract")


def _refusal(found: Found, contract: str | None) -> Refusal | None:
    """Why the plugin cannot be tested; None when it can."""
    if found.spec is None:
        return lookup.refusal(found, "conform")
    if contract in (None, found.contract):
        return None
    text = f"{found.root} has a manifest of {found.contract}, none of {contract}"
    hint = f"leave out --contract, or add a manifest of {contract} to the plugin"
    return exit_codes.refusal(text, hint, Exit.INVALID)


# Output.

MARKS = {
    "passed": (output.OK, output.GOOD_STYLE),
    "failed": (output.BAD, output.BAD_STYLE),
    "advice": (output.WARN, output.WARN_STYLE),
    "skipped": (output.SKIP, output.DIM),
}


class Files(NamedTuple):
    """Report files to write."""

    junit: Path | None = None
    html: Path | None = None
    badge: Path | None = None

    def write(self, report: Report, spec: PluginSpec, command: Sequence[str], program: Sequence[str] = ()) -> None:
        """Write the requested files; the HTML page shows `command` and `program` for repeating the run."""
        if self.junit is not None:
            self.junit.write_text(report.to_junit(), "utf-8")
        if self.html is not None:
            self.html.write_text(_html_page(report, spec, command, program), "utf-8")
        if self.badge is not None:
            from plugbay.conformance.reports.badge import badge

            self.badge.write_text(badge(report), "utf-8")


def _html_page(report: Report, spec: PluginSpec, command: Sequence[str], program: Sequence[str]) -> str:
    import time

    from plugbay import __version__
    from plugbay.conformance.reports.page import About, page

    version = output.known_version(spec.version) or output.SKIP
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return page(report, About(spec.id, version, tuple(command), tuple(program), day, f"plugbay {__version__}"))


def show_axis(axis: AxisResult) -> None:
    """Print one axis and its failure or advice. `show_summary` counts the axes that were not tried."""
    from plugbay.conformance.reports.report import LABELS, NOT_TRIED

    if axis.detail.startswith(NOT_TRIED):
        return
    page = output.out()
    mark, style = MARKS[axis.status]
    aside = {"failed": f"  {axis.id}", "advice": f"  {axis.id}", "skipped": f"  {axis.detail}"}.get(axis.status, "")
    page.field(mark, axis.title, (aside, output.DIM), indent=0, width=2, label_style=style)
    before = ""
    for line in axis.detail.splitlines() if axis.status in ("failed", "advice") else ():
        label, _, rest = line.partition(": ")
        if label in LABELS:
            page.field("" if label == before else label, rest, indent=4)
        else:
            page.line(line, indent=4)
        before = label


def show_summary(report: Report) -> None:
    """Print the number of axes that were not tried, with reasons, and the verdict."""
    from plugbay.conformance.reports.report import NOT_TRIED

    page = output.out()
    mark, dim = MARKS["skipped"]
    for reason, number in Counter(axis.detail for axis in report.axes if axis.detail.startswith(NOT_TRIED)).items():
        page.field(mark, f"{number} more", (f"  {reason}", dim), indent=0, width=2, label_style=dim)
    style = output.BAD_STYLE if report.failed else output.GOOD_STYLE
    verdict = f"{report.failed} failed" if report.failed else "conforms"
    advice = f"{report.advice} advice, " if report.advice else ""
    counts = f"{report.passed} passed, {report.failed} failed, {advice}{report.skipped} skipped"
    page.blank()
    page.line((f"{report.contract}: {verdict}", style), (f"  {counts}", output.DIM))
