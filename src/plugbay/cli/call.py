"""`plugbay call PATH EXPORT [JSON]`: one call, on a local host or on the running server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plugbay.cli import local_host, lookup, remote
from plugbay.cli.exit_codes import Refusal
from plugbay.cli.options import (
    ConfigFile,
    Grant,
    GrantAll,
    NoSandbox,
    Plugins,
    Server,
    Timeout,
    TokenFile,
    full_name,
    read_input,
    read_json,
)
from plugbay.cli.remote import ServerClient
from plugbay.cli.render import call_view, output
from plugbay.cli.render.call_view import CallOutcome, CallRequest
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.ports import CallLog
    from plugbay.host.request import CallResult

Where = Annotated[str, typer.Argument(metavar="PATH", help="A plugin, its Python file, a folder of plugins, or an id.")]
ExportName = Annotated[
    str, typer.Argument(metavar="EXPORT", help="A tool or another export; plugbay inspect lists them.")
]
Given = Annotated[
    list[str] | None,
    typer.Argument(metavar="JSON|-|KEY=VALUE…", help="The input: JSON, - for stdin, or a VALUE for each KEY."),
]
Streamed = Annotated[bool, typer.Option("--stream", help="Print progress before the result, one line each.")]
Context = Annotated[str, typer.Option(metavar="JSON", help="The context of the call, a JSON object.")]
Trace = Annotated[bool, typer.Option("--trace", help="Print the steps of the call on stderr.")]
CallAsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON, for success and failure.")]


def call(
    path: Where,
    export: ExportName,
    given: Given = None,
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
    as_json: CallAsJson = False,
) -> None:
    """Call one export of a plugin.

    A plugin in a folder runs in a host inside this command; an id names a plugin of the running server. The output goes
    to stdout, everything else to stderr. The exit status shows the kind of failure.
    """
    view = call_view.JsonView() if as_json else call_view.HumanView()
    value, about = read_input(given or ()), _parse_context(context)
    with local_host.loading():
        settings = local_host.load_config(config)
        client = _find_server(path, plugins, settings, server, token_file, as_json)
    if client is not None:
        if grant or grant_all or no_sandbox or trace:
            text = "--grant, --grant-all, --no-sandbox and --trace do not work with a server"
            raise typer.BadParameter(f"{text}; plugbay grant {path} CAP grants a capability there")

        request = CallRequest(full_name(path, export), value, about, timeout, view.show_progress if stream else None)
        outcome = call_on_server(client, request)
        if is_unknown_plugin(client, path, outcome):
            raise Refusal(call_view.no_such_plugin(path, f"the server {client.url} has no plugin with this id"))
        view.show_outcome(outcome)
        raise typer.Exit(outcome.status)
    with local_host.loading():
        found, name = find_export(path, export, plugins, settings)
    if not as_json:
        local_host.announce(path, plugins, settings)
    settings = local_host.config_for(settings, path)
    view.show_warnings(found, grant or ())
    if not as_json:
        _warn_of_drift(plugins or Path(path), found, name)
    options = {"grants": grant or (), "grant_all": grant_all, "unconfined": no_sandbox}
    host = functools.partial(_make_host, found, settings, options, trace)
    outcome = call_on_local_host(host, CallRequest(name, value, about, timeout, view.show_progress if stream else None))
    view.show_outcome(outcome)
    raise typer.Exit(outcome.status)


def _warn_of_drift(place: Path, found: list[Found], name: str) -> None:
    """Warn of a stale manifest of the called plugin, and of plugins that have none. `show_warnings` has those of a
    single plugin.
    """
    called = [
        item
        for item in found
        if item.spec and any(name in (each.name, full_name(item.spec.id, each.name)) for each in item.spec.exports)
    ]
    stale = call_view.drift_warnings(called) if len(found) > 1 else []
    for text in (*stale, *call_view.missing_manifests(place)):
        output.note(text)


def _parse_context(text: str) -> dict[str, Any]:
    value = read_json(text, "--context")
    if isinstance(value, dict):
        return value
    raise Refusal(call_view.invalid_input("--context must be a JSON object", 'for example {"repo_root": "/src"}'))


def _find_server(
    path: str, plugins: Path | None, config: Config | None, server: str | None, token_file: Path | None, quiet: bool
) -> ServerClient | None:
    """The running server if `path` may be an id of one of its plugins; None to use a local host."""
    if server is None and (plugins is not None or lookup.is_place(Path(path))):
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
    if lookup.is_place(Path(path)):
        return local_host.discover_in(Path(path)), export
    full = full_name(path, export)
    if local_host.declares_server(config, path):
        return local_host.discover_in(plugins) if plugins is not None else [], full
    home = local_host.find_home(path, plugins)
    if home is None:
        absent = "a plugin id looks different" if remote.is_path(path) else "no installed or served plugin has this id"
        raise Refusal(call_view.no_such_plugin(path, absent))
    found = local_host.discover_in(home)
    local_host.check_id(path, found)
    return found, full


def _make_host(found: list[Found], config: Config | None, options: dict[str, Any], trace: bool, log: CallLog) -> Host:
    """A host that starts plugins on demand."""
    output.show_host_log(without=output.FAILED_STARTS)
    printer = call_view.StepPrinter() if trace else None
    with local_host.loading():
        host = local_host.make_host(found, config, **options, call_log=log, trace=printer)
    for written, meant in host.mistyped_ids.items():
        output.note(f"plugbay.toml has settings for {written!r}, but there is no such plugin; did you mean {meant!r}?")
    return host


def call_on_local_host(make_host: Callable[[CallLog], Host], request: CallRequest) -> CallOutcome:
    """Make the call on a new host and wait for its end."""
    from plugbay.host.records import MemoryCallLog

    log, output, status = MemoryCallLog(), None, None
    name, value, context, timeout, on_progress = request

    def attempt(host: Host) -> Coroutine[Any, Any, CallResult]:
        return host.attempt(name, value, timeout=timeout, context=context, on_progress=on_progress)

    try:
        output = local_host.run_with(make_host(log), attempt).output
    except local_host.Interrupted as interrupted:
        status = interrupted.exit_code
    return CallOutcome(name, log.records[-1] if log.records else None, output, status)


def call_on_server(client: ServerClient, request: CallRequest) -> CallOutcome:
    """Make the call on the server and wait for its end."""
    name, value, context, timeout, on_progress = request
    body = {"export": name, "input": value, "context": context}
    if timeout is not None:
        body["timeout_ms"] = max(1, round(timeout * 1000))
    if on_progress is None:
        return _to_outcome(name, client.post("/api/v1/calls", body))
    answer: Any = {}
    for kind, data in client.events("POST", "/api/v1/calls", body, stream="true"):
        if kind == "progress":
            on_progress(data)
        else:
            answer = data
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
        return refused.http_status == 404
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
    answered = answer.get("output")
    output = None if record.failure and answered is None else msgspec.Raw(msgspec.json.encode(answered))
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
