"""`plugbay dev PATH` and `plugbay attach -- CMD…`: run a plugin while its author writes it.

`dev` watches a plugin's folder: each save restarts the plugin and repeats the last call. `attach` runs any program as
the plugin of `dev --attach`, in its own terminal: stdin and stdout of the program are the pipes of the host. `main`
loads this module always, so heavy imports stay inside functions.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.exit_codes import Exit, for_signal, refusal
from plugbay.cli.help import HelpCommand
from plugbay.cli.options import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, parse_call
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.sdk.attach import Assignment


Where = Annotated[Path, typer.Argument(metavar="PATH", help="The plugin's folder, or one manifest in it.")]
Contract = Annotated[str | None, typer.Option(metavar="C", help="The contract, if there are several manifests.")]
Calls = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="EXPORT [JSON]", help="Call it now and after each save; repeatable."),
]
Once = Annotated[bool, typer.Option("--once", help="Exit after the calls, with the status of the first failure.")]
Attach = Annotated[bool, typer.Option("--attach", help="Run the plugin yourself, in another terminal or a debugger.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each event.")]


def dev(
    path: Where,
    call: Calls = None,
    once: Once = False,
    attach: Attach = False,
    contract: Contract = None,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a plugin while you write it. Each save restarts it and repeats the last call.

    On a terminal, type EXPORT {…} to call an export, or help. Shows the plugin's output, problems of its manifest, the
    reasons for crashes, and the differences between a result and the previous one.
    """
    import logging

    from plugbay.cli.dev.loop import DevLoop, DevOptions
    from plugbay.cli.dev.view import HumanView, JsonView, View

    # The view shows the host's log notes itself.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    found = lookup.find(path, contract)
    if lookup.is_absent(found) or (once and found.spec is None):
        raise lookup.refusal(found, "dev")
    view: View = JsonView() if as_json else HumanView()
    calls = [parse_call(words) for words in call or ()]
    local_host.load_config(config)
    host_options = {"grant_all": grant_all, "unconfined": no_sandbox or attach}
    options = DevOptions(path, contract, calls, timeout, once, attach, config, grant or (), host_options)
    raise typer.Exit(DevLoop(options, view, typed=not as_json and not once and _is_terminal()).run())


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


# plugbay attach.

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[ADDRESS] -- CMD…", help="The address of plugbay dev, unless PLUGBAY_ATTACH has it; the command."
    ),
]
AttachAsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each conversation.")]


class AttachCommand(HelpCommand):
    """Options end at the first positional argument."""

    allow_interspersed_args = False


def attach(words: Words, as_json: AttachAsJson = False) -> None:
    """Run a program as the plugin of plugbay dev --attach. Starts it for each conversation, until dev ends."""
    from plugbay.sdk.attach import NotAttached, Place

    address, command = _parse(words)
    attached = False
    while True:
        try:
            place = Place(address, returns=True)
            if not attached:
                output.note(f"attached; each call starts {shlex.join(command)}")
            attached = True
            given = place.wait()
        except NotAttached as error:
            if attached and error.over:
                raise typer.Exit(Exit.OK) from None
            raise refusal(str(error), status=Exit.NOT_FOUND if error.over else Exit.DENIED) from None
        status = _run(command, given)
        if as_json:
            output.print_line({"command": command, "status": status})
        place.leave(status)


def _parse(words: list[str]) -> tuple[str, list[str]]:
    """Split the arguments into the address to connect to and the command to run."""
    from plugbay.sdk.io.stdio import ATTACH

    named = os.environ.pop(ATTACH, None)
    command = words if named else words[1:]
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        raise typer.BadParameter(f"name the program to run: plugbay attach{'' if named else ' ADDRESS'} -- CMD…")
    return named or words[0], command


def _run(command: list[str], given: Assignment) -> int:
    """Run the program once; return its status as a shell reports it."""
    import subprocess

    try:
        process = subprocess.Popen(
            command,
            stdin=given.listen,
            stdout=given.speak,
            env={**os.environ, **given.env},
            cwd=given.cwd or None,
        )
    except OSError as error:
        output.problem(f"{command[0]} cannot be run: {error.strerror}", hint="write the command as in the manifest")
        return Exit.LAUNCH
    finally:
        os.close(given.listen)
        os.close(given.speak)
    try:
        status = process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise
    return status if status >= 0 else for_signal(-status)
