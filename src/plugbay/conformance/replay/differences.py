"""Compares two JSON values and describes where they differ; values that change in every run are ignored.

Pure. Numbers are equal by value, objects regardless of order. A key or value that looks like a time, an id or a process
number only has to be present on both sides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

MAX_SHOWN = 160
"""Characters of a value in a report."""

ANEW = frozenset(
    "timestamp timestamp_ms ts created_at updated_at started_at published_ns pid duration_ms elapsed_ms uptime_ms "
    "trace_id".split()
)
"""Keys whose values change in every run."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_ABSENT = object()


class Difference(NamedTuple):
    """One difference: the recorded value and the new one. Either may be absent."""

    path: str
    recorded: Any
    came: Any

    def __str__(self) -> str:
        where = self.path or "the whole of it"
        if self.came is _ABSENT:
            return f"{where}: missing; it was {shown(self.recorded)}"
        if self.recorded is _ABSENT:
            return f"{where}: {shown(self.came)}, which was not recorded"
        return f"{where}: {shown(self.came)}, not {shown(self.recorded)}"

    @property
    def gone(self) -> str | None:
        """The recorded value as text; None when there was none."""
        return None if self.recorded is _ABSENT else shown(self.recorded)

    @property
    def new(self) -> str | None:
        """The new value as text; None when there is none."""
        return None if self.came is _ABSENT else shown(self.came)


class IgnoredPaths:
    """The JSON pointers that are not compared."""

    def __init__(self, pointers: Iterable[str] = (), *, shapes: bool = False) -> None:
        """Pointers in which `*` is any step; `shapes`: also pass over what looks like a time or an id."""
        self._patterns = [re.compile(re.escape(each).replace(r"\*", "[^/]*") + "(?:/.*)?") for each in pointers]
        self._shapes = shapes

    def over(self, path: str, one: Any, other: Any) -> bool:
        if any(pattern.fullmatch(path) for pattern in self._patterns):
            return True
        if not self._shapes or type(one) is not type(other):
            return False
        if path.rpartition("/")[2] in ANEW:
            return True
        return isinstance(one, str) and any(shape.fullmatch(one) and shape.fullmatch(other) for shape in (_TIME, _UUID))


def differences(recorded: Any, came: Any, passed: IgnoredPaths, path: str = "") -> list[Difference]:
    """Every difference between the recorded value and `came`."""
    if passed.over(path, recorded, came):
        return []
    if isinstance(recorded, dict) and isinstance(came, dict):
        keys = [*recorded, *(key for key in came if key not in recorded)]
        pairs = [(key, recorded.get(key, _ABSENT), came.get(key, _ABSENT)) for key in keys]
        return [each for key, one, two in pairs for each in differences(one, two, passed, f"{path}/{_escape(key)}")]
    if isinstance(recorded, list) and isinstance(came, list):
        size = max(len(recorded), len(came))
        ones, twos = (side + [_ABSENT] * (size - len(side)) for side in (recorded, came))
        return [each for at in range(size) for each in differences(ones[at], twos[at], passed, f"{path}/{at}")]
    return [] if _same(recorded, came) else [Difference(path, recorded, came)]


def shown(value: Any) -> str:
    """A value in a report."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "))
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
