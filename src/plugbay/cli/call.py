"""`plugbay call PATH EXPORT [JSON]`: one call, on a host that lives just as long.

Owns how words on a command line become a call. How the ending looks is `call_view`'s, how the host comes and goes
`ephemeral`'s; what the call does is the host's.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import call_view, ephemeral, folders, output, remote
from plugbay.cli.call_view import Ending, Question, Refusal
from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import config_in_use
from plugbay.cli.remote import Remote, Server, TokenFile
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.host.calls.calls import CallResult
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.ports import CallLog
    from plugbay.wire.strict_json import Malformed

LONGEST = 3600.0
"""Seconds; the host allows no more."""

MAX_INPUT = 64 << 20
"""Bytes read from stdin: as much as a plugin is asked to buffer."""


def _seconds(value: float | None) -> float | None:
    if value is not None and not 0 < value <= LONGEST:
        raise typer.BadParameter(f"{value:g} is not more than 0 and at most {LONGEST:g} seconds")
    return value


Where = Annotated[str, typer.Argument(metavar="PATH", help="A plugin, a folder of plugins, or a plugin's id.")]
What = Annotated[
    str, typer.Argument(metavar="EXPORT", help="A tool, or what else it offers; plugbay inspect lists it.")
]
Given = Annotated[str, typer.Argument(metavar="JSON|-", help="The input, {} if left out; - reads stdin.")]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="S", callback=_seconds, help="Seconds for the call; otherwise its contract says how many."),
]
Grant = Annotated[
    list[str] | None, typer.Option(metavar="CAP", help="Grant a capability, such as network=example.com; repeatable.")
]
GrantAll = Annotated[bool, typer.Option("--grant-all", help="Grant everything that is requested.")]
NoSandbox = Annotated[bool, typer.Option("--no-sandbox", help="Run it unconfined, whatever its manifest asks for.")]
Streamed = Annotated[bool, typer.Option("--stream", help="Show what it says before its answer, a line each.")]
Context = Annotated[str, typer.Option(metavar="JSON", help="The context of the call, an object.")]
ConfigFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Instead of plugbay.toml in this directory.")]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to look for an id, if it is not installed.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show the steps of the call on stderr.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the whole outcome as JSON.")]


def call(
    path: Where,
    export: What,
    given: Given = "{}",
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    context: Context = "{}",
    config: ConfigFile = None,
    plugins: Plugins = None,
    stream: Streamed = False,
    trace: Trace = False,
    server: Server = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Call one export of a plugin, on a host of its own; by its id, on the running server.

    The output goes to stdout, everything else to stderr, and the exit status tells failures apart.
    """
    view = call_view.JsonView() if as_json else call_view.HumanView()
    value, about = read_json(given, "the input"), _object(context)
    settings = load_config(config)
    there = _server(path, plugins, settings, server, token_file, as_json)
    if there is not None:
        if grant or grant_all or no_sandbox or trace:
            text = (
                "--grant, --grant-all, --no-sandbox and --trace are for a host of the command's own, not for a server;"
            )
            raise typer.BadParameter(f"{text} there, plugbay grant {path} CAP grants for good")
        from plugbay.cli import remote_call

        asked = Question(_full(path, export), value, about, timeout, view.progressed if stream else None)
        ending = remote_call.run(there, asked)
        if remote_call.is_unknown(there, path, ending):
            raise Refusal(call_view.no_such_plugin(path, f"the server {there.url} has no plugin of that id"))
        view.ended(ending)
        raise typer.Exit(ending.status)
    if not as_json and remote.might_be_meant(path):
        output.note(f"{path} is a folder here, so that a host of its own is asked, and not the running server")
    found, name = find(path, export, plugins, settings)
    settings = ephemeral.settings_for(settings, path)
    view.warned(found, grant or ())
    options = {"grants": grant or (), "grant_all": grant_all, "unconfined": no_sandbox}
    host = functools.partial(_host, found, settings, options, trace)
    ending = run(host, Question(name, value, about, timeout, view.progressed if stream else None))
    view.ended(ending)
    raise typer.Exit(ending.status)


def _object(text: str) -> dict[str, Any]:
    value = read_json(text, "--context")
    if isinstance(value, dict):
        return value
    raise Refusal(call_view.invalid_input("--context must be a JSON object", 'for example {"repo_root": "/src"}'))


