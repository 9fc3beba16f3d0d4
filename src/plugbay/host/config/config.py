"""`plugbay.toml`: the operator's settings. Unknown keys are errors, because a typo must not widen a grant.

    [host]
    log_dir = "logs"
    log_level = "info"

    [network]
    allow_private = ["127.0.0.1:8080"]

    [project]
    id = "shop"

    [broker]
    url = "nats://127.0.0.1:4222"
    topics = ["agent.>"]

    [cluster]
    nats = ["nats://127.0.0.1:4222"]

    [node]
    name = "n1"

    [agents.primary]
    plugins = ["notes", "example.weather"]

    [memory]
    path = "memory.db"

    [llm.providers.local]
    kind = "openai"
    base_url = "http://127.0.0.1:8080/v1"

    [llm.sampling]
    provider = "local"
    model = "small"

    [mcp.files]
    command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]

    [serve]
    queue_seconds = 1.0

    [retention]
    invocations = "90 days"

    [registries."registry.internal:5000"]
    private = true

    [plugins."example.weather"]
    enabled = true
    grants = ["tool.execute"]
    env = { TZ = "UTC" }
    inherit_env = ["HOME"]
    timeouts = { call = 10.0 }
    limits = { open_files = 16384 }
    pool = 2
    concurrency = 8
    log_level = "debug"
    execution_class = "isolated"
    on = { zone = "a" }
    config = { units = "metric" }

    [plugins."example.weather".sandbox]
    network = ["api.example.com:443"]

This module reads the file; `sections` defines its larger sections. Relative paths are relative to the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import Field, PrivateAttr, field_validator, model_validator

from plugbay.contracts.document import parse_toml
from plugbay.contracts.validation import validate
from plugbay.host.authorization.policy import Decision
from plugbay.host.config.sections import (
    BrokerConfig,
    ClusterConfig,
    Labels,
    NodeConfig,
    PluginSandbox,
    ProcessLimits,
    ProviderConfig,
    RegistryConfig,
    RetentionConfig,
    SandboxConfig,
    Section,
    ServeConfig,
    ServerConfig,
    names_problem,
    registry_problem,
)
from plugbay.host.config.time_factor import time_factor
from plugbay.host.disk.sqlite_files import IN_MEMORY
from plugbay.model.addresses import pair_problem
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.model.spec import Lifetime, Timeouts

FILE_NAME = "plugbay.toml"

Seconds = Annotated[float, Field(gt=0, le=3600, strict=False)]
LogLevel = Literal["trace", "debug", "info", "warn", "error"]

CONCURRENCY = {Lifetime.PER_CALL: 32, Lifetime.RESIDENT: 256}
"""Default of `concurrency`: a call costs a process, or only a message."""

LENGTHENED = ("launch", "handshake", "call", "grace", "teardown")


class TimeoutOverrides(Section):
    """Seconds; fields that are not set keep the contract's value."""

    launch: Seconds | None = None
    handshake: Seconds | None = None
    call: Seconds | None = None
    grace: Seconds | None = None
    farewell: Seconds | None = None
    teardown: Seconds | None = None
    hung: Seconds | None = None

    def over(self, defaults: Timeouts) -> Timeouts:
        """These timeouts over the contract's, which `PLUGBAY_TIME_FACTOR` lengthens."""
        factor = time_factor()
        given = {name: getattr(defaults, name) * factor for name in LENGTHENED}
        return replace(defaults, **{**given, **self.given()})

    def over_patience(self, defaults: Mapping[str, float]) -> dict[str, float]:
        """The same for the contract's times of single operations, which a time for all calls replaces."""
        factor = time_factor()
        return {} if self.call is not None else {name: seconds * factor for name, seconds in defaults.items()}


