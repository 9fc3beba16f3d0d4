"""`Desk`: where saves, typed lines and processes arrive during `plugbay dev`, and are dealt with one at a time.

Owns what each of them leads to. What is done with the plugin is the session's business, how it looks the view's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from plugbay.cli import local_host, lookup
from plugbay.cli.call import load_config, read_json
from plugbay.cli.dev import events
from plugbay.cli.dev.prompt import Prompt, Typed, parse
from plugbay.cli.dev.rendezvous import Lobby, invitation
from plugbay.cli.dev.session import Ask, Session
from plugbay.cli.dev.view import HumanView, View
from plugbay.cli.dev.watch import OwnFiles, saves
from plugbay.cli.exit_codes import Exit
from plugbay.cli.paths import CONFIG_NAME
from plugbay.cli.render.call_view import Refusal
from plugbay.cli.render.schema_text import example
from plugbay.host.admin.dev import attached, under_development

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found
    from plugbay.host.host import Host


@dataclass(frozen=True, slots=True)
class Saved:
    """Files of the author's have changed."""

    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """Somebody has typed; None: there is nobody any more."""

    text: str | None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A process of the author's is here."""

    pid: int


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for on the command line."""

    path: Path
    contract: str | None
    asks: Sequence[Ask]
    timeout: float | None
    once: bool
    attach: bool
    config: Path | None
    grants: Sequence[str]
    options: dict[str, Any]


def ask_of(words: str) -> Ask:
    """The call that these words ask for; raises `Refusal`."""
    export, _, given = words.partition(" ")
    return Ask(export, read_json(given.strip() or "{}", f"the input of {export}"))


class Desk:
    """Where saves, lines and processes arrive, and are dealt with one at a time."""

    def __init__(self, wishes: Wishes, view: View, *, typed: bool) -> None:
        self._wishes = wishes
        self._root = lookup.folder_of(wishes.path).resolve()
        self._view = view
        self._typed = typed
        self._own = OwnFiles()
        self._lobby: Lobby | None = None
        self._invited = False
        self._process = 0
        self._returns = False
        self._session = Session(
            wishes.path, wishes.contract, self._make_host, view, wishes.timeout, attached=wishes.attach
        )
        self._session.asks = list(wishes.asks)

    def run(self) -> int:
        """The status to leave with."""
        return local_host.visit(self, Desk._work)

    async def __aenter__(self) -> Self:
        self._queue: asyncio.Queue[Saved | Line | Arrived] = asyncio.Queue()
        self._stop = asyncio.Event()
        self._watching = asyncio.ensure_future(self._watch())
        self._prompt = self._make_prompt() if self._typed else None
        return self

    async def __aexit__(self, *_: object) -> None:
        """The plugin leaves before the place where it is attached does; both do, even when the terminal has gone."""
        self._stop.set()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        if self._prompt is not None:
            self._prompt.close()
        try:
            await self._session.close()
        finally:
            if self._lobby is not None:
                self._lobby.close()

    async def _work(self) -> int:
        if self._wishes.attach:
            self._open_lobby()
        elif await self._session.renew():
            await self._again()
        if self._prompt is not None:
            if self._lobby is None:
                await self._session.first_words()
                self._say_how()
            self._prompt.open()
        return await self._deal()

    async def _deal(self) -> int:
        """Take what happens, one at a time; the status at the end."""
        if self._wishes.once and not self._wishes.attach:
            return self._session.status
        while True:
            item = await self._queue.get()
            match item:
                case Saved():
                    await self._saved(item.paths)
                case Arrived():
                    await self._arrived(item.pid)
                    if self._wishes.once:
                        return self._session.status
                case Line() if not await self._heed(item.text):
                    return Exit.OK
                case Line() if self._prompt is not None:
                    self._prompt.go_on()

    async def _again(self) -> None:
        """The calls that are repeated; nobody but a script waits for their end."""
        calls = self._session.call(self._session.asks)
        if self._wishes.once:
            await asyncio.wait({calls})

    # Saves.

    async def _watch(self) -> None:
        if self._wishes.once:
            return
        try:
            async for paths in saves(self._root, self._stop):
                self._queue.put_nowait(Saved(paths))
        except (OSError, RuntimeError) as error:
            self._view.show(events.Remarked(f"the folder cannot be watched ({error}); type `reload` after a save"))

    async def _saved(self, paths: Sequence[str]) -> None:
        paths = self._of_the_author(paths)
        if not paths:
            return
        self._view.show(events.Changed(paths))
        if self._lobby is not None and not self._returns:
            if not self._invited:
                self._invite(self._lobby)
            elif self._process:
                self._view.show(events.Remarked("restart the plugin in its terminal; its last call is made again then"))
            return
        if await self._session.renew(anew=CONFIG_NAME in paths):
            await self._again()

    def _of_the_author(self, paths: Sequence[str]) -> list[str]:
        """Without those that the plugin writes itself when it is called, which would reload it for ever."""
        left = [name for name in paths if name not in self._own.known]
        if not left or not all(map(self._session.wrote, left)):
            self._own.forget()
            return left
        found = self._own.called(left)
        if found:
            text = f"{', '.join(found)} is written whenever the plugin is called; it is not watched any more"
            self._view.show(events.Remarked(text))
        return [name for name in left if name not in found]

    # Lines.

    def _make_prompt(self) -> Prompt:
        loop = asyncio.get_running_loop()

        def hand_over(text: str | None) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, Line(text))

        prompt = Prompt(hand_over, lambda: [export.name for export in self._session.exports])
        assert isinstance(self._view, HumanView)
        self._view.aside = prompt.aside
        return prompt

    def _say_how(self) -> None:
        export = next((export for export in self._session.exports if export.kind == "tool"), None)
        typed = f"{export.name} {example(export.input_schema)}" if export else "help"
        self._view.show(events.Remarked(f"watching; type `{typed}` to call it, or `help`"))

    async def _heed(self, text: str | None) -> bool:
        """Do what was typed; False when that is to leave."""
        typed = parse(text) if text is not None else None
        if text is None or (typed and typed.command == "quit"):
            return False
        if typed is not None:
            await self._obey(typed)
        return True

    async def _obey(self, typed: Typed) -> None:
        session = self._session
        match typed.command:
            case "help":
                self._view.list_commands()
            case "tools":
                self._view.list_exports(session.exports)
            case "cancel":
                await session.give_up()
            case "reload":
                if await session.renew():
                    await self._again()
            case _ if session.busy:
                self._view.show(events.Remarked("a call is running; `cancel` gives it up"))
            case "again" if not session.asks:
                self._view.show(events.Remarked("nothing has been called yet"))
            case "again":
                session.call(session.asks)
            case _:
                self._call(typed)

    def _call(self, typed: Typed) -> None:
        # A dash would have us read from the terminal that the prompt reads from.
        given = "" if typed.given == "-" else typed.given
        try:
            asks = [Ask(typed.export, read_json(given, f"the input of {typed.export}"))]
        except Refusal as refusal:
            self._view.show(events.Remarked(f'{refusal.failure.message}; JSON is like {{"key": "value"}}'))
            return
        known = {export.name for export in self._session.exports}
        if typed.export.rpartition("/")[2] in known:
            self._session.asks = asks
        self._session.call(asks)

    # Processes that attach.

    def _open_lobby(self) -> None:
        self._lobby = Lobby(self._root.name, self)
        self._lobby.open()
        self._invite(self._lobby)

    def _invite(self, lobby: Lobby) -> None:
        """Say how to run the plugin, as soon as its manifest does."""
        found = lookup.look(self._wishes.path, self._wishes.contract)
        if found.problems:
            self._view.show(events.Validated(found))
        if found.spec is not None:
            self._invited = True
            self._session.announce(found.spec)
            self._view.show(events.Invited(lobby.address, *invitation(found.spec, lobby.address, Path.cwd())))

    async def _arrived(self, pid: int) -> None:
        self._view.show(events.Attached(pid))
        if await self._session.renew():
            await self._again()

    def waiting(self) -> None:
        self._view.show(events.Remarked("waiting for the plugin to attach"))

    def attached(self, pid: int, returns: bool) -> None:
        """One that only comes back for its next conversation is no news."""
        self._returns = returns
        if pid != self._process:
            self._process = pid
            self._queue.put_nowait(Arrived(pid))

    def detached(self, pid: int) -> None:
        if pid == self._process and not self._stop.is_set():
            self._process = 0
            self._view.show(events.Detached(pid))

    def turned_away(self, why: str) -> None:
        self._view.show(events.Remarked(f"a process was turned away: {why}"))

    # The host.

    def _make_host(self, found: Found) -> Host:
        assert found.spec is not None
        wishes = self._wishes
        spec = under_development(found.spec)
        if self._lobby is not None:
            spec = attached(spec, self._lobby.command)
        settings = load_config(wishes.config)
        return local_host.make([replace(found, spec=spec)], settings, grants=wishes.grants, **wishes.options)
