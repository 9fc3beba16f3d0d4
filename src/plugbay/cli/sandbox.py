"""`plugbay sandbox PATH -- CMD…`: any command, confined as the plugin in PATH would be.

Owns that the command gets this terminal, that its exit status becomes ours, and that nothing of it is left. What is
shown to it and what it may reach is the plugin's effective policy, folders of its own included.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import ephemeral, exit_codes, folders, output, policy_view
from plugbay.cli.call import ConfigFile, Grant, GrantAll, load_config
from plugbay.cli.call_view import Refusal
from plugbay.cli.exit_codes import Exit

if TYPE_CHECKING:
    from plugbay.host.bindings import Bindings
    from plugbay.host.confinement.policy import Confinement
    from plugbay.model.spec import PluginSpec
    from plugbay.process.command import Launch
    from plugbay.process.sandbox.egress.decision import Decision
    from plugbay.process.sandbox.jail import Jail

TERMINAL = ("TERM", "COLORTERM", "LANG", "LC_ALL")
"""Variables of this terminal that the command gets beside the plugin's own."""

Where = Annotated[Path, typer.Argument(metavar="PATH", help="The plugin's folder.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="What to run, and its arguments.")]
Show = Annotated[bool, typer.Option("--show", help="Show the policy and everything visible; run nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="With --show, as JSON.")]


def sandbox(
    path: Where,
    words: Words = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    config: ConfigFile = None,
    show: Show = False,
    as_json: AsJson = False,
) -> None:
    """Run any command under a plugin's effective policy, in its folder and with its environment.

    The command has this terminal's stdin, stdout and stderr, and its exit status is ours. Refused connections are told
    on stderr.
    """
    found = folders.look(path)
    if found.spec is None:
        raise typer.Exit(folders.refuse(found, "sandbox"))
    if not show and not words:
        raise typer.BadParameter("name a command after --, or say --show")
    bindings = ephemeral.bindings(load_config(config), grant, grant_all)
    confinement = _policy(bindings, found.spec)
    if show:
        _show(confinement, _visible(bindings, found.spec, confinement), as_json)
        raise typer.Exit(Exit.OK)
    raise typer.Exit(_run(bindings, found.spec, confinement, words or []))


def _policy(bindings: Bindings, spec: PluginSpec) -> Confinement:
    """The plugin's own, or the one it would have if it were confined."""
    usual = bindings.confinement(spec)
    found = bindings.confinement(spec, certainly=True)
    if found.refusal is not None:
        raise Refusal(found.refusal)
    if usual.policy is None:
        output.note(f"a host runs {spec.id} {usual}; this is how it would be confined")
    return found


def _visible(bindings: Bindings, spec: PluginSpec, confinement: Confinement) -> list[tuple[str, str]]:
    """Everything that the plugin's program would see: how, and the path."""
    from dataclasses import replace

    from plugbay.host.supervision.instance import launch_of
    from plugbay.model.protected import FOLDER
    from plugbay.process.failures import LaunchFailed
    from plugbay.process.sandbox.launcher import EMPTY, UNREADABLE, Program, Sandbox

    binding = replace(bindings.bind(spec, make=False), confinement=confinement)
    try:
        launch = launch_of(binding)
        assert launch.policy is not None
        program = Program(launch.argv, launch.cwd, launch.env, launch.label)
        # Covers that are not there yet are made before a start.
        covered = [(EMPTY if entry.kind == FOLDER else UNREADABLE, entry.path) for entry in confinement.covered]
        return [*Sandbox(bindings.sandbox).visible(program, launch.policy), *covered]
    except LaunchFailed as error:
        output.note(f"what it would see cannot be told, because it cannot be started: {error.message}")
        return []


def _show(confinement: Confinement, visible: list[tuple[str, str]], as_json: bool) -> None:
    if as_json:
        seen = [{"path": path, "as": how} for how, path in visible]
        output.print_json({**confinement.to_json(), "visible": seen})
        return
    page = output.out()
    policy_view.show(page, confinement)
    policy_view.show_visible(page, visible)


def _run(bindings: Bindings, spec: PluginSpec, confinement: Confinement, words: list[str]) -> int:
    import asyncio
    from dataclasses import replace

    from plugbay.host.supervision.instance import launch_of
    from plugbay.process.failures import LaunchFailed

    for note in confinement.notes:
        output.note(note)
    try:
        bindings.make_folders(spec, confinement)
        binding = bindings.bind(spec)
        inherit = (*binding.inherit_env, *TERMINAL)
        binding = replace(binding, confinement=confinement, inherit_env=inherit)
        return asyncio.run(_confined(bindings, launch_of(binding, command=words)))
    except LaunchFailed as error:
        output.problem(error.message, hint=error.hint)
        return Exit.LAUNCH


async def _confined(bindings: Bindings, launch: Launch) -> int:
    """All on this one thread: the sandbox dies with the thread that made it."""
    import asyncio

    from plugbay.process.sandbox.launcher import Program, Sandbox

    assert launch.policy is not None
    program = Program(launch.argv, launch.cwd, launch.env, launch.label)
    cell = Sandbox(bindings.sandbox).prepare(program, launch.policy, launch.limits, {})
    process: subprocess.Popen[bytes] | None = None
    try:
        process = _started(cell)
        cell.serve(asyncio.get_running_loop(), _told)
        status = await asyncio.to_thread(process.wait)
    finally:
        if process is not None:
            process.kill()
            process.wait()
        cell.cut_off()
        cell.close()
    return status if status >= 0 else exit_codes.for_signal(-status)


def _started(cell: Jail) -> subprocess.Popen[bytes]:
    from plugbay.process import pidfd

    # A group of its own, but of this session: what waits inside is in it, and does not die with its monitor.
    process = subprocess.Popen(cell.argv, cwd="/", env=cell.env, pass_fds=cell.pass_fds, process_group=0)
    try:
        with open(os.devnull, "rb") as nothing:  # what bubblewrap says is on the terminal already
            cell.admit(process.pid, None, nothing.fileno())
    except BaseException:
        pidfd.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process


def _told(verdict: Decision) -> None:
    if not verdict.allowed:
        output.note(f"refused: {verdict.host}:{verdict.port}: {verdict.why}" if verdict.host else verdict.why)
