"""Keys and the mouse as an author reads them: `ctrl+a`, `page_up`, a button at a cell.

Owns the names of keys in both directions: from the host's event to a name, and from a declared name to its canonical
form.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SHIFT, CTRL, ALT, SUPER = 1, 2, 4, 8

MODS = {"ctrl": CTRL, "alt": ALT, "shift": SHIFT, "super": SUPER}
"""In the order in which a name has them."""

NAMED = (
    *"enter tab esc backspace delete up down left right home end page_up page_down insert space".split(),
    *(f"f{number}" for number in range(1, 36)),
)
"""Keys whose name is a word."""

ALIASES = {
    " ": "space",
    "del": "delete",
    "escape": "esc",
    "pagedown": "page_down",
    "pageup": "page_up",
    "return": "enter",
}


class Key(Value):
    """A key. `name` has everything in it; `char` is the character that it types, None when it types none."""

    __slots__ = ("char", "kind", "mods", "name")

    def __init__(self, name: str, char: str | None, mods: int, kind: str) -> None:
        self.name = name
        self.char = char
        self.mods = mods
        """Bits: 1 shift, 2 ctrl, 4 alt, 8 super."""
        self.kind = kind
        """`press`, `repeat` or `release`."""


class Mouse(Value):
    """A mouse event at a cell: `down`, `up` or `drag` with a button, `moved`, or `scroll_up` and the like."""

    __slots__ = ("button", "kind", "mods", "x", "y")

    def __init__(self, kind: str, button: str | None, x: int, y: int, mods: int) -> None:
        self.kind = kind
        self.button = button
        self.x = x
        self.y = y
        self.mods = mods


def key(said: Mapping[str, Any]) -> Key:
    """A key from the host's description. An unknown one keeps the host's name."""
    code, mods, kind = said["code"], said.get("mods", 0), str(said.get("kind", "press"))
    word = str(code.get("type", ""))
    if word == "char" and isinstance(code.get("ch"), str):
        char = code["ch"]
        return Key(_named(char, mods), None if mods & ~SHIFT else char, mods, kind)
    if word == "back_tab":
        return Key(_named("tab", mods | SHIFT), None, mods, kind)
    return Key(_named(f"f{code.get('n')}" if word == "f" else word, mods), None, mods, kind)


def mouse(said: Mapping[str, Any]) -> Mouse:
    """A mouse event from the host's description."""
    kind = said["kind"]
    button = kind.get("button")
    pressed = button.get("type") if isinstance(button, dict) else None
    return Mouse(str(kind.get("type", "")), pressed, said["col"], said["row"], said.get("mods", 0))


def canonical(name: str) -> str:
    """The canonical name of a key; raises ValueError for a name that no key has."""
    held, _, last = name.rpartition("+") if len(name) > 1 and not name.endswith("++") else (name[:-2], "", name[-1:])
    mods = held.lower().split("+") if held else []
    if len(last) > 1:
        last = ALIASES.get(last.lower(), last.lower())
    if last == "back_tab":
        mods, last = [*mods, "shift"], "tab"
    if any(mod not in MODS for mod in mods) or not (len(last) == 1 or last in NAMED):
        known = ", ".join(name for name in NAMED if len(name) > 3)
        raise ValueError(f"no key is called {name!r}; there are characters, {known}, tab, esc, up, end and f1 to f35")
    return _named(last, sum(MODS[mod] for mod in set(mods)))


def _named(word: str, mods: int) -> str:
    """The character already tells whether shift was held."""
    if len(word) == 1 or word == "space":
        upper = word.upper() if mods & SHIFT else word
        word, mods = ALIASES.get(word, upper if len(upper) == 1 else word), mods & ~SHIFT
    return "+".join([*(mod for mod, bit in MODS.items() if mods & bit), word])
