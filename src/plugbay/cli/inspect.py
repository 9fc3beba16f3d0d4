"""`plugbay inspect PATH`: a plugin's manifest, its problems, its exports and its confinement.

Reads files and starts nothing. The confinement shown is the one with the current grants of plugbay.toml and options.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup, remote
from plugbay.cli.lookup import count_problems
from plugbay.cli.options import AsJson, ConfigFile, Grant, GrantAll
from plugbay.cli.render import output, policy_view, schema_text
from plugbay.cli.render.call_view import show_problems
from plugbay.model.knobs import shown as choice
from plugbay.model.operations import CheckHealth, RunHook

if TYPE_CHECKING:
    from plugbay.host.admin.limits import Limit
    from plugbay.host.config.config import Config
    from plugbay.host.confinement.policy import Confinement
    from plugbay.host.discovery.folders import Found
    from plugbay.model.spec import Export, Knob, PluginSpec, Timeouts

LIFETIMES = {"per_call": "one process per call", "resident": "one resident process"}


def inspect(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A plugin's folder, a manifest, an installed id, or an MCP server of plugbay.toml."
        ),
    ],
    grant: Grant = None,
    grant_all: GrantAll = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the exports, capabilities, sandbox and problems of a plugin.

    Reads files only. Exits with 3 when the manifest, the source or plugbay.toml has errors, with 4 when there is no
    plugin.
    """
    with local_host.loading():
        settings = local_host.load_config(config)
        views = [_Inspection(item, settings, grant, grant_all) for item in _find(path, settings, as_json)]
    shown = [view.to_json() for view in views]
    document = shown[0] if len(shown) == 1 else {"plugins": shown}
    absent = next((view.found for view in views if lookup.is_absent(view.found)), None)
    if absent is not None:
        refused = lookup.refusal(absent, "inspect")
        refused.document = document
        raise refused
    if as_json:
        output.print_json(document)
    for number, view in enumerate(() if as_json else views):
        if number:
            output.out().blank()
        _show(view)
    raise typer.Exit(max(lookup.exit_status(view.found) for view in views))


def _find(path: Path, config: Config | None, quiet: bool) -> list[Found]:
    """The plugins of a path, an installed plugin, or a server that plugbay.toml declares."""
    from plugbay.host.discovery.servers import find_servers

    if config is not None and local_host.declares_server(config, str(path)):
        return [item for item in find_servers(config) if item.entry == str(path)]
    named = None if path.exists() else remote.find_by_id(str(path), quiet=quiet)
    found = named or (local_host.find_plugin(path, None) if lookup.is_source(path) else lookup.find(path))
    several = any(problem.code == "several_plugins" for problem in found.problems)
    return [_check_source(item) for item in (lookup.find_all(path) if several else [found])]


def _check_source(found: Found) -> Found:
    """Add the problems of the source of a generated manifest. One that is no Python is an error: it cannot start."""
    found = local_host.with_drift(found)
    if not lookup.has_mark(found):
        return found
    from msgspec.structs import replace

    from plugbay.cli.manifest.generated import NOT_PYTHON
    from plugbay.model.errors import Problem

    problems = [Problem(NOT_PYTHON, "", each.message) if each.code == NOT_PYTHON else each for each in found.problems]
    return replace(found, problems=tuple(problems))


def _read_left_out(found: Found) -> str:
    """The declarations of the source that a generated manifest cannot carry."""
    if not lookup.has_mark(found):
        return ""
    from plugbay.cli.manifest import generated

    return generated.read_left_out(found)


class _Inspection:
    """Everything that is shown about one plugin. The exports of an MCP server are the approved ones."""

    def __init__(self, found: Found, config: Config | None, grant: list[str] | None, grant_all: bool) -> None:
        from msgspec.structs import replace

        from plugbay.host.admin.limits import limits_of
        from plugbay.host.catalog.approvals import Approvals
        from plugbay.host.catalog.runtime_exports import RuntimeExports, declares_at_run_time
        from plugbay.host.config.config import Config
        from plugbay.host.supervision.protocol_cache import ProtocolCache

        self.left_out = _read_left_out(found)
        self.approval = ""
        self.confinement: Confinement | None = None
        self.limits: list[Limit] = []
        if found.spec is not None:
            runtime_exports = RuntimeExports(
                Approvals(local_host.state_dir(config)), ProtocolCache(), lambda plugin_id: False
            )
            spec = runtime_exports.learn([found.spec])[found.spec.id]
            approval = runtime_exports.approval(spec.id)
            if declares_at_run_time(spec):
                self.approval = (
                    f"approved {approval.approved_at}" if approval else f"pending: plugbay mcp approve {spec.id}"
                )
            found = replace(found, spec=spec)
            self.confinement = local_host.make_bindings(config, grant, grant_all).confinement(spec)
            self.limits = limits_of(spec, config or Config.default(), self.confinement)
        self.found = found

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        more = {"approval": self.approval} if self.approval else {}
        limits = [limit.to_json() for limit in self.limits]
        return {**to_json(self.found, self.confinement), "limits": limits, "left_out": self.left_out or None, **more}


