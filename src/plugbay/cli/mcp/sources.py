"""Reads MCP servers from configuration files of other programs, and from bundles (`.mcpb`, `.dxt`).

Known shapes: `mcpServers` (Claude Desktop, Claude Code, Cursor, Windsurf, Gemini), `servers` with `inputs` (VS Code),
`context_servers` (Zed), `[mcp_servers.x]` (Codex). Files of other programs are only read. Bundles are untrusted: limits
on names, links, sizes and compression hold before anything is kept.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from plugbay.contracts.mcp import remote
from plugbay.host.admin.servers import BUNDLE_FOLDER, VARIABLE, ServerEntry, split_scheme
from plugbay.host.config.references import SECRET
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.model.ids import id_problem
from plugbay.packages.errors import PackageRefused, Reason
from plugbay.packages.rules import Limits, Names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers")
"""Each of them may hold the servers of a file, by name."""

REMOTE_KEYS = ("url", "serverUrl", "httpUrl")

MAX_BYTES = 16 << 20
"""Bytes of a file; Claude Code keeps its whole history in the same file."""

_FLAG = re.compile(r"--?(?:[a-z-]*-)?(?:api-?key|token|secret|password)(?:=(.+))?", re.I)
_INPUT, _ENV = "input:", "env:"


class ImportedServer(ServerEntry):
    """A server that plugbay can host, with the keys of plugbay.toml."""

    notes: list[str] = msgspec.field(default_factory=list)


class SkippedServer(msgspec.Struct, frozen=True):
    """A server that cannot be imported, and the reason."""

    name: str
    why: str


class _Unusable(ValueError):
    """An entry cannot be imported; the message is the reason."""


def read(path: Path) -> tuple[list[ImportedServer], list[SkippedServer]]:
    """Read the servers of a file; raises `ConfigInvalid` when it has none of the known shapes."""
    document = _document(path)
    taken: list[ImportedServer] = []
    left: list[SkippedServer] = []
    inputs = {str(item.get("id")): item for item in _objects(document.get("inputs"))}
    for name, entry in _servers(path, document):
        try:
            taken.append(_import_server(name, entry, _Variables(path, inputs)))
        except _Unusable as error:
            left.append(SkippedServer(name, str(error)))
    for folder in document.get("projects") or {} if isinstance(document.get("projects"), dict) else {}:
        for name in _mapping(_mapping(document["projects"][folder]).get("mcpServers")):
            left.append(SkippedServer(name, f"it belongs to the project {folder} only"))
    return taken, left


def _document(path: Path) -> dict[str, Any]:
    import tomllib

    from plugbay.mcp_server import jsonc

    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _invalid(path, "too_large", f"has more than {MAX_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
        document = tomllib.loads(text) if path.suffix == ".toml" else jsonc.read(text)
    except OSError as error:
        raise _invalid(path, "unreadable", f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, JSON or TOML, or nested too deeply
        raise _invalid(path, "parse_error", str(error)) from None
    if not isinstance(document, dict):
        raise _invalid(path, "invalid_type", "is not an object")
    return document


def _servers(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every entry with its name. Editor settings may hold them one level deeper, under `mcp`."""
    places = [document, _mapping(document.get("mcp"))]
    found = [place[key] for place in places for key in KEYS if isinstance(place.get(key), dict)]
    if not found:
        raise _invalid(path, "not_found", f"has no MCP servers; looked for {', '.join(KEYS)}")
    for servers in found:
        yield from servers.items()


