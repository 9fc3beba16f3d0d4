"""Small recordings of each contract, written by hand, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plugbay.link.recording import Frame, Happening, Header, Item, Recording, StderrLine, encode, read

Line = tuple[str, Any]
"""`>` the host says, `<` the plugin says, `!` a line on stderr, `.` something happens; and what."""


def recording(
    contract: str, *lines: Line, redacted: dict[int, tuple[str, ...]] | None = None, link: int = 1
) -> Recording:
    """A recording of these lines, a hundredth of a second apart. `redacted`: pointers by the number of the line."""
    return joined(contract, items(lines, redacted, link))


def joined(contract: str, said: Iterable[Item]) -> Recording:
    header = Header(contract, "p", "1.0.0", "", "2026-11-15T00:00:00.000Z")
    return read([encode(header), *map(encode, said)])


def items(lines: Iterable[Line], redacted: dict[int, tuple[str, ...]] | None = None, link: int = 1) -> list[Item]:
    return [
        _item(at / 100, link, kind, what, (redacted or {}).get(at + 2, ())) for at, (kind, what) in enumerate(lines)
    ]


def _item(t: float, link: int, kind: str, what: Any, redacted: tuple[str, ...]) -> Item:
    if kind == "!":
        return StderrLine(t, link, what)
    if kind == ".":
        return Happening(t, link, what["event"], {key: value for key, value in what.items() if key != "event"})
    direction = "host" if kind == ">" else "plugin"
    if isinstance(what, bytes):
        return Frame(t, link, direction, len(what), None, what, redacted, "not JSON")
    return Frame(t, link, direction, 1, what, None, redacted)


def call(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def tell(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(id: int, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(id: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}}
