"""`Policy`: the files, network and limits of one confined process; `SandboxSettings`: rules for all plugins of a host.

Values without knowledge of contracts. Deny by default: an empty policy has the system's programs and
libraries, the plugin's own folder, both read-only, an empty /tmp, and no network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from plugbay.model.addresses import is_loopback
from plugbay.model.users import SANDBOX_USER
from plugbay.process.limits import FILE_SIZE, OPEN_FILES

MIB = 1024 * 1024
SOCKETS_SHARE = 4
"""The share of the memory that data in sockets may fill: one part in so many."""


class Reach(StrEnum):
    """How far a plugin's connections go."""

    NONE = "none"
    LISTED = "listed"
    """Through the host, to the endpoints of the policy."""
    ANY = "any"
    """Through the host, to every public address."""
    HOST = "host"
    """The machine's own network, past every check: no confinement of connections at all."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One host that a plugin may connect to."""

    host: str
    """A clean name or address, as `model.addresses.clean_host` returns it."""
    port: int | None = None
    """None: every port."""

    def matches(self, host: str, port: int | None) -> bool:
        """Whether it covers this port of the host; None: any port."""
        return self.host == host and (port is None or self.port in (None, port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{'*' if self.port is None else self.port}"


@dataclass(frozen=True, slots=True)
class Network:
    """Where connections may go."""

    reach: Reach = Reach.NONE
    endpoints: tuple[Endpoint, ...] = ()
    """For `LISTED`: an empty list opens nothing."""
    private: tuple[str, ...] = ()
    """Exact `address:port` pairs that are not public and that the operator has opened."""
    closed: tuple[tuple[Endpoint | None, str], ...] = ()
    """An endpoint (None: all of them) and the capability that would open it: for the text of a refusal."""

    def allows(self, host: str, port: int | None) -> bool:
        """Whether this clean host may be asked for, at this port or (None) at any."""
        if self.reach is Reach.LISTED:
            return any(endpoint.matches(host, port) for endpoint in self.endpoints)
        return self.reach is Reach.ANY

    @property
    def loopback(self) -> tuple[tuple[str, int], ...]:
        """Loopback addresses and ports of the machine that are open, so that they are not the plugin's own loopback."""
        named = [(address, int(port)) for address, _, port in (pair.rpartition(":") for pair in self.private)]
        opened = [(address.strip("[]"), port) for address, port in named]
        return tuple(
            (address, port)
            for address, port in opened
            if is_loopback(address) and (self.allows(address, port) or self.allows("localhost", port))
        )

    def missing_grant(self, host: str, port: int | None) -> str | None:
        """The requested capability that would open this host and port, if there is one."""
        fitting = (name for endpoint, name in self.closed if endpoint is None or endpoint.matches(host, port))
        return next(fitting, None)

    @property
    def proxied(self) -> bool:
        """Whether connections go through the host."""
        return self.reach is Reach.ANY or (self.reach is Reach.LISTED and bool(self.endpoints))

    def __str__(self) -> str:
        if self.reach is Reach.LISTED:
            return ", ".join(map(str, self.endpoints)) or "none"
        return {"none": "none", "any": "any public address", "host": "the machine's own, unchecked"}[self.reach]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the whole process tree."""

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
    """Of the plugin's own folder. The kernel does not limit it: the host measures, and ends the plugin."""

    @property
    def sockets(self) -> int:
        """Bytes on their way between sockets, which control groups count apart from memory, in part, or not at all."""
        return self.memory // SOCKETS_SHARE


@dataclass(frozen=True, slots=True)
class Policy:
    """The confinement of one process. Paths are absolute and the same inside and outside."""

    package: Path
    """The plugin's own folder, read-only."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    run: tuple[Path, ...] = ()
    """Programs that are made visible; they may do no more than the plugin itself. Without `fenced` all programs of the
    system are visible anyway."""
    tools: tuple[Path, ...] = ()
    """Programs that every plugin of the contract sees."""
    fenced: bool = False
    """Of all programs only the plugin's own and those of `run` and `tools` are visible."""
    state: Path | None = None
    """The plugin's own folder for its data: its home; made by the launcher. None: its home is /tmp."""
    network: Network = field(default_factory=Network)
    limits: Limits = field(default_factory=Limits)
    hidden: tuple[str, ...] = ()
    """Folders and files, without links, that are never shown, and covered inside shown folders."""
    own: tuple[str, ...] = ()
    """Paths, without links, that are shown although they lie in a hidden folder, beside the package and the state."""
    user: int | None = SANDBOX_USER
    """User and group number inside; None: the number outside."""

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        return {
            "read": [str(path) for path in self.read],
            "write": [str(path) for path in self.write],
            "run": [str(path) for path in self.run],
            "tools": [str(path) for path in self.tools],
            "fenced": self.fenced,
            "state": None if self.state is None else str(self.state),
            "network": {
                "reach": self.network.reach.value,
                "doors": [str(endpoint) for endpoint in self.network.endpoints],
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
    """Paths that every confined plugin may read."""
    require_limits: bool = False
    """True: without control groups nothing is started confined, instead of with resource limits only."""
