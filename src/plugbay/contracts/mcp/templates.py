"""Addresses with variables (RFC 6570): which variables one has, and the address when they are filled in.

Owns the eight kinds of expressions and what is escaped in each. Refuses to know what is read there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_EXPRESSION = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")

_KINDS = {
    "": ("", ",", False),
    "+": ("", ",", False),
    "#": ("#", ",", False),
    ".": (".", ".", False),
    "/": ("/", "/", False),
    ";": (";", ";", True),
    "?": ("?", "&", True),
    "&": ("&", "&", True),
}
"""The sign of an expression → what stands before it, between its values, and whether each value has its name."""

_RESERVED = ":/?#[]@!$&'()*+,;="
"""What `{+x}` and `{#x}` leave alone, because it means something in an address."""


def variables(template: str) -> list[str]:
    """The names in a template, in order, each once."""
    names = [name for _, names in _EXPRESSION.findall(template) for name in _split(names)]
    return list(dict.fromkeys(name for name, _, _ in names))


def expanded(template: str, values: Mapping[str, Any]) -> str:
    """The address with `values` filled in; what is missing or null leaves nothing behind."""
    return _EXPRESSION.sub(lambda match: _filled(match[1], match[2], values), template)


def _split(names: str) -> list[tuple[str, bool, int | None]]:
    """(name, whether a list is taken apart, how much of a text is wanted) of each variable."""
    found = []
    for part in names.split(","):
        name, _, most = part.strip().rstrip("*").partition(":")
        if name:
            found.append((name, part.strip().endswith("*"), int(most) if most.isdecimal() else None))
    return found


def _filled(sign: str, names: str, values: Mapping[str, Any]) -> str:
    first, between, named = _KINDS[sign]
    safe = _RESERVED if sign in ("+", "#") else ""
    parts = [
        part
        for name, apart, most in _split(names)
        if values.get(name) is not None
        for part in _parts(name, values[name], apart, most, safe, named, empty="" if sign == ";" else "=")
    ]
    return first + between.join(parts) if parts else ""


def _parts(name: str, value: Any, apart: bool, most: int | None, safe: str, named: bool, empty: str) -> list[str]:
    items = value if isinstance(value, list) else [value]
    texts = [quote(_text(item)[:most], safe=safe) for item in items]
    if not (apart and isinstance(value, list)):
        texts = [",".join(texts)]
    return [f"{name}={text}" if text else f"{name}{empty}" for text in texts] if named else texts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