class PluginConfig(Section):
    """The operator's settings for one plugin."""

    enabled: bool = True
    grants: list[str] | None = None
    env: dict[str, str] = {}
    inherit_env: list[str] = []
    timeouts: TimeoutOverrides = TimeoutOverrides.default()
    limits: ProcessLimits = ProcessLimits.default()
    """Limits of each of its processes, confined or not; `sandbox.limits` overrides them for a confined one."""
    pool: Annotated[int, Field(ge=0, le=64)] = 0
    """Instances started ahead of time, for plugins whose instances serve one call."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Concurrent calls; further calls queue until their deadlines, so that a caller's loop is no fork bomb."""
    config: dict[str, Any] = {}
    """The plugin's own settings; `plugbay config set` overrides them."""
    sandbox: PluginSandbox = PluginSandbox.default()
    log_level: LogLevel | None = None
    """Log lines of this plugin below this level are dropped; default: the host's level."""
    execution_class: Literal["inline", "worker", "isolated"] | None = None
    """Minimum isolation of its invocations; exports may only ask for more."""
    on: Labels = {}
    """Labels of the nodes that may run it, with `[cluster]`; empty: any node."""
    copies: Literal["one", "many"] | None = None
    """How many run at a time on nodes; by default one of a plugin that stays, and many of one that serves one call."""

    @field_validator("grants")
    @classmethod
    def _grants(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if not name.strip() or name != name.strip():
                raise ValueError(f"{name!r} can never match: the name of a capability has no spaces around it")
        return value

    @field_validator("sandbox", mode="before")
    @classmethod
    def _sandbox(cls, value: Any) -> Any:
        if value == {}:
            raise ValueError("an empty section has no effect; write on = true, or the paths and hosts to allow")
        return value

    @field_validator("env", "inherit_env")
    @classmethod
    def _names(cls, value: Any) -> Any:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} cannot be the name of a variable")
        return value

    def decision(self) -> Decision:
        grants = None if self.grants is None else frozenset(self.grants)
        return Decision(self.enabled, grants)


class HostConfig(Section):
    """Settings of the host itself."""

    log_dir: str | None = None
    state_dir: str | None = None
    """Databases, settings changed by command, and the state folders of plugins."""
    log_level: LogLevel = "info"
    """Log lines of plugins below this level are dropped."""


class NetworkConfig(Section):
    """Private addresses that plugins and package imports may connect to; grants decide which hosts a plugin reaches."""

    allow_private: list[str] = []
    """Servers on this machine or a private network, each as address and port."""

    @field_validator("allow_private")
    @classmethod
    def _pairs(cls, value: list[str]) -> list[str]:
        for text in value:
            problem = pair_problem(text)
            if problem is not None:
                raise ValueError(f"{text!r} {problem}")
        return value


