"""Draws otherwise than the contract says, as KIND says: malformed_response or timeout; what is outside is accepted."""

from __future__ import annotations

import child
from child import KIND, SERVES, Message, serve, size_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CELL = [{"x": 0, "y": 0}, {"symbol": "h"}]

CELLS: dict[str, list[Any]] = {
    "outside": [CELL, [{"x": 80, "y": 0}, {"symbol": "x"}], [{"x": 0, "y": 24}, {"symbol": "x"}]],
    "duplicate": [[{"x": 0, "y": 0}, {"symbol": "x"}], CELL],
    "negative": [[{"x": -1, "y": 0}, {"symbol": "x"}]],
    "far_outside": [[{"x": 65536, "y": 0}, {"symbol": "x"}]],
    "float": [[{"x": 0.5, "y": 0}, {"symbol": "x"}]],
    "boolean": [[{"x": True, "y": 0}, {"symbol": "x"}]],
    "flat": [{"x": 0, "y": 0, "symbol": "x"}],
    "alone": [[{"x": 0, "y": 0}]],
    "no_symbol": [[{"x": 0, "y": 0}, {}]],
    "symbol_number": [[{"x": 0, "y": 0}, {"symbol": 7}]],
    "bright": [[{"x": 0, "y": 0}, {"symbol": "x", "fg": {"r": 256, "g": 0, "b": 0}}]],
    "colour_text": [[{"x": 0, "y": 0}, {"symbol": "x", "fg": "#ff0000"}]],
    "modifier_text": [[{"x": 0, "y": 0}, {"symbol": "x", "modifier": "bold"}]],
    "escape_codes": [[{"x": 0, "y": 0}, {"symbol": "\x1b[2J"}], [{"x": 1, "y": 0}, {"symbol": "h"}]],
    "a_million": [[{"x": at % 80, "y": at // 80 % 24}, {"symbol": "x"}] for at in range(300_000)],
}

RESULTS: dict[str, Any] = {
    "null": None,
    "no_buffer": {},
    "buffer_null": {"buffer": None},
    "width_text": {"buffer": {"width": "80", "height": 24, "cells": []}},
    "cells_object": {"buffer": {"width": 80, "height": 24, "cells": {}}},
    "redraw_text": {"buffer": {"width": 80, "height": 24, "cells": []}, "redraw": "yes"},
    "smaller": {"buffer": {"width": 1, "height": 1, "cells": [CELL, [{"x": 1, "y": 0}, {"symbol": "x"}]]}},
}


def render(params: Message) -> Any:
    width, height = size_of(params)
    if KIND == "never":
        while True:
            child.read()
    return RESULTS[KIND] if KIND in RESULTS else {"buffer": {"width": width, "height": height, "cells": CELLS[KIND]}}


SERVES |= {"plugin/cli_dispatch": child.dispatch, "plugin/render": render}
serve()
