"""The two functions of `json` that the programs in these folders need, on the interpreter's own accelerator.

The package loads `re`, which takes half of the time in which such a program starts, and a run of the kit starts
hundreds of them. Knows no contract. Whatever the accelerator does not take, the package judges.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Grammar:
    """What `json.loads` asks of the accelerator."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(data: bytes | str) -> Any:
    try:
        text = (data if isinstance(data, str) else data.decode()).strip(" \t\r\n")
        value, end = scan(text, 0)
        if end == len(text):
            return value
    except Exception:  # its own errors need the package, and some come as a SystemError without it
        pass
    import json

    return json.loads(data)


def dumps(value: Any, *, ensure_ascii: bool = True, separators: tuple[str, str] = (", ", ": ")) -> str:
    spell = _json.encode_basestring_ascii if ensure_ascii else _json.encode_basestring
    between, after_key = separators
    return "".join(_json.make_encoder({}, refuse, spell, None, after_key, between, False, False, True)(value, 0))


def refuse(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


try:
    import _json

    make_scanner: Any = _json.make_scanner
    scan = make_scanner(Grammar)
    assert scan(dumps([{"a": 1.5}]), 0) == ([{"a": 1.5}], 12)
except Exception:  # another accelerator may differ in any way
    from json import dumps  # type: ignore[assignment]
