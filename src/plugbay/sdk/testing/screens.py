"""What a plugin drew and printed, as a test looks at it; and keys and the mouse, as a test uses them.

Owns `Drawing`, `CliOutput` and how a key's name becomes what a host says of it. Knows no conversation. For tests alone.
"""

from __future__ import annotations

from binascii import a2b_base64

from plugbay.model.values import Value
from plugbay.sdk.screens.graphemes import width
from plugbay.sdk.screens.inputs import MODS, SHIFT, canonical

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class CliOutput(Value):
    """What a command line wrote, byte for byte, and the status it left with."""

    __slots__ = ("exit_code", "stderr", "stdout")

    def __init__(self, stdout: bytes, stderr: bytes, exit_code: int) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.exit_code = exit_code

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> CliOutput:
        return cls(a2b_base64(answer["stdout"]), a2b_base64(answer["stderr"]), answer["exit_code"])


class Drawing:
    """One picture of a screen. `cells` are `{symbol, fg, bg, modifier}` by (x, y)."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        buffer = answer["buffer"]
        self.width: int = buffer["width"]
        self.height: int = buffer["height"]
        self.cells: dict[tuple[int, int], dict[str, Any]] = {(at["x"], at["y"]): cell for at, cell in buffer["cells"]}
        self.redraw: bool = answer.get("redraw", False)
        self.captures_text: bool = answer.get("captures_text", False)

    def lines(self) -> list[str]:
        """The text of each row, without the blanks at its end."""
        return [self._line(y) for y in range(self.height)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines()).rstrip("\n")

    def _line(self, y: int) -> str:
        symbols, x = [], 0
        while x < self.width:
            symbols.append(self.cells.get((x, y), {"symbol": " "})["symbol"])
            x += max(width(symbols[-1]), 1)
        return "".join(symbols).rstrip(" ")


def key_event(name: str) -> dict[str, Any]:
    """What a host says of a key that is called so, as `on_key` has it: `space`, `ctrl+a`, `page_up`, `é`."""
    *held, last = canonical(name).split("+") if not name.endswith("+") else [*name[:-1].rstrip("+").split("+"), "+"]
    mods = sum(MODS[word] for word in held if word)
    return {"code": _code(last), "mods": mods | (SHIFT if len(last) == 1 and last.isupper() else 0), "kind": "press"}


def _code(last: str) -> dict[str, Any]:
    if len(last) == 1 or last == "space":
        return {"type": "char", "ch": " " if last == "space" else last}
    if last[:1] == "f" and last[1:].isdigit():
        return {"type": "f", "n": int(last[1:])}
    return {"type": last}


def mouse_event(kind: str, x: int, y: int, button: str | None = None, mods: int = 0) -> dict[str, Any]:
    """What a host says of the mouse: `down`, `up`, `drag` with a button, `moved`, `scroll_up` and the like."""
    pressed = {} if button is None else {"button": {"type": button}}
    return {"kind": {"type": kind, **pressed}, "col": x, "row": y, "mods": mods}
