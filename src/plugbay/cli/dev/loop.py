"""`DevLoop`: the main loop of `plugbay dev`, and the watch of the plugin's folder.

Saved files, typed lines and attached processes arrive in one queue and are handled one at a time. `Session` runs the
plugin, `View` prints. Files that programs write (caches, builds, logs) and files that the plugin writes during its own
calls are ignored: they would reload it forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from plugbay.cli import local_host, lookup
from plugbay.cli.dev import events
from plugbay.cli.dev.rendezvous import Rendezvous, attach_command
from plugbay.cli.dev.session import Session
from plugbay.cli.dev.view import Command, HumanView, Prompt, View, parse
from plugbay.cli.exit_codes import Exit, Refusal
from plugbay.cli.options import ExportCall, read_json
from plugbay.cli.paths import CONFIG_NAME
from plugbay.cli.render.schema_text import example
from plugbay.host.admin.dev import attached, under_development

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host


class Saved(msgspec.Struct, frozen=True):
    """The author saved files."""

    paths: Sequence[str]


class Line(msgspec.Struct, frozen=True):
    """A line typed at the prompt; None at the end of input."""

    text: str | None


class ProcessAttached(msgspec.Struct, frozen=True):
    """A process that the author started has attached."""

    pid: int


class DevOptions(msgspec.Struct, frozen=True):
    """The options of the command line."""

    path: Path
    contract: str | None
    calls: Sequence[ExportCall]
    timeout: float | None
    once: bool
    attach: bool
    config: Path | None
    grants: Sequence[str]
    host_options: dict[str, Any]


class DevLoop:
    """Queues saves, typed lines and attached processes, and handles them one at a time."""

    def __init__(self, options: DevOptions, view: View, *, typed: bool) -> None:
        self._options = options
        self._root = lookup.folder_of(options.path).resolve()
        self._view = view
        self._typed = typed
        self._own = PluginWrites()
        self._rendezvous: Rendezvous | None = None
        self._attach_offered = False
        self._process = 0
        self._returns = False
        self._session = Session(
            options.path,
            options.contract,
            self._make_host,
            view,
            options.timeout,
            attached=options.attach,
            updates_manifests=not options.once,
        )
        self._session.repeated_calls = list(options.calls)

    def run(self) -> int:
        """Run until the end; return the exit status."""
        return local_host.run_with(self, DevLoop._work)

    async def __aenter__(self) -> Self:
        self._queue: asyncio.Queue[Saved | Line | ProcessAttached] = asyncio.Queue()
        self._stop = asyncio.Event()
        self._watching = asyncio.ensure_future(self._watch())
        self._prompt = self._make_prompt() if self._typed else None
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop the plugin before the rendezvous it is attached to; both must end even if the terminal is gone."""
        self._stop.set()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        if self._prompt is not None:
            self._prompt.close()
        try:
            await self._session.close()
        finally:
            if self._rendezvous is not None:
                self._rendezvous.close()

    async def _work(self) -> int:
        if self._options.attach:
            self._open_rendezvous()
        elif await self._session.reload():
            await self._repeat_calls()
        if self._prompt is not None:
            if self._rendezvous is None:
                await self._session.wait_for_greeting()
                self._show_usage()
            self._prompt.open()
        return await self._handle_events()

    async def _handle_events(self) -> int:
        """Handle queued items one at a time; return the exit status."""
        if self._options.once and not self._options.attach:
            return self._session.status
        while True:
            item = await self._queue.get()
            match item:
                case Saved():
                    await self._handle_saved(item.paths)
                case ProcessAttached():
                    await self._handle_attached(item.pid)
                    if self._options.once:
                        return self._session.status
                case Line() if not await self._handle_line(item.text):
                    return Exit.OK
                case Line() if self._prompt is not None:
                    self._prompt.ask_next()

    async def _repeat_calls(self) -> None:
        """Start the repeated calls; wait for them only with `--once`."""
        calls = self._session.call(self._session.repeated_calls)
        if self._options.once:
            await asyncio.wait({calls})

    # Saved files.

    async def _watch(self) -> None:
        if self._options.once:
            return
        try:
            async for paths in watch_saves(self._root, self._stop):
                self._queue.put_nowait(Saved(paths))
        except (OSError, RuntimeError) as error:
            self._view.show(events.Remark(f"the folder cannot be watched ({error}); type reload after a save"))

    async def _handle_saved(self, paths: Sequence[str]) -> None:
        paths = self._author_changes(paths)
        if not paths:
            return
        self._view.show(events.Changed(paths))
        if self._rendezvous is not None and not self._returns:
            if not self._attach_offered:
                self._offer_attach(self._rendezvous)
            elif self._process:
                self._view.show(events.Remark("restart the plugin in its terminal; then its last call is repeated"))
            return
        if await self._session.reload(new_host=CONFIG_NAME in paths):
            await self._repeat_calls()

    def _author_changes(self, paths: Sequence[str]) -> list[str]:
        """Leave out generated manifests, and files that the plugin writes during its own calls: they would reload it
        forever."""
        left = [name for name in paths if name not in self._own.known and not self._session.was_generated(name)]
        if not left or not all(map(self._session.written_during_calls, left)):
            self._own.forget()
            return left
        found = self._own.record(left)
        if found:
            text = f"each call of the plugin writes {', '.join(found)}, so this is not watched any more"
            self._view.show(events.Remark(text))
        return [name for name in left if name not in found]

    # Typed lines.

    def _make_prompt(self) -> Prompt:
        loop = asyncio.get_running_loop()

        def on_line(text: str | None) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, Line(text))

        prompt = Prompt(on_line, lambda: [export.name for export in self._session.exports])
        assert isinstance(self._view, HumanView)
        self._view.print_above = prompt.print_above
        return prompt

    def _show_usage(self) -> None:
        export = next((export for export in self._session.exports if export.kind == "tool"), None)
        typed = f"{export.name} {example(export.input_schema)}" if export else "help"
        self._view.show(events.Remark(f"watching; type {typed} to call an export, or help"))

    async def _handle_line(self, text: str | None) -> bool:
        """Execute a typed line; False means quit."""
        typed = parse(text) if text is not None else None
        if text is None or (typed and typed.command == "quit"):
            return False
        if typed is not None:
            await self._run_command(typed)
        return True

    async def _run_command(self, typed: Command) -> None:
        session = self._session
        match typed.command:
            case "help":
                self._view.list_commands()
            case "tools":
                self._view.list_exports(session.exports)
            case "cancel":
                await session.cancel_calls()
            case "reload":
                if await session.reload():
                    await self._repeat_calls()
            case _ if session.busy:
                self._view.show(events.Remark("a call is running; cancel stops it"))
            case "again" if not session.repeated_calls:
                self._view.show(events.Remark("nothing has been called yet"))
            case "again":
                session.call(session.repeated_calls)
            case _:
                self._call(typed)

    def _call(self, typed: Command) -> None:
        # `-` means stdin for `read_json`, and stdin is the terminal that the prompt reads.
        given = "" if typed.given == "-" else typed.given
        try:
            calls = [ExportCall(typed.export, read_json(given, f"the input of {typed.export}"))]
        except Refusal as refusal:
            self._view.show(events.Remark(f'{refusal.failure.message}; JSON is like {{"key": "value"}}'))
            return
        known = {export.name for export in self._session.exports}
        if typed.export.rpartition("/")[2] in known:
            self._session.repeated_calls = calls
        self._session.call(calls)

    # Attached processes.

    def _open_rendezvous(self) -> None:
        self._rendezvous = Rendezvous(self._root.name, self)
        self._rendezvous.open()
        self._offer_attach(self._rendezvous)

    def _offer_attach(self, rendezvous: Rendezvous) -> None:
        """Print the command that attaches the plugin, once the manifest is valid."""
        found = lookup.find(self._options.path, self._options.contract)
        if found.problems:
            self._view.show(events.Validated(found))
        if found.spec is not None:
            self._attach_offered = True
            self._session.announce(found.spec)
            self._view.show(
                events.AttachOffered(rendezvous.address, *attach_command(found.spec, rendezvous.address, Path.cwd()))
            )

    async def _handle_attached(self, pid: int) -> None:
        self._view.show(events.Attached(pid))
        if await self._session.reload():
            await self._repeat_calls()

    def on_waiting(self) -> None:
        self._view.show(events.Remark("waiting for the plugin to attach"))

    def on_attached(self, pid: int, returns: bool) -> None:
        """Queue a new process only: a process that returns for its next conversation is already known."""
        self._returns = returns
        if pid != self._process:
            self._process = pid
            self._queue.put_nowait(ProcessAttached(pid))

    def on_detached(self, pid: int) -> None:
        if pid == self._process and not self._stop.is_set():
            self._process = 0
            self._view.show(events.Detached(pid))

    def on_rejected(self, why: str) -> None:
        self._view.show(events.Remark(f"a process was rejected: {why}"))

    # The host.

    def _make_host(self, found: Found) -> Host:
        assert found.spec is not None
        options = self._options
        spec = under_development(found.spec)
        if self._rendezvous is not None:
            spec = attached(spec, self._rendezvous.command)
        settings = local_host.load_config(options.config)
        return local_host.make_host(
            [replace(found, spec=spec)], settings, grants=options.grants, **options.host_options
        )


