"""Topics of events and of snapshots. Pure: host, SDK and conformance kit use the same rules.

Events: dotted names; in a pattern, `*` stands for one segment and `>` for all that follow (`matches`).

    pattern `a.*.c`    covers `a.b.c`; `*` stands for exactly one whole segment, `a.b*` is plain text
    pattern `a.>`      covers `a.b` and `a.b.c`, not `a`; what follows a `>` is ignored
    `a..b`, `.a`, ``   cover nothing and are covered by nothing

Snapshots: a grant names a topic, or the beginning of some (`covers`).
"""

from __future__ import annotations

ANY = "*"
REST = ">"

MAX_SUBJECT = 1_024
"""Characters of the topic of an event. The bus caches topics that plugins choose, so they must be bounded."""

HOST_ONLY = "fleet."
"""Prefix of the snapshot topics that only the host publishes."""


def subject_problem(subject: str) -> str | None:
    """Why an event cannot have this topic; None when it can."""
    if len(subject) > MAX_SUBJECT:
        return f"a subject has at most {MAX_SUBJECT} characters, not {len(subject)}"
    segments = subject.split(".")
    if not all(segments):
        return f"{subject!r} has an empty segment"
    if ANY in segments or REST in segments:
        return f"{subject!r} has a wildcard; only patterns have those"
    if not subject.isprintable():
        return f"{subject!r} has a character that cannot be printed"
    return None


def matches(pattern: str, topic: str) -> bool:
    """Whether `pattern` covers the topic of an event. In a topic, `*` and `>` are plain text."""
    wanted, given = pattern.split("."), topic.split(".")
    if not all(wanted) or not all(given):
        return False
    for position, segment in enumerate(wanted):
        if position == len(given):
            return False
        if segment == REST:
            return True
        if segment not in (ANY, given[position]):
            return False
    return len(wanted) == len(given)


def covers(target: str, topic: str) -> bool:
    """Whether a grant for `target` covers the topic of a snapshot.

    A target with `*` at its end covers every topic with that beginning, an empty target covers all. A topic of the host
    must be named in full.
    """
    if target and not target.endswith("*"):
        return target == topic
    return topic.startswith(target[:-1]) and not topic.startswith(HOST_ONLY)
