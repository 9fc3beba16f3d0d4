"""`PluginSpec`: the contract-neutral form of a manifest. What a plugin is, in facts a host can act on.

No layer above asks "which contract is this?"; what differs between contracts is a field here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

KINDS = frozenset(
    "tool hook compactor harness channel llm_provider vector_backend "
    "screen cli_namespace method resource prompt".split()
)
"""Every kind of export, over all contracts."""


class Lifetime(StrEnum):
    """How long one child serves."""

    PER_CALL = "per_call"
    RESIDENT = "resident"


@dataclass(frozen=True, slots=True)
class Export:
    """Something a plugin offers under a name."""

    kind: str
    name: str
    description: str = ""
    input_schema: Any = None
    """JSON Schema of the input; None when the contract says nothing about it."""
    output_schema: Any = None
    capabilities: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """What the contract says beyond this: approval tier, effect class, size hints."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is not a kind of export")

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        return {
            "kind": self.kind,
            "name": self.name,
            "description": self.description,
            "input_schema": self.input_schema,
        }


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds, each with the contract's default; an operator may override every one."""

    launch: float = 2.0
    handshake: float = 10.0
    call: float = 30.0
    """The whole call, from the moment it is asked: spawn, greeting, answer and exit included."""
    teardown: float = 2.0
    """From closed stdin to exit."""
    kill: float = 2.0
    """From SIGKILL to reaped."""


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """One plugin, ready to be bound, granted and started."""

    id: str
    version: str
    contract: str
    root: Path
    """The folder the manifest was found in."""
    command: tuple[str, ...]
    """argv; element 0 is a path under `root`, an absolute path, or a name to look up in PATH."""
    name: str = ""
    description: str = ""
    cwd: Path | None = None
    """Working directory; `root` when None."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables the manifest sets."""
    env_inherit: tuple[str, ...] = ()
    """Variables taken from the host when it has them. Never more than these."""
    lifetime: Lifetime = Lifetime.RESIDENT
    clean_exit_required: bool = False
    """True when a result only counts once the child has left with status 0 (rune)."""
    cancelled_is_timeout: bool = False
    """True when the contract reports a caller's cancellation as `timeout` (rune)."""
    exports: tuple[Export, ...] = ()
    capabilities: tuple[str, ...] = ()
    """What the manifest requests; a request, never a grant."""
    timeouts: Timeouts = field(default_factory=Timeouts)
