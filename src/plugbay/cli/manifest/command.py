"""`plugbay manifest PATH`: write the manifests of a plugin from its source, or show the differences.

`generated` loads the source in a separate process, where the SDK makes the texts of the manifests. Files without the
mark of `generated` are overwritten only with `--force`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli.exit_codes import Exit
from plugbay.cli.options import AsJson
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.cli.manifest.generated import Declarations, Plan
    from plugbay.model.errors import Problem

WRITTEN, UNCHANGED, DRIFTED, REFUSED, IMPOSSIBLE = "written", "unchanged", "drifted", "refused", "impossible"

MARKS = {
    WRITTEN: (output.OK, output.GOOD_STYLE),
    UNCHANGED: (output.OK, output.GOOD_STYLE),
    DRIFTED: (output.BAD, output.BAD_STYLE),
    REFUSED: (output.BAD, output.BAD_STYLE),
    IMPOSSIBLE: (output.SKIP, output.DIM),
}

_SAFE_PATH = re.compile(r"(?!\.\.?$)[^/\\\0]+|(bin|schemas)/[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Allowed paths of generated files. They come from a process that ran the author's code, so they are not trusted."""


@dataclass(slots=True)
class Outcome:
    """The result for one contract."""

    contract: str
    status: str
    plans: list[Plan] = field(default_factory=list)
    reason: str = ""
    left_out: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "contract": self.contract,
            "status": self.status,
            "reason": self.reason or None,
            "files": [{"path": plan.path, "change": str(plan.change)} for plan in self.plans],
            "left_out": self.left_out,
            "defaults": self.defaults,
            "problems": [problem.to_json() for problem in self.problems],
        }