class ProjectConfig(Section):
    """The project that the plugins work on."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = "default"
    root: str = "."
    _named: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _remember(self) -> ProjectConfig:
        self._named = "root" in self.model_fields_set
        return self

    @property
    def shown(self) -> bool:
        """Whether plugins may see the root: only if the operator has named it."""
        return self._named


class AgentConfig(Section):
    """One agent: its plugins in their order, and the compaction of long conversations."""

    plugins: list[str] = []
    strategy: Literal["drop", "summarize", "delegate", "checkpoint"] = "drop"
    keep: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Messages that the built-in strategy keeps."""

    @field_validator("plugins")
    @classmethod
    def _plugins(cls, value: list[str]) -> list[str]:
        twice = sorted({name for name in value if value.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is attached twice")
        return value


class MemoryConfig(Section):
    """Long-term memory; without it, the memory is a file in the state folder, searched by words."""

    path: str
    vectors: str | None = None
    """The vector backend for recall, "embedded" or one of a plugin; None: keyword search only."""


class SamplingConfig(Section):
    """One model of one provider."""

    provider: Annotated[str, Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)]


class LlmConfig(Section):
    """Language models reached over HTTP; plugins may offer more."""

    providers: dict[str, ProviderConfig] = {}
    sampling: SamplingConfig | None = None
    """The model for plugins that leave the choice to the host."""


_DEFAULT = PluginConfig.default()
"""For plugins that the file does not name. Shared and never changed: creating one takes 30 us, and a status of 200
plugins needs it 400 times."""


class Config(Section):
    """The whole file."""

    host: HostConfig = HostConfig.default()
    network: NetworkConfig = NetworkConfig.default()
    sandbox: SandboxConfig = SandboxConfig.default()
    project: ProjectConfig = ProjectConfig.default()
    broker: BrokerConfig | None = None
    cluster: ClusterConfig | None = None
    node: NodeConfig = NodeConfig.default()
    agents: dict[str, AgentConfig] = {}
    memory: MemoryConfig | None = None
    llm: LlmConfig = LlmConfig.default()
    mcp: dict[str, ServerConfig] = {}
    serve: ServeConfig = ServeConfig.default()
    retention: RetentionConfig = RetentionConfig.default()
    registries: dict[str, RegistryConfig] = {}
    plugins: dict[str, PluginConfig] = {}
    _folder: Path = PrivateAttr(default_factory=Path.cwd)
    _file: Path | None = PrivateAttr(None)

    @field_validator("mcp")
    @classmethod
    def _servers(cls, value: dict[str, ServerConfig]) -> dict[str, ServerConfig]:
        problem = names_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @field_validator("registries")
    @classmethod
    def _registries(cls, value: dict[str, RegistryConfig]) -> dict[str, RegistryConfig]:
        for name in value:
            problem = registry_problem(name)
            if problem is not None:
                raise ValueError(problem)
        return value

    @property
    def folder(self) -> Path:
        """The folder of the file, to which relative commands of servers refer."""
        return self._folder

    @property
    def file(self) -> Path | None:
        """The file; None if the config was not read from one."""
        return self._file

    @property
    def declared_eras(self) -> dict[str, str]:
        """By plugin: the protocol era of its server, if the file sets one."""
        return {name: server.era for name, server in self.mcp.items() if server.era is not None}

    def plugin(self, plugin_id: str) -> PluginConfig:
        return self.plugins.get(plugin_id) or _DEFAULT

    def mistyped(self, known: Iterable[str]) -> dict[str, str]:
        """Sections of unknown plugins whose names resemble a known plugin, with the name of that plugin."""
        names = list(known)
        unknown = [plugin_id for plugin_id in self.plugins if plugin_id not in names]
        near = {name: difflib.get_close_matches(name, names, n=1, cutoff=0.8) for name in unknown}
        return {name: matches[0] for name, matches in near.items() if matches}


def parse(text: str, source: str = FILE_NAME) -> Config:
    """Parse a config; raises `ConfigInvalid` with all problems."""
    document = parse_toml(text)
    if isinstance(document, Problem):
        raise ConfigInvalid(source, [document])
    config, problems = validate(Config, document)
    if config is None:
        raise ConfigInvalid(source, [_quote_hint(problem) for problem in problems])
    return config


def _quote_hint(problem: Problem) -> Problem:
    """Add a hint: `[plugins.a.b]` is a nested table in TOML, but usually means the plugin `a.b`."""
    parts = problem.path.split(".")
    if problem.code != "unknown_field" or parts[0] != "plugins" or len(parts) != 3 or "did you mean" in problem.message:
        return problem
    name = ".".join(parts[1:])
    text = f'{problem.message}; if the plugin is called {name!r}, quote it: [plugins."{name}"]'
    return Problem(problem.code, problem.path, text, line=problem.line)


def load(path: Path) -> Config:
    """Load the config in the file at `path`, with its paths made absolute; raises `ConfigInvalid`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(str(path), [Problem("unreadable", "", f"cannot be read: {error}")]) from error
    config = parse(text, str(path))
    config._folder, config._file = path.parent.absolute(), path.absolute()
    if config.host.log_dir is not None:
        config.host.log_dir = _resolve(path, config.host.log_dir)
    if config.host.state_dir is not None:
        config.host.state_dir = _resolve(path, config.host.state_dir)
    config.project.root = _resolve(path, config.project.root)
    if config.memory is not None:
        config.memory.path = _resolve(path, config.memory.path)
    if config.broker is not None:
        config.broker.move(lambda named: _resolve(path, named))
    if config.cluster is not None:
        config.cluster.move(lambda named: _resolve(path, named))
    config.sandbox.read = [_resolve(path, named) for named in config.sandbox.read]
    for server in config.mcp.values():
        server.cwd = None if server.cwd is None else _resolve(path, server.cwd)
        server.bundle = None if server.bundle is None else _resolve(path, server.bundle)
    for plugin in config.plugins.values():
        plugin.sandbox.move(lambda named: _resolve(path, named))
    return config


def _resolve(path: Path, named: str) -> str:
    """Resolve a path relative to the config file; `:memory:` is not a path."""
    if named == IN_MEMORY:
        return named
    try:
        return str(path.parent.absolute() / Path(named).expanduser())
    except RuntimeError:
        text = f"{named!r} begins with the home of an unknown user"
        raise ConfigInvalid(str(path), [Problem("invalid_value", "", text)]) from None
