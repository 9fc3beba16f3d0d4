r"""Takes a picture of `plugbay tui`: a real host, real plugins, keys through Textual's own driver.

    .venv/bin/python scripts/tui_picture.py examples docs/images/tui.svg \
        --open usage-burndown/burndown --expect sonnet --key down

The plugins are granted what they ask for. The picture is taken after the keys, when the screen shows what is expected.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from rich.cells import split_graphemes
from rich.style import Style
from textual.pilot import Pilot
from textual.strip import Strip

from plugbay.host.host import Host
from plugbay.host.screens.frames import Cell, Frame
from plugbay.tui import picture
from plugbay.tui.app import Terminal
from plugbay.tui.backend import HostBackend
from plugbay.tui.canvas import Canvas

PATIENCE = 20.0
"""Seconds for a plugin to start and to draw what is expected."""


def frame_of(lines: list[Strip], width: int) -> Frame:
    """What is on the terminal, as if one plugin had drawn all of it."""
    cells: dict[tuple[int, int], Cell] = {}
    for y, line in enumerate(lines):
        x = 0
        for text, style, _ in line:
            for start, end, columns in split_graphemes(text)[0]:
                cells[x, y] = _cell(text[start:end], style or Style.null())
                x += columns
    return Frame(width, len(lines), cells, False, False)


def _cell(symbol: str, style: Style) -> Cell:
    fg = tuple(style.color.get_truecolor()) if style.color and not style.color.is_default else None
    bg = tuple(style.bgcolor.get_truecolor()) if style.bgcolor and not style.bgcolor.is_default else None
    looks = (style.bold, style.dim, style.italic, style.underline, style.reverse)
    return Cell(symbol, fg, bg, sum(1 << bit for bit, wanted in enumerate(looks) if wanted))  # type: ignore[arg-type]


async def take(options: argparse.Namespace) -> str:
    width, height = map(int, options.size.split("x"))
    async with Host.load(options.plugins, grant_all=True) as host:
        app = Terminal(HostBackend(host))
        async with app.run_test(size=(width, height)) as pilot:
            app._visit(options.open)
            if options.logs:
                app.action_logs()
            for key in options.key:
                await _until(pilot, "")
                await pilot.press(key)
            await _until(pilot, options.expect)
            await pilot.pause(0.5)  # the list and the title follow the plugins four times a second
            lines = app.screen._compositor.render_strips()
            return picture.svg(frame_of(lines, width), "plugbay tui")


async def _until(pilot: Pilot[None], text: str) -> None:
    """Wait for a picture on the screen that has this text on it."""
    canvas = pilot.app.query_one(Canvas)
    async with asyncio.timeout(PATIENCE):
        while not _shows(canvas, text):
            await pilot.pause(0.02)


def _shows(canvas: Canvas, text: str) -> bool:
    frame = canvas.painter.frame if canvas.painter else None
    return frame is not None and any(text in line for line in frame.lines())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Take a picture of plugbay tui.")
    parser.add_argument("plugins", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--open", required=True, metavar="PLUGIN/SCREEN")
    parser.add_argument("--expect", default="", metavar="TEXT")
    parser.add_argument("--key", action="append", default=[], metavar="KEY")
    parser.add_argument("--logs", action="store_true")
    parser.add_argument("--size", default="120x34", metavar="WxH")
    options = parser.parse_args(arguments)
    options.out.write_text(asyncio.run(take(options)), "utf-8")
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
