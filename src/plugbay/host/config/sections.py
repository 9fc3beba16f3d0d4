"""The larger sections of plugbay.toml: sandbox, MCP servers, retention, registries, broker, cluster, language models.

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

    [mcp.files]
    command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "."]

    [retention]
    invocations = "90 days"
    audit = "forever"

    [registries."registry.internal:5000"]
    private = true
    plain_http = true

    [broker]
    url = "tls://nats.example.com:4222"
    topics = ["agent.>", "plugin.inbound.*"]
    prefix = "plugbay.events."
    credentials = "plugbay.creds"

    [cluster]
    nats = ["tls://nats-0.example.com:4222", "tls://nats-1.example.com:4222"]
    credentials = "gateway.creds"
    registry = "oci://registry.example.com/plugbay"

    [node]
    name = "n1"
    labels = { zone = "a" }

    [llm.providers.local]
    kind = "openai"
    base_url = "http://127.0.0.1:8080/v1"

Validates values without touching the disk or the network. No secret is in the file: it names files, or variables of the
host's environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from plugbay.host.services.llm.settings import (
    CHAT_SECONDS,
    IDLE_SECONDS,
    STREAM_SECONDS,
    TokenLimitField,
    base_url_problem,
)
from plugbay.model.addresses import clean_host
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.model.ids import id_problem
from plugbay.model.topics import ANY, REST, matches, subject_problem
from plugbay.process.limits import Rlimits
from plugbay.process.sandbox.policy import Endpoint, Limits, Network, Reach

if TYPE_CHECKING:
    from plugbay.host.services.llm.openai import OpenAiProvider

ANYWHERE, HOST = "*", "host"
"""Values of `network`: every public address; or the network of the machine, without any check."""

UIDS = "2000000000-2134217727"
"""User ids of confined plugins if the host runs as root: outside the ranges that distributions use."""

MIN_UID = 1000
"""Lower ids are system users."""

MAX_UID = 2**32 - 2
"""The kernel uses 2**32 - 1 for "no change"."""

OFF_FORM = '[plugins."x".sandbox] with off = "the reason why"'
"""How to exempt a plugin; the reason is for later readers of the file."""

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"([0-9]{1,15})\s*([a-z]{0,3})", re.IGNORECASE)
_ENDS_WITH_PORT = re.compile(r":[0-9]{1,5}$")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_UIDS = re.compile(r"([0-9]{1,10})-([0-9]{1,10})")


def size(value: Any) -> Any:
    """Bytes, from a number or from text like `256 MiB`; other types are left to the validator."""
    if not isinstance(value, str):
        return value
    found = _SIZE.fullmatch(value.strip())
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"{value!r} is not a size; write it like 256 MiB or 1 GiB")
    return int(found[1]) * _UNITS[found[2].lower()]


Bytes = Annotated[int, BeforeValidator(size), Field(ge=1 << 20, le=1 << 50)]
"""At least 1 MiB: no program starts with less."""


T = TypeVar("T", Limits, Rlimits)


class Section(BaseModel):
    """A table of plugbay.toml. Its validator is built for the first file: most commands have none."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @classmethod
    def default(cls) -> Self:
        """The table that no file has: each field has its default. Needs no validator."""
        return cls.model_construct()

    def given(self) -> dict[str, Any]:
        """The fields with a value."""
        return {name: value for name, value in self if value is not None}


class ProcessLimits(Section):
    """Limits of each process of a plugin, confined or not; fields that are not set keep their value."""

    open_files: Annotated[int, Field(ge=16, le=1 << 20)] | None = None
    file_size: Bytes | None = None

    def over(self, usual: T) -> T:
        return replace(usual, **self.given())


class LimitOverrides(ProcessLimits):
    """The same, and limits of all processes of a confined plugin together."""

    memory: Bytes | None = None
    cpu: Annotated[float, Field(ge=0.01, le=1024, strict=False)] | None = None
    """Cores."""
    processes: Annotated[int, Field(ge=1, le=1 << 22)] | None = None
    tmp: Bytes | None = None
    state: Bytes | None = None


def _paths(value: list[str]) -> list[str]:
    for path in value:
        if not path.strip() or "\0" in path:
            raise ValueError(f"{path!r} is not a path")
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} must not contain '..'")
    return value


