"""How a conversation can end before its last step.

Owns the three reasons. Refuses to know the steps.
"""

from __future__ import annotations

from plugbay.conformance.subject import Frame


class Broken(Exception):
    """The plugin did not do what the step expects.

    `frame` is the line that shows it, if one does; `late` says that it was waited for as long as it may take.
    """

    def __init__(self, what: str, frame: Frame | None = None, *, late: bool = False) -> None:
        super().__init__(what)
        self.frame = frame
        self.late = late


class Nothing(Broken):
    """No line came."""


class Untried(Exception):
    """The rule cannot be tried on this plugin."""
