"""Checks of `plugbay doctor PATH` for a plugin: manifest, command, interpreter, confinement, handshake, grants.

The handshake starts the plugin as a call would, and calls nothing. `check_readiness`, for `plugbay serve`, starts no
plugin: it finds the confined plugins, and those that cannot start on this machine; its JSON is public.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli import local_host, lookup
from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check, confinement_problem, load_config_or_default
from plugbay.cli.render import output, policy_view
from plugbay.model.text import error_excerpt

if TYPE_CHECKING:
    from plugbay.host.config.config import Config, PluginConfig
    from plugbay.host.discovery.folders import Found
    from plugbay.host.status import PluginStatus
    from plugbay.model.spec import PluginSpec
    from plugbay.process.sandbox.programs import Command


def check_plugin(path: Path) -> Iterator[Check]:
    """Run every check of the plugin in `path`, or of each plugin in a folder of plugins."""
    inside = lookup.plugins_below(lookup.folder_of(path))
    if not inside:
        yield from _check_one(lookup.find(path))
    for folder in inside:
        for check in _check_one(lookup.find(folder)):
            yield check._replace(id=f"{check.id}:{folder.name}", title=f"{folder.name}: {check.title}")


def _check_one(found: Found) -> Iterator[Check]:
    yield check_manifest(found)
    if found.spec is None:
        return
    launched = check_command(found.spec)
    yield launched
    if launched.status == ERROR:
        return
    yield check_interpreter(found.spec)
    config = load_config_or_default()
    yield check_confinement(found.spec, config)
    yield check_handshake(found.spec, config)
    yield check_grants(found.spec, config.plugin(found.spec.id))


def check_manifest(found: Found) -> Check:
    problems = [problem for problem in found.problems if problem.code != "command_unusable"]
    if not problems:
        return Check("manifest", OK, "Manifest", f"{found.root / lookup.manifest_name(found)} has no problems")
    status = ERROR if found.errors else WARNING
    fix = f"see plugbay inspect {found.root}"
    if lookup.is_absent(found):
        fix = "name the folder of a plugin, which holds its manifest"
    return Check("manifest", status, "Manifest", "\n".join(map(str, problems)), fix)


def check_command(spec: PluginSpec) -> Check:
    from plugbay.process.command import LaunchFailed, host_search_path, resolve
    from plugbay.process.sandbox.programs import unwrap

    title = "Command"
    try:
        argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    except LaunchFailed as error:
        return Check("command", ERROR, title, error.message, error.hint or "correct the command in the manifest")
    cwd = spec.cwd or spec.root
    if not cwd.is_dir():
        return Check(
            "command",
            ERROR,
            title,
            f"the working directory {cwd} is not a folder",
            "create it, or correct the manifest",
        )
    return _check_executed(unwrap(argv, _search_path(spec), cwd))


def _check_executed(command: Command) -> Check:
    """Check the program that is executed in the end; of a runner that downloads, only the runner can be checked."""
    from plugbay.process.sandbox.programs import alternative, install_command

    title = "Command"
    if command.missing:
        fix = f"install {command.missing}, or correct the command"
        return Check("command", ERROR, title, f"{command.program} finds no {command.missing}", fix)
    if command.package:
        text = f"{command.program} downloads {command.package} and runs it; a confined plugin has no network for that"
        fix = f"{install_command(command.runner, command.package)}, and declare the installed program"
        return Check("command", WARNING, title, text, fix, optional=True)
    real = alternative(command.program)
    return Check("command", OK, title, f"{command.program}, which is {real}" if real else command.program)


def _search_path(spec: PluginSpec) -> str:
    """The PATH of the plugin's process, in which `env` searches."""
    from plugbay.process.command import host_search_path

    if ("PATH", "search.path") in spec.env_facts:
        return host_search_path(os.environ)
    inherited = os.environ.get("PATH", os.defpath) if "PATH" in spec.env_inherit else os.defpath
    return dict(spec.env).get("PATH", inherited)


