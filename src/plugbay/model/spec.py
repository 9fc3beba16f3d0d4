"""`PluginSpec`: the contract-neutral form of a manifest.

The host does not ask which contract a plugin has: differences between contracts are fields here.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.model.users import SANDBOX_USER

KINDS = frozenset(
    "tool hook compactor harness channel llm_provider vector_backend "
    "screen cli_namespace method resource prompt".split()
)
"""Every kind of export, over all contracts."""


ACCESS_KINDS = frozenset(
    "read_path write_path own_path scratch run network no_network storage_read storage_write topic".split()
)
"""Every kind of access a capability can stand for, over all contracts."""


STATE_DIR = "${state_dir}"
"""Stands for the plugin's own folder for what it keeps, at the beginning of a path that it may write."""


FACTS = ("project.id", "project.root", "config.root", "search.path")
"""Facts of a host for the environment of a plugin; the last is a PATH that leads to the host's Python."""


class Lifetime(StrEnum):
    """How long one child serves."""

    PER_CALL = "per_call"
    RESIDENT = "resident"


class Export(msgspec.Struct, frozen=True):
    """Something a plugin offers under a name."""

    kind: str
    name: str
    description: str = ""
    input_schema: Any = None
    """JSON Schema of the input; None when the contract says nothing about it."""
    output_schema: Any = None
    capabilities: tuple[str, ...] = ()
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Further facts of the contract: approval tier, effect class, size hints."""
    alias: str = ""
    """A second name by which callers find it, after all names of exports: the registered name of a kaged tool."""

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


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds, each with the contract's default; an operator may override every one."""

    launch: float = 30.0
    """Until the process exists. A busy machine is no plugin's fault, and the call's own time bounds its caller."""
    handshake: float = 10.0
    call: float = 30.0
    """The whole call, from the moment it is asked: spawn, greeting, answer and exit included."""
    grace: float = 0.0
    """From the cancellation of a call to the plugin's answer; 0: no answer is awaited."""
    farewell: float = 5.0
    """From the shutdown message to its answer, where the contract has one."""
    teardown: float = 2.0
    """From closed stdin to exit."""
    term: float = 0.0
    """From SIGTERM to exit, before SIGKILL; 0: there is no SIGTERM."""
    kill: float = 2.0
    """From SIGKILL to reaped."""
    hung: float = 30.0
    """Of silence after a call ran into its timeout, until a plugin that stays counts as hung (`host.hung`)."""


class RestartPolicy(msgspec.Struct, frozen=True):
    """How patient to be with a plugin that fails. Contracts bring their own numbers where they have any."""

    first_delay: float = 0.1
    factor: float = 2.0
    longest_delay: float = 60.0
    jitter: float = 0.1
    """The delay varies by this fraction either way, so a fleet does not restart in step."""
    failures: int = 5
    window: float = 60.0
    """More than `failures` within `window` seconds → quarantine."""
    healthy_after: float = 600.0
    """A run this long forgets earlier failures."""
    refusal_is_final: bool = True
    """A greeting that was refused or cannot be accepted means quarantine at once; False: it is a failure like any
    other (ainb)."""


class SandboxRequest(msgspec.Struct, frozen=True):
    """That a manifest asks to be confined, and what it needs then although no capability stands for it.

    An empty request is the narrowest: what needs the operator's grant is in `PluginSpec.access`.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    """Absolute paths; `STATE_DIR` stands for the plugin's own folder for state."""
    host_network: bool = False
    """The machine's own network, all of it."""
    never: tuple[str, ...] = ()
    """Paths that the contract never shows, with their contents and parents, links resolved."""
    fenced: bool = False
    """Whether the contract has a capability for running programs: without it the plugin sees no program but its own."""
    tools: tuple[str, ...] = ()
    """Names of programs that every plugin of the contract sees."""
    insists: bool = False
    """True: the operator requires confinement, in the contract's own way, without exception."""
    user: int | None = SANDBOX_USER
    """User and group number inside; None: the number outside. It gives no rights."""


