"""`plugbay tap ID`: show the frames between the host and a plugin live, and record them with `--record`.

`render.tap_view` prints frames; the host redacts secrets before they arrive here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plugbay.cli import local_host, lookup
from plugbay.cli.exit_codes import Exit, for_failure, refusal
from plugbay.cli.options import (
    CALL,
    ConfigFile,
    ExportCall,
    Grant,
    GrantAll,
    NoSandbox,
    Plugins,
    Timeout,
    full_name,
    parse_call,
)
from plugbay.cli.render import call_view, output

if TYPE_CHECKING:
    from plugbay.cli.render.tap_view import HumanView, JsonView
    from plugbay.host.config.config import Config
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.recording.recordings import Recorder
    from plugbay.host.recording.taps import TapStream

Where = Annotated[str, typer.Argument(metavar="PATH|ID", help="The plugin's folder, or its id.")]
Calls = Annotated[
    list[str] | None,
    typer.Option(CALL, metavar="EXPORT [JSON]", help="Call an export; repeatable. Without it, watch until Ctrl-C."),
]
Record = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a recording for plugbay replay.")]
Full = Annotated[bool, typer.Option("--full", help="Print each frame in full, indented.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each frame, as in a recording.")]


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
    """Show the frames between the host and a plugin, without secrets.

    → marks frames of the host, ← frames of the plugin, │ lines of its stderr. With --call the exit status is that of
    the first failed call.
    """
    from plugbay.cli.render import tap_view

    settings = local_host.load_config(config)
    found, plugin_id = _find(path, plugins, settings)
    if not as_json:
        local_host.announce(path, plugins, settings)
    settings = local_host.config_for(settings, path)
    calls = [parse_call(words) for words in call or ()]
    call_view.HumanView().show_warnings(found, grant or ())
    output.show_host_log()
    options = {"grant_all": grant_all, "unconfined": no_sandbox, "eager": not calls}
    host = local_host.make_host(found, settings, grants=grant, **options)
    spec = next(status.spec for status in host.plugins() if status.spec.id == plugin_id)
    if not calls and not spec.eager:
        output.note(f"{plugin_id} starts with its first call; {CALL} EXPORT JSON makes one")
    shown = tap_view.JsonView() if as_json else tap_view.HumanView(spec.contract, full=full)
    watch = _TapSession(plugin_id, calls, timeout, shown, record)
    try:
        local_host.run_with(host, watch.work)
    finally:
        watch.conclude()
    raise typer.Exit(watch.status)


def _find(path: str, plugins: Path | None, config: Config | None) -> tuple[list[Found], str]:
    """The plugins for the host, and the id of the tapped one; raises `Refusal`."""
    if lookup.is_place(Path(path)):
        found = local_host.discover_in(Path(path))
        ids = [item.spec.id for item in found if item.spec]
        if len(ids) == 1:
            return found, ids[0]
        hint = f"for example: plugbay tap {ids[0]} --plugins {path}"
        raise refusal(f"there are {len(ids)} plugins in {path}; name one", hint, Exit.USAGE)
    if local_host.declares_server(config, path):
        return [] if plugins is None else local_host.discover_in(plugins), path
    return local_host.discover_id(path, plugins), path


class _TapSession:
    """One tap, from before the plugin's start until after its end."""

    def __init__(
        self,
        plugin_id: str,
        calls: Sequence[ExportCall],
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
                await self._call(host, call)
            if not self._calls:
                await showing
        finally:
            showing.cancel()

    async def _show(self, stream: TapStream) -> None:
        async for item in stream:
            self._view.show(item)

    async def _call(self, host: Host, call: ExportCall) -> None:
        name = full_name(self._plugin_id, call.export)
        result = await host.attempt(name, call.input, timeout=self._timeout)
        if result.failure is not None:
            self.status = self.status or for_failure(result.failure)
            output.note(f"{name}: {result.failure.code}: {result.failure.message}")

    def conclude(self) -> None:
        """Show the last frames: the shutdown messages are complete only when the host has stopped."""
        for item in self._stream.rest() if self._stream is not None else ():
            self._view.show(item)
        if self._stream is not None and self._stream.dropped:
            output.note(f"{self._stream.dropped:,} frames came too fast and are not shown; --record writes all frames")
        if self._recorder is not None:
            recorder = self._recorder
            redacted = f", {output.count(recorder.redactions, 'value')} redacted" if recorder.redactions else ""
            output.note(f"recorded {output.count(recorder.frames, 'frame')} in {recorder.path}{redacted}")
