"""`GatewaySettings`: where a gateway keeps its things, and its limits. Values only; the command line fills them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plugbay.host.config.sections import RetentionConfig
from plugbay.host.confinement.protection import database
from plugbay.model.protected import SETTINGS, Entry

DATABASE_FILE = "plugbay.db"

CONFIG_JOURNAL = "plugbay.toml.new"
"""In the data folder: the next text of plugbay.toml while it is being written."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """What a gateway is started with."""

    data: Path
    """Its own directory, which no other gateway uses."""
    base_url: str = "http://127.0.0.1:8787"
    """Where plugins find its API."""
    requests_per_second: float = 100.0
    request_burst: float = 200.0
    """Of each caller."""
    require_signature: bool = True
    """Only packages that a trusted key has signed can be used; others are kept in quarantine."""
    plain_http: bool = False
    """A registry on this machine is asked without TLS."""
    unconfined: bool = False
    """Plugins of packages run without a sandbox: for machines that have none."""
    config_file: Path | None = None
    """plugbay.toml, where grants to the host's plugins are kept."""
    log_dir: Path | None = None
    """Where the host's plugins have what they write to stderr."""
    calls_kept: int = 100_000
    """Records of calls of the host's plugins; older ones are forgotten."""
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    """How long records are kept of what is over."""

    @property
    def database_url(self) -> str:
        """Of the embedded database."""
        return f"sqlite+aiosqlite:///{self.data.absolute() / DATABASE_FILE}"


def protected(settings: GatewaySettings, database_file: Path | None) -> tuple[Entry, ...]:
    """What of a gateway no plugin reaches: its data, with keys and packages in it, its database, and plugbay.toml."""
    entries = [Entry(str(settings.data.absolute()), "the server's data folder")]
    entries += [] if database_file is None else database(database_file, "the server's database")
    if settings.config_file is not None:
        entries.append(Entry(str(settings.config_file.absolute()), "plugbay.toml", SETTINGS))
    return tuple(entries)
