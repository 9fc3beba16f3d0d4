"""`plugbay tap ID`: show the frames between the host and a plugin live, and record them with `--record`.

`render.tap_view` prints frames; the host redacts secrets before they arrive here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.call import ConfigFile, Grant, GrantAll, NoSandbox, Timeout, load_config, read_json
from plugbay.cli.exit_codes import Exit, for_failure
from plugbay.cli.help import HelpCommand
from plugbay.cli.render import call_view, output
from plugbay.cli.render.call_view import Refusal
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.cli.render.tap_view import HumanView, JsonView
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.recording.recordings import Recorder
    from plugbay.host.recording.taps import TapStream

CALL = "--call"

JSON_BEGINS = tuple('{["-0123456789tfn')
"""First characters of a JSON value; an argument that begins otherwise is not the input of a call."""

Where = Annotated[str, typer.Argument(metavar="PATH|ID", help="The plugin's folder, or its id.")]
Plugins = Annotated[Path | None, typer.Option(metavar="DIR", help="Where to look for an id, if it is not installed.")]
Calls = Annotated[
    list[str] | None,
    typer.Option(CALL, metavar="EXPORT [JSON]", help="Make it talk; repeatable. Without it, watch until Ctrl-C."),
]
Record = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a recording; plugbay replay reads it.")]
Full = Annotated[bool, typer.Option("--full", help="Show every frame whole, indented.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each frame, as in a recording.")]


class TapCommand(HelpCommand):
    """`--call` takes an optional JSON argument after the name of the export."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        words = list(args)
        for at in reversed([at for at, word in enumerate(words) if word == CALL]):
            if words[at + 2 : at + 3] and words[at + 2].startswith(JSON_BEGINS) and not words[at + 2].startswith("--"):
                words[at + 1 : at + 3] = [f"{words[at + 1]} {words[at + 2]}"]
        return super().parse_args(ctx, words)


class TapCall(NamedTuple):
    """A call to make while tapping."""

    export: str
    input: Any


def tap(
    path: Where,
    call: Calls = None,
    record: Record = None,
    full: Full = False,
    timeout: Timeout = None,
    grant: Grant = None,
    grant_all: GrantAll = False,
    no_sandbox: NoSandbox = False,
    config: ConfigFile = None,
    plugins: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """Show what really passes between the host and a plugin, frame by frame, without secrets.

    → is the host's word, ← the plugin's, │ a line on its stderr. With --call the exit status is that of the first call
    that failed.
    """
    from plugbay.cli.render import tap_view

    settings = load_config(config)
    found, plugin_id = _find(path, plugins, settings)
    settings = local_host.config_for(settings, path)
    calls = [_parse_call(words) for words in call or ()]
    call_view.HumanView().show_warnings(found, grant or ())
    output.show_host_log()
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "eager": not calls}
    host = local_host.make_host(found, settings, grants=grant, **options)
    spec = next(status.spec for status in host.plugins() if status.spec.id == plugin_id)
    if not calls and not spec.eager:
        output.note(f"{plugin_id} starts when it is called, so nothing may come: {CALL} EXPORT JSON makes it talk")
    shown = tap_view.JsonView() if as_json else tap_view.HumanView(spec.contract, full=full)
    watch = _TapSession(plugin_id, calls, timeout, shown, record)
    try:
        local_host.run_with(host, watch.work)
    finally:
        watch.conclude()
    raise typer.Exit(watch.status)


def _find(path: str, plugins: Path | None, config: Config | None) -> tuple[list[Found], str]:
    """The plugins for the host, and the id of the tapped one; raises `Refusal`."""
    place = lookup.folder_of(Path(path))
    if place.is_dir():
        found = local_host.discover_in(place)
        ids = [item.spec.id for item in found if item.spec]
        if len(ids) == 1:
            return found, ids[0]
        hint = f"for example: plugbay tap {ids[0]} --plugins {path}"
        raise Refusal(
            Failure(Code.INVALID_INPUT, f"there are {len(ids)} plugins in {path}; name one", detail={"hint": hint})
        )
    if local_host.declares_server(config, path):
        return [] if plugins is None else local_host.discover_in(plugins), path
    home = local_host.find_home(path, plugins)
    if home is None:
        hint = "to name a plugin by its id, say where it is: --plugins DIR"
        raise Refusal(Failure(Code.NOT_FOUND, f"there is no folder {path}", detail={"hint": hint}))
    found = local_host.discover_in(home)
    local_host.check_id(path, found)
    return found, path


def _parse_call(words: str) -> TapCall:
    export, _, given = words.partition(" ")
    return TapCall(export, read_json(given or "{}", f"the input of {export}"))


class _TapSession:
    """One tap, from before the plugin's start until after its end."""

    def __init__(
        self,
        plugin_id: str,
        calls: Sequence[TapCall],
        timeout: float | None,
        view: HumanView | JsonView,
        record: Path | None,
    ) -> None:
        self._plugin_id = plugin_id
        self._calls = calls
        self._timeout = timeout
        self._view = view
        self._record = record
        self._recorder: Recorder | None = None
        self._stream: TapStream | None = None
        self.status: int = Exit.OK

    async def work(self, host: Host) -> None:
        """Show frames while the calls run; without calls, until a signal."""
        import asyncio

        if self._record is not None:
            self._recorder = host.taps.record(self._plugin_id, self._record)
        self._stream = host.tap(self._plugin_id)
        showing = asyncio.ensure_future(self._show(self._stream))
        try:
            for call in self._calls:
                await self._ask(host, call)
            if not self._calls:
                await showing
        finally:
            showing.cancel()

    async def _show(self, stream: TapStream) -> None:
        async for item in stream:
            self._view.show(item)

    async def _ask(self, host: Host, call: TapCall) -> None:
        prefix = f"{self._plugin_id}/"
        name = call.export if call.export.startswith(prefix) else prefix + call.export
        result = await host.attempt(name, call.input, timeout=self._timeout)
        if result.failure is not None:
            self.status = self.status or for_failure(result.failure)
            output.note(f"{name}: {result.failure.code}: {result.failure.message}")

    def conclude(self) -> None:
        """Show the last frames: the shutdown messages are complete only when the host has stopped."""
        for item in self._stream.rest() if self._stream is not None else ():
            self._view.show(item)
        if self._stream is not None and self._stream.dropped:
            output.note(f"{self._stream.dropped:,} frames came faster than they could be shown; --record has them all")
        if self._recorder is not None:
            recorder = self._recorder
            redacted = f", {output.count(recorder.redactions, 'value')} redacted" if recorder.redactions else ""
            output.note(f"{output.count(recorder.frames, 'frame')} recorded in {recorder.path}{redacted}")