def to_json(found: Found, confinement: Confinement | None) -> dict[str, Any]:
    """The public shape; it has every key even for an invalid manifest."""
    spec = found.spec
    return {
        "contract": found.contract or None,
        "id": spec.id if spec else None,
        "version": spec.version if spec else None,
        "name": spec.name if spec else None,
        "description": spec.description if spec else None,
        "lifetime": spec.lifetime if spec else None,
        **({"url": spec.url} if spec and spec.url else {}),
        "exports": [_export_json(export) for export in spec.exports] if spec else [],
        "capabilities": list(spec.capabilities) if spec else [],
        "roles": list(spec.roles) if spec else [],
        "hooks": [export.name for export in spec.exports if export.kind == "hook"] if spec else [],
        "knobs": [_knob_json(knob) for knob in spec.settings.knobs] if spec else [],
        "health": _health_json(spec) if spec else None,
        "sandbox": confinement.to_json() if confinement else None,
        "problems": [problem.to_json() for problem in found.problems],
    }


def _export_json(export: Export) -> dict[str, Any]:
    """Adds capabilities and facts for contracts that set them for each export."""
    own = {"capabilities": list(export.capabilities), "facts": export.facts} if _execution_facts(export.facts) else {}
    return {**export.to_json(), **own}


def _knob_json(knob: Knob) -> dict[str, Any]:
    known = {name: getattr(knob, name) for name in ("name", "type", "label", "description", "default")}
    return {**known, "field": knob.binds_to, **knob.facts}


def _health_json(spec: PluginSpec) -> dict[str, float] | None:
    """The seconds between two probes and to answer one; None for contracts without probes at an interval."""
    if spec.health_interval is None:
        return None
    return {"interval_seconds": spec.health_interval, "answer_seconds": spec.patience[CheckHealth.__name__]}


def _show(view: _Inspection) -> None:
    page, found, left_out = output.out(), view.found, view.left_out
    if found.spec and view.confinement:
        _show_spec(page, view, found.spec, view.confinement)
        if left_out:
            page.blank()
            page.line(
                ("Left out", output.NAME), (f"  declared in the source, not supported by {found.contract}", output.DIM)
            )
            page.line(left_out, indent=2)
    else:
        page.line(
            (found.entry or str(found.root), output.NAME),
            (output.DOT + (found.contract or "unknown contract"), output.DIM),
        )
    if found.problems:
        page.blank()
        page.line(("Problems", output.NAME), (f"  {count_problems(found.problems)}", output.DIM))
        show_problems(page, found, found.problems)
    if found.spec:
        _suggest(found, found.spec)


def _show_spec(page: output.Printer, view: _Inspection, spec: PluginSpec, confinement: Confinement) -> None:
    lifetime = LIFETIMES.get(spec.lifetime, str(spec.lifetime))
    page.line((spec.name or spec.id, output.NAME), f" {output.known_version(spec.version)}".rstrip())
    if spec.description:
        page.line(spec.description)
    page.blank()
    page.field("id", spec.id)
    page.field("contract", spec.contract, (output.DOT + lifetime, output.DIM))
    page.field("folder", str(view.found.root))
    page.field("url" if spec.url else "command", spec.url or shlex.join(spec.command))
    page.field("timeouts", _timeouts(spec.timeouts))
    page.field("limits", "\n".join(_limits(view.limits)))
    if view.approval:
        page.field("approval", view.approval)
    page.field("requests", ", ".join(spec.capabilities) or ("no capabilities", output.DIM))
    for label, text in _optional_fields(spec).items():
        if text:
            page.field(label, text)
    policy_view.show(page, confinement)
    page.blank()
    none = "  unknown until approval" if view.approval else "  none"
    page.line(("Exports", output.NAME), "" if spec.exports else (none, output.DIM))
    for export in spec.exports:
        _show_export(page, export, announced_at_start=spec.lifetime == "resident")