def check_interpreter(spec: PluginSpec) -> Check:
    """Whether the interpreter of the executed script exists. A binary needs none."""
    from plugbay.process import diagnose
    from plugbay.process.command import host_search_path, resolve
    from plugbay.process.sandbox.programs import alternative, env_command, find_program, unwrap

    title, path = "Interpreter", _search_path(spec)
    argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    program = unwrap(argv, path, spec.cwd or spec.root).program
    named = diagnose.shebang(diagnose.facts(program).head)
    if named is None:
        return Check("interpreter", OK, title, f"{program} needs none")
    interpreter, argument = named
    fix = f"correct the first line of {program}, or install the interpreter"
    problem = diagnose.unusable(interpreter, diagnose.facts(interpreter)) if interpreter else None
    if not interpreter or problem is not None:
        text = f"{interpreter or 'an empty name'} after #! is not a program"
        return Check("interpreter", ERROR, title, f"{text}: {problem[0]}" if problem else text, fix)
    wanted = env_command(argument) if os.path.basename(interpreter) == "env" else ""
    is_relative = "/" in wanted and not os.path.isabs(wanted)
    found = interpreter if not wanted or is_relative else find_program(wanted, path)
    if not found:
        return Check("interpreter", ERROR, title, f"env finds no {wanted} in the plugin's PATH ({path})", fix)
    real = alternative(found)
    return Check("interpreter", OK, title, f"{found}, which is {real}" if real else found)


def check_grants(spec: PluginSpec, settings: PluginConfig) -> Check:
    """Whether the operator's grants allow each export to be called."""
    from plugbay.host.authorization import policy

    decision = settings.decision()
    refused = {export.name: policy.authorize(spec, export, decision) for export in spec.exports}
    failures = [failure for failure in refused.values() if failure is not None]
    if not failures:
        granted = ", ".join(policy.effective(spec, decision)) or "no capabilities are requested or granted"
        return Check("grants", OK, "Grants", granted)
    return Check("grants", WARNING, "Grants", failures[0].message, str(failures[0].detail["hint"]))


def check_confinement(spec: PluginSpec, config: Config) -> Check:
    """How the plugin is confined when everything it requests is granted."""
    found = local_host.make_bindings(config, (), grant_all=True).confinement(spec)
    if found.refusal is not None:
        hint = found.refusal.detail.get("hint", "see plugbay inspect")
        return Check("confinement", ERROR, "Confinement", found.refusal.message, str(hint))
    if found.downgrade:
        fix = f"remove off from [plugins.{spec.id}.sandbox] to confine the plugin"
        return Check("confinement", WARNING, "Confinement", str(found), fix)
    if found.notes:
        return Check(
            "confinement", WARNING, "Confinement", "\n".join(found.notes), "create these paths, or grant others"
        )
    shown = output.DOT.join(filter(None, [str(found), policy_view.summarize(found)]))
    return Check("confinement", OK, "Confinement", shown)


def check_handshake(spec: PluginSpec, config: Config) -> Check:
    """Start the plugin, complete the handshake, stop it."""
    bindings = local_host.make_bindings(config, (), grant_all=True)
    failure, hello, seconds = local_host.greet(bindings.bind(spec), bindings)
    if failure is None:
        return _check_exports(spec, hello, output.duration(seconds * 1000))
    detail = failure.detail
    lines = [f"{failure.code}: {failure.message}", *error_excerpt(detail.get("stderr_tail", []), 3)]
    if detail.get("cause"):
        lines.insert(1, str(detail["cause"]))
    fix = detail.get("hint") or f"plugbay conform {spec.root} shows more details"
    return Check("handshake", ERROR, "Handshake", "\n".join(lines), str(fix))


def _check_exports(spec: PluginSpec, hello: Mapping[str, Any], took: str) -> Check:
    """Check that the plugin offers every tool of its manifest in the handshake."""
    exposed = hello.get("exposed_tools") or [tool["name"] for tool in hello.get("tools", [])]
    missing = [export.name for export in spec.exports if export.kind == "tool" and export.name not in exposed]
    if not missing:
        return Check(
            "handshake",
            OK,
            "Handshake",
            f"{output.name_with_version(spec.id, spec.version)} completed the handshake within {took}",
        )
    detail = f"the running plugin does not offer {', '.join(missing)}; it offers {', '.join(exposed)}"
    return Check("handshake", ERROR, "Handshake", detail, "declare the same tools in the manifest and in the handshake")


# Readiness, for plugbay serve.


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
            page.field("unusable" if number == 0 else "", (", ".join(names), output.WARN_STYLE), f": {why}")
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
        return StartProblem(spec.id, f"its manifest requests confinement, and {problem.detail}", problem.fix)
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
