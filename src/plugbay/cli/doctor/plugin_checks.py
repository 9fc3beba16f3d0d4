"""Checks of `plugbay doctor PATH` for a plugin: manifest, command, interpreter, confinement, handshake, grants.

The handshake starts the plugin as a call would, and calls nothing. `plugbay conform` tests the contract.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.cli import local_host, lookup
from plugbay.cli.doctor.checks import ERROR, OK, WARNING, Check, load_config_or_default
from plugbay.cli.render import output, policy_view

if TYPE_CHECKING:
    from plugbay.host.config.config import Config, PluginConfig
    from plugbay.host.discovery.folders import Found
    from plugbay.model.errors import Failure
    from plugbay.model.spec import PluginSpec


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
    if launched.status != OK:
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
        fix = "name the folder of a plugin, the one that holds its manifest"
    return Check("manifest", status, "Manifest", "\n".join(map(str, problems)), fix)


def check_command(spec: PluginSpec) -> Check:
    from plugbay.process.command import LaunchFailed, host_search_path, resolve

    title = "Command"
    try:
        argv = resolve(spec.command, spec.root, host_search_path(os.environ))
    except LaunchFailed as error:
        return Check("command", ERROR, title, error.message, error.hint or "correct the command in the manifest")
    cwd = spec.cwd or spec.root
    if not cwd.is_dir():
        return Check("command", ERROR, title, f"the working directory {cwd} is no folder", "create it, or correct it")
    return Check("command", OK, title, argv[0])


def check_interpreter(spec: PluginSpec) -> Check:
    """Whether the interpreter in the `#!` line of a script exists. A binary needs none."""
    from plugbay.process import diagnose
    from plugbay.process.command import host_search_path, resolve

    title = "Interpreter"
    program = resolve(spec.command, spec.root, host_search_path(os.environ))[0]
    head = diagnose.facts(program).head
    if not head.startswith(b"#!"):
        return Check("interpreter", OK, title, f"{program} needs none")
    words = head[2:].split(b"\n", 1)[0].decode("utf-8", "backslashreplace").split()
    fix = f"correct the first line of {program}, or install what it asks for"
    if not words or not os.access(words[0], os.X_OK):
        return Check("interpreter", ERROR, title, f"{' '.join(words) or 'nothing'} after #! is no program", fix)
    named = next((word for word in words[1:] if not word.startswith("-")), "")
    if os.path.basename(words[0]) != "env" or not named:
        return Check("interpreter", OK, title, words[0])
    path = dict(spec.env).get("PATH", os.defpath)
    there = shutil.which(named, path=path)
    if there is None:
        return Check("interpreter", ERROR, title, f"env finds no {named} in the plugin's PATH ({path})", fix)
    return Check("interpreter", OK, title, there)


def check_grants(spec: PluginSpec, settings: PluginConfig) -> Check:
    """Whether the operator's grants allow each export to be called."""
    from plugbay.host.authorization import policy

    decision = settings.decision()
    refused = {export.name: policy.authorize(spec, export, decision) for export in spec.exports}
    failures = [failure for failure in refused.values() if failure is not None]
    if not failures:
        granted = ", ".join(policy.effective(spec, decision)) or "nothing is requested or granted"
        return Check("grants", OK, "Grants", granted)
    return Check("grants", WARNING, "Grants", failures[0].message, str(failures[0].detail["hint"]))


def check_confinement(spec: PluginSpec, config: Config) -> Check:
    """How the plugin is confined when everything it requests is granted."""
    found = local_host.make_bindings(config, (), grant_all=True).confinement(spec)
    if found.refusal is not None:
        hint = found.refusal.detail.get("hint", "see plugbay inspect")
        return Check("confinement", ERROR, "Confinement", found.refusal.message, str(hint))
    if found.downgrade:
        fix = f"take off out of [plugins.{spec.id}.sandbox] when it can do without"
        return Check("confinement", WARNING, "Confinement", str(found), fix)
    if found.notes:
        return Check("confinement", WARNING, "Confinement", "\n".join(found.notes), "make them, or grant others")
    shown = output.DOT.join(filter(None, [str(found), policy_view.summarize(found)]))
    return Check("confinement", OK, "Confinement", shown)


def check_handshake(spec: PluginSpec, config: Config) -> Check:
    """Start the plugin, complete the handshake, stop it."""
    import asyncio

    failure, hello, seconds = asyncio.run(_start_and_greet(spec, config))
    if failure is None:
        return _check_exports(spec, hello, output.duration(seconds * 1000))
    detail = failure.detail
    lines = [f"{failure.code}: {failure.message}", *detail.get("stderr_tail", [])[-3:]]
    if detail.get("cause"):
        lines.insert(1, str(detail["cause"]))
    fix = detail.get("hint") or f"plugbay conform {spec.root} tells more"
    return Check("handshake", ERROR, "Handshake", "\n".join(lines), str(fix))


def _check_exports(spec: PluginSpec, hello: Mapping[str, Any], took: str) -> Check:
    """Check that the plugin offers every tool of its manifest in the handshake."""
    exposed = hello.get("exposed_tools") or [tool["name"] for tool in hello.get("tools", [])]
    missing = [export.name for export in spec.exports if export.kind == "tool" and export.name not in exposed]
    if not missing:
        return Check(
            "handshake", OK, "Handshake", f"{output.name_with_version(spec.id, spec.version)} answered within {took}"
        )
    detail = f"the running plugin does not offer {', '.join(missing)}; it offers {', '.join(exposed)}"
    return Check("handshake", ERROR, "Handshake", detail, "make the manifest's tools and the handshake agree")


async def _start_and_greet(spec: PluginSpec, config: Config) -> tuple[Failure | None, Mapping[str, Any], float]:
    """The failure if any, the plugin's hello message, and the seconds it took."""
    import asyncio

    from plugbay.host.journal import Journal
    from plugbay.host.supervision.instance import Deadline, Instance, Runtime, open_instance
    from plugbay.link.deadlines import Deadlines
    from plugbay.wire.fast_json import MsgspecCodec

    bindings = local_host.make_bindings(config, (), grant_all=True)
    binding = bindings.bind(spec)
    spawner, deadlines = bindings.spawner(None, Journal()), Deadlines(asyncio.get_running_loop())
    began = time.perf_counter()
    try:
        instance = await open_instance(
            binding, Runtime(spawner, deadlines, MsgspecCodec()), Deadline(binding.spec.timeouts.call)
        )
        took = time.perf_counter() - began
        if not isinstance(instance, Instance):
            return instance, {}, took
        said = instance.link.hello.hello if instance.link.hello is not None else {}
        if spec.lifetime == "resident":
            await instance.shut_down()
        else:
            instance.kill()
        return None, said, took
    finally:
        await spawner.close()
        deadlines.close()
        await bindings.scratch.close()
