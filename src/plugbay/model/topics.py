"""Topics of snapshots: which of them a grant covers, and which nobody but the host publishes under.

Pure: a manifest is judged with the same rule as the process that comes of it.
"""

from __future__ import annotations

HOST_ONLY = "fleet."
"""Topics that begin so are published by the host alone."""


def covers(target: str, topic: str) -> bool:
    """Whether a grant for `target` is one for `topic`.

    A target with `*` at its end covers every topic that begins so, an empty one all of them; neither covers a topic
    that only the host publishes: that has to be named in full.
    """
    if target and not target.endswith("*"):
        return target == topic
    return topic.startswith(target[:-1]) and not topic.startswith(HOST_ONLY)
