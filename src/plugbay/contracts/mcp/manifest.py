"""`.mcp.json`: the servers that a project or a client declares, each of which is a plugin.

    {"mcpServers": {"files": {"command": "npx", "args": ["-y", "…"], "env": {"TOKEN": "secret://files/token"}}}}
    {"mcpServers": {"hub": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

Owns the rules of an entry, and turns each into a `PluginSpec`. The offer of a server is not in the file: it is read
when the server is approved. `${VAR}` in the command is filled in here; the URL and the values of `env` and `headers`
may have references, which are resolved when the server is started and stay as they are. Pure: it takes text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.mcp import bundle, remote
from plugbay.contracts.mcp.spec import resident
from plugbay.contracts.validation import suggestion
from plugbay.model.errors import Problem
from plugbay.model.ids import id_problem
from plugbay.model.spec import PluginSpec

SERVERS = "mcpServers"

LOCAL = ("stdio", "local")
"""The types of a server that is a program of this machine; the default."""

KNOWN = ("command", "args", "env", "cwd", "type", "transport", "url", "headers", "description")
CLIENTS_OWN = frozenset(
    "disabled enabled timeout alwaysAllow autoApprove disabledTools trust oauth envFile tools icon".split()
)
"""Keys that clients add for themselves; they mean nothing here and are no mistake."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

Server = tuple[str, PluginSpec | None, list[Problem]]
"""A server's name, its spec, and every problem of its entry; no spec when one of them is an error."""


def parse_servers(text: str, root: Path, environ: Mapping[str, str]) -> list[Server]:
    """Every server in the file, in its order. What is wrong with the file as a whole comes without a name."""
    document = parse_json(text)
    if isinstance(document, Problem):
        return [("", None, [document])]
    value = document.value
    servers = value.get(SERVERS) if isinstance(value, dict) else None
    if not isinstance(servers, dict):
        what = f"the file must be one JSON object that holds {SERVERS} (an object)"
        return [("", None, [Problem("missing_field", SERVERS, what, line=1)])]
    if not servers:
        line = document.line((SERVERS,))
        return [("", None, [Problem("no_servers", SERVERS, "names no server", line=line, severity="warning")])]
    return [(name, *_Entry(document, name, entry, root, environ).parsed()) for name, entry in servers.items()]


def parse(text: str, root: Path, environ: Mapping[str, str]) -> tuple[PluginSpec | None, list[Problem]]:
    """The one plugin of a folder: a bundle's manifest, or a file with one server."""
    if bundle.is_bundle(text):
        return bundle.parse(text, root, environ)
    servers = parse_servers(text, root, environ)
    if len(servers) == 1:
        _, spec, problems = servers[0]
        return spec, problems
    names = ", ".join(name for name, _, _ in servers)
    return None, [Problem("several_plugins", SERVERS, f"names {len(servers)} servers: {names}")]


def not_ours(text: str) -> str | None:
    """Why a file is neither a list of servers nor a bundle's manifest: `manifest.json` is a name that many use."""
    document = parse_json(text)
    value = None if isinstance(document, Problem) else document.value
    if isinstance(document, Problem) and f'"{SERVERS}"' in text:
        return None  # meant for us, and broken: that is worth saying
    if isinstance(value, dict) and (SERVERS in value or bundle.is_bundle(text)):
        return None
    return f"it has neither {SERVERS} nor the fields of an MCP bundle"