def _import_server(name: str, entry: Any, words: _Variables) -> ImportedServer:
    if not isinstance(entry, dict):
        raise _Unusable("it is not an object")
    problem = id_problem(name)
    if problem is not None:
        raise _Unusable(f"its name {problem}; plugbay mcp add declares it under another name")
    if entry.get("disabled") is True or entry.get("enabled") is False:
        raise _Unusable("it is disabled there")
    if _is_remote(entry):
        return _import_remote(name, entry, words)
    command, args, env = _command(entry)
    taken = ImportedServer(name, [words.translate(command), *(words.translate(word) for word in args)])
    cwd = entry.get("cwd")
    taken.cwd = words.translate(cwd) if isinstance(cwd, str) and cwd else None
    taken.inherit_env = [word for word in _list(entry.get("env_vars")) if isinstance(word, str)]
    for key, value in env.items():
        _add_variable(taken, key, value, words)
    if entry.get("envFile"):
        taken.notes.append(f"variables from {entry['envFile']} are not read; declare the needed ones in plugbay.toml")
    _check_encodable(taken)
    _warn_about_arguments(taken)
    return taken


def _check_encodable(taken: ImportedServer) -> None:
    """Raise `_Unusable` for values that no process can receive, so that only this entry is skipped."""
    for name in (*taken.env, *taken.inherit_env):
        if not name or "=" in name:
            raise _Unusable(f"{name!r} cannot be the name of a variable")
    words = (
        *taken.command,
        *taken.env,
        *taken.env.values(),
        *taken.secrets.values(),
        *taken.inherit_env,
        taken.cwd or "",
        taken.url,
        *taken.headers.values(),
    )
    if any("\0" in word or _has_surrogate(word) for word in words):
        raise _Unusable("it has a character that cannot be passed to a process")


def _has_surrogate(word: str) -> bool:
    """Whether the text has a lone surrogate, which cannot be encoded."""
    return any("\ud800" <= char <= "\udfff" for char in word)


def _is_remote(entry: Mapping[str, Any]) -> bool:
    kind = entry.get("type", entry.get("transport"))
    if isinstance(kind, str) and kind not in ("stdio", "local"):
        return True
    return not entry.get("command") and any(entry.get(key) for key in REMOTE_KEYS)


def _import_remote(name: str, entry: Mapping[str, Any], words: _Variables) -> ImportedServer:
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise _Unusable(f"it has the old transport: {remote.OLD_TRANSPORT}")
    if isinstance(kind, str) and kind not in (*remote.HTTP_TYPES, "remote"):
        raise _Unusable(f"plugbay has no transport {kind!r}")
    url = next((entry[key] for key in REMOTE_KEYS if entry.get(key)), None)
    if not isinstance(url, str):
        raise _Unusable("it names no url")
    taken = ImportedServer(name)
    try:
        taken.set_url(words.translate(url))
    except ValueError as error:
        raise _Unusable(f"its {error}") from None
    if "?" in taken.url:
        taken.notes.append("the URL has a query; a key in it is in plain text in plugbay.toml, unless it is ${VAR}")
    _import_headers(taken, _headers(entry), words)
    _check_encodable(taken)
    return taken


def _import_headers(taken: ImportedServer, headers: Mapping[str, Any], words: _Variables) -> None:
    for header, value in headers.items():
        if not isinstance(value, str):
            raise _Unusable(f"the header {header} is not a string")
        scheme, rest = split_scheme(value)
        taken.add_header(header, scheme + words.translate_env(header, rest))
        if header in taken.secrets:
            taken.notes.append(f"{header} is now a secret of plugbay; the other file still has it in plain text")
        elif taken.headers[header].endswith(SECRET + header):
            command = f"plugbay mcp secret {taken.name} {header}"
            taken.notes.append(f"the other program prompts for {header}; set it with: {command}")
    found = remote.headers_problem(taken.headers)
    if found is not None:
        raise _Unusable(f"the header {found[0]} {found[1]}")