class Access(msgspec.Struct, frozen=True):
    """One thing that a capability allows, whatever the contract's words for it are."""

    kind: str
    """One of `ACCESS_KINDS`."""
    target: str = ""
    """A path, a host or a topic, `*` at its end for all that begin so; empty for everything of the kind."""
    port: int | None = None
    """None: every port of the host."""
    capability: str = ""
    """The manifest's word for it, which the operator grants."""

    def __post_init__(self) -> None:
        if self.kind not in ACCESS_KINDS:
            raise ValueError(f"{self.kind!r} is not a kind of access")


class Knob(msgspec.Struct, frozen=True):
    """One setting an operator turns: a control for one field of the plugin's config."""

    name: str
    type: str
    label: str
    binds_to: str
    """The field of the config it writes."""
    description: str = ""
    default: Any = None
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    """Facts of the type: min, max, step, values, labels, max_length, prefixes."""


class SettingsSpec(msgspec.Struct, frozen=True):
    """The settings for an operator. Secrets have a schema and a file of their own."""

    config_schema: Any = None
    secrets_schema: Any = None
    knobs: tuple[Knob, ...] = ()


class PluginSpec(msgspec.Struct, frozen=True):
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
    url: str = ""
    """The server on the network that the command speaks for, without its query; empty: the command is the plugin."""
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
    """The capabilities that the manifest requests; a request, never a grant."""
    optional_capabilities: tuple[str, ...] = ()
    """Capabilities that any plugin of the contract may use at run time if they are granted."""
    requests_at_run_time: bool = False
    """True when the handshake requests capabilities, beside the manifest: every grant to the plugin counts (rune)."""
    timeouts: Timeouts = msgspec.field(default_factory=Timeouts)
    patience: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds by name of operation, where the contract has its own; `timeouts.call` for all others."""
    eager: bool = False
    """Started with the host instead of with its first call."""
    idle_seconds: float | None = None
    """Stopped after this many seconds without use; None: never."""
    exit_is_failure: bool = False
    """True when leaving unasked counts as a failure even with status 0 (ainb)."""
    respawn: bool = False
    """Started again by the host when it crashes; otherwise by the next call that needs it."""
    restart: RestartPolicy = msgspec.field(default_factory=RestartPolicy)
    stderr_tail: int | None = None
    """Last lines of stderr to report with a crash; None for the host's own default."""
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    """Patterns of bus topics that the plugin receives, and may publish to."""
    snapshots: tuple[str, ...] = ()
    """Snapshot topics that the plugin receives without a subscription, exact."""
    latest_state: tuple[str, ...] = ()
    """Those of `snapshots` that do not keep an idle plugin alive."""
    publish_rate: int | None = None
    """Publishes in any second; what comes faster is dropped and counted. None: no limit of the contract's own."""
    sandbox: SandboxRequest | None = None
    """None: the manifest does not ask to be confined."""
    access: tuple[Access, ...] = ()
    """The capabilities that allow something the operating system knows, in neutral words."""
    gates: tuple[Access, ...] = ()
    """Access that other capabilities of the contract would allow, so that a refusal names the right one."""
    settings: SettingsSpec = msgspec.field(default_factory=SettingsSpec)
    health_interval: float | None = None
    """Seconds between health probes; None where the contract has none."""
    commands: tuple[str, ...] = ()
    """The entries of a command palette; choosing one sends `PerformAction`."""
    host_version: str = ""
    """The version of the host in its greeting, where the operator may choose it; empty: the contract's own."""
    roles: tuple[str, ...] = ()
    """The plugin's roles in the compaction of an agent: observer, compactor."""
    env_facts: tuple[tuple[str, str], ...] = ()
    """Variables the host sets from what it knows: (name, one of `FACTS`)."""
    connects: tuple[tuple[str, int], ...] = ()
    """Hosts and ports that it reaches without a grant when it is confined, because its declaration names them."""

    def with_exports(self, exports: tuple[Export, ...]) -> PluginSpec:
        return replace(self, exports=exports)