class _Entry(msgspec.Struct, frozen=True):
    """One server under inspection."""

    document: Document
    name: str
    entry: Any
    root: Path
    environ: Mapping[str, str]

    def parsed(self) -> tuple[PluginSpec | None, list[Problem]]:
        if not isinstance(self.entry, dict):
            return None, [self._problem("invalid_type", (), "a server must be an object")]
        problems = [problem for check in self._checks() for problem in check()]
        if any(problem.severity == "error" for problem in problems):
            return None, problems
        return self._remote_spec() if self._is_remote else self._spec(), problems

    @property
    def _kind(self) -> Any:
        return self.entry.get("type", self.entry.get("transport"))

    @property
    def _is_remote(self) -> bool:
        """Whether the server is on the network; without a type, whether it has a URL and no command."""
        if isinstance(self._kind, str):
            return self._kind not in LOCAL
        return self.entry.get("url") is not None and self.entry.get("command") is None

    def _checks(self) -> tuple[Callable[[], list[Problem]], ...]:
        own = (self._type, self._url, self._headers) if self._is_remote else self._checks_of_program
        return self._id, *own, self._disabled, self._unknown

    @property
    def _checks_of_program(self) -> tuple[Callable[[], list[Problem]], ...]:
        return self._command, self._args, self._env, self._cwd

    def _type(self) -> list[Problem]:
        key = "type" if "type" in self.entry else "transport"
        if self._kind is None or self._kind in remote.HTTP_TYPES:
            return []
        what = remote.OLD_TRANSPORT if self._kind == "sse" else f"plugbay has no transport {self._kind!r}"
        return [self._problem("remote_server", (key,), what)]

    def _url(self) -> list[Problem]:
        url = self.entry.get("url")
        if not isinstance(url, str):
            return [self._problem("missing_field", ("url",), "required, but missing")]
        unset = self._unset(("url",), url)
        parsed = None if unset else remote.read_url(self._filled(url))
        return [self._problem("invalid_value", ("url",), f"the URL {parsed}")] if isinstance(parsed, str) else unset

    def _headers(self) -> list[Problem]:
        headers = self.entry.get("headers")
        if headers is None:
            return []
        if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
            return [self._problem("invalid_type", ("headers",), "must be an object of strings")]
        found = remote.headers_problem(headers)
        if found is None:
            return []
        return [self._problem("invalid_value", ("headers", found[0]), f"the header {found[1]}")]

    def _id(self) -> list[Problem]:
        why = id_problem(self.name)
        return [] if why is None else [self._problem("invalid_value", (), f"the name {why}")]

    def _command(self) -> list[Problem]:
        command = self.entry.get("command")
        if command is None:
            return [self._problem("missing_field", ("command",), "required, but missing")]
        if not isinstance(command, str) or not command.strip():
            return [self._problem("invalid_type", ("command",), "must be the name or path of a program")]
        return self._unset(("command",), command)

    def _args(self) -> list[Problem]:
        args = self.entry.get("args")
        if args is None:
            return []
        if not isinstance(args, list):
            return [self._problem("invalid_type", ("args",), "must be an array of strings")]
        problems: list[Problem] = []
        for position, arg in enumerate(args):
            if isinstance(arg, str):
                problems += self._unset(("args", position), arg)
            else:
                problems.append(self._problem("invalid_type", ("args", position), "must be a string"))
        return problems

    def _env(self) -> list[Problem]:
        env = self.entry.get("env")
        if env is None:
            return []
        if not isinstance(env, dict):
            return [self._problem("invalid_type", ("env",), "must be an object of strings")]
        problems: list[Problem] = []
        for key, value in env.items():
            if not key or "=" in key or "\0" in key:
                problems.append(self._problem("invalid_value", ("env", key), "cannot be the name of a variable"))
            if not isinstance(value, str) or "\0" in value:
                problems.append(self._problem("invalid_type", ("env", key), "must be a string; quote it"))
        return problems

    def _cwd(self) -> list[Problem]:
        cwd = self.entry.get("cwd")
        if cwd is None:
            return []
        if not isinstance(cwd, str) or not cwd.strip():
            return [self._problem("invalid_type", ("cwd",), "must be the path of a folder")]
        return self._unset(("cwd",), cwd)

    def _disabled(self) -> list[Problem]:
        if self.entry.get("disabled") is not True and self.entry.get("enabled") is not False:
            return []
        what = "disabled in this file; to disable it here too, use plugbay.toml"
        return [self._problem("disabled_elsewhere", ("disabled",), what, severity="warning")]

    def _unknown(self) -> list[Problem]:
        return [
            self._problem("unknown_key", (key,), f"unknown, ignored{suggestion(key, KNOWN)}", severity="warning")
            for key in self.entry
            if key not in KNOWN and key not in CLIENTS_OWN
        ]

    def _unset(self, where: tuple[str | int, ...], text: str) -> list[Problem]:
        """A problem for each variable that the command needs and that is not set."""
        names = [match[1] for match in _REFERENCE.finditer(text) if match[2] is None]
        return [
            self._problem("unset_variable", where, f"needs the variable {name}, which is not set")
            for name in dict.fromkeys(names)
            if name not in self.environ
        ]

    def _problem(self, code: str, where: tuple[str | int, ...], text: str, severity: str = "error") -> Problem:
        path = (SERVERS, self.name, *where)
        return Problem(code, dotted(path), text, line=self.document.line(path), severity=severity)

    def _filled(self, text: str) -> str:
        return _REFERENCE.sub(lambda match: self.environ.get(match[1], match[2] or ""), text)

    @property
    def _description(self) -> str:
        description = self.entry.get("description")
        return description if isinstance(description, str) else ""

    def _remote_spec(self) -> PluginSpec:
        declared = self.entry["url"]
        url = remote.read_url(self._filled(declared))
        assert not isinstance(url, str), "checked before"
        headers = (self.entry.get("headers") or {}).items()
        return remote.remote_spec(self.name, declared, url, self.root, headers, self._description)

    def _spec(self) -> PluginSpec:
        cwd = self.entry.get("cwd")
        return resident(
            self.name,
            (self._filled(self.entry["command"]), *(self._filled(arg) for arg in self.entry.get("args") or ())),
            self.root,
            description=self._description,
            env=tuple((self.entry.get("env") or {}).items()),
            cwd=self.root / self._filled(cwd) if cwd else None,
        )