def _headers(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The headers of an entry; Codex names variables for them."""
    found = {**_mapping(entry.get("headers")), **_mapping(entry.get("http_headers"))}
    found |= {header: f"${{{name}}}" for header, name in _mapping(entry.get("env_http_headers")).items()}
    token = entry.get("bearer_token_env_var")
    return {**found, "Authorization": f"Bearer ${{{token}}}"} if isinstance(token, str) else found


def _command(entry: Mapping[str, Any]) -> tuple[str, list[str], dict[str, Any]]:
    """The program, its arguments and its variables; old Zed files have all three under `command`."""
    inner = entry["command"] if isinstance(entry.get("command"), dict) else entry
    command, args, env = inner.get("path", inner.get("command")), inner.get("args") or [], inner.get("env") or {}
    if not isinstance(command, str) or not command.strip():
        raise _Unusable("it names no command")
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise _Unusable("its args are not a list of strings")
    if not isinstance(env, dict):
        raise _Unusable("its env is not an object")
    return command, args, env


def _add_variable(taken: ImportedServer, key: str, value: Any, words: _Variables) -> None:
    if value is None:
        return
    if not isinstance(value, str | int | float):
        raise _Unusable(f"the variable {key} is not a string")
    text = words.translate_env(key, str(value))
    if text.startswith(SECRET):
        taken.notes.append(f"the other program prompts for {key}; set it with: plugbay mcp secret {taken.name} {key}")
    taken.add_variable(key, text)
    if key in taken.secrets:
        taken.notes.append(f"{key} is now a secret of plugbay; the other file still has it in plain text")


def _warn_about_arguments(taken: ImportedServer) -> None:
    """Note secrets among the arguments: every process of the machine can read them."""
    for flag, following in zip(taken.command, [*taken.command[1:], ""], strict=True):
        matched = _FLAG.fullmatch(flag)
        given = matched and (matched[1] or following)
        if given and not given.startswith("-") and not VARIABLE.fullmatch(given):
            name = flag.partition("=")[0]
            taken.notes.append(
                f"{name} looks like a secret among the arguments, which every process of this machine can read"
            )


class _Variables:
    """Translates `${…}` of other programs into plugbay's form; raises `_Unusable` where there is none."""

    def __init__(self, path: Path, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        folder = path.absolute().parent
        project = folder.parent if folder.name in (".vscode", ".cursor", ".zed") else folder
        self._known = {
            "workspaceFolder": str(project),
            "workspaceFolderBasename": project.name,
            "userHome": str(Path.home()),
            "pathSeparator": "/",
            "/": "/",
        }
        self._inputs = inputs

    def translate(self, text: str) -> str:
        """Translate a word of a command."""
        return VARIABLE.sub(lambda found: self._translate(found[1]), text)

    def translate_env(self, key: str, text: str) -> str:
        """Translate the value of a variable; an input that the other program prompts for becomes a secret."""
        whole = VARIABLE.fullmatch(text)
        if whole and whole[1].startswith(_INPUT) and self._default(whole[1]) is None:
            return SECRET + key
        return self.translate(text)

    def _translate(self, word: str) -> str:
        if word in self._known:
            return self._known[word]
        if word.startswith(_ENV):
            return f"${{{word.removeprefix(_ENV)}}}"
        if word.startswith(_INPUT):
            default = self._default(word)
            if default is None:
                raise _Unusable(f"it prompts for {word.removeprefix(_INPUT)!r} outside of a variable")
            return default
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(:-.*)?", word):
            return f"${{{word}}}"
        raise _Unusable(f"${{{word}}} has no meaning outside that program")

    def _default(self, word: str) -> str | None:
        asked = self._inputs.get(word.removeprefix(_INPUT), {})
        default = asked.get("default")
        return default if isinstance(default, str) and not asked.get("password") else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _invalid(path: Path, code: str, text: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), [Problem(code, "", text)])


# Bundles.

SUFFIXES = (".mcpb", ".dxt")
BUNDLE_LIMITS = Limits(packed=200 << 20, unpacked=1 << 30, files=50_000)
"""Generous, because bundles contain their dependencies: node modules have tens of thousands of files."""

CHUNK = 1 << 20

_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(NotImplementedError, EOFError, RuntimeError, ValueError),
)
"""Exceptions that `zipfile` raises for malformed archives and members."""

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_bundle(word: str) -> bool:
    """Whether an argument names a bundle rather than a command."""
    return word.lower().endswith(SUFFIXES)


