"""`plugbay render`, `plugbay tui` and `plugbay run`: screens and command lines of plugins.

`render` prints one frame as text, colour, SVG or JSON. `tui` runs `plugbay.tui`; Textual is imported only then. `run`
runs a command line of a plugin as if it were a program: its output arrives byte for byte, its status becomes the exit
status, and lines of plugbay itself begin with `plugbay:`.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TextIO

import typer

from plugbay.cli import local_host, lookup, remote
from plugbay.cli.exit_codes import Exit, Refusal, for_failure, for_signal, refusal
from plugbay.cli.help import HelpCommand
from plugbay.cli.lookup import count_problems
from plugbay.cli.options import ConfigFile, Grant, GrantAll, NoSandbox, Plugins, Server, Timeout, TokenFile
from plugbay.cli.render import output
from plugbay.cli.render.call_view import MAX_LISTED, HumanView
from plugbay.model.errors import CallFailed, Code, Failure, PlugbayError

if TYPE_CHECKING:
    from plugbay.cli.remote import ServerClient
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.journal import Note
    from plugbay.host.screens.screens import CliOutput, Frame, Screen
    from plugbay.tui.app import Terminal


START_SECONDS = 20.0
"""Maximum wait for plugins that start with the host; the screen may show data that they publish."""

Size = tuple[int, int]


def _size(text: str) -> Size:
    width, cross, height = text.partition("x")
    if not (cross and all(side.isascii() and side.isdigit() and 0 < len(side) <= 5 for side in (width, height))):
        raise typer.BadParameter(f"{text!r} is not a size; write WIDTHxHEIGHT in cells, for example 80x24")
    return int(width), int(height)


def _key(text: str) -> dict[str, Any]:
    from plugbay.host.screens.keys import parse_key

    try:
        return parse_key(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Where = Annotated[str, typer.Argument(metavar="PATH|ID", help="The plugin's folder, or its id.")]
ScreenName = Annotated[str | None, typer.Argument(metavar="SCREEN", help="The screen, if the plugin has several.")]
InCells = Annotated[Any, typer.Option("--size", metavar="WxH", parser=_size, help="Size in cells; 80x24 by default.")]
Keys = Annotated[
    list[Any] | None,
    typer.Option("--key", metavar="KEY", parser=_key, help="Press this key first, like ctrl+a or enter; repeatable."),
]
Svg = Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Save the frame as SVG; print nothing.")]
Plain = Annotated[bool, typer.Option("--text", help="Print plain text, even on a terminal.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print all cells as JSON.")]


def render(
    path: Where,
    screen: ScreenName = None,
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
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Print one frame of a plugin's screen, or save it as SVG.

    Prints colours on a terminal and plain text in a pipe. A plugin in a folder runs in a host inside this command, with
    the plugins that start with their host, because a screen may show data that they publish. An id names a plugin of
    the running server.
    """
    client = _find_server(path, plugins, server, token_file, as_json)
    if client is not None:
        _refuse_local_options(grant, grant_all, no_sandbox)
        _show(*_draw_on_server(client, path, screen, size, key or (), timeout), svg, text, as_json)
        return
    place = lookup.folder_of(Path(path))
    plugin_id = None if place.is_dir() else path
    if plugin_id is None:
        found = local_host.discover_in(Path(path), prefer="ainb")
    else:
        found = local_host.discover_id(plugin_id, plugins, prefer="ainb")
    if not as_json:
        local_host.announce(path, plugins, None)
    output.show_host_log(without=output.FAILED_STARTS)
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "eager": True}
    host = local_host.make_host(found, local_host.load_config(config), grants=grant, **options)
    chosen = _choose(host.screens.all(), plugin_id, screen)
    HumanView().show_warnings(found, grant or ())
    frame = local_host.run_with(host, lambda host: _draw(host, chosen, size, key or (), timeout))
    _show(chosen, frame, svg, text, as_json)


def _refuse_local_options(grant: Sequence[str] | None, grant_all: bool, no_sandbox: bool) -> None:
    if grant or grant_all or no_sandbox:
        text = "--grant, --grant-all and --no-sandbox do not work with a server"
        raise typer.BadParameter(f"{text}; plugbay grant ID CAP grants a capability there")


