"""What the operator says about confinement in general, for all plugins of a host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UIDS = (2_000_000_000, 2_134_217_727)
"""First and last user number for plugins of a host that runs as root: outside everything distributions give out."""


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """The values of `[sandbox]` that a launcher needs."""

    uids: tuple[int, int] = UIDS
    read: tuple[Path, ...] = ()
    """What every confined plugin may read beside its own grants."""
    require_limits: bool = False
    """True: without control groups nothing is started confined, instead of with resource limits only."""
