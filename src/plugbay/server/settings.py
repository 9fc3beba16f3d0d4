"""`EdgeSettings`: under which names a server answers, and how much it takes. Values only."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

MAX_JSON = 1 << 20
"""Bytes of a body that is JSON: no record of ours is as large."""

MAX_UPLOAD = 52 << 20
"""Bytes of any other body: a package, which has 50 MiB at most."""


BODY_SECONDS = 30.0
"""For the next piece of a body: whoever sends nothing for as long only holds a place."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """What the HTTP edge is started with."""

    hosts: tuple[str, ...] = LOOPBACK
    """Names under which the server may be asked, without a port; `*`: any. A page that has its own name resolve to us
    is turned away by this."""
    max_json: int = MAX_JSON
    max_upload: int = MAX_UPLOAD
    body_seconds: float = BODY_SECONDS