def _choose(screens: Sequence[Screen], plugin_id: str | None, wanted: str | None) -> Screen:
    """The screen to draw; raises `Refusal` if there is none, or several match."""
    offered = [screen for screen in screens if plugin_id in (None, screen.plugin_id)]
    meant = [screen for screen in offered if wanted in (None, screen.name, screen.screen)]
    if len(meant) == 1:
        return meant[0]
    names = ", ".join(screen.name for screen in (meant or offered)[:MAX_LISTED])
    where = plugin_id or "this plugin"
    if not offered:
        problem = f"{where} has no screen"
    elif wanted is None or meant:
        problem = f"name one of these screens: {names}"
    else:
        problem = f"{where} has no screen {wanted!r}; its screens: {names}"
    hint = "" if offered else "only ainb plugins have screens; plugbay inspect lists the exports of a plugin"
    raise refusal(problem, hint, Exit.NOT_FOUND)


async def _draw(host: Host, screen: Screen, size: Size, keys: Sequence[dict[str, Any]], timeout: float | None) -> Frame:
    await host.settled(START_SECONDS)
    return await host.screens.draw(screen.name, *size, keys, timeout)


def _draw_on_server(
    client: ServerClient,
    plugin_id: str,
    wanted: str | None,
    size: Size,
    keys: Sequence[dict[str, Any]],
    timeout: float | None,
) -> tuple[Screen, Frame]:
    """Have the server draw; raises `Refusal` and `CallFailed`."""
    from plugbay.host.screens.screens import Frame, Screen

    known = [Screen(each["name"], each["plugin"], each["screen"]) for each in client.get("/api/v1/screens")["screens"]]
    chosen = _choose(known, plugin_id, wanted)
    body = {"screen": chosen.name, "width": size[0], "height": size[1], "keys": list(keys), **_to_ms(timeout)}
    answer = client.post("/api/v1/screens:render", body)
    if answer["failure"] is not None:
        raise CallFailed(Failure.from_json(answer["failure"]))
    return chosen, Frame.from_json(answer["frame"])


def _to_ms(timeout: float | None) -> dict[str, int]:
    return {} if timeout is None else {"timeout_ms": max(1, round(timeout * 1000))}


def _find_server(
    path: str, plugins: Path | None, server: str | None, token_file: Path | None, quiet: bool
) -> ServerClient | None:
    """The running server if `path` may be an id of one of its plugins; None to use a local host."""
    if server is None and (plugins is not None or lookup.folder_of(Path(path)).is_dir() or remote.is_path(path)):
        return None
    return _running_server(server, token_file, quiet)


def _running_server(server: str | None, token_file: Path | None, quiet: bool = False) -> ServerClient | None:
    """The named server, or the running one; None if none was named and none runs."""
    try:
        return remote.find(server, token_file, quiet=quiet)
    except remote.NoServer:
        if server is not None:
            raise
        return None


def _show(screen: Screen, frame: Frame, svg: Path | None, plain: bool, as_json: bool) -> None:
    from plugbay.tui import picture

    if svg is not None:
        svg.write_text(picture.svg(frame, screen.name), encoding="utf-8")
        output.note(f"saved {screen.name}, {frame.width} by {frame.height} cells, in {svg}")
    if as_json:
        output.print_json(_to_json(frame, screen))
    elif svg is None and sys.stdout is not None and sys.stdout.isatty() and not plain:
        output.out().console.print(picture.rich_text(frame), no_wrap=True, overflow="crop")
    elif svg is None or plain:
        print("\n".join(frame.lines()), flush=True)


def _to_json(frame: Frame, screen: Screen) -> dict[str, Any]:
    """The public JSON shape."""
    return {"plugin": screen.plugin_id, "screen": screen.screen, **frame.to_json()}


# plugbay tui.

