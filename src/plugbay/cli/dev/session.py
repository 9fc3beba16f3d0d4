"""`Session`: the plugin under development, on a host of its own, through all its saves.

Owns when the host is asked to reload and when it must be a new one, the calls that are made again and what they
answered the last time, and what of all that happens is worth telling. How it looks is the view's business; who saves
and who types is the desk's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from plugbay.cli import exit_codes, lookup
from plugbay.cli.dev import events
from plugbay.cli.exit_codes import Exit
from plugbay.cli.manifest import drift
from plugbay.cli.render.call_view import Refusal
from plugbay.conformance.differences import Passed, differences
from plugbay.host.admin.dev import warm
from plugbay.host.journal import OWN_LINE
from plugbay.host.supervision.resident import TROUBLE
from plugbay.link.recording import StderrLine
from plugbay.model.errors import Code, Failure, Origin

if TYPE_CHECKING:
    from plugbay.cli.dev.view import View
    from plugbay.host.calls.calls import CallResult
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host
    from plugbay.host.journal import Note
    from plugbay.host.recording.tap_stream import TapStream
    from plugbay.model.spec import Export, PluginSpec

    MakeHost = Callable[[Found], Host]

DRAIN_SECONDS = 2.0
"""For a call that runs when the plugin is saved; then it is given up, or a call that hangs would outlive its cure."""

SIGNALLED = -1
"""The exit code in a lifecycle event of a child that a signal ended."""

MOMENT = 0.1
"""Seconds by which the clock of a file system may be off."""


class Ask(NamedTuple):
    """A call that somebody wants to see the result of."""

    export: str
    input: Any

    @property
    def key(self) -> str:
        return f"{self.export} {self.input!r}"


class Session:
    """`renew` it with each save, `call` what it offers, `close` it."""

    def __init__(
        self,
        path: Path,
        contract: str | None,
        make_host: MakeHost,
        view: View,
        timeout: float | None = None,
        *,
        attached: bool = False,
    ) -> None:
        """`attached`: the author runs the plugin, and knows when it ends."""
        self._path = path
        self._contract = contract
        self._make_host = make_host
        self._view = view
        self._timeout = timeout
        self._attached = attached
        self._found: Found | None = None
        self._host: Host | None = None
        self._stream: TapStream | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._called = (0.0, 0.0)
        self._announced: PluginSpec | None = None
        self._asked: set[str] = set()
        self._answers: dict[str, Any] = {}
        self.asks: list[Ask] = []
        """What is called again after each save."""
        self.status: int = Exit.OK
        """Of the first thing that went wrong since the last save."""

    async def close(self) -> None:
        """End what runs, the host and its children included."""
        try:
            await self.give_up()
        finally:
            await self._dismiss()

    @property
    def exports(self) -> Sequence[Export]:
        """What can be called: as its manifest says, and as its greeting has."""
        return list(self._host.exports().values()) if self._host is not None else []

    # What was saved.

    async def renew(self, *, anew: bool = False) -> bool:
        """Take over what was saved; False when the manifest cannot be used, and then all stays as it was.

        `anew`: settings were saved, of which only a new host hears.
        """
        self.status = Exit.OK
        found = drift.noted(lookup.look(self._path, self._contract))
        if found.problems and (self._found is None or found.problems != self._found.problems or found.spec is None):
            self._view.show(events.Validated(found))
        if found.spec is None:
            self.status = lookup.status_of(found)
            return False
        await self.give_up(DRAIN_SECONDS)
        same = self._host is not None and self._found is not None and self._found.spec == found.spec and not anew
        self._found = found
        if same:
            assert self._host is not None
            await self._host.reload(found.spec.id)
            return True
        try:
            await self._move(found)
        except Refusal as refusal:
            self.status = refusal.status
            self._view.show(events.Failed(refusal.failure))
            return False
        return True

    async def _move(self, found: Found) -> None:
        """To a host that knows the plugin as it is now."""
        assert found.spec is not None
        host = self._make_host(found)
        await self._dismiss()
        self.announce(found.spec)
        host.journal.listener = self._noted
        await host.start()
        self._host = host
        self._stream = host.tap(found.spec.id)
        self._tasks = [asyncio.ensure_future(self._overhear(self._stream))]
        if not self._attached:
            self._tasks.append(asyncio.ensure_future(self._watch_lifecycle(host, found.spec.id)))

    def announce(self, spec: PluginSpec) -> None:
        """Say what the plugin is, unless that was said before."""
        if spec != self._announced:
            self._announced = spec
            self._view.show(events.Watching(spec))

    async def _dismiss(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            await host.stop()
            self._catch_up()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def first_words(self) -> None:
        """Wait until a plugin that is started without a call has greeted, or has failed to."""
        if self._running is not None and not self.asks:
            await asyncio.wait({self._running})

    async def _greet(self) -> None:
        """Start the plugin without a call, just to see that it can be started."""
        if self._host is None or self._found is None or self._found.spec is None:
            return
        began = time.monotonic()
        failure = await warm(self._host, self._found.spec.id)
        self._catch_up()
        if failure is None:
            self._view.show(events.Ready((time.monotonic() - began) * 1000))
        else:
            self._failed(failure)

    # What is called.

    @property
    def busy(self) -> bool:
        return self._running is not None

    def call(self, asks: Sequence[Ask]) -> asyncio.Task[None]:
        """Make these calls, one after the other, while other things happen; without any, see whether it starts."""
        self._called = (time.time(), float("inf"))
        self._running = task = asyncio.ensure_future(self._call_all(list(asks)))
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._called = (self._called[0], time.time())
        if self._running is task:
            self._running = None

    async def give_up(self, after: float = 0.0) -> None:
        """End the calls that run, if they do not end by themselves in time."""
        task = self._running
        if task is None or task is asyncio.current_task():
            return
        await asyncio.wait({task}, timeout=after)
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self._view.show(events.Remarked("the call that was running is given up"))

    def wrote(self, name: str) -> bool:
        """Whether a file was last written while the last calls ran."""
        try:
            at = (lookup.folder_of(self._path) / name).stat().st_mtime
        except OSError:
            return False
        return self._called[0] - MOMENT <= at <= self._called[1] + MOMENT

    async def _call_all(self, asks: list[Ask]) -> None:
        if not asks:
            await self._greet()
        for ask in asks:
            self._view.show(events.Asked(ask.export, ask.input, ask.key in self._asked))
            self._asked.add(ask.key)
            result = await self._ask(ask)
            if result is not None:
                self._answered(ask, result)

    async def _ask(self, ask: Ask) -> CallResult | None:
        if self._host is None or self._found is None or self._found.spec is None:
            self._view.show(events.Remarked("nothing can be called before the manifest is fixed"))
            return None
        prefix = f"{self._found.spec.id}/"
        name = ask.export if ask.export.startswith(prefix) else prefix + ask.export

        def progressed(item: Any) -> None:
            self._catch_up()
            self._view.show(events.Progressed(ask.export, item))

        return await self._host.attempt(name, ask.input, timeout=self._timeout, on_progress=progressed)

    def _answered(self, ask: Ask, result: CallResult) -> None:
        self._catch_up()
        changes = None
        if result.failure is None:
            value = result.value()
            if ask.key in self._answers:
                changes = differences(self._answers[ask.key], value, Passed())
            self._answers[ask.key] = value
        else:
            self.status = self.status or exit_codes.for_failure(result.failure)
        output = None if result.output is None else bytes(result.output)
        self._view.show(events.Answered(result.record, output, changes))

    # What happens meanwhile.

    def _failed(self, failure: Failure) -> None:
        self.status = self.status or exit_codes.for_failure(failure)
        self._view.show(events.Failed(failure))

    def _noted(self, plugin_id: str, note: Note) -> None:
        """What a lifecycle event says too is said by that."""
        if note.kind in TROUBLE:
            return
        self._catch_up()
        about = note.level if note.kind.startswith(OWN_LINE) else note.kind
        self._view.show(events.Noted(note.level, about, note.text))

    async def _overhear(self, stream: TapStream) -> None:
        async for item in stream:
            if isinstance(item, StderrLine):
                self._view.show(events.Said(item.text))

    def _catch_up(self) -> None:
        """Show what was written to stderr before that which is shown next."""
        for item in self._stream.rest() if self._stream is not None else ():
            if isinstance(item, StderrLine):
                self._view.show(events.Said(item.text))

    async def _watch_lifecycle(self, host: Host, plugin_id: str) -> None:
        """An end that no call reports; those that calls do report are told by them, and told better."""
        async with host.subscribe("plugin.lifecycle.>") as stream:
            async for event in stream:
                if event.topic.endswith(".crashed") and not self.busy:
                    self._catch_up()
                    code = event.payload["exit_code"]
                    how = "was ended by a signal" if code == SIGNALLED else f"ended with exit code {code}"
                    text = f"it {how} while nobody was calling it; the next call starts it again"
                    self._failed(Failure(Code.CRASHED, text, origin=Origin.PLUGIN, plugin=plugin_id))
