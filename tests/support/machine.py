"""Rights of the user who runs the tests: marks for tests that need more, and expectations that depend on them.

Root is allowed everything. So no mark skips a test of root, and a machine that lacks something there fails the test.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from plugbay.host.confinement.notes import LIMITS_DEGRADED
from plugbay.process.sandbox.cgroup import DEGRADED, Cgroups

AS_ROOT = os.geteuid() == 0


@cache
def limits_state() -> str:
    """`full`, `full (v1)` or `degraded`: the limits of a confined plugin that this user starts."""
    return Cgroups().state


def _first_open_port() -> int:
    return int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text())


needs_root = pytest.mark.skipif(not AS_ROOT, reason="needs root: other users, mounts, networks or ownership")
needs_cgroups = pytest.mark.skipif(
    not AS_ROOT and limits_state() == DEGRADED, reason="needs control groups, which root has and this user does not"
)
needs_low_ports = pytest.mark.skipif(
    not AS_ROOT and _first_open_port() > 1, reason="needs to listen on ports below 1024, which only root may"
)


def confined_counters(**others: int) -> dict[str, int]:
    """The counters of one start of a confined plugin: the host notes it where no control group limits the plugin."""
    return {LIMITS_DEGRADED: 1, **others} if limits_state() == DEGRADED else others


def without_limits_notes(text: str) -> str:
    """Output without the notes that say the same, as the output of root is."""
    if limits_state() != DEGRADED:
        return text
    notes = (LIMITS_DEGRADED, "no control group limits it")
    lines = [line for line in text.splitlines(keepends=True) if not any(note in line for note in notes)]
    return "".join(lines).replace("confined, limits degraded", "confined")