DEBOUNCE_MS = 80
"""Quiet time after which saved files form one batch; an editor writes, renames and sets modes well within it."""

MAX_DELAY_MS = 1000
"""A batch ends after this time even without a quiet moment, as during a long checkout."""

FOLDERS = frozenset("__pycache__ node_modules logs log target dist build venv env htmlcov".split())
"""Ignored folder names; names that begin with a dot are ignored too."""

ENDINGS = tuple(".pyc .pyo .log .db .db-journal .db-wal .db-shm .sqlite .sqlite3 .swp .swx .tmp .bak .orig ~".split())

OWN_WRITES = 3
"""Consecutive calls that wrote a file before it counts as the plugin's own."""


def is_watched(path: Path, root: Path) -> bool:
    """Whether a change of this file may be a save of the author."""
    try:
        parts = path.relative_to(root).parts
    except ValueError:
        return False
    if not parts or any(part.startswith(".") or part in FOLDERS for part in parts[:-1]):
        return False
    name = parts[-1]
    return not name.startswith((".", "#")) and not name.endswith(ENDINGS) and not name.isdigit() and name not in FOLDERS


class PluginWrites:
    """Learns which files the plugin itself writes during its calls."""

    def __init__(self) -> None:
        self._suspects: dict[str, int] = {}
        self.known: set[str] = set()

    def record(self, written: Iterable[str]) -> list[str]:
        """Record the files written during a repeated call; return those that are now known as the plugin's own."""
        names = set(written)
        self._suspects = {name: self._suspects.get(name, 0) + 1 for name in names}
        found = sorted(name for name, times in self._suspects.items() if times >= OWN_WRITES)
        self.known.update(found)
        return found

    def forget(self) -> None:
        """Clear the suspects: the author has saved a file, so any of them may be the author's."""
        self._suspects.clear()


async def watch_saves(root: Path, stop: asyncio.Event) -> AsyncIterator[list[str]]:
    """Yield batches of saved files, relative to the root; ends when `stop` is set.

    The root must be a real path without symbolic links, because the system reports real paths.
    """
    from watchfiles import awatch

    changes = awatch(
        root,
        watch_filter=lambda _, path: is_watched(Path(path), root),
        debounce=MAX_DELAY_MS,
        step=DEBOUNCE_MS,
        stop_event=stop,
        ignore_permission_denied=True,
    )
    async for batch in changes:
        yield sorted({str(Path(path).relative_to(root)) for _, path in batch})
