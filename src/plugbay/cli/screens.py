"""`plugbay render ID [SCREEN]` and `plugbay tui [DIR…]`: plugins' screens, one frame or interactive.

`render` prints a frame as text, colour, SVG or JSON. `tui` runs `plugbay.tui`; Textual is imported only when it runs.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config
from plugbay.cli.exit_codes import Exit, for_signal
from plugbay.cli.render import output
from plugbay.cli.render.call_view import MAX_LISTED, HumanView, Refusal
from plugbay.model.errors import CallFailed, Code, Failure

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.screens.screens import Frame, Screen, Screens
    from plugbay.tui.app import Terminal

START_SECONDS = 20.0
"""Maximum wait for plugins that start with the host; the screen may show what they publish."""

SETTLING_FRAMES = 20
"""Maximum number of frames until the plugin requests no redraw; the contract's own test suite uses the same."""

FRAME_SECONDS = 1 / 30
"""Time between two frames, as on a terminal."""

Size = tuple[int, int]


def _size(text: str) -> Size:
    width, cross, height = text.partition("x")
    if not (cross and all(side.isascii() and side.isdigit() and 0 < len(side) <= 5 for side in (width, height))):
        raise typer.BadParameter(f"{text!r} is no size; write WIDTHxHEIGHT in cells, for example 80x24")
    return int(width), int(height)


