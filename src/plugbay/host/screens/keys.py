"""Keys by name: `ctrl+a`, `shift+tab`, `f5`, `é` to key events of screens, and back. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

SHIFT, CTRL, ALT, SUPER = 1, 2, 4, 8

MODIFIERS = {"shift": SHIFT, "ctrl": CTRL, "alt": ALT, "super": SUPER}
"""In the order of their names in a key name."""

NAMES = tuple("enter tab back_tab esc backspace delete insert up down left right home end page_up page_down".split())
"""Keys without a character, besides `f1` to `f255`."""

LAST_FUNCTION_KEY = 255

_ALIASES = {
    "control": "ctrl",
    "option": "alt",
    "meta": "alt",
    "cmd": "super",
    "win": "super",
    "return": "enter",
    "escape": "esc",
    "backtab": "back_tab",
    "del": "delete",
    "ins": "insert",
    "pageup": "page_up",
    "pgup": "page_up",
    "pagedown": "page_down",
    "pgdn": "page_down",
}
"""Other names of modifiers and keys."""

_NAMED_CHARS = {"space": " ", "plus": "+"}
"""Characters with a name, because a shell or the `+` syntax would swallow them."""

VALID_KEYS = (
    f"one character, space, plus, f1 to f{LAST_FUNCTION_KEY} or one of {', '.join(NAMES)}, "
    f"after any of {', '.join(f'{name}+' for name in MODIFIERS)}"
)


def parse_key(text: str) -> dict[str, Any]:
    """The key event of a name; raises `ValueError` with the valid names."""
    *held, last = _words(text)
    mods = 0
    for word in held:
        name = _canonical(word)
        if name not in MODIFIERS:
            raise ValueError(f"{word!r} in {text!r} is not a modifier; a key is {VALID_KEYS}")
        mods |= MODIFIERS[name]
    code, implied = _code(last, mods)
    if code is None:
        raise ValueError(f"there is no key {last!r}; a key is {VALID_KEYS}")
    return {"code": code, "mods": mods | implied, "kind": "press"}


def key_name(key: Mapping[str, Any]) -> str:
    """The name of a key event that `parse_key` understands."""
    code, mods = key["code"], key.get("mods", 0)
    name = code["type"]
    if name == "char":
        names = {char: word for word, char in _NAMED_CHARS.items()}
        name = names.get(code["ch"], code["ch"])
        mods &= ~_implied(code["ch"])
    elif name == "f":
        name = f"f{code['n']}"
    elif name == "back_tab":
        mods &= ~SHIFT
    return "+".join([*(word for word, bit in MODIFIERS.items() if mods & bit), name])


def _words(text: str) -> list[str]:
    """The parts between the plus signs; in `ctrl++` the last plus is the key."""
    if text == "+":
        return ["+"]
    return [*text[:-2].split("+"), "+"] if text.endswith("++") else text.split("+")


def _canonical(word: str) -> str:
    lower = word.lower()
    return _ALIASES.get(lower, lower)


def _code(word: str, mods: int) -> tuple[dict[str, Any] | None, int]:
    """The code of the last part of a name, and the modifiers that it implies."""
    char = unicodedata.normalize("NFC", word)
    if len(char) != 1:
        char = _NAMED_CHARS.get(word.lower(), "")
    if char:
        char = char.upper() if mods & SHIFT and len(char.upper()) == 1 else char
        return ({"type": "char", "ch": char}, _implied(char)) if _can_be_typed(char) else (None, 0)
    name = _canonical(word)
    if name == "back_tab" or (name == "tab" and mods & SHIFT):
        return {"type": "back_tab"}, SHIFT
    if name in NAMES:
        return {"type": name}, 0
    digits = name.removeprefix("f")
    number = int(digits) if name[:1] == "f" and digits.isascii() and digits.isdigit() and len(digits) <= 3 else 0
    return ({"type": "f", "n": number} if 1 <= number <= LAST_FUNCTION_KEY else None), 0


def _implied(char: str) -> int:
    """Terminals report Shift for a capital letter."""
    return SHIFT if char.isupper() else 0


def _can_be_typed(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cs", "Cn")