class SandboxConfig(Section):
    """`[sandbox]`: for all plugins."""

    require: bool = False
    """Confine every plugin, whatever its manifest says; only this file can exempt one."""
    require_limits: bool = False
    """Refuse to start a confined plugin if its limits would not cover all its processes together."""
    uids: str = UIDS
    """User ids of confined plugins if the host runs as root, one for each."""
    read: list[str] = []
    """Paths that every confined plugin may read."""
    limits: LimitOverrides = LimitOverrides.default()

    @field_validator("uids")
    @classmethod
    def _range(cls, value: str) -> str:
        found = _UIDS.fullmatch(value)
        if found is None or not MIN_UID <= int(found[1]) <= int(found[2]) <= MAX_UID:
            raise ValueError(f"{value!r} is not a range of user numbers from {MIN_UID} to {MAX_UID}, like {UIDS!r}")
        return value

    @field_validator("read")
    @classmethod
    def _read(cls, value: list[str]) -> list[str]:
        return _paths(value)

    @property
    def uid_range(self) -> tuple[int, int]:
        """The first and the last user id."""
        first, _, last = self.uids.partition("-")
        return int(first), int(last)


class PluginSandbox(Section):
    """`[plugins."x".sandbox]`: confines the plugin, unless it has `off`; allows what it names beside the grants."""

    off: str | None = None
    """Exempts the plugin; the text is the reason."""
    on: Literal[True] | None = None
    """Confine a plugin that does not ask for it, and allow nothing more."""
    read: list[str] = []
    write: list[str] = []
    run: list[str] = []
    """Programs outside the system folders."""
    network: list[str] = []
    limits: LimitOverrides = LimitOverrides.default()

    @field_validator("off")
    @classmethod
    def _reason(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or not value.isprintable()):
            raise ValueError("give the reason in one line, for later readers of this file")
        return value

    @field_validator("read", "write", "run")
    @classmethod
    def _files(cls, value: list[str]) -> list[str]:
        return _paths(value)

    @field_validator("network")
    @classmethod
    def _network(cls, value: list[str]) -> list[str]:
        for text in value:
            if text in (ANYWHERE, HOST) and len(value) > 1:
                raise ValueError(f"{text!r} already allows everything; remove the other entries")
            if text not in (ANYWHERE, HOST):
                parse_endpoint(text)
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
                f'an unconfined plugin cannot have {others}; open_files and file_size can be in limits of [plugins."x"]'
            )
        return self

    @property
    def wanted(self) -> bool:
        """Whether this section confines the plugin."""
        return self.off is None and bool(self.model_fields_set)

    def reach(self) -> Network:
        """Network access that the operator allows beside the grants."""
        if self.network in ([ANYWHERE], [HOST]):
            return Network(Reach.ANY if self.network == [ANYWHERE] else Reach.HOST)
        return Network(Reach.LISTED, tuple(map(parse_endpoint, self.network))) if self.network else Network()

    def move(self, to: Callable[[str], str]) -> None:
        """Apply `to` to every path. Fields that are not set stay unset, because setting one confines the plugin."""
        for name in self.model_fields_set & {"read", "write", "run"}:
            # A program without a slash is a name on the search path.
            moved = [path if name == "run" and "/" not in path else to(path) for path in getattr(self, name)]
            setattr(self, name, moved)


def parse_endpoint(text: str) -> Endpoint:
    """Parse `api.example.com:443`, `[::1]:443`, or `*` for the port; raises ValueError with a message."""
    name, colon, port = text.rpartition(":")
    host = clean_host(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    bare_ipv6 = ":" in name and not name.startswith("[")
    if not colon or host is None or bare_ipv6 or not (port == "*" or (_PORT.fullmatch(port) and int(port) <= 65535)):
        raise ValueError(f"{text!r} must be a host and a port, like api.example.com:443, or one of '*' and 'host'")
    return Endpoint(host, None if port == "*" else int(port))


class OAuthClient(Section):
    """`[mcp.NAME.oauth]`: the client that plugbay is for the authorization server of a server on the network.

    Needed only where the authorization server does not support client registration.
    """

    client_id: str | None = None
    client_secret: str | None = None
    """`secret://NAME`, a secret of the server, or `${VAR}`."""
    client_id_url: str | None = None
    """URL of a client id metadata document that the operator publishes."""
    scopes: list[str] | None = None
    """Default: those that the server asks for."""
    redirect_port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    """Loopback port of the redirect; default: any free one."""

    @model_validator(mode="after")
    def _references(self) -> OAuthClient:
        if self.client_secret is not None and not self.client_secret.startswith(("secret://", "${")):
            raise ValueError("client_secret must be secret://NAME or ${VAR}: do not write secrets into this file")
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret needs client_id")
        if self.client_id_url is not None and not self.client_id_url.startswith("https://"):
            raise ValueError("client_id_url must begin with https://")
        return self


class ServerConfig(Section):
    """`[mcp.NAME]`: an MCP server, by a command, by the folder of an unpacked bundle, or by a URL."""

    command: Annotated[list[str], Field(min_length=1)] | None = None
    bundle: str | None = None
    url: str | None = None
    """A server on the network that speaks streamable HTTP."""
    headers: dict[str, str] = {}
    """Headers of each request to the URL; values may have `${VAR}` and `secret://NAME`."""
    oauth: OAuthClient | None = None
    env: dict[str, str] = {}
    inherit_env: list[str] = []
    """Variables of the host's environment that the server gets beside the usual ones."""
    cwd: str | None = None
    era: Literal["handshake", "modern"] | None = None
    """The protocol era of its greeting; default: the one that worked last time."""

    @field_validator("env", "inherit_env")
    @classmethod
    def _names(cls, value: dict[str, str] | list[str]) -> dict[str, str] | list[str]:
        for name in value:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"{name!r} cannot be the name of a variable")
        return value

    @model_validator(mode="after")
    def _one(self) -> ServerConfig:
        if sum(way is not None for way in (self.command, self.bundle, self.url)) != 1:
            raise ValueError("needs exactly one of command, bundle and url")
        if self.bundle is not None and (self.env or self.cwd):
            raise ValueError("a bundle sets its own environment and folder")
        if self.url is not None and (self.env or self.cwd or self.inherit_env):
            raise ValueError("env, inherit_env and cwd are for a command; a url has headers")
        if self.url is None and (self.headers or self.oauth is not None):
            raise ValueError("headers and oauth are for a url")
        return self


