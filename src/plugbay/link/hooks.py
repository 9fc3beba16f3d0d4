"""`Hooks`: what a link tells its owner, and what it asks of it. Everything is optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plugbay.model.errors import Failure
from plugbay.model.events import Noise

if TYPE_CHECKING:
    from plugbay.link.answers import Handler
    from plugbay.model.operations import Operation


class Hooks:
    """Callbacks in the link's loop; they must not block."""

    __slots__ = ("explain", "faulted", "handler", "noise", "notified", "trace")

    def __init__(
        self,
        *,
        handler: Handler | None = None,
        notified: Callable[[Operation], None] | None = None,
        noise: Callable[[Noise], None] | None = None,
        faulted: Callable[[Failure], None] | None = None,
        explain: Callable[[Failure], Failure] | None = None,
        trace: Callable[[str], object] | None = None,
    ) -> None:
        self.handler = handler
        """Answers what the peer asks."""
        self.notified = notified
        self.noise = noise
        self.faulted = faulted
        """The conversation is over; called once."""
        self.explain = explain
        """Adds what the owner knows (exit status, stderr) to a failure before callers see it."""
        self.trace = trace
        """Told the name of each step of the walk."""