def _optional_fields(spec: PluginSpec) -> dict[str, str]:
    """Fields that only some plugins have; empty ones are not shown."""
    policy = spec.restart
    crash = f"restarts, at most {policy.failures} times, first after {policy.first_delay:g} s"
    return {
        "optional": ", ".join(spec.optional_capabilities),
        "subscribes": ", ".join(spec.subscribes),
        "publishes": ", ".join(spec.publishes),
        "commands": ", ".join(spec.commands),
        "snapshots": ", ".join(spec.snapshots),
        "starts": "with the host" if spec.eager else "on demand" if spec.lifetime == "resident" else "",
        "on crash": crash if spec.respawn else "",
        "roles": ", ".join(spec.roles),
        "hooks": _hooks(spec),
        "knobs": "\n".join(map(_knob, spec.settings.knobs)),
        "health": _health(spec),
        "shutdown": f"{spec.timeouts.farewell:g} s for its answer and its exit" if not spec.timeouts.teardown else "",
        "when idle": "" if spec.idle_seconds is None else f"stopped after {spec.idle_seconds:g} s",
    }


def _hooks(spec: PluginSpec) -> str:
    names = ", ".join(export.name for export in spec.exports if export.kind == "hook")
    limit = spec.patience.get(RunHook.__name__)
    return f"{names}{output.DOT}{limit:g} s each" if names and limit is not None else names


def _knob(knob: Knob) -> str:
    """`told  int_range 0..20 of config.told, default 3: Notes told`."""
    facts = knob.facts
    ends = [str(facts[key]) if key in facts else "" for key in ("min", "max")]
    bounds = " " + "..".join(ends) if any(ends) else f" {', '.join(map(choice, facts.get('values', ())))}".rstrip()
    default = "" if knob.default is None else f", default {choice(knob.default)}"
    return f"{knob.name}  {knob.type}{bounds} of config.{knob.binds_to}{default}: {knob.label}"


def _health(spec: PluginSpec) -> str:
    known = _health_json(spec)
    if known is None:
        return ""
    return f"every {known['interval_seconds']:g} s{output.DOT}{known['answer_seconds']:g} s to answer"


def _show_export(page: output.Printer, export: Export, *, announced_at_start: bool) -> None:
    from plugbay.host.catalog.operation import INPUTS

    needs = f"  needs {', '.join(export.capabilities)}" if export.capabilities else ""
    page.line((export.kind, output.DIM), " ", (export.name, output.CODE), (needs, output.DIM), indent=2)
    if export.description:
        page.line(export.description, indent=4)
    execution = _execution_facts(export.facts)
    if execution:
        page.line(("runs  ", output.DIM), execution, indent=4)
    schema = export.input_schema or INPUTS.get(export.kind)
    unknown = schema is None and announced_at_start
    page.line(("input ", output.DIM), "declared at start" if unknown else schema_text.summary(schema), indent=4)


def _execution_facts(facts: dict[str, Any]) -> str:
    """Class, timeout and concurrency of an export, for contracts that set them for each export."""
    if "execution_class" not in facts:
        return ""
    words = [facts["execution_class"], f"{facts['timeout_ms'] / 1000:g} s", f"{facts['max_concurrency']} at a time"]
    words += [facts[name] for name in ("effect_class", "fidelity") if name in facts]
    return output.DOT.join([*words, *(f"on {event}" for event in facts.get("subscribes_to", ()))])


def _timeouts(timeouts: Timeouts) -> str:
    names = ("launch", "handshake", "call", "teardown")
    return output.DOT.join(f"{name} {getattr(timeouts, name):g} s" for name in names if getattr(timeouts, name))


def _limits(limits: Sequence[Limit]) -> list[str]:
    """One line for each source: `contract default: launch 2 s · call 5 s`."""
    sources = dict.fromkeys(limit.source for limit in limits)
    return [
        f"{source}: {output.DOT.join(_limit(each) for each in limits if each.source == source)}" for source in sources
    ]


def _limit(limit: Limit) -> str:
    name = limit.name.replace("_", " ")
    if limit.value is None:
        return f"{name} unlimited"
    if limit.unit == "bytes":
        return f"{name} {policy_view.size(round(limit.value))}"
    unit = {"seconds": " s", "cores": " cores"}.get(limit.unit, "")
    return f"{name} {limit.value:g}{unit}"


def _suggest(found: Found, spec: PluginSpec) -> None:
    """Suggest the next command; on stderr of a terminal only."""
    export = next((export for export in spec.exports if export.kind == "tool"), None)
    if export is None or not output.err().is_terminal:
        return
    words = ["plugbay", "call", str(found.root), export.name]
    words += ["--grant-all"] if spec.capabilities else []
    words += [schema_text.example(export.input_schema)]
    output.err().blank()
    output.err().line(("try: ", output.DIM), (shlex.join(words), output.CODE))
