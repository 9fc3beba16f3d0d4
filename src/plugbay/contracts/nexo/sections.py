"""The shape of `nexo-plugin.toml`: every section, every field, its type and its default.

Owns the shape of each section. A key that is not listed is refused, as the contract does; which values make sense is
said in `rules`, `topics` and `sandbox`. The contract text describes a part of the file only: the sections from
`capabilities` on are what its real host reads.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

LATER_SECTIONS = frozenset(
    "admin admin_ui config_schema credentials_schema dashboard http http_server metrics pairing public_tunnel "
    "subscriptions".split()
)
"""Sections of hosts newer than 1.10, seen in shipped manifests. Nothing here acts on them."""

Count = Annotated[int, Field(ge=0, le=(1 << 32) - 1)]
"""Fits 32 bits."""

Milliseconds = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
"""As large as a TOML integer can be."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)  # built by the first manifest, not by each start


class Requires(_Section):
    """The requirements of the plugin."""

    nexo_capabilities: list[str] = []
    bins: list[str] = []
    env: list[str] = []
    features: list[str] = []


class Entrypoint(_Section):
    """The program to start."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}


class Channel(_Section):
    """One channel kind whose topics are bridged."""

    kind: str
    adapter: str


class Channels(_Section):
    """The kinds of channel the plugin exchanges events for."""

    entries: Annotated[list[Channel], Field(alias="register")] = []


class Extends(_Section):
    """The names the plugin adds to the host's registries."""

    channels: list[str] = []
    llm_providers: list[str] = []
    memory_backends: list[str] = []
    hooks: list[str] = []
    tools: list[str] = []


class Sandbox(_Section):
    """How the plugin wants to be confined."""

    enabled: bool = False
    network: Literal["deny", "host"] = "deny"
    fs_read_paths: list[str] = []
    fs_write_paths: list[str] = []
    drop_user: bool = True


class Supervisor(_Section):
    """The restart policy."""

    respawn: bool = False
    max_attempts: Count = 3
    backoff_ms: Milliseconds = 1000
    stderr_tail_lines: Milliseconds = 32


class _Admin(_Section):
    required: list[str] = []
    optional: list[str] = []


class _HttpServer(_Section):
    port: Annotated[int, Field(ge=0, le=65535)]
    token_env: str
    bind: str = "127.0.0.1"
    health_path: str = "/healthz"
    extra_env_passthrough: list[str] = []


class Broker(_Section):
    """Patterns of topics beyond those of the registered channels."""

    subscribe: list[str] = []
    publish: list[str] = []


class Capabilities(_Section):
    """The description of the plugin for people."""

    provides: list[
        Literal[
            "tools",
            "advisors",
            "agents",
            "skills",
            "channels",
            "hooks",
            "mcp_servers",
            "webhooks",
            "poller_drivers",
            "llm_providers",
        ]
    ] = []
    admin: _Admin = _Admin()
    http_server: _HttpServer | None = None
    skills: list[str] = []
    broker: Broker = Broker()


class _OutboundTool(_Section):
    name: str
    description: str
    input_schema: str
    rpc_method: str = "outbound_tool.invoke"
    timeout_ms: Milliseconds | None = None


class _Tools(_Section):
    expose: list[str] = []
    deferred: list[str] = []
    outbound: list[_OutboundTool] = []


class _Advisors(_Section):
    entries: Annotated[list[str], Field(alias="register")] = []


class _Agents(_Section):
    contributes_dir: str | None = None
    allow_override: bool = False


class _Skills(_Section):
    contributes_dir: str | None = None


class _Config(_Section):
    schema_path: str | None = None
    hot_reload: bool = True


class _Gate(_Section):
    extension: str
    env_var: str
    kind: Literal["Boolean", "CargoFeature", "Allowlist"]
    risk: Literal["Low", "Medium", "High", "Critical"]
    effect: str
    hint: str | None = None


class _CapabilityGates(_Section):
    gate: list[_Gate] = []


class _Hint(_Section):
    label: str | None = None
    help: str | None = None
    tags: list[str] = []
    advanced: bool = False
    sensitive: bool = False
    placeholder: str | None = None


class _Ui(_Section):
    fields: dict[str, _Hint] = {}


class _Contracts(_Section):
    provides: list[str] = []
    consumes: list[str] = []


class _Meta(_Section):
    author: str | None = None
    license: str | None = None
    homepage: str | None = None
    repository: str | None = None


class Plugin(_Section):
    """`[plugin]` and all it holds."""

    id: str
    version: str
    name: str
    description: str
    min_nexo_version: str
    contract_version: str | None = None
    enabled_by_default: bool = False
    requires: Requires = Requires()
    entrypoint: Entrypoint = Entrypoint()
    channels: Channels = Channels()
    extends: Extends = Extends()
    sandbox: Sandbox = Sandbox()
    supervisor: Supervisor = Supervisor()
    capabilities: Capabilities = Capabilities()
    tools: _Tools = _Tools()
    advisors: _Advisors = _Advisors()
    agents: _Agents = _Agents()
    skills: _Skills = _Skills()
    config: _Config = _Config()
    capability_gates: _CapabilityGates = _CapabilityGates()
    ui: _Ui = _Ui()
    contracts: _Contracts = _Contracts()
    meta: _Meta = _Meta()


class Manifest(_Section):
    """The whole file."""

    plugin: Plugin
    manifest_version: int = 1


def is_section(value: Any) -> bool:
    """Whether `value` was written as `[plugin.x]` or `[[plugin.x]]`, rather than as a key."""
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))
