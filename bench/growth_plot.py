"""`python -m bench.growth_plot`: draw the last run of `growth` as bench/growth.svg.

One line for each number of calls in flight: host CPU per call over the number of running plugins.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path

from bench.__main__ import LATEST
from bench.growth_bench import IN_FLIGHT, NAME, PLUGINS, cpu_field

PICTURE = Path(__file__).parent / "growth.svg"

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 300, 60, 44, 36, 110
LABEL = 14
"""The height of a label."""

COLOURS = ("#1f6feb", "#bf5b04", "#2da44e")

Line = list[tuple[int, float]]


def main() -> int:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else LATEST
    comparisons = json.loads(source.read_text("utf-8"))["comparisons"]
    growth = next((each for each in comparisons if each["name"] == NAME), None)
    if growth is None:
        print(f"{source} has no results of {NAME}: python -m bench --only {NAME}", file=sys.stderr)
        return 1
    PICTURE.write_text(draw(lines(growth["contenders"])), encoding="utf-8")
    return 0


def lines(contenders: dict[str, dict[str, list[dict[str, float]]]]) -> dict[int, Line]:
    """By calls in flight: the median of host CPU per call for each number of plugins."""
    measured = {count: contenders[str(count)]["samples"] for count in PLUGINS if str(count) in contenders}
    return {
        number: [
            (count, statistics.median(each[cpu_field(number)] for each in samples))
            for count, samples in measured.items()
        ]
        for number in IN_FLIGHT
    }


def draw(curves: dict[int, Line]) -> str:
    """The picture, with a linear scale for time and a logarithmic one for plugins."""
    top = math.ceil(max(us for line in curves.values() for _, us in line) / 10) * 10
    plugins = [count for count, _ in next(iter(curves.values()))]
    parts = [_text(LEFT, 20, "host CPU per call, us", weight="bold")]
    for step in range(5):
        us = top * step / 4
        parts.append(f'<path d="M{LEFT} {_y(us, top):.1f}H{WIDTH - RIGHT}" stroke="#d0d7de"/>')
        parts.append(_text(LEFT - 8, _y(us, top) + 4, f"{us:g}", anchor="end"))
    parts += [_text(_x(count, plugins), HEIGHT - BOTTOM + 18, f"{count}", anchor="middle") for count in plugins]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "running plugins", anchor="middle"))
    labels = apart({number: _y(line[-1][1], top) + 4 for number, line in curves.items()})
    for colour, (number, line) in zip(COLOURS, curves.items(), strict=True):
        points = " ".join(f"{_x(count, plugins):.1f},{_y(us, top):.1f}" for count, us in line)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(_text(WIDTH - RIGHT + 8, labels[number], f"{number} in flight", fill=colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    style = 'font-family="sans-serif" font-size="12"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{ground}\n' + "\n".join(parts) + "\n</svg>\n"


def apart(heights: dict[int, float]) -> dict[int, float]:
    """Heights of labels, from the top, moved down until no two overlap."""
    last, placed = -float(LABEL), dict[int, float]()
    for number, height in sorted(heights.items(), key=lambda item: item[1]):
        last = placed[number] = max(height, last + LABEL)
    return placed


def _x(count: int, plugins: list[int]) -> float:
    share = math.log(count / plugins[0]) / math.log(plugins[-1] / plugins[0])
    return LEFT + share * (WIDTH - RIGHT - LEFT)


def _y(us: float, top: float) -> float:
    return HEIGHT - BOTTOM - us / top * (HEIGHT - BOTTOM - TOP)


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = "#1f2328", weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">{text}</text>'


if __name__ == "__main__":
    sys.exit(main())
