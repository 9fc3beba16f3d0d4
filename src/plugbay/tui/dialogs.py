"""Dialogs over the terminal app: grant capabilities to a plugin, call one of its tools.

They know no host: the app passes what they show and a function that calls. Text of plugins is never interpreted as
markup, and is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from plugbay.model.spec import Export
from plugbay.model.text import error_excerpt
from plugbay.server.dashboard import forms
from plugbay.tui.backend import Called
from plugbay.tui.styles import AMBER, BLUE, GREEN, GREY, RED, safe
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Malformed

ALL = "all of them"

MAX_TOOLS = 200
"""Tools in the list of a dialog."""

MAX_RESULT_LINES = 2000
MAX_LINE = 2000
"""Lines of a result, and characters of each; `plugbay call` prints all of it."""

STDERR_LINES = 12

BOX = """
{name} {{ align: center middle; background: $background 60%; }}
{name} > Vertical {{
    width: 90%; max-width: 120; height: auto; max-height: 90%;
    border: round $primary; background: $panel; padding: 0 1;
}}
{name} OptionList, {name} OptionList:focus {{
    height: auto; max-height: 8; border: none; background: $panel; padding: 0;
}}
"""


class GrantDialog(ModalScreen[list[str]]):
    """Asks which of the missing capabilities to grant; returns them, or nothing."""

    DEFAULT_CSS = BOX.format(name="GrantDialog")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def __init__(self, plugin_id: str, missing: Sequence[str], effect: str) -> None:
        super().__init__()
        self._missing = list(missing)
        self._heading, self._effect = f"grant to {safe(plugin_id)}", effect

    def compose(self) -> ComposeResult:
        names = [*self._missing, *([ALL] if len(self._missing) > 1 else [])]
        box = Vertical(
            OptionList(*(Option(Text(safe(name))) for name in names), markup=False),
            Static(Text(self._effect, style=GREY), markup=False),
        )
        box.border_title = Text(self._heading)
        box.border_subtitle = "Enter grants, Esc closes"
        yield box

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()  # the app would take it for one of its list
        at = event.option_index
        self.dismiss(self._missing if at >= len(self._missing) else [self._missing[at]])

    def action_close(self) -> None:
        self.dismiss([])


class CallDialog(ModalScreen[None]):
    """Calls a tool with typed JSON, and shows the result."""

    DEFAULT_CSS = (
        BOX.format(name="CallDialog")
        + """
    CallDialog > Vertical { height: 90%; }
    CallDialog Input { border: tall $border-blurred; background: $surface; }
    CallDialog Input:focus { border: tall $border; }
    CallDialog VerticalScroll { height: 1fr; scrollbar-size-vertical: 1; }
    """
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "close")]

    def __init__(self, plugin_id: str, tools: Sequence[Export], call: Callable[[str, Any], Awaitable[Called]]) -> None:
        super().__init__()
        self._plugin_id = plugin_id
        self._tools = list(tools)[:MAX_TOOLS]
        self._ask = call
        self._busy = False
        self._tool_list = OptionList(*(Option(Text(safe(tool.name))) for tool in self._tools), markup=False)
        self._about = Static(markup=False)
        self._typed = Input(placeholder="input as JSON")
        self._outcome = Static(markup=False)

    def compose(self) -> ComposeResult:
        self._tool_list.display = len(self._tools) > 1
        box = Vertical(self._tool_list, self._about, self._typed, VerticalScroll(self._outcome))
        box.border_title = Text(f"call a tool of {safe(self._plugin_id)}")
        box.border_subtitle = "Enter calls, Tab changes the field, Esc closes"
        yield box

    def on_mount(self) -> None:
        self._tool_list.highlighted = 0
        self._show_tool()
        (self._tool_list if self._tool_list.display else self._typed).focus()

    @property
    def _tool(self) -> Export:
        return self._tools[self._tool_list.highlighted or 0]

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._show_tool()

    def _show_tool(self) -> None:
        tool = self._tool
        takes = safe(forms.signature(tool.input_schema))
        name = (safe(tool.name), f"bold {BLUE}")
        self._about.update(Text.assemble(name, (f"  {takes}", GREY), f"\n{safe(tool.description)}"))
        # ASCII: the schema is the plugin's, and a field of the terminal must show what it holds.
        self._typed.value = json.dumps(json.loads(forms.example(tool.input_schema)))
        self._outcome.update("")

    @on(OptionList.OptionSelected)
    def _type_input(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._typed.focus()

    @on(Input.Submitted)
    def _submit(self) -> None:
        if self._busy:
            return
        try:
            value = MsgspecCodec().decode(self._typed.value.encode("utf-8", "backslashreplace"))
        except Malformed as error:
            self._outcome.update(Text(f"the input cannot be used: {error}", style=AMBER))
            return
        self._busy = True
        self._outcome.update(Text("calling …", style=GREY))
        self.run_worker(self._run(self._tool.name, value), name="call")

    async def _run(self, name: str, value: Any) -> None:
        try:
            self._outcome.update(result_page(await self._ask(name, value)))
        finally:
            self._busy = False

    def action_close(self) -> None:
        """Close; this cancels a running call."""
        self.dismiss(None)


def result_page(called: Called) -> RenderableType:
    """The result of a call, or its failure: how the process ended, what the call wrote to stderr, and the hint."""
    took = f"  {called.duration_ms:,.0f} ms"
    failure = called.failure
    if failure is None:
        return Group(Text.assemble(("✓ succeeded", GREEN), (took, GREY)), *_lines(_pretty(called.output)))
    detail = failure.detail
    parts: list[RenderableType] = [Text.assemble((f"✗ {failure.code}", f"bold {RED}"), (took, GREY))]
    if detail.get("exit"):
        parts.append(Text.assemble(("exit    ", GREY), safe(detail["exit"])))
    parts += _lines(failure.message)
    wrote = error_excerpt([str(line) for line in detail.get("stderr_tail", ())], STDERR_LINES)
    parts += [Text.assemble(("stderr  ", GREY), safe(line)[:MAX_LINE]) for line in wrote]
    if detail.get("hint"):
        parts.append(Text.assemble(("hint    ", BLUE), safe(detail["hint"])))
    return Group(*parts)


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _lines(text: str) -> list[Text]:
    lines = text.split("\n")
    shown = [Text(safe(line)[:MAX_LINE], overflow="fold") for line in lines[:MAX_RESULT_LINES]]
    if len(lines) > MAX_RESULT_LINES:
        shown.append(Text(f"… {len(lines) - MAX_RESULT_LINES:,} more lines", style=GREY))
    return shown
