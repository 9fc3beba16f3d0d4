"""Which binding serves: of several that could, always the same one for the same session.

Pure. A project's bindings come before its org's; bindings of one export at one scope share the traffic by percentages,
and what a project's leave over falls to the org's. The bucket of a key is `sha256(binding id + key) mod 100`, with the
id of the oldest binding at that scope: so a session stays where it is while percentages behind it grow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WHOLE = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one binding has of the traffic."""

    binding_id: str
    percent: int


def bucket(binding_id: str, key: str) -> int:
    """Where in the traffic a key is, from 0 to 99."""
    return int.from_bytes(hashlib.sha256(f"{binding_id}{key}".encode("utf-8", "surrogatepass")).digest()) % WHOLE


def chosen(shares: Sequence[Share], key: str) -> str | None:
    """The binding among those of one scope, the oldest first, that a key belongs to; None: to none of them."""
    if not shares:
        return None
    place, reached = bucket(shares[0].binding_id, key), 0
    for share in shares:
        reached += share.percent
        if place < reached:
            return share.binding_id
    return None


def selected(of_project: Sequence[Share], of_org: Sequence[Share], key: str) -> str | None:
    """The binding that serves a key: the project's, or else the org's."""
    return chosen(of_project, key) or chosen(of_org, key)


def overbooked(shares: Iterable[Share]) -> int:
    """How many percent more than all of the traffic they have together; 0: it fits."""
    return max(0, sum(share.percent for share in shares) - WHOLE)


def stable_key(*ids: str | None) -> str:
    """What selection sticks to: the first of these that is there, such as a session, a chain, a run."""
    return next((id for id in ids if id), "")
