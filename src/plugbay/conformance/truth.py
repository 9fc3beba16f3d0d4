"""Whether a recorded frame can still be sent or compared: not where a part of it was cut or taken out.

Owns when a replay would lie, and the words for it. Refuses to know who replays what.
"""

from __future__ import annotations

from collections.abc import Callable

from plugbay.conformance.exchanges import Said

ALLOW = "--allow-redacted goes on with placeholders"


class Lie(Exception):
    """Going on would pass something off as what was said; the text says what and where."""


def check(said: Said, allow_redacted: bool, complain: Callable[[str], None]) -> None:
    """Raise `Lie` when a part of the frame is not there any more; or complain, when placeholders are allowed."""
    who = f"the {said.frame.direction}'s {said.turn.name or said.turn.kind} in line {said.line}"
    if said.frame.cut:
        raise Lie(f"{who} was too long to be recorded whole, so it can neither be sent nor compared")
    if not said.frame.redacted:
        return
    places = ", ".join(place or "the whole of it" for place in said.frame.redacted)
    if not allow_redacted:
        raise Lie(f"{who} was redacted at {places}, so it can neither be sent nor compared; {ALLOW}")
    complain(f"{who} has placeholders at {places}")