Places = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR…", help="Plugins, or folders of plugins; else the running server, or this folder."),
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
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Use the screens of plugins in the terminal. Also shows states and logs.

    Plugins in a folder run in a host inside this command and end with it. Without a folder, the plugins of the running
    server are shown, and they keep running; without a server too, the plugins in this folder.

    Keys go to the active screen. Ctrl+O returns to the list, Ctrl+Q quits. In the list, ? shows all keys.
    """
    import logging

    terminal = _terminal()
    from plugbay.tui.backend import HostBackend, ServerBackend

    folders = [*(places or ()), *([plugins] if plugins else ())]
    if folders and server is not None:
        raise typer.BadParameter("DIR and --plugins do not work with --server, which has its own plugins")
    client = None if folders else _running_server(server, token_file)
    # The TUI shows the journal; log lines on stderr would overwrite the screen.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    if client is not None:
        _refuse_local_options(grant, grant_all, no_sandbox=False)
        local_host.run_with(ServerBackend(client), lambda backend: _use(terminal(backend)))
        return
    found = _find(folders or [Path()])
    host = local_host.make_host(found, local_host.load_config(config), grants=grant, grant_all=grant_all, eager=True)
    local_host.run_with(host, lambda host: _use(terminal(HostBackend(host))))


def _terminal() -> type[Terminal]:
    """The Textual app; exits with a hint without a terminal or without Textual."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "plugbay render prints one frame of a screen without a terminal"
        raise refusal("plugbay tui needs a terminal", hint, Exit.USAGE)
    try:
        from plugbay.tui.app import Terminal
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "textual":
            raise
        raise refusal("plugbay tui needs Textual, which is not installed", "pip install 'plugbay[tui]'") from None
    return Terminal


def _find(places: list[Path]) -> list[Found]:
    """Every plugin in these places, including invalid ones: the TUI shows their problems."""
    from plugbay.host.discovery.folders import discover

    found = discover([place if place.is_file() else lookup.folder_of(place) for place in places], prefer="ainb")
    there = [item for item in found if not lookup.is_absent(item)]
    if not there:
        where = ", ".join(map(str, places))
        raise refusal(f"there is no plugin in {where}", local_host.FOLDER_HINT, Exit.NOT_FOUND)
    return there


async def _use(terminal: Terminal) -> None:
    import asyncio

    from plugbay.tui.driver import is_gone

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

    from plugbay.tui.driver import is_gone

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if is_gone(stdin):
            terminal.exit()


# plugbay run.

STATUS_BITS = 0xFF
"""An exit status has 8 bits, the status of a plugin has 32; a shell would report the lowest 8."""

PREFIX = "plugbay:"
"""Prefix of lines that plugbay itself writes."""

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="A plugin's namespace, or PLUGIN/NAMESPACE.")]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS…", help="Arguments for the plugin, passed on unchanged.")
]
RunFolder = Annotated[
    Path | None,
    typer.Option("--plugins", metavar="DIR", help="A plugin, or a folder of plugins; else the running server."),
]


class RunCommand(HelpCommand):
    """Options end at the first positional argument."""

    allow_interspersed_args = False


