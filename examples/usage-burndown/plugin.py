"""A burn-down chart of tokens, drawn from the snapshots of `usage-publisher`.

Keys: up and down select a model, Tab changes the chart, `r` requests all data again; a click also selects. The frame
depends only on received data and keys, so two frames in a row are equal.
"""

import calendar
import textwrap
from collections import Counter
from typing import Any

from plugbay.sdk import Canvas, ChunkCollector, Key, Mouse, Plugin, ServiceError, Snapshot
from plugbay.sdk.screens.canvas import EIGHTHS_UP

TOPIC = "usage.calls"

VERSION = 1
"""Version of the data. The screen names a publisher of another version."""

ALL = "all models"

SCALE = 8
"""Columns for the numbers beside the chart."""

DIM, HEAD, GOOD, BAD, MARK = "#8a93a6", "#7cb7ff", "#7fd1a0", "#e58a8a", "#21324a"

plugin = Plugin(
    "usage-burndown",
    version="1.0.0",
    description="How many tokens of the month are left, and who used them.",
    capabilities=["event_bus=usage.*"],
)


class State:
    """The received data, and the selection."""

    def __init__(self) -> None:
        self.collector = ChunkCollector(VERSION)
        self.problem = ""
        self.chosen = 0
        self.view = "left"
        self.by_model: dict[str, Counter[int]] = {}
        self.table_top = 0

    def heard(self, data: dict[str, Any]) -> None:
        """Tokens of each day for each model, the one with most of them first."""
        days: dict[str, Counter[int]] = {ALL: Counter()}
        for call in data["calls"]:
            days.setdefault(call["model"], Counter())[call["day"]] += call["tokens"]
            days[ALL][call["day"]] += call["tokens"]
        self.by_model = dict(sorted(days.items(), key=lambda item: -item[1].total()))
        self.choose(self.chosen)

    def choose(self, row: int) -> None:
        """The number of rows is unknown until data arrives."""
        self.chosen = max(min(row, len(self.by_model) - 1) if self.by_model else row, 0)


state = State()


# Received data.


@plugin.on_ready
def ask(ctx: Any) -> None:
    """Only the last chunk of earlier data is kept by the host, so request all of it."""
    try:
        ctx.actions.invoke("usage.publish")
        state.problem = ""
    except ServiceError as error:
        state.problem = f"nobody publishes: {error}"


@plugin.on_snapshot(TOPIC)
def collect(snapshot: Snapshot) -> None:
    whole = state.collector.add(snapshot)
    if whole is not None and {"calls", "month", "days", "budget"} <= whole.keys():
        state.heard(whole)


@plugin.on_key("burndown", "up", "k")
def higher(key: Key) -> None:
    state.choose(state.chosen - 1)


@plugin.on_key("burndown", "down", "j")
def lower(key: Key) -> None:
    state.choose(state.chosen + 1)


@plugin.on_key("burndown", "tab")
def turn(key: Key) -> None:
    state.view = "used" if state.view == "left" else "left"


@plugin.on_key("burndown", "r")
def refresh(key: Key, ctx: Any) -> None:
    ask(ctx)


@plugin.on_action("refresh")
def refresh_by_name(payload: Any, ctx: Any) -> None:
    ask(ctx)


@plugin.on_mouse("burndown")
def click(mouse: Mouse) -> None:
    if mouse.kind == "down" and 0 <= mouse.y - state.table_top < len(state.by_model):
        state.choose(mouse.y - state.table_top)


# Drawing.


@plugin.screen("burndown", min_size=(44, 16))
def draw(canvas: Canvas) -> None:
    whole, mismatch = state.collector.data, state.collector.mismatch
    if mismatch is not None:
        say(canvas, f"Nothing to show: {mismatch}.", BAD)
    elif whole is None or not state.by_model:
        say(canvas, state.problem or "Waiting for usage-publisher…", DIM)
        canvas.redraw = not state.problem
    else:
        year, month = map(int, whole["month"].split("-"))
        rows = len(state.by_model)
        heading(canvas, whole, f"{calendar.month_name[month]} {year}")
        chart(canvas.region(2, 4, canvas.width - 4, canvas.height - rows - 8), whole)
        state.table_top = canvas.height - rows - 2
        table(canvas.region(2, state.table_top - 1, canvas.width - 4, rows + 1))
        canvas.text(2, canvas.height - 1, "↑↓ choose   tab left/used   r refresh", fg=DIM)


