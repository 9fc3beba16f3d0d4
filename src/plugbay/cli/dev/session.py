"""`Session`: the plugin under development, on its own host, across all saves.

Decides when the host reloads the plugin and when a new host is needed, repeats calls and compares their results with
the previous ones, and reports events to a `View`. `DevLoop` reports saved files and requested calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugbay.cli import exit_codes, lookup
from plugbay.cli.dev import events
from plugbay.cli.exit_codes import Exit, Refusal
from plugbay.cli.manifest import generated
from plugbay.cli.options import ExportCall, full_name
from plugbay.conformance.replay.differences import IgnoredPaths, differences
from plugbay.host.admin.dev import warm
from plugbay.host.journal import OWN_LINE
from plugbay.host.supervision.resident import TROUBLE
from plugbay.link.recording import StderrLine
from plugbay.model.errors import Code, Failure, Origin

if TYPE_CHECKING:
    from plugbay.cli.dev.view import View
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.journal import Note
    from plugbay.host.recording.taps import TapStream
    from plugbay.host.request import CallResult
    from plugbay.model.spec import Export, PluginSpec

    MakeHost = Callable[[Found], Host]

DRAIN_SECONDS = 2.0
"""Grace for calls that run when the plugin is saved; a hanging call is cancelled so that the fix can be loaded."""

SIGNALLED = -1
"""Exit code in a lifecycle event when a signal ended the child."""

LOAD_SECONDS = 5.0
"""For a changed source to reach its `plugin.run()`; after that its manifest stays as it is."""

CLOCK_SKEW = 0.1
"""Seconds by which the clock of a file system may differ from ours."""


class Session:
    """`reload` it after each save, `call` its exports, `close` it at the end."""

    def __init__(
        self,
        path: Path,
        contract: str | None,
        make_host: MakeHost,
        view: View,
        timeout: float | None = None,
        *,
        attached: bool = False,
        updates_manifests: bool = True,
    ) -> None:
        """`attached`: the author runs the plugin in a terminal, so its end is not reported."""
        self._path = path
        self._contract = contract
        self._make_host = make_host
        self._view = view
        self._timeout = timeout
        self._attached = attached
        self._updates_manifests = updates_manifests
        self._generated: dict[str, str] = {}
        """The text of each manifest that was generated here, by path."""
        self._found: Found | None = None
        self._host: Host | None = None
        self._stream: TapStream | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._called = (0.0, 0.0)
        self._announced: PluginSpec | None = None
        self._made: set[str] = set()
        self._answers: dict[str, Any] = {}
        self.repeated_calls: list[ExportCall] = []
        """Made again after each save."""
        self.status: int = Exit.OK
        """Exit status of the first failure since the last save."""

    async def close(self) -> None:
        """Cancel calls and stop the host with its children."""
        try:
            await self.cancel_calls()
        finally:
            await self._stop_host()

    @property
    def exports(self) -> Sequence[Export]:
        """The exports of the manifest and those of the greeting."""
        return list(self._host.exports().values()) if self._host is not None else []

    # Reloading.

    async def reload(self, *, new_host: bool = False) -> bool:
        """Load the saved plugin; False when its manifest is invalid, and then the running plugin stays.

        `new_host`: plugbay.toml was saved, and a running host does not read it again.
        """
        self.status = Exit.OK
        if self._updates_manifests:
            await self._update_manifests()
        found = generated.add_drift_warnings(lookup.find(self._path, self._contract))
        if found.problems and (self._found is None or found.problems != self._found.problems or found.spec is None):
            self._view.show(events.Validated(found))
        if found.spec is None:
            self.status = lookup.exit_status(found)
            return False
        await self.cancel_calls(DRAIN_SECONDS)
        same = self._host is not None and self._found is not None and self._found.spec == found.spec and not new_host
        self._found = found
        if same:
            assert self._host is not None
            await self._host.reload(found.spec.id)
            return True
        try:
            await self._replace_host(found)
        except Refusal as refusal:
            self.status = refusal.status
            self._view.show(events.Failed(refusal.failure))
            return False
        return True

    async def _update_manifests(self) -> None:
        """Generate manifests again whose source has changed. If that fails, so does the start, which says why."""
        from plugbay.cli.manifest.command import update

        with suppress(generated.Unusable):
            written = await asyncio.to_thread(update, lookup.folder_of(self._path), LOAD_SECONDS)
            self._generated |= {path: plan.text for path, plan in written.items()}
            drifted = [path for path, plan in written.items() if plan.drifted]
            if drifted:
                self._view.show(events.Generated(drifted))

    def was_generated(self, name: str) -> bool:
        """Whether a file is as `reload` wrote it, so that its change is none of the author's."""
        try:
            return (lookup.folder_of(self._path) / name).read_bytes().decode() == self._generated.get(name)
        except (OSError, ValueError):
            return False

    async def _replace_host(self, found: Found) -> None:
        """Start a host with the plugin as it is now, in place of the old one."""
        assert found.spec is not None
        host = self._make_host(found)
        await self._stop_host()
        self.announce(found.spec)
        host.journal.listen(self._show_note)
        await host.start()
        self._host = host
        self._stream = host.tap(found.spec.id)
        self._tasks = [asyncio.ensure_future(self._show_stderr(self._stream))]
        if not self._attached:
            self._tasks.append(asyncio.ensure_future(self._watch_lifecycle(host, found.spec.id)))

    def announce(self, spec: PluginSpec) -> None:
        """Show the plugin and its exports, unless they were shown before."""
        if spec != self._announced:
            self._announced = spec
            self._view.show(events.Watching(spec))

    async def _stop_host(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.stop()
            self._flush_stderr()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def wait_for_greeting(self) -> None:
        """Wait until a plugin that was started without a call has completed its handshake or failed."""
        if self._running is not None and not self.repeated_calls:
            await asyncio.wait({self._running})

    async def _check_start(self) -> None:
        """Start the plugin without a call, to report whether it starts."""
        if self._host is None or self._found is None or self._found.spec is None:
            return
        began = time.monotonic()
        failure = await warm(self._host, self._found.spec.id)
        self._flush_stderr()
        if failure is None:
            self._view.show(events.Ready((time.monotonic() - began) * 1000))
        else:
            self._report_failure(failure)

    # Calls.

    @property
    def busy(self) -> bool:
        return self._running is not None

    def call(self, calls: Sequence[ExportCall]) -> asyncio.Task[None]:
        """Make these calls in order, in a background task; with none, only start the plugin."""
        self._called = (time.time(), float("inf"))
        self._running = task = asyncio.ensure_future(self._call_all(list(calls)))
        task.add_done_callback(self._calls_done)
        return task

    def _calls_done(self, task: asyncio.Task[None]) -> None:
        self._called = (self._called[0], time.time())
        if self._running is task:
            self._running = None

    async def cancel_calls(self, after: float = 0.0) -> None:
        """Cancel the running calls unless they end within `after` seconds."""
        task = self._running
        if task is None or task is asyncio.current_task():
            return
        await asyncio.wait({task}, timeout=after)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._view.show(events.Remark("the running call is cancelled"))

    def written_during_calls(self, name: str) -> bool:
        """Whether a file was last written while the last calls ran."""
        try:
            at = (lookup.folder_of(self._path) / name).stat().st_mtime
        except OSError:
            return False
        return self._called[0] - CLOCK_SKEW <= at <= self._called[1] + CLOCK_SKEW

    async def _call_all(self, calls: list[ExportCall]) -> None:
        if not calls:
            await self._check_start()
        for call in calls:
            self._view.show(events.CallStarted(call.export, call.input, call.key in self._made))
            self._made.add(call.key)
            result = await self._make_call(call)
            if result is not None:
                self._show_result(call, result)

    async def _make_call(self, call: ExportCall) -> CallResult | None:
        if self._host is None or self._found is None or self._found.spec is None:
            self._view.show(events.Remark("correct the manifest before you call an export"))
            return None
        name = full_name(self._found.spec.id, call.export)

        def on_progress(item: Any) -> None:
            self._flush_stderr()
            self._view.show(events.CallProgressed(call.export, item))

        return await self._host.attempt(name, call.input, timeout=self._timeout, on_progress=on_progress)

    def _show_result(self, call: ExportCall, result: CallResult) -> None:
        self._flush_stderr()
        changes = None
        if result.failure is None:
            value = result.value()
            if call.key in self._answers:
                changes = differences(self._answers[call.key], value, IgnoredPaths())
            self._answers[call.key] = value
        else:
            self.status = self.status or exit_codes.for_failure(result.failure)
        output = None if result.output is None else bytes(result.output)
        self._view.show(events.CallFinished(result.record, output, changes))

    # Reports.

    def _report_failure(self, failure: Failure) -> None:
        self.status = self.status or exit_codes.for_failure(failure)
        self._view.show(events.Failed(failure))

    def _show_note(self, plugin_id: str, note: Note) -> None:
        """Show a journal note; `_watch_lifecycle` reports the ones about trouble."""
        if note.kind in TROUBLE:
            return
        self._flush_stderr()
        about = note.level if note.kind.startswith(OWN_LINE) else note.kind
        self._view.show(events.LogNoted(note.level, about, note.text))

    async def _show_stderr(self, stream: TapStream) -> None:
        async for item in stream:
            if isinstance(item, StderrLine):
                self._view.show(events.StderrWritten(item.text))

    def _flush_stderr(self) -> None:
        """Show pending stderr lines first, so that they appear above the event they precede."""
        for item in self._stream.rest() if self._stream is not None else ():
            if isinstance(item, StderrLine):
                self._view.show(events.StderrWritten(item.text))

    async def _watch_lifecycle(self, host: Host, plugin_id: str) -> None:
        """Report a crash while no call runs; the failure of a call reports its own crash in more detail."""
        async with host.subscribe("plugin.lifecycle.>") as stream:
            async for event in stream:
                if event.topic.endswith(".crashed") and not self.busy:
                    self._flush_stderr()
                    code = event.payload["exit_code"]
                    how = "was killed by a signal" if code == SIGNALLED else f"exited with code {code}"
                    text = f"the plugin {how} while no call was running; the next call starts it again"
                    self._report_failure(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, plugin=plugin_id))
