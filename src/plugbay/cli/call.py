"""`plugbay call PATH EXPORT [JSON]`: one call, on a local host or on the running server.

Also has what other commands share with it: option types (`Grant`, `Timeout`, …), `read_json` and `load_config`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup, remote
from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import config_in_use
from plugbay.cli.remote import Server, ServerClient, TokenFile
from plugbay.cli.render import call_view, output
from plugbay.cli.render.call_view import CallOutcome, CallRequest, Refusal
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.ports import CallLog
    from plugbay.host.request import CallResult
    from plugbay.wire.strict_json import Malformed

LONGEST = 3600.0
"""Seconds; the host's limit."""

MAX_INPUT = 64 << 20
"""Bytes read from stdin; plugins buffer as much."""


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
    typer.Option(metavar="S", callback=_seconds, help="Seconds for the call; its contract's default if left out."),
]
Grant = Annotated[
    list[str] | None, typer.Option(metavar="CAP", help="Grant a capability, such as network=example.com; repeatable.")
]
GrantAll = Annotated[bool, typer.Option("--grant-all", help="Grant everything that is requested.")]
NoSandbox = Annotated[bool, typer.Option("--no-sandbox", help="Run it unconfined, whatever its manifest asks for.")]
Streamed = Annotated[bool, typer.Option("--stream", help="Show progress before the result, a line each.")]
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
    value, about = read_json(given, "the input"), _parse_context(context)
    settings = load_config(config)
    client = _find_server(path, plugins, settings, server, token_file, as_json)
    if client is not None:
        if grant or grant_all or no_sandbox or trace:
            text = (
                "--grant, --grant-all, --no-sandbox and --trace are for a host of the command's own, not for a server;"
            )
            raise typer.BadParameter(f"{text} there, plugbay grant {path} CAP grants for good")

        asked = CallRequest(_full_name(path, export), value, about, timeout, view.show_progress if stream else None)
        outcome = call_on_server(client, asked)
        if is_unknown_plugin(client, path, outcome):
            raise Refusal(call_view.no_such_plugin(path, f"the server {client.url} has no plugin of that id"))
        view.show_outcome(outcome)
        raise typer.Exit(outcome.status)
    if not as_json and remote.could_be_id(path):
        output.note(f"{path} is a folder here, so that a host of its own is asked, and not the running server")
    found, name = find_export(path, export, plugins, settings)
    settings = local_host.config_for(settings, path)
    view.show_warnings(found, grant or ())
    options = {"grants": grant or (), "grant_all": grant_all, "unconfined": no_sandbox}
    host = functools.partial(_make_host, found, settings, options, trace)
    outcome = call_on_local_host(host, CallRequest(name, value, about, timeout, view.show_progress if stream else None))
    view.show_outcome(outcome)
    raise typer.Exit(outcome.status)


def _parse_context(text: str) -> dict[str, Any]:
    value = read_json(text, "--context")
    if isinstance(value, dict):
        return value
    raise Refusal(call_view.invalid_input("--context must be a JSON object", 'for example {"repo_root": "/src"}'))


def read_json(text: str, what: str) -> Any:
    """Parse one JSON value from `text`, or from stdin for `-`, as strictly as on the wire; raises `Refusal`."""
    from plugbay.wire.fast_json import MsgspecCodec
    from plugbay.wire.strict_json import Malformed

    data = _stdin() if text == "-" else text.encode("utf-8", "surrogateescape")
    where = "standard input" if text == "-" else what
    if not data.strip():
        raise Refusal(call_view.invalid_input(f"{where} is empty; an empty object is {{}}"))
    try:
        return MsgspecCodec().decode(data)
    except Malformed as error:
        raise Refusal(call_view.invalid_input(f"{where} {_describe_malformed(error)}", _quoting_hint(text))) from None


def _describe_malformed(error: Malformed) -> str:
    """The error as the end of a sentence."""
    said = str(error)
    return f"is {said}" if said.startswith("not ") else f"cannot be used: {said}"


def _quoting_hint(text: str) -> str:
    """A hint for invalid JSON; the usual reason is that the shell removed the quotes."""
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


def _full_name(plugin_id: str, export: str) -> str:
    return export if export.startswith(f"{plugin_id}/") else f"{plugin_id}/{export}"


def _find_server(
    path: str, plugins: Path | None, config: Config | None, server: str | None, token_file: Path | None, quiet: bool
) -> ServerClient | None:
    """The running server if `path` may be an id of one of its plugins; None to use a local host."""
    if server is None and (plugins is not None or lookup.folder_of(Path(path)).is_dir()):
        return None
    if server is None and (local_host.declares_server(config, path) or remote.is_path(path)):
        return None
    try:
        return remote.find(server, token_file, quiet=quiet)
    except remote.NoServer:
        if server is not None:
            raise
        return None