def names_problem(names: object) -> str | None:
    """Why one of these names is not a valid server name."""
    found = [(name, id_problem(name)) for name in names] if isinstance(names, dict) else []
    return next((f"{name!r} {why}" for name, why in found if why is not None), None)


FOREVER = "forever"

UNITS = {"hour": 3600, "day": 24 * 3600}

LONGEST = 36_500
"""Maximum number of either unit."""

_AGE = re.compile(r"([1-9][0-9]{0,4}) ?(hour|day)s?")


def seconds_of(value: object) -> float | None:
    """Parse `"90 days"` or `"12 hours"`; None for `"forever"`. Raises `ValueError`.

    There is no unit below an hour: a shorter age is probably a mistake, and removed records do not come back.
    """
    if value == FOREVER:
        return None
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    if found is None or int(found[1]) > LONGEST:
        raise ValueError(f'is a number of hours or days, like "12 hours" or "90 days", or "{FOREVER}"')
    return float(int(found[1]) * UNITS[found[2]])


Age = Annotated[float | None, BeforeValidator(seconds_of)]


def days(number: int) -> float:
    """Days in seconds."""
    return float(number * UNITS["day"])


class RetentionConfig(Section):
    """`[retention]`: seconds for which finished records of each kind are kept; None: for ever."""

    calls: Age = days(30)
    """Calls of plugins in the host's folders; at most the last 100,000."""
    invocations: Age = days(90)
    """Invocations of exports of packages, one record for each attempt: these grow fastest."""
    deliveries: Age = days(90)
    """Deliveries of events to hooks that were acknowledged, refused or dropped, with their attempts."""
    dead_letters: Age = None
    """Deliveries that failed for good: an operator may still want to repeat them."""
    events: Age = days(90)
    """Events for hooks; each is kept at least as long as its last delivery."""
    audit: Age = None
    """The audit log: its age limit depends on the operator's obligations."""


QUEUE_SECONDS = 1.0
"""Together with the call itself, the answer then comes within two seconds."""


class ServeConfig(Section):
    """`[serve]`: how `plugbay serve` answers requests."""

    queue_seconds: Annotated[float, Field(gt=0, le=600, strict=False)] | None = None
    """How long a call or invocation may wait for a plugin that is busy; `QUEUE_SECONDS` by default. One that would wait
    longer is refused."""


SCHEMES = ("nats", "tls")

OWN_TOPICS = ("plugin.lifecycle.>", "plugin.resource.changed")
"""Topics about the host's own plugins. Never shared: a plugin of the same id on another host is another plugin."""

MAX_TOPIC_BYTES = 2_048
"""Bytes of a shared topic. A NATS line has at most 4 KiB by default, including the prefix and four numbers."""

MAX_PREFIX = 128
"""Characters of the subject prefix."""

URL_FORM = "must be a URL like nats://127.0.0.1:4222 or tls://nats.example.com:4222"


def is_own(topic: str) -> bool:
    """Whether the topic is about the host's own plugins."""
    return any(matches(pattern, topic) for pattern in OWN_TOPICS)


