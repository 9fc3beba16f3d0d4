"""A plugin with a screen; broken: it draws something else each time, or not what fits."""

from __future__ import annotations

import sys

from child import KIND, SERVES, Message, more_to_read, picture, serve, size_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

drawn = 0


def render(params: Message) -> Any:
    global drawn
    drawn += 1
    width, height = size_of(params)
    if KIND == "one_at_a_time" and more_to_read():
        sys.exit("busy")
    result = picture(width, height, f"frame {drawn}" if KIND == "animated" else "hello, canary")
    buffer = result["buffer"]
    buffer["cells"].append([{"x": width - 1, "y": height - 1}, {"symbol": "█", "fg": {"r": 255, "g": 176, "b": 0}}])
    if KIND in WRONG:
        WRONG[KIND](buffer)
    return {"buffer": buffer, "redraw": "no"} if KIND == "redraw_text" else result


def own_size(buffer: Message) -> None:
    buffer.update(width=80, height=24)


def outside(buffer: Message) -> None:
    buffer["cells"].append([{"x": buffer["width"], "y": 0}, {"symbol": "!"}])


def negative(buffer: Message) -> None:
    buffer["cells"].append([{"x": -1, "y": 0}, {"symbol": "!"}])


def flat_cells(buffer: Message) -> None:
    buffer["cells"] = [{**place, **cell} for place, cell in buffer["cells"]]


def bright(buffer: Message) -> None:
    buffer["cells"][-1][1]["fg"]["r"] = 256


def no_symbol(buffer: Message) -> None:
    del buffer["cells"][-1][1]["symbol"]


WRONG = {each.__name__: each for each in (own_size, outside, negative, flat_cells, bright, no_symbol)}

SERVES["plugin/render"] = render
serve()
