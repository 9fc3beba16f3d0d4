"""`plugbay.toml`: the operator's side of every plugin. Unknown keys are errors, because a typo must not widen a grant.

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

    [retention]
    invocations = "90 days"

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
    config = { units = "metric" }

    [plugins."example.weather".sandbox]
    network = ["api.example.com:443"]

Owns the file's fields and their meaning. Reads one file, decides nothing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from plugbay.contracts.document import parse_toml
from plugbay.contracts.validation import validate
from plugbay.host.authorization.policy import Decision
from plugbay.host.config.sections import (
    BrokerConfig,
    PluginSandbox,
    ProcessLimits,
    ProviderConfig,
    RetentionConfig,
    SandboxConfig,
    ServerConfig,
    names_problem,
)
from plugbay.host.disk.sqlite import IN_MEMORY
from plugbay.model.addresses import pair_problem
from plugbay.model.errors import ConfigInvalid, PlugbayError, Problem
from plugbay.model.spec import Timeouts

FILE_NAME = "plugbay.toml"

Seconds = Annotated[float, Field(gt=0, le=3600, strict=False)]
LogLevel = Literal["trace", "debug", "info", "warn", "error"]


TIME_FACTOR = "PLUGBAY_TIME_FACTOR"
"""The variable for a slow or busy machine: by how much the contracts' times for a start and a call are longer."""