def topic_problem(topic: str) -> str | None:
    """Why events of this topic cannot be shared through a broker; None if they can."""
    if is_own(topic):
        return "is about the plugins of this host only"
    problem = subject_problem(topic)
    if problem is not None:
        return problem
    if any(char in topic for char in (" ", ANY, REST)):
        return f"has a space, {ANY} or {REST}, which brokers do not allow"
    if len(topic.encode()) > MAX_TOPIC_BYTES:
        return f"has more than {MAX_TOPIC_BYTES:,} bytes"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Why this pattern cannot be shared; None if it can."""
    segments = pattern.split(".")
    if REST in segments[:-1]:
        return f"continues after {REST}, which must be last"
    # A wildcard stands for a segment, so the pattern is valid if it is valid with a letter in its place.
    return topic_problem(".".join("x" if segment in (ANY, REST) else segment for segment in segments))


class RegistryConfig(Section):
    """`[registries."host:port"]`: exceptions for one registry of packages, by the name that references use."""

    private: bool = False
    """It may be on this machine or a private network when a caller of the server imports from it."""
    plain_http: bool = False
    """It is asked over HTTP without TLS."""


def registry_problem(name: str) -> str | None:
    """Why a name is not that of a registry, as `registry.internal:5000`."""
    host, colon, port = name.rpartition(":") if _ENDS_WITH_PORT.search(name) else (name, "", "")
    clean = clean_host(host.removeprefix("[").removesuffix("]"))
    usual = "" if clean is None else f"[{clean}]{colon}{port}" if ":" in clean else f"{clean}{colon}{port}"
    if not usual or (colon and not 0 < int(port) < 65536):
        return f"{name!r} is not a registry; write it like registry.internal or registry.internal:5000"
    return None if name == usual else f"{name!r} must be written {usual}"


class NatsLogin(Section):
    """The login at NATS servers."""

    credentials: str | None = None
    """A NATS credentials file with a JWT and a seed."""
    user: str | None = None
    password_env: str | None = None
    """The variable with the password; without it, the file that the variable with `_FILE` added names."""
    token_env: str | None = None
    """The same for a token."""
    ca_file: str | None = None
    """CA certificates for the server, if the machine's own do not cover it."""

    @model_validator(mode="after")
    def _login(self) -> Self:
        if (self.user is None) != (self.password_env is None):
            raise ValueError("user and password_env go together")
        ways = [way for way in (self.credentials, self.user, self.token_env) if way is not None]
        if len(ways) > 1:
            raise ValueError("needs one of credentials, token_env, or user with password_env; not several")
        if self.ca_file is not None and not self.is_encrypted:
            raise ValueError("ca_file is for servers at tls://")
        return self

    def move(self, to: Callable[[str], str]) -> None:
        """Apply `to` to every path."""
        self.credentials = None if self.credentials is None else to(self.credentials)
        self.ca_file = None if self.ca_file is None else to(self.ca_file)

    @property
    def urls(self) -> list[str]:
        """The servers of the cluster; the first that answers is used."""
        raise NotImplementedError

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection must use TLS from the start."""
        return all(urlsplit(url).scheme == "tls" for url in self.urls)


class BrokerConfig(NatsLogin):
    """`[broker]`: the NATS server that joins the buses of several hosts, and the login. Only `topics` are shared."""

    url: str
    topics: list[str] = []
    """Patterns of the topics that are sent to and accepted from other hosts."""
    prefix: str = "plugbay.events."
    """Prefix of subjects at the broker; hosts with different prefixes share nothing."""

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        problem = url_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    @field_validator("topics")
    @classmethod
    def _topics(cls, value: list[str]) -> list[str]:
        for pattern in value:
            problem = pattern_problem(pattern)
            if problem is not None:
                raise ValueError(f"{pattern!r} cannot be shared: it {problem}")
        return value

    @field_validator("prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        right = value.isascii() and value.endswith(".") and len(value) <= MAX_PREFIX
        if not right or topic_problem(value[:-1]) is not None or value.startswith(("$", "_INBOX.")):
            raise ValueError(
                f"must be words with a dot after each, like plugbay.events., of {MAX_PREFIX} letters at most"
            )
        return value

    @property
    def urls(self) -> list[str]:
        return [self.url]


CellName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
NodeName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Labels = Annotated[dict[str, str], Field(max_length=16)]


class ClusterConfig(NatsLogin):
    """`[cluster]`: gateways that share a PostgreSQL database; with `nats`, packages run on nodes."""

    nats: Annotated[list[str], Field(max_length=16)] = []
    """The servers that carry calls from gateways to nodes. None: gateways run packages themselves."""
    name: CellName = "main"
    """The cell: gateways and nodes with another name share nothing with it."""
    registry: str | None = None
    """Where a gateway puts packages for nodes: `oci://registry.example/plugbay`."""
    public_url: str | None = None
    """Of the load balancer in front of the gateways: for plugins, links and logins; None: the address that the gateway
    listens at."""
    lease_seconds: Annotated[float, Field(ge=0.5, le=600, strict=False)] = 30.0
    """After how long the work of a silent gateway is taken over."""
    beat_seconds: Annotated[float, Field(ge=0.1, le=10, strict=False)] = 1.0
    """Between two signs of life of a node; one that misses three gets no calls. The same for gateways and nodes."""
    lost_seconds: Annotated[float, Field(ge=1, le=600, strict=False)] = 15.0
    """After so long without a sign of life, or without NATS, calls that may not be repeated end as lost."""

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, value: str | None) -> str | None:
        if value is not None and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("public_url must be a URL like https://plugbay.example")
        return value

    @field_validator("nats")
    @classmethod
    def _nats(cls, value: list[str]) -> list[str]:
        for url in value:
            problem = url_problem(url)
            if problem is not None:
                raise ValueError(problem)
        schemes = {urlsplit(url).scheme for url in value}
        if len(schemes) > 1:
            raise ValueError(
                "all servers must have the same scheme, because calls must not cross the network unencrypted"
            )
        if "tls" not in schemes and not all(_is_local(url) for url in value):
            raise ValueError("servers on other machines need tls://, because calls carry tokens")
        return value

    @model_validator(mode="after")
    def _lost_after_silent(self) -> ClusterConfig:
        if self.lost_seconds < 4 * self.beat_seconds:
            raise ValueError("lost_seconds is at least four times beat_seconds")
        return self

    @property
    def urls(self) -> list[str]:
        return self.nats


class NodeConfig(Section):
    """`[node]`: the settings of `plugbay node`."""

    name: NodeName | None = None
    """Default: the name of the machine."""
    labels: Labels = {}
    """Facts for placement: `[plugins."x"] on = { zone = "a" }` runs a plugin on nodes with these labels only."""
    calls: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Calls at once; as many again may wait."""


