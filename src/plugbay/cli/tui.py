"""`plugbay tui [DIR…]`: plugins' screens, states and logs in the terminal, on a host that lives just as long.

Owns which plugins are meant, broken ones included, what is said where there is no Textual or no terminal, and that it
ends with its terminal. What is seen is `plugbay.tui`'s; Textual is imported only here, and only when the command runs.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import ephemeral, folders, output
from plugbay.cli.call import ConfigFile, Grant, GrantAll, load_config
from plugbay.cli.exit_codes import Exit, for_signal

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.tui.app import Terminal

Places = Annotated[
    list[Path] | None, typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins; this folder if left out.")
]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="One more folder of plugins.")]

LOOK_SECONDS = 0.25
"""Between two looks whether the terminal is still there."""


def tui(
    places: Places = None,
    plugins: Plugins = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    config: ConfigFile = None,
) -> None:
    """Use plugins' screens in the terminal, and see their states and logs.

    Keys go to the screen that is being used; Ctrl+O goes back to the list, Ctrl+Q quits, ? shows all keys.
    """
    import logging

    terminal = _terminal()
    found = _find([*(places or ()), *([plugins] if plugins else ())] or [Path()])
    # What hosts log is in the journal too, and on stderr it would be written across the picture.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    host = ephemeral.make(found, load_config(config), grants=grant, grant_all=grant_all, eager=True)
    ephemeral.visit(host, lambda host: _use(terminal(host)))


def _terminal() -> type[Terminal]:
    """The app, where it can be used; otherwise what is missing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        output.problem("plugbay tui needs a terminal", hint="plugbay render prints one frame of a screen anywhere")
        raise typer.Exit(Exit.USAGE)
    try:
        from plugbay.tui.app import Terminal
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        output.problem("the terminal needs Textual, which is not installed", hint="pip install 'plugbay[tui]'")
        raise typer.Exit(Exit.FAILURE) from None
    return Terminal


def _find(places: list[Path]) -> list[Found]:
    """Every plugin in these places, broken ones too: the terminal shows what is wrong with them."""
    from plugbay.host.discovery.folders import discover

    found = discover([place if place.is_file() else folders.folder_of(place) for place in places], prefer="ainb")
    there = [item for item in found if not folders.is_absent(item)]
    if not there:
        where = ", ".join(map(str, places))
        hint = "name a plugin's folder, the one with its manifest, or a folder of such folders"
        output.problem(f"there is no plugin in {where}", hint=hint)
        raise typer.Exit(Exit.NOT_FOUND)
    return there


async def _use(terminal: Terminal) -> None:
    import asyncio

    from plugbay.tui.app import is_gone

    stdin = sys.stdin.fileno()
    watching = asyncio.ensure_future(_exit_when_gone(terminal, stdin))
    try:
        await terminal.run_async()
    except OSError:
        if not is_gone(stdin):
            raise
    finally:
        watching.cancel()
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError  # Textual leaves in good order when it is cancelled, and tells nobody
    if is_gone(stdin):
        raise ephemeral.Interrupted(for_signal(signal.SIGHUP))


async def _exit_when_gone(terminal: Terminal, stdin: int) -> None:
    """End the app when its terminal was closed: the signal that says so may be ignored, or be for another session."""
    import asyncio

    from plugbay.tui.app import is_gone

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if is_gone(stdin):
            terminal.exit()