def _key(text: str) -> dict[str, Any]:
    from plugbay.host.screens.keys import parse_key

    try:
        return parse_key(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Where = Annotated[str, typer.Argument(metavar="PATH|ID", help="The plugin's folder, or its id.")]
What = Annotated[str | None, typer.Argument(metavar="SCREEN", help="Which screen; needless where there is one.")]
InCells = Annotated[Any, typer.Option("--size", metavar="WxH", parser=_size, help="In cells; 80x24 if left out.")]
Keys = Annotated[
    list[Any] | None,
    typer.Option("--key", metavar="KEY", parser=_key, help="Press it first, like ctrl+a or enter; repeatable."),
]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Save the picture instead of printing it.")]
Plain = Annotated[bool, typer.Option("--text", help="Without colours, even on a terminal.")]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to look for an id, if it is not installed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every cell as JSON.")]


def render(
    path: Where,
    screen: What = None,
    size: InCells = "80x24",
    key: Keys = None,
    svg: Svg = None,
    text: Plain = False,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    plugins: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Show one picture of a plugin's screen: in colour on a terminal, as text in a pipe, or saved as SVG.

    Plugins that start with their host are started too, since a screen may show what they publish.
    """
    place = lookup.folder_of(Path(path))
    plugin_id = None if place.is_dir() else path
    found = local_host.discover_in(Path(path) if plugin_id is None else _find_home(path, plugins), prefer="ainb")
    if plugin_id is not None:
        local_host.check_id(plugin_id, found)
    output.show_host_log(without=output.FAILED_STARTS)
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "eager": True}
    host = local_host.make_host(found, load_config(config), grants=grant, **options)
    chosen = _choose(host.screens, plugin_id, screen)
    HumanView().show_warnings(found, grant or ())
    frame = local_host.run_with(host, lambda host: _draw(host, chosen, size, key or (), timeout))
    _show(frame, chosen, svg, text, as_json)


def _find_home(plugin_id: str, plugins: Path | None) -> Path:
    home = local_host.find_home(plugin_id, plugins)
    if home is not None:
        return home
    hint = "to name a plugin by its id, say where it is: --plugins DIR"
    raise Refusal(Failure(Code.NOT_FOUND, f"there is no folder {plugin_id}", detail={"hint": hint}))


def _choose(screens: Screens, plugin_id: str | None, wanted: str | None) -> Screen:
    """The screen to draw; raises `Refusal` if there is none, or several match."""
    offered = [screen for screen in screens.all() if plugin_id in (None, screen.plugin_id)]
    meant = [screen for screen in offered if wanted in (None, screen.name, screen.screen)]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(screen.name for screen in (meant or offered)[:MAX_LISTED])
    where = plugin_id or "this plugin"
    if not offered:
        problem = f"{where} has no screen"
    elif wanted is None or meant:
        problem = f"name one of the screens: {names}"
    else:
        problem = f"{where} has no screen {wanted!r}; there is {names}"
    hint = "" if offered else "only plugins of ainb have screens; plugbay inspect shows what this one has"
    raise Refusal(Failure(Code.NOT_FOUND, problem, detail={"hint": hint} if hint else {}))


async def _draw(host: Host, screen: Screen, size: Size, keys: Sequence[dict[str, Any]], timeout: float | None) -> Frame:
    """Press the keys, then render until the plugin requests no redraw or `SETTLING_FRAMES` are reached."""
    import asyncio

    from plugbay.host.screens.keys import key_name

    await host.settled(START_SECONDS)
    frame = await host.screens.render(screen.name, *size, timeout=timeout)
    for key in keys:
        if not host.screens.press(screen.name, key):
            text = f"the key {key_name(key)} was lost: no plugin of this version takes it, or it has just left"
            raise CallFailed(Failure(Code.UNAVAILABLE, text, plugin=screen.plugin_id))
        frame = await host.screens.render(screen.name, *size, timeout=timeout)
    for _ in range(SETTLING_FRAMES):
        if not host.screens.dirty(screen.name):
            break
        await asyncio.sleep(FRAME_SECONDS)
        frame = await host.screens.render(screen.name, *size, timeout=timeout)
    return frame


def _show(frame: Frame, screen: Screen, svg: Path | None, plain: bool, as_json: bool) -> None:
    from plugbay.tui import picture

    if svg is not None:
        svg.write_text(picture.svg(frame, screen.name), encoding="utf-8")
        output.note(f"{screen.name}, {frame.width} by {frame.height} cells, is in {svg}")
    if as_json:
        output.print_json(_to_json(frame, screen))
    elif svg is None and sys.stdout is not None and sys.stdout.isatty() and not plain:
        output.out().console.print(picture.rich_text(frame), no_wrap=True, overflow="crop")
    elif svg is None or plain:
        print("\n".join(frame.lines()), flush=True)


def _to_json(frame: Frame, screen: Screen) -> dict[str, Any]:
    """The public JSON shape; cells that are not listed are blank."""
    places = sorted(frame.cells, key=lambda place: place[::-1])
    cells = [{"x": x, "y": y, **frame.cells[x, y]._asdict()} for x, y in places]
    return {
        "plugin": screen.plugin_id,
        "screen": screen.screen,
        "width": frame.width,
        "height": frame.height,
        "lines": frame.lines(),
        "cells": cells,
        "redraw": frame.redraw,
        "captures_text": frame.captures_text,
    }


# plugbay tui.

Places = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins; this folder if left out."),
]
MorePlugins = Annotated[Path | None, typer.Option(metavar="DIR", help="One more folder of plugins.")]

LOOK_SECONDS = 0.25
"""Interval of the check whether the terminal still exists."""


def tui(
    places: Places = None,
    plugins: MorePlugins = None,
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
    # The TUI shows the journal; log lines on stderr would overwrite the screen.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    host = local_host.make_host(found, load_config(config), grants=grant, grant_all=grant_all, eager=True)
    local_host.run_with(host, lambda host: _use(terminal(host)))


def _terminal() -> type[Terminal]:
    """The Textual app; exits with a hint without a terminal or without Textual."""
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
    """Every plugin in these places, including invalid ones: the TUI shows their problems."""
    from plugbay.host.discovery.folders import discover

    found = discover([place if place.is_file() else lookup.folder_of(place) for place in places], prefer="ainb")
    there = [item for item in found if not lookup.is_absent(item)]
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
        raise asyncio.CancelledError  # Textual swallows the cancellation when it exits
    if is_gone(stdin):
        raise local_host.Interrupted(for_signal(signal.SIGHUP))


async def _exit_when_gone(terminal: Terminal, stdin: int) -> None:
    """End the app when its terminal is closed: SIGHUP may be ignored, or go to another session."""
    import asyncio

    from plugbay.tui.app import is_gone

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if is_gone(stdin):
            terminal.exit()
