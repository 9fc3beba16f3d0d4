"""`[sandbox]` and `[plugins."x".sandbox]` of plugbay.toml: what the operator says about confinement.

    [sandbox]
    require = true
    require_limits = true
    uids = "2000000000-2134217727"
    read = ["/opt/tools"]
    limits = { memory = "2 GiB" }

    [plugins."x".sandbox]
    read = ["/srv/data"]
    write = ["/srv/out"]
    run = ["/opt/tools/bin/convert"]
    network = ["api.example.com:443"]
    limits = { memory = "4 GiB", processes = 512 }

    [plugins."y".sandbox]
    off = "it is ours, and needs the graphics card"

Owns the fields, what may stand in them, and the values they become. Whether a path exists is not asked here, and who is
confined is decided in `confinement`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from plugbay.model.addresses import clean_host
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.policy import Endpoint, Limits, Network, Reach

ANY, HOST = "*", "host"
"""Words for the network: every public address; the machine's own network, past every check."""

UIDS = "2000000000-2134217727"
"""User numbers for confined plugins of a host that runs as root: outside everything distributions give out."""

MIN_UID = 1000
"""Below it are the system's own users."""

MAX_UID = 2**32 - 2
"""The last but one is "nobody in particular" to the kernel."""

OFF_FORM = '[plugins."x".sandbox] with off = "the reason why"'
"""How a plugin is let off; the reason is for whoever reads the file after you."""

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"([0-9]{1,15})\s*([a-z]{0,3})", re.IGNORECASE)
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_UIDS = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


def size(value: Any) -> Any:
    """Bytes, from a number or from text like `256 MiB`; anything else is left for the reader to refuse."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"{value!r} is no size; write it like 256 MiB or 1 GiB")
    return int(found[1]) * _UNITS[found[2].lower()]


Bytes = Annotated[int, BeforeValidator(size), Field(ge=1 << 20, le=1 << 50)]
"""At least 1 MiB: with less nothing starts."""


T = TypeVar("T", Limits, Rlimits)


class ProcessLimits(BaseModel):
    """What each process of a plugin may use up, confined or not; whatever is not named keeps the value it had."""

    model_config = ConfigDict(extra="forbid")

    open_files: Annotated[int, Field(ge=16, le=1 << 20)] | None = None
    file_size: Bytes | None = None

    def over(self, usual: T) -> T:
        return replace(usual, **self.model_dump(exclude_none=True))


class LimitOverrides(ProcessLimits):
    """The same, and what the processes of a confined plugin may use up together."""

    memory: Bytes | None = None
    cpu: Annotated[float, Field(ge=0.01, le=1024, strict=False)] | None = None
    """Cores."""
    processes: Annotated[int, Field(ge=1, le=1 << 22)] | None = None
    tmp: Bytes | None = None
    state: Bytes | None = None


def _paths(value: list[str]) -> list[str]:
    for path in value:
        if not path.strip() or "\0" in path:
            raise ValueError(f"{path!r} is no path")
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} must not contain '..'")
    return value


class SandboxConfig(BaseModel):
    """For all plugins."""

    model_config = ConfigDict(extra="forbid")

    require: bool = False
    """Every plugin is confined, whatever its manifest says; only this file itself can let one off."""
    require_limits: bool = False
    """No confined plugin is started where its limits would not hold for all its processes together."""
    uids: str = UIDS
    """Who confined plugins run as when the host is root, a number for each."""
    read: list[str] = []
    """What every confined plugin may read."""
    limits: LimitOverrides = LimitOverrides()

    @field_validator("uids")
    @classmethod
    def _range(cls, value: str) -> str:
        found = _UIDS.fullmatch(value)
        if found is None or not MIN_UID <= int(found[1]) <= int(found[2]) <= MAX_UID:
            raise ValueError(f"{value!r} is no range of user numbers from {MIN_UID} to {MAX_UID}, like {UIDS!r}")
        return value

    @field_validator("read")
    @classmethod
    def _read(cls, value: list[str]) -> list[str]:
        return _paths(value)

    @property
    def uid_range(self) -> tuple[int, int]:
        """The first and the last."""
        first, _, last = self.uids.partition("-")
        return int(first), int(last)


class PluginSandbox(BaseModel):
    """For one plugin. A section that lets nobody off confines, and opens what it names beside what is granted."""

    model_config = ConfigDict(extra="forbid")

    off: str | None = None
    """Why the plugin is not confined although it should be."""
    on: Literal[True] | None = None
    """Confine a plugin that does not ask for it, and open nothing more."""
    read: list[str] = []
    write: list[str] = []
    run: list[str] = []
    """Programs outside the system's folders."""
    network: list[str] = []
    limits: LimitOverrides = LimitOverrides()

    @field_validator("off")
    @classmethod
    def _reason(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or not value.isprintable()):
            raise ValueError("say why, in one line: whoever reads this file after you will want to know")
        return value

    @field_validator("read", "write", "run")
    @classmethod
    def _files(cls, value: list[str]) -> list[str]:
        return _paths(value)

    @field_validator("network")
    @classmethod
    def _network(cls, value: list[str]) -> list[str]:
        for text in value:
            if text in (ANY, HOST) and len(value) > 1:
                raise ValueError(f"{text!r} leaves nothing for other entries to open")
            if text not in (ANY, HOST):
                door(text)
        return value

    @model_validator(mode="before")
    @classmethod
    def _old_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"{value!r} is no longer enough; write {OFF_FORM}")
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> PluginSandbox:
        if self.off is not None and self.model_fields_set != {"off"}:
            others = ", ".join(sorted(self.model_fields_set - {"off"}))
            raise ValueError(
                f"a plugin that is let off has no use for {others}; open_files and file_size can be in limits of "
                '[plugins."x"]'
            )
        return self

    @property
    def wanted(self) -> bool:
        """Whether the operator has the plugin confined, be it by asking for it or by saying how."""
        return self.off is None and bool(self.model_fields_set)

    def reach(self) -> Network:
        """What of the network the operator opens beside grants."""
        if self.network in ([ANY], [HOST]):
            return Network(Reach.ANY if self.network == [ANY] else Reach.HOST)
        return Network(Reach.LISTED, tuple(map(door, self.network))) if self.network else Network()

    def move(self, to: Callable[[str], str]) -> None:
        """Give every path another form. What was not named stays so: naming something confines."""
        for name in self.model_fields_set & {"read", "write", "run"}:
            # A program without a slash is a name, to be looked up as any other.
            moved = [path if name == "run" and "/" not in path else to(path) for path in getattr(self, name)]
            setattr(self, name, moved)


def door(text: str) -> Endpoint:
    """`api.example.com:443`, `[::1]:443`, or `*` for the port; raises ValueError with words."""
    name, colon, port = text.rpartition(":")
    host = clean_host(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    bare_ipv6 = ":" in name and not name.startswith("[")
    if not colon or host is None or bare_ipv6 or not (port == "*" or (_PORT.fullmatch(port) and int(port) <= 65535)):
        raise ValueError(f"{text!r} must be a host and a port, like api.example.com:443, or one of '*' and 'host'")
    return Endpoint(host, None if port == "*" else int(port))