def time_factor() -> float:
    text = os.environ.get(TIME_FACTOR, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 1 <= factor <= 100:
        raise PlugbayError(f"{TIME_FACTOR}={text!r} is no number from 1 to 100; correct it, or leave it out")
    return factor


class TimeoutOverrides(BaseModel):
    """Seconds; whatever is not named keeps the contract's value."""

    model_config = ConfigDict(extra="forbid")

    launch: Seconds | None = None
    handshake: Seconds | None = None
    call: Seconds | None = None
    grace: Seconds | None = None
    farewell: Seconds | None = None
    teardown: Seconds | None = None
    hung: Seconds | None = None

    def over(self, defaults: Timeouts) -> Timeouts:
        """These, and the contract's for the rest; on a slow machine more of the contract's."""
        factor = time_factor()
        given = {name: getattr(defaults, name) * factor for name in ("launch", "handshake", "call", "teardown")}
        return replace(defaults, **{**given, **self.model_dump(exclude_none=True)})


class PluginConfig(BaseModel):
    """The operator's word about one plugin."""

    model_config = ConfigDict(extra="forbid")

    enabled: bool = True
    grants: list[str] | None = None
    env: dict[str, str] = {}
    inherit_env: list[str] = []
    timeouts: TimeoutOverrides = TimeoutOverrides()
    limits: ProcessLimits = ProcessLimits()
    """Of each of its processes, confined or not; `sandbox.limits` has the last word for one that is confined."""
    pool: Annotated[int, Field(ge=0, le=64)] = 0
    """Children started and greeted ahead of time, for plugins that live for one call."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Calls at the same time; more wait, within their own deadline. A caller's loop must not become a fork bomb."""
    config: dict[str, Any] = {}
    """The plugin's own settings; `plugbay config set` overrides them."""
    sandbox: PluginSandbox = PluginSandbox()
    log_level: LogLevel | None = None
    """What this plugin logs below it is dropped; the host's own level where it is not named."""
    execution_class: Literal["inline", "worker", "isolated"] | None = None
    """How much apart its work is done at least, where its exports have a say in that: they may only want more."""

    @field_validator("grants")
    @classmethod
    def _grants(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if not name.strip() or name != name.strip():
                raise ValueError(f"{name!r} can never match: a capability has a name without spaces around it")
        return value

    @field_validator("sandbox", mode="before")
    @classmethod
    def _sandbox(cls, value: Any) -> Any:
        if value == {}:
            raise ValueError("an empty section confines nobody; write on = true, or what the plugin may see and reach")
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


class HostConfig(BaseModel):
    """Settings of the host itself."""

    model_config = ConfigDict(extra="forbid")

    log_dir: str | None = None
    state_dir: str | None = None
    """Databases, settings that were changed by command, and the folders plugins keep their own things in."""
    log_level: LogLevel = "info"
    """What plugins log below it is dropped."""


class NetworkConfig(BaseModel):
    """Where plugins, and imports of packages, may be connected to beyond public addresses. Which hosts each plugin may
    reach is a matter of grants."""

    model_config = ConfigDict(extra="forbid")

    allow_private: list[str] = []
    """Servers on this machine or a private network, each as the one address and port it has."""

    @field_validator("allow_private")
    @classmethod
    def _pairs(cls, value: list[str]) -> list[str]:
        for text in value:
            problem = pair_problem(text)
            if problem is not None:
                raise ValueError(f"{text!r} {problem}")
        return value


class ProjectConfig(BaseModel):
    """What the plugins work for."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")] = "default"
    root: str = "."
    _named: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _remember(self) -> ProjectConfig:
        self._named = "root" in self.model_fields_set
        return self

    @property
    def shown(self) -> bool:
        """Whether plugins that are told of the root may see it: the operator has named it, which is a word for it."""
        return self._named


class AgentConfig(BaseModel):
    """One agent: its plugins in the order they are asked, and what happens when its conversation grows too long."""

    model_config = ConfigDict(extra="forbid")

    plugins: list[str] = []
    strategy: Literal["drop", "summarize", "delegate", "checkpoint"] = "drop"
    keep: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Messages that the built-in strategy leaves."""

    @field_validator("plugins")
    @classmethod
    def _plugins(cls, value: list[str]) -> list[str]:
        twice = sorted({name for name in value if value.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)} is attached twice")
        return value


class MemoryConfig(BaseModel):
    """Long-term memory; without it plugins that ask for memory are told that there is none."""

    model_config = ConfigDict(extra="forbid")

    path: str
    vectors: str | None = None
    """The vector backend to recall through, "embedded" or one that a plugin offers; None: words only."""


class SamplingConfig(BaseModel):
    """One model of one provider."""

    model_config = ConfigDict(extra="forbid")

    provider: Annotated[str, Field(min_length=1)]
    model: Annotated[str, Field(min_length=1)]


class LlmConfig(BaseModel):
    """Language models reached over HTTP; plugins may offer more."""

    model_config = ConfigDict(extra="forbid")

    providers: dict[str, ProviderConfig] = {}
    sampling: SamplingConfig | None = None
    """Whom plugins ask that leave the choice of a model to the host."""


_UNSAID = PluginConfig()
"""Of every plugin that the file does not name. Made once: it takes 30 us, and a look at 200 plugins asks for it 400
times. Nobody changes one."""


class Config(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    host: HostConfig = HostConfig()
    network: NetworkConfig = NetworkConfig()
    sandbox: SandboxConfig = SandboxConfig()
    project: ProjectConfig = ProjectConfig()
    broker: BrokerConfig | None = None
    agents: dict[str, AgentConfig] = {}
    memory: MemoryConfig | None = None
    llm: LlmConfig = LlmConfig()
    mcp: dict[str, ServerConfig] = {}
    retention: RetentionConfig = RetentionConfig()
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

    @property
    def folder(self) -> Path:
        """The folder of the file; where commands of servers are looked for that are no plain names."""
        return self._folder

    @property
    def file(self) -> Path | None:
        """The file itself; None: these settings were read from none."""
        return self._file

    @property
    def eras(self) -> dict[str, str]:
        """By plugin: in which era its server is greeted, where the operator says so."""
        return {name: server.era for name, server in self.mcp.items() if server.era is not None}

    def plugin(self, plugin_id: str) -> PluginConfig:
        return self.plugins.get(plugin_id) or _UNSAID

    def mistyped(self, known: Iterable[str]) -> dict[str, str]:
        """Plugins that are not known but are called nearly like one that is, and what that one is called."""
        names = list(known)
        strangers = [plugin_id for plugin_id in self.plugins if plugin_id not in names]
        near = {stranger: difflib.get_close_matches(stranger, names, n=1, cutoff=0.8) for stranger in strangers}
        return {stranger: matches[0] for stranger, matches in near.items() if matches}


def parse(text: str, source: str = FILE_NAME) -> Config:
    """The config in `text`; raises `ConfigInvalid` with every problem."""
    document = parse_toml(text)
    if isinstance(document, Problem):
        raise ConfigInvalid(source, [document])
    config, problems = validate(Config, document)
    if config is None:
        raise ConfigInvalid(source, [_quote_hint(problem) for problem in problems])
    return config


def _quote_hint(problem: Problem) -> Problem:
    """`[plugins.a.b]` is TOML for a table in a table; people mean the plugin `a.b`."""
    parts = problem.path.split(".")
    if problem.code != "unknown_field" or parts[0] != "plugins" or len(parts) != 3 or "did you mean" in problem.message:
        return problem
    name = ".".join(parts[1:])
    text = f'{problem.message}; if the plugin is called {name!r}, quote it: [plugins."{name}"]'
    return Problem(problem.code, problem.path, text, line=problem.line)


def load(path: Path) -> Config:
    """The config in the file at `path`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(str(path), [Problem("unreadable", "", f"cannot be read: {error}")]) from error
    config = parse(text, str(path))
    config._folder, config._file = path.parent.absolute(), path.absolute()
    if config.host.log_dir is not None:
        config.host.log_dir = _beside(path, config.host.log_dir)
    if config.host.state_dir is not None:
        config.host.state_dir = _beside(path, config.host.state_dir)
    config.project.root = _beside(path, config.project.root)
    if config.memory is not None:
        config.memory.path = _beside(path, config.memory.path)
    if config.broker is not None:
        config.broker.move(lambda named: _beside(path, named))
    config.sandbox.read = [_beside(path, named) for named in config.sandbox.read]
    for server in config.mcp.values():
        server.cwd = None if server.cwd is None else _beside(path, server.cwd)
        server.bundle = None if server.bundle is None else _beside(path, server.bundle)
    for plugin in config.plugins.values():
        plugin.sandbox.move(lambda named: _beside(path, named))
    return config


def _beside(path: Path, named: str) -> str:
    """Relative paths in a config file are relative to the file; a database in memory has no place."""
    if named == IN_MEMORY:
        return named
    try:
        return str(path.parent / Path(named).expanduser())
    except RuntimeError:
        text = f"{named!r} begins with the home of a user that this machine does not have"
        raise ConfigInvalid(str(path), [Problem("invalid_value", "", text)]) from None
