"""Which of a server's plugins are confined, and which cannot be started on this machine: said once, at the start.

Owns the two questions and their public JSON shape. `plugbay doctor` asks more, and starts the plugins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli.doctor.checks import ERROR, Check
from plugbay.cli.doctor.plugin_checks import command, interpreter
from plugbay.cli.doctor.sandbox_checks import confinement_problem
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.status import PluginStatus


class Obstacle(NamedTuple):
    """Why a plugin cannot be started here."""

    plugin: str
    why: str
    fix: str


class Readiness(NamedTuple):
    """The plugins of a host, by how they are confined; and those that cannot be started."""

    confined: tuple[str, ...]
    unconfined: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "confined": list(self.confined),
            "unconfined": list(self.unconfined),
            "not_startable": [obstacle._asdict() for obstacle in self.obstacles],
        }

    def show(self, page: output.Printer) -> None:
        parts = [f"{len(self.confined)} confined", f"{len(self.unconfined)} unconfined"]
        page.field("sandbox", ", ".join(parts))
        for number, (why, fix, names) in enumerate(_grouped(self.obstacles)):
            page.field("skipped" if number == 0 else "", (", ".join(names), output.WARN_STYLE), f": {why}")
            page.field("", ("fix: ", output.CODE), fix)


def readiness(statuses: Iterable[PluginStatus], config: Config) -> Readiness:
    """Looks at files alone, and confines a probe when a plugin is to be confined; starts no plugin."""
    found = list(statuses)
    confined = [status for status in found if status.confinement.policy is not None]
    problem = confinement_problem(config) if confined else None
    obstacles = [obstacle for status in found if (obstacle := _obstacle(status, problem)) is not None]
    stopped = {obstacle.plugin for obstacle in obstacles}
    return Readiness(
        tuple(status.spec.id for status in confined if status.spec.id not in stopped),
        tuple(status.spec.id for status in found if status not in confined and status.spec.id not in stopped),
        tuple(obstacles),
    )


def _obstacle(status: PluginStatus, problem: Check | None) -> Obstacle | None:
    spec, confinement = status.spec, status.confinement
    if confinement.refusal is not None:
        failure = confinement.refusal
        return Obstacle(spec.id, failure.message, str(failure.detail.get("hint", "see plugbay inspect")))
    if confinement.policy is not None and problem is not None:
        return Obstacle(spec.id, f"its manifest asks for confinement, and {problem.detail}", problem.fix)
    for look in (command, interpreter):
        check = look(spec)
        if check.status == ERROR:
            return Obstacle(spec.id, check.detail, check.fix)
    return None


def _grouped(obstacles: Iterable[Obstacle]) -> list[tuple[str, str, list[str]]]:
    """Plugins with the same obstacle share its line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for obstacle in obstacles:
        groups.setdefault((obstacle.why, obstacle.fix), []).append(obstacle.plugin)
    return [(*reason, names) for reason, names in groups.items()]
