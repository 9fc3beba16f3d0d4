"""For `plugbay serve`: which plugins are confined, and which cannot start on this machine.

Starts no plugin. `to_json` is public. `plugbay doctor` checks more, and starts the plugins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli.doctor.checks import ERROR, Check
from plugbay.cli.doctor.plugin_checks import check_command, check_interpreter
from plugbay.cli.doctor.sandbox_checks import confinement_problem
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.status import PluginStatus


class StartProblem(NamedTuple):
    """The reason why a plugin cannot start on this machine, and the fix."""

    plugin: str
    why: str
    fix: str


class Readiness(NamedTuple):
    """Ids of confined and unconfined plugins, and the plugins that cannot start."""

    confined: tuple[str, ...]
    unconfined: tuple[str, ...]
    start_problems: tuple[StartProblem, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "confined": list(self.confined),
            "unconfined": list(self.unconfined),
            "not_startable": [start_problem._asdict() for start_problem in self.start_problems],
        }

    def show(self, page: output.Printer) -> None:
        parts = [f"{len(self.confined)} confined", f"{len(self.unconfined)} unconfined"]
        page.field("sandbox", ", ".join(parts))
        for number, (why, fix, names) in enumerate(_group(self.start_problems)):
            page.field("skipped" if number == 0 else "", (", ".join(names), output.WARN_STYLE), f": {why}")
            page.field("", ("fix: ", output.CODE), fix)


def check_readiness(statuses: Iterable[PluginStatus], config: Config) -> Readiness:
    """Check files only; a probe is confined if any plugin is to be. No plugin is started."""
    found = list(statuses)
    confined = [status for status in found if status.confinement.policy is not None]
    problem = confinement_problem(config) if confined else None
    start_problems = [found_one for status in found if (found_one := _start_problem(status, problem)) is not None]
    stopped = {start_problem.plugin for start_problem in start_problems}
    return Readiness(
        tuple(status.spec.id for status in confined if status.spec.id not in stopped),
        tuple(status.spec.id for status in found if status not in confined and status.spec.id not in stopped),
        tuple(start_problems),
    )


def _start_problem(status: PluginStatus, problem: Check | None) -> StartProblem | None:
    spec, confinement = status.spec, status.confinement
    if confinement.refusal is not None:
        failure = confinement.refusal
        return StartProblem(spec.id, failure.message, str(failure.detail.get("hint", "see plugbay inspect")))
    if confinement.policy is not None and problem is not None:
        return StartProblem(spec.id, f"its manifest asks for confinement, and {problem.detail}", problem.fix)
    for check_one in (check_command, check_interpreter):
        check = check_one(spec)
        if check.status == ERROR:
            return StartProblem(spec.id, check.detail, check.fix)
    return None


def _group(start_problems: Iterable[StartProblem]) -> list[tuple[str, str, list[str]]]:
    """Group plugins with the same problem."""
    groups: dict[tuple[str, str], list[str]] = {}
    for start_problem in start_problems:
        groups.setdefault((start_problem.why, start_problem.fix), []).append(start_problem.plugin)
    return [(*reason, names) for reason, names in groups.items()]
