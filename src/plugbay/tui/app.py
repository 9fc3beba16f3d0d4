"""`Terminal`: the Textual app, with the plugin list on the left, a screen on the right and logs below.

Owns layout, key bindings and selection. A `Backend` has the plugins; the app never stops it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from plugbay.host.discovery.folders import Found
from plugbay.host.status import PluginStatus
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.lifecycle import State
from plugbay.tui import pages
from plugbay.tui.backend import Backend, LifecycleEvent, Watched
from plugbay.tui.canvas import Canvas
from plugbay.tui.dialogs import CallDialog, GrantDialog
from plugbay.tui.driver import HangupDriver, KeyHeld
from plugbay.tui.painter import Painter
from plugbay.tui.styles import GREY, INVALID, RED, SIGNS, THEME, safe, state_text, version_text
from plugbay.tui.widgets import (
    HelpScreen,
    KeysFooter,
    LogView,
    PaletteCommand,
    PluginList,
    Row,
    ScreenTabs,
    make_provider,
)

REFRESH_SECONDS = 0.25
"""Seconds between refreshes of states and logs; urgent changes arrive as lifecycle events."""

NARROW = 100
"""Columns; in a narrower terminal, a screen in use covers the list."""

TALL = 45
"""Rows; a taller terminal shows the log without being asked."""

END_EVENTS = frozenset({"crashed", "exited"})
"""Lifecycle events after which no process can draw."""

LIST_ACTIONS = frozenset("switch call grant reload start_or_stop restart logs zoom turn palette help".split())
"""Actions that a dialog disables."""

ENDED = frozenset({State.STOPPED, State.QUARANTINED})
"""States that a start leaves."""

SCREEN_ACTIONS = frozenset({"switch", "list", "help", "quit", "notify"})
"""Actions whose keys always belong to the host."""


class Terminal(App[None], inherit_bindings=False):
    """The app for using the screens of plugins."""

    TITLE = "plugbay"
    ENABLE_COMMAND_PALETTE = False  # Textual's palette would take Ctrl+P from plugins; ours opens from the list
    CSS = """
    #top { height: 1; padding: 0 1; background: $panel; }
    #plugins { height: 1fr; padding: 0; scrollbar-size-vertical: 1; }
    #plugins > .option-list--option { padding: 0 1; }
    #plugins, #stage, #logs { background: $surface; border: round $border-blurred; border-title-color: $foreground; }
    #plugins:focus, #stage:focus-within, #logs:focus { border: round $border; }
    #stage { height: 1fr; border-subtitle-color: $foreground-muted; }
    #page { padding: 1 2; scrollbar-size-vertical: 1; }
    #logs { height: 30%; min-height: 8; max-height: 40%; padding: 0 1; overflow-y: auto; scrollbar-size-vertical: 1; }
    #plugins, #page, #logs { scrollbar-background: $surface; scrollbar-color: $border-blurred; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+o", "switch", "switch", priority=True, key_display="^o"),
        Binding("c", "call", "call"),
        Binding("g", "grant", "grant"),
        Binding("r", "reload", "reload"),
        Binding("s", "start_or_stop", "stop"),
        Binding("R", "restart", "restart", show=False),
        Binding("l", "logs", "logs"),
        Binding("z", "zoom", "zoom"),
        Binding("left", "turn(-1)", "screen", show=False),
        Binding("right", "turn(1)", "screen", show=False),
        Binding("p", "palette", "more"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("ctrl+q", "quit", "quit", priority=True, key_display="^q"),
        Binding("ctrl+c", "quit", priority=True, show=False),
    ]

    def __init__(self, backend: Backend) -> None:
        super().__init__(HangupDriver)
        self.backend = backend
        self.register_theme(THEME)
        self.theme = THEME.name
        self._top = Static(id="top", markup=False)
        self._list, self._tabs, self._canvas, self._logs = PluginList(), ScreenTabs(), Canvas(), LogView()
        self._text = Static(id="text", markup=False)
        self._page = VerticalScroll(self._text, id="page")
        self._stage = Vertical(self._canvas, self._page, id="stage")
        self._lost = ""
        """The reason that was shown last why the host does not respond."""
        self._statuses: dict[str, PluginStatus] = {}
        """The last known status of each plugin with a painter; a server may lose a plugin."""
        self._painters: dict[str, Painter] = {}
        self._chosen: dict[str, int] = {}
        """The chosen screen of each plugin."""
        self._shown: object = ()
        """The values that the border titles describe."""
        self._zoomed = False
        self._log_chosen = False
        """Whether the operator has shown or hidden the log."""
        self._operating: set[str] = set()
        """Plugins with an operation that has not ended."""

    def compose(self) -> ComposeResult:
        yield self._top
        yield Horizontal(self._list, Vertical(self._tabs, self._stage, self._logs))
        yield KeysFooter()

    def on_mount(self) -> None:
        self._tabs.display = False
        self._logs.display = self.size.height >= TALL
        self._refresh_all()
        self.set_interval(REFRESH_SECONDS, self._refresh_all)
        self.run_worker(self._listen(), name="lifecycle")
        self._list.focus()

    async def _listen(self) -> None:
        async for event in self.backend.lifecycle():
            self._handle_lifecycle(event)

    async def on_unmount(self) -> None:
        for painter in self._painters.values():
            await painter.close()

    # Display.

    @property
    def _broken(self) -> list[Found]:
        return [item for item in self.backend.problems if item.errors]

    @property
    def _selected(self) -> PluginStatus | Found | None:
        entries: list[PluginStatus | Found] = [*self.backend.plugins(), *self._broken]
        index = self._list.highlighted
        return entries[index] if index is not None and index < len(entries) else None

    def _refresh_all(self) -> None:
        """Refresh everything."""
        self._report_loss()
        statuses = self.backend.plugins()
        rows = [Row(status.spec.id, status.spec.contract, status.state) for status in statuses]
        broken = [Row(found.root.name, found.contract or "?", INVALID) for found in self._broken]
        self._list.show([*rows, *broken])
        self._top.update(_summary([*rows, *broken], self.backend))
        self._show()

    def _report_loss(self) -> None:
        """Say that the host does not respond, or responds again."""
        lost, before = self.backend.lost, self._lost
        self._lost = lost
        if lost and not before:
            self.notify(f"{lost}; trying again", title="not connected", severity="error", markup=False)
        elif before and not lost:
            self.notify(f"the {self.backend.location} responds again", title="connected", markup=False)
            for painter in self._painters.values():
                painter.request_again()

    @on(PluginList.OptionHighlighted)
    def _show(self) -> None:
        """Show the selected plugin."""
        entry = self._selected
        painter = self._painter(entry) if isinstance(entry, PluginStatus) else None
        self._canvas.painter = painter
        self._canvas.display, self._page.display = painter is not None, painter is None
        if isinstance(entry, PluginStatus):
            self.backend.watch(Watched(entry.spec.id, painter.screen.name if painter else "", self._logs.display))
            if self._logs.display:
                self._logs.show(entry.spec.id, self.backend.log(entry.spec.id))
        else:
            self.backend.watch(Watched())
        shown = (entry, painter and painter.screen, self._canvas.size)
        if shown != self._shown:
            self._shown = shown
            self._describe(entry, painter)

    def _describe(self, entry: PluginStatus | Found | None, painter: Painter | None) -> None:
        """Update border titles, or the page that replaces a screen."""
        self._stage.border_title = self._stage.border_subtitle = None
        if isinstance(entry, PluginStatus):
            self._stage.border_title = Text(safe(painter.screen.name if painter else entry.spec.id))
            self._stage.border_subtitle = _subtitle(entry, self._canvas if painter else None)
            self._text.update("" if painter else pages.about_page(entry))
        elif entry is not None:
            self._stage.border_title = Text(safe(entry.root.name))
            self._text.update(pages.manifest_problems(entry))
        else:
            self._text.update(pages.NO_PLUGINS)

    def _painter(self, status: PluginStatus) -> Painter | None:
        """The painter of the plugin's chosen screen, or None; updates the tabs."""
        screens = [screen for screen in self.backend.screens.all() if screen.plugin_id == status.spec.id]
        chosen = max(0, min(self._chosen.get(status.spec.id, 0), len(screens) - 1))
        self._tabs.show([screen.screen for screen in screens], chosen)
        if not screens:
            return None
        screen = screens[chosen]
        if screen.name not in self._painters:
            status_now = partial(self._status, screen.plugin_id)
            changed = self._canvas.painter_changed
            self._statuses[screen.plugin_id] = status
            self._painters[screen.name] = Painter(self.backend.screens, screen, status_now, changed)
        return self._painters[screen.name]

    def _status(self, plugin_id: str) -> PluginStatus:
        found = [status for status in self.backend.plugins() if status.spec.id == plugin_id]
        if found:
            self._statuses[plugin_id] = found[0]
        return self._statuses[plugin_id]

    def _painters_of(self, plugin_id: str) -> list[Painter]:
        return [painter for painter in self._painters.values() if painter.screen.plugin_id == plugin_id]

    def _handle_lifecycle(self, event: LifecycleEvent) -> None:
        """Handle a lifecycle event of a plugin."""
        kind, facts = event
        for painter in self._painters_of(facts["plugin_id"]):
            if kind == "started" and painter.failure is not None:
                painter.request_again()
            elif kind in END_EVENTS and painter.status().pid is None:
                painter.process_ended(_failure_of(facts))
        self._refresh_all()

    # Keys.

    def on_key_held(self, event: KeyHeld) -> None:
        """A held or released key goes to the screen in use; anywhere else a held key is pressed again."""
        if self._canvas.has_focus and self.screen is self.screen_stack[0]:
            self._canvas.hold_key(event)
        elif event.kind == "repeat":
            self.post_message(events.Key(event.key, event.character))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is available; the footer shows available ones."""
        if self.screen is not self.screen_stack[0]:
            return action not in LIST_ACTIONS
        if self._canvas.has_focus:
            return action in SCREEN_ACTIONS or (action == "reload" and self._canvas.without_screen)
        if action == "grant":
            return isinstance(self._selected, PluginStatus) and bool(_missing(self._selected))
        return action != "zoom" or self.size.width >= NARROW

    @on(PluginList.OptionSelected)
    def action_open(self) -> None:
        """Focus the screen of the selected plugin, or the page about it."""
        (self._canvas if self._canvas.display else self._page).focus()

    def action_list(self) -> None:
        self._list.focus()

    def action_switch(self) -> None:
        if self._list.has_focus:
            self.action_open()
        else:
            self.action_list()

    def action_zoom(self) -> None:
        self._zoomed = not self._zoomed
        self.action_open() if self._zoomed else self.action_list()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._hide_list()

    def on_resize(self, event: events.Resize) -> None:
        self._hide_list()
        if not self._log_chosen:
            self._logs.display = event.size.height >= TALL

    def _hide_list(self) -> None:
        """Hide the list while a screen is in use, if zoomed or if the terminal is narrow."""
        used = self._stage.has_focus_within
        self._list.display = not (used and (self._zoomed or self.size.width < NARROW))
        self.refresh_bindings()

    def action_logs(self) -> None:
        self._log_chosen = True
        self._logs.display = not self._logs.display
        self._show()
        if not self._logs.display and self._logs.has_focus:
            self.action_list()

    def action_turn(self, step: int) -> None:
        """Choose another screen of the same plugin."""
        if self._tabs.names:
            self._choose((self._tabs.chosen + step) % len(self._tabs.names))

    @on(ScreenTabs.Chosen)
    def _clicked(self, message: ScreenTabs.Chosen) -> None:
        self._choose(message.index)

    def _choose(self, index: int) -> None:
        entry = self._selected
        if isinstance(entry, PluginStatus):
            self._chosen[entry.spec.id] = index
            self._show()

    def action_help(self) -> None:
        self.push_screen(HelpScreen())

    # Operations.

    def action_reload(self) -> None:
        self._operate("reload", "not reloaded")

    def action_restart(self) -> None:
        self._operate("restart", "not restarted")

    def action_start_or_stop(self) -> None:
        entry = self._selected
        if isinstance(entry, PluginStatus):
            self._operate(*(("start", "not started") if entry.state in ENDED else ("stop", "not stopped")))

    def _operate(self, operation: str, failed: str) -> None:
        entry = self._selected
        if isinstance(entry, PluginStatus):
            self._change(entry.spec.id, self.backend.operate(entry.spec.id, operation), failed)

    def _change(self, plugin_id: str, work: Coroutine[Any, Any, None], failed: str) -> None:
        """Run an operation, unless another one of the same plugin has not ended."""
        if plugin_id in self._operating:
            work.close()
            return
        self._operating.add(plugin_id)
        self.run_worker(self._wait_for(plugin_id, work, failed), name="operation")

    async def _wait_for(self, plugin_id: str, work: Coroutine[Any, Any, None], failed: str) -> None:
        painters = self._painters_of(plugin_id)
        for painter in painters:
            painter.hold()
        try:
            await work
        except CallFailed as error:
            self.notify(str(error), title=failed, severity="error", markup=False)
        finally:
            self._operating.discard(plugin_id)
            for painter in painters:
                painter.renew()
        self._refresh_all()

    def action_grant(self) -> None:
        entry = self._selected
        if isinstance(entry, PluginStatus) and _missing(entry):
            plugin_id = entry.spec.id

            def grant(chosen: list[str] | None) -> None:
                if chosen:
                    self._change(plugin_id, self.backend.grant(plugin_id, chosen), "not granted")

            self.push_screen(GrantDialog(plugin_id, _missing(entry), self.backend.grant_effect), grant)

    def action_call(self) -> None:
        entry = self._selected
        if isinstance(entry, PluginStatus):
            self.run_worker(self._open_call(entry.spec.id), name="call", exclusive=True, group="call")

    async def _open_call(self, plugin_id: str) -> None:
        try:
            tools = await self.backend.tools(plugin_id)
        except CallFailed as error:
            self.notify(str(error), title="no call", severity="error", markup=False)
            return
        if not tools:
            self.notify(f"{safe(plugin_id)} has no tools.", title="no call", severity="warning", markup=False)
        elif self.screen is self.screen_stack[0]:
            self.push_screen(CallDialog(plugin_id, tools, partial(self.backend.call, plugin_id)))

    # Command palette.

    def action_palette(self) -> None:
        self.push_screen(
            CommandPalette(providers=[make_provider(self._commands())], placeholder="Commands and screens …")
        )

    def _commands(self) -> list[PaletteCommand]:
        entry = self._selected
        commands: list[PaletteCommand] = []
        if isinstance(entry, PluginStatus):
            plugin_id = entry.spec.id
            commands = [
                PaletteCommand(command, f"a command of {plugin_id}", partial(self._perform, plugin_id, command))
                for command in entry.spec.commands
            ]
        screens = [
            PaletteCommand(f"screen {screen.name}", "show this screen", partial(self._visit, screen.name))
            for screen in self.backend.screens.all()
        ]
        own: list[tuple[str, str, Any]] = [
            ("call", "call a tool of the plugin", self.action_call),
            ("grant", "grant capabilities to the plugin", self.action_grant),
            ("reload", "restart the plugin after its calls", self.action_reload),
            ("restart", "restart the plugin at once", self.action_restart),
            ("start or stop", "start a stopped plugin, or stop it", self.action_start_or_stop),
            ("logs", "show or hide the log of the plugin", self.action_logs),
            ("help", "show all keys", self.action_help),
            ("quit", self.backend.quit_effect, self.exit),
        ]
        return [*commands, *screens, *(PaletteCommand(*each) for each in own)]

    def _perform(self, plugin_id: str, command: str) -> None:
        self.run_worker(self._act(plugin_id, command), name="command")

    async def _act(self, plugin_id: str, command: str) -> None:
        try:
            if not await self.backend.act(plugin_id, command):
                text = f"{plugin_id} is not running; open its screen first."
                self.notify(text, title=safe(command), severity="warning", markup=False)
        except CallFailed as error:
            self.notify(str(error), title=safe(command), severity="error", markup=False)

    def _visit(self, name: str) -> None:
        """Show and focus this screen of any plugin."""
        screens = self.backend.screens.all()
        ids = [status.spec.id for status in self.backend.plugins()]
        screen = next((screen for screen in screens if screen.name == name and screen.plugin_id in ids), None)
        if screen is None:
            return  # the server has lost it since the palette was opened
        siblings = [other.name for other in screens if other.plugin_id == screen.plugin_id]
        self._chosen[screen.plugin_id] = siblings.index(name)
        self._list.highlighted = ids.index(screen.plugin_id)
        self._show()
        self.action_open()


def _missing(status: PluginStatus) -> list[str]:
    """The requested capabilities that are not granted."""
    granted = set(status.granted)
    return [name for name in dict.fromkeys((*status.missing, *status.spec.capabilities)) if name not in granted]


def _failure_of(facts: Mapping[str, Any]) -> Failure:
    """The failure that a lifecycle event of an ended process describes."""
    ended = f"exit code {facts['exit_code']}" if facts["exit_code"] >= 0 else "killed by a signal"
    detail = {"exit": ended, "stderr_tail": facts["stderr_tail"]}
    return Failure(Code.CRASHED, "the plugin has exited", origin=Origin.PLUGIN, detail=detail)


def _summary(rows: list[Row], backend: Backend) -> Text:
    """`plugbay   server http://127.0.0.1:8787   5 plugins   ● 3 running   ○ 2 idle`."""
    counts = Counter(row.state for row in rows)
    parts = [Text("plugbay", style="bold")]
    if backend.lost:
        parts.append(Text(f"{backend.location} (not connected)", style=RED))
    elif backend.location:
        parts.append(Text(backend.location))
    parts += [Text(f"{len(rows)} plugin{'' if len(rows) == 1 else 's'}", style=GREY)]
    signs = [(state, look) for state, look in SIGNS.items() if counts[state]]
    parts += [Text(f"{look.symbol} {counts[state]} {state_text(state)}", style=look.colour) for state, look in signs]
    return Text("   ").join(parts)


def _subtitle(status: PluginStatus, canvas: Canvas | None) -> Text:
    facts = [version_text(status.spec), state_text(status.state)]
    if status.pid is not None:
        facts.append(f"pid {status.pid}")
    if canvas is not None:
        facts.append(f"{canvas.size.width} by {canvas.size.height}")
    return Text(" · ".join(facts))