def _is_local(url: str) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def url_problem(url: str) -> str | None:
    """Why a broker URL cannot be used, or None. Never quotes it: it might contain a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a number
    except ValueError:
        return URL_FORM
    if parts.scheme not in SCHEMES or not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        return URL_FORM
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        return f"{URL_FORM}; put the credentials into credentials, token_env, or user and password_env"
    return None


Seconds = Annotated[float, Field(gt=0, le=3600, strict=False)]


class ProviderConfig(Section):
    """`[llm.providers.NAME]`: a provider over HTTP. Without `api_key_env` no key is sent."""

    kind: Literal["openai"]
    base_url: str
    api_key_env: str | None = None
    models: list[str] | None = None
    """The models that may be used; default: all of the server."""
    timeout: Seconds = CHAT_SECONDS
    stream_timeout: Seconds = STREAM_SECONDS
    idle_timeout: Seconds = IDLE_SECONDS
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    token_limit_field: TokenLimitField = "max_tokens"

    @field_validator("base_url")
    @classmethod
    def _base_url(cls, value: str) -> str:
        problem = base_url_problem(value)
        if problem is not None:
            raise ValueError(problem)
        return value

    def build(self, name: str, environ: Mapping[str, str], source: str = "plugbay.toml") -> OpenAiProvider:
        """Create the provider; raises `ConfigInvalid` if its key is missing."""
        from plugbay.host.services.llm.openai import OpenAiProvider

        return OpenAiProvider(
            name,
            self.base_url,
            self._key(name, environ, source),
            models=self.models or (),
            timeout=self.timeout,
            stream_timeout=self.stream_timeout,
            idle_timeout=self.idle_timeout,
            max_retries=self.max_retries,
            token_limit_field=self.token_limit_field,
        )

    def _key(self, name: str, environ: Mapping[str, str], source: str) -> str | None:
        if self.api_key_env is None:
            return None
        key = environ.get(self.api_key_env, "").strip()
        if key and key.isascii() and key.isprintable():
            return key
        wrong = "is not printable ASCII, as a key has to be" if key else "is not set, or empty"
        message = f"the environment variable {self.api_key_env} {wrong}"
        raise ConfigInvalid(source, [Problem("unusable_key", f"llm.providers.{name}.api_key_env", message)])
