"""Topics of snapshots: which of them a grant covers, and which are reserved for the host.

Manifests and running plugins are checked with the same rule.
"""

from __future__ import annotations

HOST_ONLY = "fleet."
"""The prefix of topics that only the host publishes to."""


def covers(target: str, topic: str) -> bool:
    """Whether a grant for `target` is one for `topic`.

    A target with `*` at its end covers every topic that begins so, an empty one all of them; neither covers a topic
    that only the host publishes: that has to be named in full.
    """
    if target and not target.endswith("*"):
        return target == topic
    return topic.startswith(target[:-1]) and not topic.startswith(HOST_ONLY)
