"""`[broker]` of plugbay.toml: the server through which the buses of several hosts are joined, and what they share.

    [broker]
    url = "tls://nats.example.com:4222"
    topics = ["agent.>", "plugin.inbound.*"]
    prefix = "plugbay.events."
    credentials = "plugbay.creds"

Owns the fields, and which topics can be shared at all. Nothing is shared that `topics` does not name. No secret is in
the file: it names a file or variables of the host's environment. Which broker speaks a URL's scheme is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from plugbay.host.events.subjects import ANY, REST, matches, subject_problem

SCHEMES = ("nats", "tls")

OWN_TOPICS = ("plugin.lifecycle.>", "plugin.resource.changed")
"""What a host says about its own plugins. Never shared: another host's plugin of the same id is another plugin."""

MAX_TOPIC_BYTES = 2_048
"""Of a topic as UTF-8. A line of NATS has at most 4 KiB by default, and the prefix and four numbers are in it too."""

MAX_PREFIX = 128
"""Characters; enough to keep any number of installations apart."""

URL_FORM = "must be a URL like nats://127.0.0.1:4222 or tls://nats.example.com:4222"


def is_own(topic: str) -> bool:
    """Whether a host says this about its own plugins."""
    return any(matches(pattern, topic) for pattern in OWN_TOPICS)


def topic_problem(topic: str) -> str | None:
    """Why an event of this topic cannot be shared, though it can be published here; None when it can."""
    if is_own(topic):
        return "is about the plugins of one host"
    problem = subject_problem(topic)
    if problem is not None:
        return problem
    if any(char in topic for char in (" ", ANY, REST)):
        return f"has a space, {ANY} or {REST}, which no broker carries"
    if len(topic.encode()) > MAX_TOPIC_BYTES:
        return f"has more than {MAX_TOPIC_BYTES:,} bytes"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Why nothing can be shared under this pattern."""
    segments = pattern.split(".")
    if REST in segments[:-1]:
        return f"goes on after {REST}, which stands for everything that follows"
    # Wildcards stand for segments, so what holds with letters in their places holds for the pattern.
    return topic_problem(".".join("x" if segment in (ANY, REST) else segment for segment in segments))


class BrokerConfig(BaseModel):
    """The broker, and who this host is to it. Without credentials it is asked without any."""

    model_config = ConfigDict(extra="forbid")

    url: str
    topics: list[str] = []
    """Patterns of the topics that leave this host, and that it takes from others."""
    prefix: str = "plugbay.events."
    """What subjects begin with at the broker; hosts with another prefix do not hear each other."""
    credentials: str | None = None
    """A file with a JWT and a seed, as NATS's own tools write it."""
    user: str | None = None
    password_env: str | None = None
    token_env: str | None = None
    ca_file: str | None = None
    """Who may vouch for the server, where that is nobody whom this machine knows."""

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

    @model_validator(mode="after")
    def _login(self) -> BrokerConfig:
        if (self.user is None) != (self.password_env is None):
            raise ValueError("user and password_env go together")
        ways = [way for way in (self.credentials, self.user, self.token_env) if way is not None]
        if len(ways) > 1:
            raise ValueError("needs one of credentials, token_env, or user with password_env; not several")
        if self.ca_file is not None and not self.is_encrypted:
            raise ValueError("ca_file is for servers at tls://")
        return self

    def move(self, beside: Callable[[str], str]) -> None:
        """Have the files that are named be where `beside` says."""
        self.credentials = None if self.credentials is None else beside(self.credentials)
        self.ca_file = None if self.ca_file is None else beside(self.ca_file)

    @property
    def is_encrypted(self) -> bool:
        """Whether nothing may be said before the server has proved who it is."""
        return urlsplit(self.url).scheme == "tls"


def url_problem(url: str) -> str | None:
    """Why a URL cannot be used, if so. Never repeats it: it might hold a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises when it is no number
    except ValueError:
        return URL_FORM
    if parts.scheme not in SCHEMES or not parts.hostname or not url.isascii() or not url.isprintable() or " " in url:
        return URL_FORM
    if parts.username is not None or parts.path.strip("/") or parts.query or parts.fragment:
        return f"{URL_FORM}; who this host is goes into credentials, token_env, or user and password_env"
    return None