def find_export(path: str, export: str, plugins: Path | None, config: Config | None = None) -> tuple[list[Found], str]:
    """The plugins for the local host, and the name of the export there: the full name if `path` is an id."""
    if lookup.folder_of(Path(path)).is_dir():
        return local_host.discover_in(Path(path)), export
    full = _full_name(path, export)
    if local_host.declares_server(config, path):
        return local_host.discover_in(plugins) if plugins is not None else [], full
    home = local_host.find_home(path, plugins)
    if home is None:
        absent = "no plugin has such an id" if remote.is_path(path) else "no plugin of that id is installed or served"
        raise Refusal(call_view.no_such_plugin(path, absent))
    found = local_host.discover_in(home)
    local_host.check_id(path, found)
    return found, full


def load_config(named: Path | None) -> Config | None:
    """The given config file, or plugbay.toml of this directory, or None; raises `Refusal`."""
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
        raise Refusal(call_view.invalid_file(error), status=Exit.INVALID) from None


def _make_host(found: list[Found], config: Config | None, options: dict[str, Any], trace: bool, log: CallLog) -> Host:
    """A host that starts plugins on demand."""
    output.show_host_log(without=output.FAILED_STARTS)
    host = local_host.make_host(
        found, config, **options, call_log=log, trace=call_view.StepPrinter() if trace else None
    )
    for written, meant in host.mistyped_ids.items():
        output.note(
            f"plugbay.toml has settings for {written!r}, but no plugin here is called that; {meant!r} is meant?"
        )
    return host


def call_on_local_host(make_host: Callable[[CallLog], Host], question: CallRequest) -> CallOutcome:
    """Make the call on a new host and wait for its end."""
    from plugbay.host.records import MemoryCallLog

    log, output, status = MemoryCallLog(), None, None
    name, value, context, timeout, on_progress = question

    def ask(host: Host) -> Coroutine[Any, Any, CallResult]:
        return host.attempt(name, value, timeout=timeout, context=context, on_progress=on_progress)

    try:
        output = local_host.run_with(make_host(log), ask).output
    except local_host.Interrupted as interrupted:
        status = interrupted.exit_code
    return CallOutcome(name, log.records[-1] if log.records else None, output, status)


def call_on_server(client: ServerClient, question: CallRequest) -> CallOutcome:
    """Make the call on the server and wait for its end."""
    name, value, context, timeout, on_progress = question
    body = {"export": name, "input": value, "context": context}
    if timeout is not None:
        body["timeout_ms"] = max(1, round(timeout * 1000))
    if on_progress is None:
        return _to_outcome(name, client.post("/api/v1/calls", body))
    answer: Any = {}
    for kind, said in client.events("POST", "/api/v1/calls", body, stream="true"):
        if kind == "progress":
            on_progress(said)
        else:
            answer = said
    return _to_outcome(name, answer)


def is_unknown_plugin(client: ServerClient, plugin_id: str, outcome: CallOutcome) -> bool:
    """Whether a call failed because the server has no such plugin, rather than no such export."""
    from plugbay.cli.remote import RemoteRefused, plugin_path

    failure = outcome.record.failure if outcome.record else None
    if failure is None or failure.code != Code.NOT_FOUND:
        return False
    try:
        client.get(plugin_path(plugin_id))
    except RemoteRefused as refused:
        return refused.status == 404
    return False


def _to_outcome(name: str, answer: dict[str, Any]) -> CallOutcome:
    import msgspec

    from plugbay.host.ports import CallRecord

    plugin = answer.get("plugin") or {}
    record = CallRecord(
        call_id=answer.get("call_id") or "",
        plugin=plugin.get("id") or "",
        version=plugin.get("version") or "",
        contract=plugin.get("contract") or "",
        export=name.removeprefix(f"{plugin.get('id')}/"),
        started_at=0.0,
        duration_ms=answer.get("duration_ms") or 0.0,
        failure=_to_failure(answer),
    )
    output = None if record.failure else msgspec.Raw(msgspec.json.encode(answer.get("output")))
    return CallOutcome(name, record, output)


def _to_failure(answer: dict[str, Any]) -> Failure | None:
    failure = answer.get("failure")
    if failure is None:
        return None
    return Failure(
        failure["code"],
        failure["message"],
        origin=failure["origin"],
        plugin=(answer.get("plugin") or {}).get("id") or "",
        detail=failure["detail"],
        retryable=answer.get("status") == "retryable_failure",
        retry_after_ms=failure["retry_after_ms"],
    )
