"""MCP servers that an operator declares: `ServerEntry`, their secrets, and the traces that a removed one leaves.

entry = ServerEntry("hub")
entry.set_url("https://mcp.example.com/mcp")
entry.add_header("Authorization", "Bearer abc")   # the value becomes a secret
save_secrets(state, entry.name, entry.secrets)
editing.declare_servers(document, {entry.name: entry.section()})
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from plugbay.contracts.mcp import remote
from plugbay.host.catalog.approvals import NOUNS, Approval, Approvals
from plugbay.host.config import settings
from plugbay.host.config.references import SECRET
from plugbay.host.config.sections import ServerConfig
from plugbay.host.confinement.policy import own_folder
from plugbay.model.guarded import Guarded

BUNDLE_FOLDER = "mcp-bundles"
"""Folder of unpacked bundles, below the state folder."""

VARIABLE = re.compile(r"\$\{([^{}]*)\}")

_SECRETIVE = re.compile(
    r"(^|[_-])(api)?(key|token|secret|password|passwd|pwd|pass|credentials?|auth|pat)s?($|[_-])", re.IGNORECASE
)
_SCHEME = re.compile(r"(?:Basic|Bearer|Token) ")


class ServerEntry(Guarded, msgspec.Struct):
    """A section `[mcp.NAME]` of plugbay.toml, with the credentials that were given for it in plain text."""

    HIDDEN = ("secrets",)
    name: str
    command: list[str] = msgspec.field(default_factory=list)
    url: str = ""
    """A server on the network has a URL and headers in place of a command and variables."""
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    env: dict[str, str] = msgspec.field(default_factory=dict)
    inherit_env: list[str] = msgspec.field(default_factory=list)
    cwd: str | None = None
    secrets: dict[str, str] = msgspec.field(default_factory=dict)
    """Values that were given in plain text, by the name of the secret they become."""

    def section(self) -> dict[str, Any]:
        """The keys and values of the section."""
        keys = ("url", "headers", "command", "env", "inherit_env", "cwd")
        return {key: value for key in keys if (value := getattr(self, key))}

    @property
    def shown(self) -> str:
        """The URL or the command, for people."""
        return self.url.partition("?")[0] or shlex.join(self.command)

    def set_url(self, url: str) -> None:
        """Raises `ValueError` for a URL that cannot be used."""
        problem = None if VARIABLE.search(url) else remote.read_url(url)
        if isinstance(problem, str):
            raise ValueError(f"URL {problem}")
        self.url = url

    def add_header(self, name: str, value: str) -> None:
        """Add a header. A credential in plain text becomes a secret."""
        scheme, rest = split_scheme(value)
        if remote.is_sensitive(name) and _is_plain(rest):
            self.secrets[name] = rest
            value = f"{scheme}{SECRET}{name}"
        self.headers[name] = value

    def add_variable(self, name: str, value: str) -> None:
        """Add a variable. A credential in plain text, judged by the variable's name, becomes a secret."""
        if _SECRETIVE.search(name) and _is_plain(value):
            self.secrets[name] = value
            value = SECRET + name
        self.env[name] = value

    def missing_secrets(self, state: Path) -> list[str]:
        """Names of secrets that the section refers to, and that have no value yet."""
        values = [split_scheme(value)[1] for value in (*self.env.values(), *self.headers.values())]
        wanted = [value.removeprefix(SECRET) for value in values if value.startswith(SECRET)]
        kept = settings.load_secrets(state, self.name)
        return [name for name in wanted if name not in kept]


def split_scheme(value: str) -> tuple[str, str]:
    """The scheme of an Authorization header, with its space, and the rest of the value."""
    found = _SCHEME.match(value)
    return ("", value) if found is None else (found[0], value[found.end() :])


def _is_plain(value: str) -> bool:
    return bool(value) and not value.startswith(SECRET) and not VARIABLE.search(value)


def parse_variable(text: str) -> tuple[str, str]:
    """`K=V`; raises `ValueError`. The value is not part of the message: it may be a secret."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise ValueError(f"{name + sign!r:.60} is not K=V")
    return name, value


def parse_header(text: str) -> tuple[str, str]:
    """`NAME: VALUE`; raises `ValueError`. The value is not part of the message: it may be a secret."""
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"{name!r:.60} is not 'NAME: VALUE'")
    return name.strip(), value.strip()


def save_secrets(state: Path, name: str, secrets: Mapping[str, str]) -> None:
    """Save secrets of a server beside those that it has."""
    if secrets:
        with settings.changing(state):
            settings.save_secrets(state, name, {**settings.load_secrets(state, name), **secrets})


def drop_secrets(state: Path, name: str, secrets: Iterable[str]) -> None:
    """Remove these secrets of a server."""
    with settings.changing(state):
        had = settings.load_secrets(state, name)
        settings.save_secrets(state, name, {key: value for key, value in had.items() if key not in set(secrets)})


def summarize(approval: Approval | None) -> str:
    """The approved offer in a few words, like `2 tools, 1 prompt`."""
    counts = {NOUNS[part]: len(items) for part, items in (approval.offer if approval else {}).items() if items}
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())


class Forgotten(NamedTuple):
    """The traces of a server that were removed."""

    was_approved: bool
    secrets: list[str]


def forget_server(state: Path, name: str, server: ServerConfig, others: Iterable[ServerConfig]) -> Forgotten:
    """Remove the approval, secrets, login and unpacked bundle of a server that is no longer declared."""
    was_approved = Approvals(state).forget(name)
    with settings.changing(state):
        had = sorted(settings.load_secrets(state, name))
        if had:
            settings.save_secrets(state, name, {})
    forget_login(state, name)
    if server.bundle is not None and all(server.bundle != other.bundle for other in others):
        remove_bundle(Path(server.bundle), state)
    return Forgotten(was_approved, had)


def forget_login(state: Path, name: str) -> None:
    """Remove the login of a server and its refreshed tokens, if there are any."""
    if settings.load_login(state, name):
        settings.save_login(state, name, {})
    with suppress(OSError):
        (own_folder(state, name) / remote.TOKENS_FILE).unlink()


def remove_bundle(folder: Path, state: Path) -> None:
    """Remove an unpacked bundle; any other folder is left alone."""
    if (state / BUNDLE_FOLDER).resolve() == folder.resolve().parent:
        shutil.rmtree(folder, ignore_errors=True)
