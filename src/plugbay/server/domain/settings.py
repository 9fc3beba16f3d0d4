"""`GatewaySettings`: paths and limits of a gateway. Values only; the command line fills them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from plugbay.host.config.sections import QUEUE_SECONDS, ClusterConfig, RetentionConfig
from plugbay.host.config.time_factor import time_factor
from plugbay.host.confinement.protection import database
from plugbay.model.protected import SETTINGS, Entry

DATABASE_FILE = "plugbay.db"

CONFIG_JOURNAL = "plugbay.toml.new"
"""In the data folder: the new plugbay.toml while it is being written."""


class GatewaySettings(msgspec.Struct, frozen=True):
    """Settings of a gateway."""

    data: Path
    """The data directory; not shared with another gateway."""
    base_url: str = "http://127.0.0.1:8787"
    """The URL of the API for plugins."""
    requests_per_second: float = 100.0
    request_burst: float = 200.0
    """Of each caller."""
    queue_seconds: float = msgspec.field(default_factory=lambda: QUEUE_SECONDS * time_factor())
    """How long a request that waits for its result may queue for a plugin; it is refused if it would take longer."""
    require_signature: bool = True
    """Only signed packages of trusted keys are usable; others are quarantined."""
    unconfined: bool = False
    """Run plugins of packages without a sandbox, on machines that have none."""
    config_file: Path | None = None
    """plugbay.toml, which stores grants to the operator's plugins."""
    folders: tuple[Path, ...] = ()
    """The operator's plugins, and folders of them, which are watched."""
    log_dir: Path | None = None
    """Folder of the stderr files of the operator's plugins."""
    calls_kept: int = 100_000
    """Call records kept; older ones are deleted."""
    public_url: str | None = None
    """The URL of the load balancer in front of several gateways; it takes the place of `base_url`."""
    retention: RetentionConfig = msgspec.field(default_factory=RetentionConfig)
    """Retention times of records."""
    cluster: ClusterConfig | None = None
    """The nodes that run packages; None: they run on this machine."""

    @property
    def plugin_url(self) -> str:
        """The URL of the API for plugins, which may be on other machines."""
        return self.base_url if self.cluster is None else self.cluster.public_url or self.base_url

    @property
    def database_url(self) -> str:
        """URL of the embedded database."""
        return f"sqlite+aiosqlite:///{self.data.absolute() / DATABASE_FILE}"


def protected(settings: GatewaySettings, database_file: Path | None) -> tuple[Entry, ...]:
    """Paths that no plugin can reach: the data folder with keys and packages, the database, and plugbay.toml."""
    entries = [Entry(str(settings.data.absolute()), "the server's data folder")]
    entries += [] if database_file is None else database(database_file, "the server's database")
    if settings.config_file is not None:
        entries.append(Entry(str(settings.config_file.absolute()), "plugbay.toml", SETTINGS))
    return tuple(entries)
