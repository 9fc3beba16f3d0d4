"""Names that events and snapshots are published under: validity, patterns, and the cover of grants.

Pure. The manifest of a plugin, its process and the bus are checked with the same functions.

A *subject* names an event of the bus. It has segments between dots; patterns have wildcards:

    pattern `a.*.c`    matches `a.b.c`; `*` stands for exactly one whole segment, `a.b*` is plain text
    pattern `a.>`      matches `a.b` and `a.b.c`, not `a`; segments after `>` are ignored
    `a..b`, `.a`, ``   match nothing and are matched by nothing

A *topic* names a snapshot. It is plain text; a grant may end with `*`.
"""

from __future__ import annotations

ANY = "*"
REST = ">"

MAX_SUBJECT = 1_024
"""Characters of a subject. The bus caches subjects that plugins choose, so they must be bounded."""

MAX_TOPIC = 256
"""Characters of a topic: it is a name."""

HOST_ONLY = "fleet."
"""Prefix of the topics that the host alone publishes."""

UI_STATE = "ui.state"
"""A plugin's snapshot of this topic is kept under `ui.state/<plugin>`, for as long as its process lives."""


def split_segments(text: str) -> list[str]:
    """The segments of a pattern or subject; none if one of them is empty."""
    segments = text.split(".")
    return segments if all(segments) else []


def subject_problem(subject: str) -> str | None:
    """Why a subject is invalid; None if it is valid."""
    if len(subject) > MAX_SUBJECT:
        return f"a subject has at most {MAX_SUBJECT} characters, not {len(subject)}"
    segments = subject.split(".")
    if not all(segments):
        return f"{subject!r} has an empty segment"
    if ANY in segments or REST in segments:
        return f"{subject!r} has a wildcard, which is allowed in patterns only"
    if not subject.isprintable():
        return f"{subject!r} has a character that cannot be printed"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern matches no subject; None if it is valid."""
    if len(pattern) > MAX_SUBJECT:
        return f"a pattern has at most {MAX_SUBJECT} characters, not {len(pattern)}"
    if not split_segments(pattern):
        return f"the pattern {pattern!r} has an empty segment"
    if not pattern.isprintable():
        return f"the pattern {pattern!r} has a character that cannot be printed"
    return None


def matches(pattern: str, subject: str) -> bool:
    """Whether `pattern` matches `subject`. In a subject, `*` and `>` are plain text."""
    wanted, given = split_segments(pattern), split_segments(subject)
    if not wanted or not given:
        return False
    for position, segment in enumerate(wanted):
        if position == len(given):
            return False
        if segment == REST:
            return True
        if segment not in (ANY, given[position]):
            return False
    return len(wanted) == len(given)


def topic_problem(topic: str) -> str | None:
    """Why a topic is invalid; None if it is valid."""
    if not topic:
        return "a topic must not be empty"
    if len(topic) > MAX_TOPIC:
        return f"a topic has at most {MAX_TOPIC} characters"
    return None if topic.isprintable() else "a topic has printable characters only"


def covers(target: str, topic: str) -> bool:
    """Whether a grant for `target` covers the snapshots of `topic`.

    A target with `*` at its end covers every topic with that prefix, an empty one covers all topics. Neither covers a
    topic that only the host publishes: that has to be named in full.
    """
    if target and not target.endswith("*"):
        return target == topic
    return topic.startswith(target[:-1]) and not topic.startswith(HOST_ONLY)
