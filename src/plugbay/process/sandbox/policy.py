"""`Policy`: what one confined process may see, reach and use up; `SandboxSettings`: rules for all plugins of a host.

Neutral values, whatever contract asked for them. Deny by default: an empty policy has the system's programs and
libraries, the plugin's own folder, both read-only, an empty /tmp, and no network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from plugbay.process.limits import FILE_SIZE, OPEN_FILES

MIB = 1024 * 1024
SOCKETS_SHARE = 4
"""The share of the memory that data in sockets may fill: one part in so many."""


class Reach(StrEnum):
    """How far a plugin's connections go."""

    NONE = "none"
    LISTED = "listed"
    """Through the host, to the doors of the policy."""
    ANY = "any"
    """Through the host, to every public address."""
    HOST = "host"
    """The machine's own network, past every check: no confinement of connections at all."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host a plugin may connect to."""

    host: str
    """A clean name or address, as `model.addresses.clean_host` returns it."""
    port: int | None = None
    """None: every port."""

    def leads_to(self, host: str, port: int) -> bool:
        return self.host == host and self.port in (None, port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{'*' if self.port is None else self.port}"


@dataclass(frozen=True, slots=True)
class Network:
    """Where connections may go."""

    reach: Reach = Reach.NONE
    doors: tuple[Endpoint, ...] = ()
    """For `LISTED`: an empty list opens nothing."""
    private: tuple[str, ...] = ()
    """Exact `address:port` pairs that are not public and may be reached nevertheless, by the operator's word."""
    closed: tuple[tuple[Endpoint | None, str], ...] = ()
    """What a grant would open, None for everything, and the capability to grant: for the words of a refusal."""

    def key_to(self, host: str, port: int) -> str | None:
        """The capability that would open this host and port, if the plugin asks for one that does."""
        fitting = (name for door, name in self.closed if door is None or door.leads_to(host, port))
        return next(fitting, None)

    @property
    def proxied(self) -> bool:
        """Whether connections go through the host."""
        return self.reach is Reach.ANY or (self.reach is Reach.LISTED and bool(self.doors))

    def __str__(self) -> str:
        if self.reach is Reach.LISTED:
            return ", ".join(map(str, self.doors)) or "none"
        return {"none": "none", "any": "any public address", "host": "the machine's own, unchecked"}[self.reach]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the whole process tree may use up."""

    memory: int = 1024 * MIB
    cpu: float = 1.0
    """Cores."""
    processes: int = 256
    """Threads count as well, as the kernel counts them."""
    open_files: int = OPEN_FILES
    """Of one process."""
    file_size: int = FILE_SIZE
    """Of one file."""
    tmp: int = 64 * MIB
    """Of /tmp, which is in memory and counts as memory."""
    state: int = 256 * MIB
    """Of all that it keeps in its own folder. Nothing in the kernel holds it back: the host looks, and ends it."""

    @property
    def sockets(self) -> int:
        """Bytes on their way between sockets, which control groups count apart from memory, in part, or not at all."""
        return self.memory // SOCKETS_SHARE


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything a launcher needs to know. Paths are absolute, and inside they are called what they are outside."""

    package: Path
    """The plugin's own folder, read-only."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    run: tuple[Path, ...] = ()
    """Programs outside the system's folders that are made visible; they may do no more than the plugin itself."""
    state: Path | None = None
    """The plugin's own folder for what it keeps: its home; made by the launcher. None: its home is /tmp."""
    network: Network = field(default_factory=Network)
    limits: Limits = field(default_factory=Limits)
    hidden: tuple[str, ...] = ()
    """Folders and files, without links, that are never shown, and covered wherever something around them is."""
    own: tuple[str, ...] = ()
    """What is shown although it lies in something hidden, beside the package and the state; without links."""

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        return {
            "read": [str(path) for path in self.read],
            "write": [str(path) for path in self.write],
            "run": [str(path) for path in self.run],
            "state": None if self.state is None else str(self.state),
            "network": {
                "reach": self.network.reach.value,
                "doors": [str(door) for door in self.network.doors],
                "private": list(self.network.private),
            },
            "limits": {name: getattr(self.limits, name) for name in Limits.__dataclass_fields__},
        }


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