def say(canvas: Canvas, text: str, colour: str) -> None:
    canvas.text(2, 1, "\n".join(textwrap.wrap(text, canvas.width - 4)), fg=colour)


def heading(canvas: Canvas, whole: dict[str, Any], name: str) -> None:
    used, budget, today = state.by_model[ALL].total(), whole["budget"], max(state.by_model[ALL], default=1)
    lasts = budget * today / used if used else whole["days"]
    enough = lasts >= whole["days"]
    ends = "lasts for the month" if enough else f"gone on day {int(lasts) + 1}"
    title = "Tokens left in" if state.view == "left" else f"Tokens used by {list(state.by_model)[state.chosen]} in"
    canvas.text(2, 1, f"{title} {name}", width=canvas.width - 4, bold=True)
    end = canvas.text(2, 2, f"{short(budget - used)} of {short(budget)} · day {today} of {whole['days']} · ", fg=DIM)
    canvas.text(end, 2, ends, fg=GOOD if enough else BAD)


def chart(canvas: Canvas, whole: dict[str, Any]) -> None:
    """An area below the line of the month, each column an eighth of a cell exact."""
    days, name = whole["days"], list(state.by_model)[state.chosen]
    if state.view == "left":
        top, levels = whole["budget"], left(whole["budget"], state.by_model[ALL])
    else:
        used = state.by_model[name]
        top, levels = max(used.values(), default=1) or 1, [used[day] for day in range(1, max(used, default=0) + 1)]
    area = canvas.region(SCALE, 0, canvas.width - SCALE, canvas.height - 2)
    for x in range(area.width):
        day = x * days // area.width
        if state.view == "left":
            pace(area, x, 1 - x / area.width)
        if day < len(levels):
            column(area, x, levels[day] / top, day / days)
    for y, share in ((0, 1.0), (area.height // 2, 0.5), (area.height - 1, 0.0)):
        canvas.text(0, y, f"{short(round(top * share)):>{SCALE - 1}}", fg=DIM)
    canvas.line(SCALE, area.height, area.width, fg="#3c4454")
    canvas.text(SCALE, area.height + 1, "1", fg=DIM)
    canvas.text(canvas.width - 2, area.height + 1, str(days), fg=DIM)


def left(budget: int, used: Counter[int]) -> list[int]:
    """The remaining tokens after each day so far."""
    levels = []
    for day in range(1, max(used, default=0) + 1):
        budget -= used[day]
        levels.append(max(budget, 0))
    return levels


def column(area: Canvas, x: int, share: float, late: float) -> None:
    """One column, greener at the beginning of the month and bluer at its end."""
    eighths = round(share * area.height * 8)
    colour = (round(127 - 60 * late), round(209 - 40 * late), round(160 + 70 * late))
    for y in range(area.height):
        filled = min(max(eighths - 8 * (area.height - 1 - y), 0), 8)
        if filled:
            area.text(x, y, EIGHTHS_UP[filled], fg=colour)


def pace(area: Canvas, x: int, share: float) -> None:
    """The line of an even usage."""
    area.text(x, area.height - 1 - int(share * (area.height - 0.01)), "·", fg="#5a6274")


def table(canvas: Canvas) -> None:
    """A row for each model: tokens, share, and its days as a small chart."""
    whole, wide = state.by_model[ALL].total() or 1, max(canvas.width - 46, 0)
    canvas.text(0, 0, f"{'model':<16}{'used':>8}{'share':>8}   {'':<10}  days", fg=HEAD, bold=True)
    for row, (name, used) in enumerate(state.by_model.items(), start=1):
        chosen = row - 1 == state.chosen
        if chosen:
            canvas.fill(0, row, canvas.width, 1, bg=MARK)
        look: dict[str, Any] = {"bg": MARK, "bold": True} if chosen else {}
        share = used.total() / whole
        canvas.text(0, row, name, width=16, **look)
        canvas.text(16, row, f"{short(used.total()):>8}{share:>8.0%}", **look)
        canvas.bar(35, row, 10, share, fg=GOOD, **look)
        days = [float(used[day]) for day in range(1, max(state.by_model[ALL], default=0) + 1)]
        # A quarter of the row stays free, or the charts of two rows would touch.
        canvas.sparkline(47, row, wide, days, top=max(days, default=0) * 4 / 3, fg=HEAD, **look)


def short(tokens: int) -> str:
    """A short number: 61.2 M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(tokens) >= size:
            return f"{tokens / size:.1f} {unit}"
    return str(tokens)


if __name__ == "__main__":
    plugin.run()
