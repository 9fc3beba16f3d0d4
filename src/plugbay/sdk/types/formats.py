"""Texts that stand for something: times, dates, paths and UUIDs, as JSON has them and as Python has them.

Owns how each is read and written. An annotation that names one has loaded its module, so nothing is imported here.
"""

from __future__ import annotations

from plugbay.sdk.types.shapes import String

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.sdk.types.shapes import Names, Place, Problems


class Formatted(String):
    """A text with a form of its own, which becomes an object of `own`."""

    __slots__ = ("example", "format", "made", "own", "said")
    converts = True

    def __init__(
        self, own: type, format: str, example: str, made: Callable[[str], Any], said: Callable[[Any], str]
    ) -> None:
        self.own = own
        self.format = format
        self.example = example
        self.made = made
        self.said = said

    def schema(self, names: Names) -> dict[str, Any]:
        return {"type": "string", "format": self.format}

    def take(self, value: Any, at: Place, problems: Problems) -> Any:
        try:
            return self.made(value)
        except (ValueError, TypeError):
            problems.add(at, f"must be a {self.format} such as {self.example}, not {value!r:.60}")
            return None

    def write(self, value: Any) -> Any:
        return self.said(value) if isinstance(value, self.own) else value


def formatted(own: type) -> Formatted | None:
    """The shape of a class of the standard library; None for all others."""
    known = _KNOWN.get((own.__module__.partition(".")[0], own.__name__))
    return None if known is None else known(own)


def _iso(format: str, example: str) -> Callable[[Any], Formatted]:
    return lambda own: Formatted(own, format, example, own.fromisoformat, lambda value: str(value.isoformat()))


def _uuid(own: Any) -> Formatted:
    return Formatted(own, "uuid", "f81d4fae-7dec-41d0-a765-00a0c91e6bf6", own, str)


def _path(own: Any) -> Formatted:
    return Formatted(own, "path", "notes/tea.md", own, str)


_KNOWN: dict[tuple[str, str], Callable[[Any], Formatted]] = {
    ("datetime", "datetime"): _iso("date-time", "2026-05-17T16:00:00Z"),
    ("datetime", "date"): _iso("date", "2026-05-17"),
    ("datetime", "time"): _iso("time", "16:00:00"),
    ("uuid", "UUID"): _uuid,
    **{("pathlib", name): _path for name in ("Path", "PosixPath", "PurePath", "PurePosixPath")},
}
