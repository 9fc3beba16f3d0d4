"""`Binding`: a plugin with the decisions and settings of its operator, for its supervisor. Values only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from plugbay.host.confinement.policy import Confinement
from plugbay.model.errors import Failure
from plugbay.model.guarded import Guarded
from plugbay.model.protected import Protected
from plugbay.model.spec import Export, PluginSpec
from plugbay.process.command import host_search_path
from plugbay.process.limits import Rlimits

if TYPE_CHECKING:
    from plugbay.host.confinement.scratch import Scratch


class Project(msgspec.Struct, frozen=True):
    """The project that the plugins of a host work on."""

    id: str = "default"
    root: Path = msgspec.field(default_factory=Path.cwd)
    config_root: Path | None = None
    """Folder for the plugin's own configuration; None: it has none."""
    shown: bool = False
    """Whether the operator named the root. The folder in which a host happens to be started is not shown to plugins."""

    @property
    def roots(self) -> tuple[dict[str, str], ...]:
        """The project folders, as the answer to `ListRoots`."""
        return ({"uri": self.root.as_uri(), "name": self.id},) if self.shown else ()

    def fact(self, name: str) -> str | None:
        """The value of one of the spec's `env_facts`; None if it is unknown."""
        facts = {
            "project.id": self.id,
            "project.root": self.root,
            "config.root": self.config_root,
            "search.path": host_search_path(os.environ),
        }
        return None if facts[name] is None else str(facts[name])


class Binding(Guarded, msgspec.Struct, frozen=True):
    """A plugin with the decisions and settings of its operator."""

    HIDDEN = ("env", "secrets")
    spec: PluginSpec
    granted: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    inherit_env: tuple[str, ...] = ()
    config: Mapping[str, Any] | None = None
    secrets: Mapping[str, Any] | None = None
    project: Project = msgspec.field(default_factory=Project)
    pool: int = 0
    concurrency: int = 32
    """Concurrent calls of this plugin; further calls queue until their deadlines."""
    log_level: str = "info"
    """Log lines of the plugin below this level are dropped."""
    limits: Rlimits = msgspec.field(default_factory=Rlimits)
    confinement: Confinement = msgspec.field(default_factory=Confinement)
    protected: Protected = msgspec.field(default_factory=Protected)
    """Paths that the host never opens for it."""
    opened: tuple[str, ...] = ()
    """Private and loopback `address:port`s that it may reach."""
    scratch: Scratch | None = None
    """Makes scratch folders for its instances; None: it gets none."""
    refusal: Failure | None = None
    """Why it must not be started; None: it may."""
    narrowed: Mapping[frozenset[str], Confinement] = msgspec.field(default_factory=dict)
    """If exports need different confinements: the confinement of an instance, by the capabilities of the exports that
    it serves. Empty: one confinement suits all exports."""

    def share(self, export: Export) -> frozenset[str]:
        """The capabilities of an export that decide its confinement. An instance serves only exports with the same
        share; empty if one confinement suits all."""
        if not self.narrowed:
            return frozenset()
        return frozenset(item.capability for item in self.spec.access).intersection(export.capabilities)

    def narrow(self, share: frozenset[str]) -> Binding:
        """The binding of instances that serve only the exports of this share."""
        if not self.narrowed:
            return self
        confinement = self.narrowed[share]
        scratch = self.scratch if confinement.has_scratch else None
        refusal = self.refusal or confinement.refusal
        return replace(self, confinement=confinement, scratch=scratch, refusal=refusal, narrowed={})