def read_json(text: str, what: str) -> Any:
    """The one JSON value in `text`, or on stdin for `-`, as strictly as on the wire."""
    from plugbay.wire.fast_json import MsgspecCodec
    from plugbay.wire.strict_json import Malformed

    data = _stdin() if text == "-" else text.encode("utf-8", "surrogateescape")
    where = "standard input" if text == "-" else what
    if not data.strip():
        raise Refusal(call_view.invalid_input(f"{where} is empty; an empty object is {{}}"))
    try:
        return MsgspecCodec().decode(data)
    except Malformed as error:
        raise Refusal(call_view.invalid_input(f"{where} {_wrong(error)}", _quoting(text))) from None


def _wrong(error: Malformed) -> str:
    """What is wrong with it, as the end of a sentence."""
    said = str(error)
    return f"is {said}" if said.startswith("not ") else f"cannot be used: {said}"


def _quoting(text: str) -> str:
    """What usually went wrong: the shell took the quotes."""
    if text != "-" and '"' not in text and any(sign in text for sign in ":'"):
        return 'quote it for the shell: \'{"key": "value"}\''
    return 'JSON is like \'{"key": "value"}\'; - reads it from standard input'


def _stdin() -> bytes:
    if sys.stdin is None:
        return b""
    if sys.stdin.isatty():
        output.note("reading the input from the terminal; end it with Ctrl-D")
    data = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise Refusal(call_view.invalid_input(f"standard input has more than {MAX_INPUT:,} bytes"))
    return data


def _full(plugin_id: str, export: str) -> str:
    return export if export.startswith(f"{plugin_id}/") else f"{plugin_id}/{export}"


def _server(
    path: str, plugins: Path | None, config: Config | None, server: str | None, token_file: Path | None, quiet: bool
) -> Remote | None:
    """The running server, if it is a plugin of its that is meant; None: a host of our own is to be asked."""
    if server is None and (plugins is not None or folders.folder_of(Path(path)).is_dir()):
        return None
    if server is None and (ephemeral.declares(config, path) or remote.is_path(path)):
        return None
    try:
        return remote.find(server, token_file, quiet=quiet)
    except remote.NoServer:
        if server is not None:
            raise
        return None


def find(path: str, export: str, plugins: Path | None, config: Config | None = None) -> tuple[list[Found], str]:
    """The plugins of the ephemeral host, and the name of the export on it; of a plugin's id, its full name."""
    if folders.folder_of(Path(path)).is_dir():
        return ephemeral.found_in(Path(path)), export
    full = _full(path, export)
    if ephemeral.declares(config, path):
        return ephemeral.found_in(plugins) if plugins is not None else [], full
    home = ephemeral.home_of(path, plugins)
    if home is None:
        absent = "no plugin has such an id" if remote.is_path(path) else "no plugin of that id is installed or served"
        raise Refusal(call_view.no_such_plugin(path, absent))
    found = ephemeral.found_in(home)
    ephemeral.check_id(path, found)
    return found, full


def load_config(named: Path | None) -> Config | None:
    """The operator's settings, or none."""
    from plugbay.host.config import config
    from plugbay.model.errors import ConfigInvalid

    if named is not None and (not named.exists() or named.is_dir()):
        what = "is a folder" if named.is_dir() else "does not exist"
        hint = "--config names a file like plugbay.toml; without it the one in this directory is read, if there is one"
        raise Refusal(Failure(Code.UNAVAILABLE, f"{named} {what}", detail={"hint": hint}), status=Exit.INVALID)
    path = config_in_use(named)
    try:
        return config.load(path) if path else None
    except ConfigInvalid as error:
        raise Refusal(call_view.bad_file(error), status=Exit.INVALID) from None


def _host(found: list[Found], config: Config | None, options: dict[str, Any], trace: bool, log: CallLog) -> Host:
    """A host that starts nothing but what the call needs."""
    output.note_what_hosts_log(without=output.FAILED_STARTS)
    host = ephemeral.make(found, config, **options, call_log=log, trace=call_view.StepPrinter() if trace else None)
    for written, meant in host.mistyped_ids.items():
        output.note(
            f"plugbay.toml has settings for {written!r}, but no plugin here is called that; {meant!r} is meant?"
        )
    return host


def run(make_host: Callable[[CallLog], Host], question: Question) -> Ending:
    """Call and wait, in an event loop of its own."""
    from plugbay.host.records import MemoryCallLog

    log, output, status = MemoryCallLog(), None, None
    name, value, context, timeout, on_progress = question

    def ask(host: Host) -> Coroutine[Any, Any, CallResult]:
        return host.attempt(name, value, timeout=timeout, context=context, on_progress=on_progress)

    try:
        output = ephemeral.visit(make_host(log), ask).output
    except ephemeral.Interrupted as interrupted:
        status = interrupted.exit_code
    return Ending(name, log.records[-1] if log.records else None, output, status)
