"""`plugbay sandbox PATH -- CMD…`: run any command under the effective policy of the plugin in PATH.

The command gets this terminal and the plugin's own folders. `plugbay` exits with its status, and none of its processes
survives.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import exit_codes, local_host, lookup
from plugbay.cli.exit_codes import Exit, Refusal, refusal
from plugbay.cli.options import ConfigFile, Grant, GrantAll
from plugbay.cli.render import output, policy_view

if TYPE_CHECKING:
    from plugbay.host.bindings import Bindings
    from plugbay.host.confinement.policy import Confinement
    from plugbay.model.spec import PluginSpec
    from plugbay.process.command import Launch
    from plugbay.process.sandbox.egress.decision import Decision
    from plugbay.process.sandbox.jail import Jail
    from plugbay.process.sandbox.policy import Policy

TERMINAL = ("TERM", "COLORTERM", "LANG", "LC_ALL")
"""Environment variables of this terminal that are passed in addition to the plugin's."""

NOT_FOUND = 127
"""Exit status of a shell that did not find a program."""

Where = Annotated[
    Path, typer.Argument(metavar="PATH", help="The plugin's folder, or the name of a declared MCP server.")
]
Words = Annotated[list[str] | None, typer.Argument(metavar="-- CMD…", help="The command to run, with its arguments.")]
Show = Annotated[bool, typer.Option("--show", help="Show the policy and all visible paths; run nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="With --show: print JSON on stdout.")]


def sandbox(
    path: Where,
    words: Words = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    config: ConfigFile = None,
    show: Show = False,
    as_json: AsJson = False,
) -> None:
    """Run a command in the sandbox of a plugin. It has the plugin's folder and environment.

    The command uses stdin, stdout and stderr of this terminal, and plugbay exits with its status. Refused connections
    are printed on stderr.
    """
    settings = local_host.load_config(config)
    found = local_host.find_plugin(path, settings)
    if found.spec is None:
        raise lookup.refusal(found, "sandbox")
    if not show and not words:
        raise typer.BadParameter("name a command after --, or use --show")
    bindings = local_host.make_bindings(settings, grant, grant_all)
    confinement = _find_confinement(bindings, found.spec)
    if show:
        _show(confinement, _visible(bindings, found.spec, confinement), as_json)
        raise typer.Exit(Exit.OK)
    raise typer.Exit(_run(bindings, found.spec, confinement, words or []))


def _find_confinement(bindings: Bindings, spec: PluginSpec) -> Confinement:
    """The plugin's confinement, or the one it would have if it were confined."""
    usual = bindings.confinement(spec)
    found = bindings.confinement(spec, certainly=True)
    if found.refusal is not None:
        raise Refusal(found.refusal)
    if usual.policy is None:
        output.note(f"a host runs {spec.id} {usual}; this is the policy that confinement would apply")
    return found


def _visible(bindings: Bindings, spec: PluginSpec, confinement: Confinement) -> list[tuple[str, str]]:
    """Every path that the plugin's program would see: how it is mounted, and the path."""
    from msgspec.structs import replace

    from plugbay.host.supervision.instance import launch_of
    from plugbay.model.protected import FOLDER
    from plugbay.process.diagnose import LaunchFailed
    from plugbay.process.sandbox.launcher import EMPTY, UNREADABLE, Program, Sandbox

    binding = replace(bindings.bind(spec, make=False), confinement=confinement)
    try:
        launch = launch_of(binding)
        assert launch.policy is not None
        program = Program(launch.argv, launch.cwd, launch.env, launch.label)
        # Covers that do not exist yet are created before a start.
        covered = [(EMPTY if entry.kind == FOLDER else UNREADABLE, entry.path) for entry in confinement.covered]
        return [*Sandbox(bindings.sandbox).visible(program, launch.policy), *covered]
    except LaunchFailed as error:
        output.note(f"the visible paths are unknown, because the plugin cannot be started: {error.message}")
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

    from msgspec.structs import replace

    from plugbay.host.supervision.instance import launch_of
    from plugbay.process.diagnose import LaunchFailed

    for note in confinement.notes:
        output.note(note)
    try:
        bindings.make_folders(spec, confinement)
        binding = bindings.bind(spec)
        inherit = (*binding.inherit_env, *TERMINAL)
        binding = replace(binding, confinement=confinement, inherit_env=inherit)
        status = asyncio.run(_run_confined(bindings, launch_of(binding, command=words)))
    except LaunchFailed as error:
        raise refusal(error.message, error.hint, Exit.LAUNCH) from None
    if status == NOT_FOUND and confinement.policy is not None and confinement.policy.fenced:
        output.note(_fence_note(spec, confinement.policy, words))
    return status


def _fence_note(spec: PluginSpec, policy: Policy, words: list[str]) -> str:
    """Why a shell finds no other programs here."""
    shown = (*policy.tools, *policy.run)
    names = ", ".join(sorted({words[0], *map(str, shown)}))
    return f"{spec.id} may not run every program, so the command sees these only: {names}"


async def _run_confined(bindings: Bindings, launch: Launch) -> int:
    """Start and wait on this one thread: the sandbox dies with the thread that created it."""
    import asyncio
    from contextlib import closing

    from plugbay.process.sandbox.launcher import Program, Sandbox

    assert launch.policy is not None
    program = Program(launch.argv, launch.cwd, launch.env, launch.label)
    with closing(Sandbox(bindings.sandbox)) as sandbox:
        cell = sandbox.prepare(program, launch.policy, launch.limits, {})
        process: subprocess.Popen[bytes] | None = None
        try:
            process = _start(cell)
            cell.serve(asyncio.get_running_loop(), _show_refusal)
            status = await asyncio.to_thread(process.wait)
        finally:
            if process is not None:
                process.kill()
                process.wait()
            cell.close_network()
            cell.close()
    return status if status >= 0 else exit_codes.for_signal(-status)


def _start(cell: Jail) -> subprocess.Popen[bytes]:
    from plugbay.process import pidfd

    # A new process group in this session: the program waiting inside is in it, and does not die with its monitor.
    process = subprocess.Popen(cell.argv, cwd="/", env=cell.env, pass_fds=cell.pass_fds, process_group=0)
    try:
        with open(os.devnull, "rb") as nothing:  # bubblewrap's messages go to the terminal directly
            cell.admit(process.pid, None, nothing.fileno())
    except BaseException:
        pidfd.signal_group(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process


def _show_refusal(decision: Decision) -> None:
    if not decision.allowed:
        output.note(f"refused: {decision}")