def manifest(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The plugin's folder, or its Python source.")] = Path(),
    contract: Annotated[
        list[str] | None,
        typer.Option(metavar="C", help="A contract; repeatable. Default: existing manifests, or all."),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only compare; exit with 9 if a file differs.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for the files; that of the source by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that were written by hand.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the manifests of a plugin from its Python source.

    Exits with 9 when --check finds a difference, with 3 when the source cannot be loaded or a contract does not support
    its declarations, with 1 when a file was written by hand.
    """
    from plugbay.cli.manifest import generated

    wanted = _check_contracts(contract or [])
    declared = generated.read_declarations(generated.find_source(path))
    folder = out or declared.source.parent
    outcomes = generate(declared, folder, wanted, write=not check, force=force)
    if as_json:
        facts: dict[str, Any] = {"id": declared.id, "version": declared.version, "source": str(declared.source)}
        facts |= {"unchecked": declared.unchecked, "misfits": declared.misfits, "served": declared.served}
        output.print_json({**facts, "contracts": [outcome.to_json() for outcome in outcomes]})
    else:
        _show(declared, outcomes)
    raise typer.Exit(_status(outcomes, explicit=bool(wanted)))


def _check_contracts(names: list[str]) -> list[str]:
    from plugbay.sdk.contract_support import CONTRACTS

    for name in names:
        if name not in CONTRACTS:
            known = ", ".join(CONTRACTS)
            raise typer.BadParameter(f"there is no contract {name!r}; there are {known}", param_hint="--contract")
    return list(dict.fromkeys(names))


def generate(
    declared: Declarations, folder: Path, wanted: list[str], *, write: bool, force: bool = False
) -> list[Outcome]:
    """Write or compare the files of each contract: `wanted`, or those with a manifest in the folder, or all."""
    names = wanted or _contracts_present(declared, folder) or list(declared.contracts)
    return [_generate(declared, folder, name, write=write, force=force) for name in names]


def update(folder: Path, timeout: float) -> dict[str, Plan]:
    """Write the generated manifests of a folder again if the declarations of their source have changed.

    Returns the written files by path. A file that was written by hand stays. Raises `Unusable`.
    """
    from plugbay.cli.manifest import generated

    stale = generated.find_stale(folder)
    outcomes = [
        outcome
        for source, contracts in stale.items()
        for outcome in generate(generated.read_declarations(source, timeout), folder, contracts, write=True)
    ]
    plans = [plan for outcome in outcomes if outcome.status == WRITTEN for plan in outcome.plans]
    return {plan.path: plan for plan in plans if plan.change is not generated.Change.SAME}


def _contracts_present(declared: Declarations, folder: Path) -> list[str]:
    from plugbay.host.discovery.folders import contracts_in

    there = contracts_in(folder)
    return [name for name in declared.contracts if name in there]


def _generate(declared: Declarations, folder: Path, contract: str, *, write: bool, force: bool) -> Outcome:
    from plugbay.cli.manifest import generated

    entry = declared.contracts[contract]
    reason = entry["why_not"] or _folder_problem(folder, entry["folder"])
    if reason:
        return Outcome(contract, IMPOSSIBLE, reason=reason)
    texts = {file["path"]: file["text"] for file in entry["files"] if _SAFE_PATH.fullmatch(file["path"])}
    outcome = Outcome(contract, UNCHANGED, left_out=entry["left_out"], defaults=entry["defaults"])
    _, outcome.problems = generated.parse_files(texts, folder)
    if any(problem.severity == "error" for problem in outcome.problems):
        outcome.status, outcome.reason = IMPOSSIBLE, f"these declarations break rules of {contract}"
        return outcome
    outcome.plans = generated.plan_from_source(folder, texts, declared.source, outcome.left_out)
    if any(plan.change is generated.Change.FOREIGN for plan in outcome.plans) and write and not force:
        outcome.status = REFUSED
    elif write:
        for plan in outcome.plans:
            if plan.change is not generated.Change.SAME:
                generated.write_file(folder, plan)
                outcome.status = WRITTEN
    elif any(plan.drifted for plan in outcome.plans):
        outcome.status = DRIFTED
    return outcome


def _folder_problem(folder: Path, name: str | None) -> str:
    actual = folder.resolve().name
    return "" if name in (None, actual) else f"the folder must have the name of the program, {name!r}, not {actual!r}"


def _status(outcomes: list[Outcome], *, explicit: bool) -> int:
    found = {outcome.status for outcome in outcomes}
    if IMPOSSIBLE in found and (explicit or found == {IMPOSSIBLE}):
        return Exit.INVALID
    if REFUSED in found:
        return Exit.FAILURE
    return Exit.FINDINGS if DRIFTED in found else Exit.OK


# Output.


def _show(declared: Declarations, outcomes: list[Outcome]) -> None:
    page = output.out()
    page.line((declared.id, output.NAME), f" {declared.version}", (f"  from {declared.source}", output.DIM))
    for warning in _warnings(declared):
        page.line(("warning ", output.WARN_STYLE), warning, indent=2)
    for outcome in outcomes:
        _show_outcome(page, outcome)
    if any(outcome.status == REFUSED for outcome in outcomes):
        output.problem("a file was written by hand and stays unchanged", hint="--force overwrites it")
    if any(outcome.status == DRIFTED for outcome in outcomes):
        output.err().field("hint:", "plugbay manifest without --check updates the files", indent=0, width=output.MARGIN)


def _warnings(declared: Declarations) -> list[str]:
    """Likely mistakes in the source."""
    from plugbay.cli.manifest import generated

    never = f"{declared.source.name} {generated.NEVER_RUNS_TEXT.format(plugin='plugin')}"
    unchecked = [f"not validated by a schema: {note}" for note in declared.unchecked]
    return [*unchecked, *declared.misfits, *([] if declared.served else [never])]


def _show_outcome(page: output.Printer, outcome: Outcome) -> None:
    mark, style = MARKS[outcome.status]
    text = outcome.reason or ", ".join(plan.path for plan in outcome.plans)
    aside = "" if outcome.status == IMPOSSIBLE else f"  {outcome.status}"
    page.line((f"{mark} ", style), f"{outcome.contract:<6}", text, (aside, output.DIM))
    for label, words in (("left out", outcome.left_out), ("defaults", outcome.defaults)):
        if words:
            page.field(label, ("; ".join(words), output.DIM), indent=8)
    for problem in outcome.problems:
        at = f"{problem.path}: " if problem.path else ""
        page.line(f"{problem.severity} ", (problem.code, output.CODE), f"  {at}{problem.message}", indent=8)
    if outcome.status in (DRIFTED, REFUSED):
        for plan in outcome.plans:
            page.diff(plan.difference() if plan.drifted else (), indent=8)