def run(
    namespace: Namespace,
    words: Words = None,
    plugins: RunFolder = None,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Run a command line of a plugin, in a folder of plugins or on the running server.

    Write options before NAMESPACE; all words after it go to the plugin. The output of the plugin goes to stdout and
    stderr byte for byte, and plugbay exits with the lowest eight bits of its status. A failure of plugbay itself has a
    status of plugbay --help. Messages of plugbay on stderr begin with plugbay:, and so do log lines of plugins and the
    stderr of the plugin's process.
    """
    import logging

    # stderr belongs to the plugin: it shows log lines of plugins, and notes of the host go only to its log.
    logging.getLogger("plugbay").addHandler(logging.NullHandler())
    found: list[Found] = []
    try:
        if plugins is None or server is not None:
            _refuse_local_options(grant, grant_all, no_sandbox)
            client = _server_for_run(server, token_file)
            _write_output(_run_on_server(client, namespace, words or [], timeout))
        found = local_host.discover_in(plugins, prefer="ainb")
        options = {"grant_all": grant_all, "unconfined": no_sandbox}
        host = local_host.make_host(found, local_host.load_config(config), grants=grant, **options)
        host.journal.listen(_print_log_line)
        stderr = _ProcessStderr(host)
        done = local_host.run_with(host, lambda host: host.run_cli(namespace, words or [], timeout=timeout))
    except Refusal as refusal:
        _explain(refusal.failure, refusal.found)
        raise typer.Exit(refusal.status) from None
    except CallFailed as error:
        _explain(error.failure, found)
        raise typer.Exit(for_failure(error.failure)) from None
    stderr.show()
    _write_output(done)


def _server_for_run(server: str | None, token_file: Path | None) -> ServerClient:
    try:
        return remote.find(server, token_file, quiet=True)
    except remote.NoServer as error:
        if server is not None:
            raise
        raise remote.NoServer(error.failure.message, f"--plugins DIR names a folder of plugins; {error.hint}") from None


def _run_on_server(client: ServerClient, namespace: str, words: list[str], timeout: float | None) -> CliOutput:
    """Have the server run the command line; raises `Refusal` and `CallFailed`."""
    from base64 import b64decode

    from plugbay.host.screens.screens import CliOutput, encoding_problem

    problem = encoding_problem(words)
    if problem is not None:
        raise CallFailed(problem)
    answer = client.post("/api/v1/command-lines:run", {"namespace": namespace, "argv": words, **_to_ms(timeout)})
    if answer["failure"] is not None:
        raise CallFailed(Failure.from_json(answer["failure"]))
    return CliOutput(b64decode(answer["stdout"]), b64decode(answer["stderr"]), answer["exit_code"])


def _write_output(done: CliOutput) -> NoReturn:
    _write_bytes(sys.stdout, done.stdout)
    _write_bytes(sys.stderr, done.stderr)
    raise typer.Exit(done.exit_code & STATUS_BITS)


PID = re.compile(r"^\[\d+\] ")
"""The process in a line of a stderr file."""


class _ProcessStderr:
    """Lines that processes write to their own stderr, beside the stderr in the answer of a command line."""

    def __init__(self, host: Host) -> None:
        from plugbay.host.admin.logs import PluginLogs

        self._logs = PluginLogs(host.journal, host.log_dir)
        self._begin = {plugin_id: self._logs.stderr_size(plugin_id) for plugin_id in host.specs}

    def show(self) -> None:
        """Print the lines that were written since this was made; the host has stopped, so all of them are there."""
        for plugin_id, size in self._begin.items():
            for line in self._logs.stderr_since(plugin_id, size):
                _print_line(f"stderr: {PID.sub('', line.text)}")


def _explain(failure: Failure, found: Sequence[Found]) -> None:
    """Print on stderr why the plugin did not run."""
    plugin = f"{failure.plugin}: " if failure.plugin else ""
    _print_line(f"{plugin}{failure.code}: {failure.message}")
    for name in ("exit", "cause"):
        if failure.detail.get(name):
            _print_line(f"{name}: {failure.detail[name]}")
    for line in failure.detail.get("stderr_tail", []):
        _print_line(f"stderr: {line}")
    if failure.detail.get("hint"):
        _print_line(f"hint: {failure.detail['hint']}")
    for item in found if failure.code in (Code.NOT_FOUND, Code.UNAVAILABLE) else []:
        if item.errors and not lookup.is_absent(item):
            _print_line(f"{item.root} is left out: its manifest has {count_problems(item.errors)}")


def _print_log_line(plugin_id: str, note: Note) -> None:
    """Print a line that a plugin has logged."""
    from plugbay.host.journal import OWN_LINE

    if note.kind.startswith(OWN_LINE):
        _print_line(f"{plugin_id}: {note.level}: {note.text}")


def _print_line(text: str) -> None:
    """Prefix every line, so that messages of plugbay and of the plugin cannot be confused."""
    for line in text.splitlines():
        output.err().line((PREFIX, output.BAD_STYLE), f" {line}")


def _write_bytes(stream: TextIO | None, data: bytes) -> None:
    """Write past the text layer and flush, so that a full disk or a closed pipe fails this command."""
    if not data:
        return
    if stream is None:
        raise PlugbayError("the output of the plugin cannot be written: the stream is closed")
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()