def unpack_bundle(bundle: Path, state: Path, limits: Limits = BUNDLE_LIMITS) -> Path:
    """Unpack a bundle and return its folder; raises `PackageRefused` and then leaves nothing behind."""
    try:
        with open(bundle, "rb") as file:
            digest = _digest(file, limits)
            into = state / BUNDLE_FOLDER / f"{bundle.stem[:64]}-{digest[:12]}"
            fresh = into.with_name(f".{into.name}.{os.getpid()}")
            if into.exists():
                return into
            into.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                _unpack(file, fresh, limits)
                os.rename(fresh, into)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        reason = Reason.NOT_FOUND if isinstance(error, FileNotFoundError) else Reason.BAD_ARCHIVE
        raise PackageRefused(reason, f"{bundle} cannot be read: {error.strerror or error}") from None
    return into


def _digest(file: IO[bytes], limits: Limits) -> str:
    digest, size = hashlib.sha256(), 0
    while data := file.read(CHUNK):
        digest.update(data)
        size += len(data)
        if size > limits.packed:
            text = f"the bundle has more than {limits.packed:,} bytes"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=limits.packed)
    file.seek(0)
    return digest.hexdigest()


def _unpack(file: IO[bytes], into: Path, limits: Limits) -> None:
    os.mkdir(into, 0o755)
    names, budget = Names(), _SizeBudget(limits, os.fstat(file.fileno()).st_size)
    try:
        with zipfile.ZipFile(file) as archive:
            if len(archive.infolist()) > limits.files:
                text = f"the bundle has more than {limits.files:,} files"
                raise PackageRefused(Reason.TOO_MANY_FILES, text, limit=limits.files)
            for member in archive.infolist():
                _extract(archive, member, into, names, budget)
    except _BROKEN as error:
        raise PackageRefused(Reason.BAD_ARCHIVE, f"the bundle cannot be unpacked: {error}") from None


def _extract(archive: zipfile.ZipFile, member: zipfile.ZipInfo, into: Path, names: Names, budget: _SizeBudget) -> None:
    mode = member.external_attr >> 16
    name = member.filename.removeprefix("./")
    if stat.S_ISLNK(mode):
        raise PackageRefused(Reason.LINK, f"{name!r} is a link; a bundle has only files", file=name)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise PackageRefused(Reason.SPECIAL_FILE, f"{name!r} is a special file; a bundle has only files", file=name)
    if member.is_dir():
        if name.rstrip("/"):
            names.add_folder(name.rstrip("/"))
            (into / name).mkdir(parents=True, exist_ok=True)
        return
    names.add(name)
    path = into / name
    path.parent.mkdir(parents=True, exist_ok=True)
    bits = 0o755 if mode & 0o111 else 0o644
    with archive.open(member) as packed, open(os.open(path, _NEW_FILE, bits), "wb") as file:
        while data := packed.read(CHUNK):
            budget.take(len(data))
            file.write(data)


class _SizeBudget:
    """Limits the unpacked size of a bundle, in bytes and relative to its packed size."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self._limits = limits
        self._packed = packed
        self._taken = 0

    def take(self, size: int) -> None:
        self._taken += size
        if self._taken > self._limits.unpacked:
            text = f"the bundle unpacks to more than {self._limits.unpacked:,} bytes"
            raise PackageRefused(Reason.TOO_LARGE, text, limit=self._limits.unpacked)
        if self._taken > max(self._limits.unjudged, self._packed * self._limits.ratio):
            raise PackageRefused(Reason.BOMB, f"the bundle unpacks to more than {self._limits.ratio} times its size")
