"""`plugbay attach -- CMD…`: run any program as the plugin of `plugbay dev --attach`, in its own terminal.

The program's stdin and stdout are the host's pipes, its stderr is this terminal. It is started again for each
conversation. A plugin with the Python SDK attaches itself and does not need this command.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli.exit_codes import Exit, for_signal
from plugbay.cli.help import HelpCommand
from plugbay.cli.render import output

if TYPE_CHECKING:
    from plugbay.sdk.attach import Assignment

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[ADDRESS] -- CMD…", help="Where plugbay dev waits, unless PLUGBAY_ATTACH says so; what to run."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each conversation.")]


class AttachCommand(HelpCommand):
    """Options end at the first positional argument."""

    allow_interspersed_args = False


def attach(words: Words, as_json: AsJson = False) -> None:
    """Run a program as the plugin that plugbay dev --attach waits for; again for each conversation, until dev ends."""
    from plugbay.sdk.attach import NotAttached, Place

    address, command = _parse(words)
    attached = False
    while True:
        try:
            place = Place(address, returns=True)
            if not attached:
                output.note(f"attached; {shlex.join(command)} is started when it is called")
            attached = True
            given = place.wait()
        except NotAttached as error:
            if attached and error.over:
                raise typer.Exit(Exit.OK) from None
            output.problem(str(error))
            raise typer.Exit(Exit.NOT_FOUND if error.over else Exit.DENIED) from None
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
        output.problem(f"{command[0]} cannot be run: {error.strerror}", hint="name it as in its manifest")
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
