"""Replaces values that change in every run (paths, process numbers, times) when a recording is played again.

Pure. An answer that repeats a recorded value must repeat its replacement.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

SHORTEST = 8
"""Characters of an id or a path that is replaced wherever it appears in an answer."""


class PlayContext(msgspec.Struct, frozen=True):
    """Where and when a recording is played again."""

    manifest: str = ""
    """The path of the plugin's manifest; empty when there is none."""
    place: str = ""
    """A folder for the plugin's files."""
    pid: int = 0
    began: datetime | None = None
    """When the recording began."""
    begins: datetime | None = None
    """When it begins now."""

    def later(self, moment: str) -> str:
        """A recorded time, shifted by the age of the recording; unchanged when it is not a time."""
        try:
            at = datetime.fromisoformat(moment)
        except ValueError:
            return moment
        if self.began is None or self.begins is None or at.tzinfo is None:
            return moment
        shifted = at + (self.begins - self.began)
        return shifted.isoformat(timespec="milliseconds").replace("+00:00", "Z")


RENEWALS: dict[str, Callable[[PlayContext, Any], Any]] = {
    "/params/manifest_path": lambda context, old: context.manifest or old,
    "/params/host/pid": lambda context, old: context.pid,
    "/body/context/scratch_dir": lambda context, old: old and context.place,
    "/body/context/deadline_at": lambda context, old: context.later(str(old)),
}
"""The replacement for each volatile value, by its JSON pointer."""


def renew_frame(frame: Any, context: PlayContext) -> Any:
    """A recorded frame of the host with its volatile values replaced."""
    for place, renew in RENEWALS.items():
        old = _at(frame, place)
        if old is not None:
            frame = _with(frame, place.split("/")[1:], renew(context, old))
    return frame


def _with(value: Any, steps: list[str], new: Any) -> Any:
    return {**value, steps[0]: _with(value[steps[0]], steps[1:], new)} if steps else new


def find_swaps(recorded: Any, live: Any, volatile: tuple[str, ...]) -> dict[str, str]:
    """The live value of each recorded volatile value."""
    pairs = ((_at(recorded, place), _at(live, place)) for place in volatile)
    return {
        one: two
        for one, two in pairs
        if isinstance(one, str) and isinstance(two, str) and one != two and len(one) >= SHORTEST
    }


def apply_swaps(value: Any, swaps: dict[str, str]) -> Any:
    """A recorded answer with the live values in place of the recorded ones."""
    if not swaps:
        return value
    if isinstance(value, str):
        for one, two in swaps.items():
            value = value.replace(one, two)
        return value
    if isinstance(value, dict):
        return {key: apply_swaps(item, swaps) for key, item in value.items()}
    return [apply_swaps(item, swaps) for item in value] if isinstance(value, list) else value


def _at(value: Any, place: str) -> Any:
    for step in place.split("/")[1:]:
        value = value.get(step) if isinstance(value, dict) else None
    return value
