"""Where an operator's settings are kept: `<folder>/config/<plugin>.json` and `<folder>/secrets/<plugin>.json`.

Owns reading and replacing these files. A reader sees the old file or the new one, also after a power cut. Links are
never followed, and secrets that others on the machine could read are refused rather than used. What the settings mean
is `settings`' business.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets as entropy
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugbay.contracts.document import parse_json
from plugbay.model.errors import ConfigInvalid, Problem
from plugbay.process.stderr import log_name

MAX_BYTES = 1 << 20
"""Bytes of one file: settings are written by people."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the two folders."""

    name: str
    folder_mode: int
    file_mode: int
    private: bool


_CONFIG = _Kind("config", 0o777, 0o666, private=False)
_SECRETS = _Kind("secrets", 0o700, 0o600, private=True)


def load_config(folder: Path, plugin_id: str) -> dict[str, Any]:
    """What was saved for the plugin, nothing when nothing was; raises `ConfigInvalid` for a file of no use."""
    return _load(_CONFIG, folder, plugin_id)


def save_config(folder: Path, plugin_id: str, config: Mapping[str, Any]) -> None:
    """Replace the plugin's saved config; raises `ConfigInvalid` when it cannot be written."""
    _save(_CONFIG, folder, plugin_id, config)


def load_secrets(folder: Path, plugin_id: str) -> dict[str, Any]:
    """The plugin's secrets; raises `ConfigInvalid` also when anybody else could read them."""
    return _load(_SECRETS, folder, plugin_id)


def save_secrets(folder: Path, plugin_id: str, secrets: Mapping[str, Any]) -> None:
    """Replace the plugin's secrets, in a file for nobody else's eyes."""
    _save(_SECRETS, folder, plugin_id, secrets)


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """One change at a time, over all processes: what is read inside is still there when it is replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _invalid(folder, "unwritable", f"cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(at, fcntl.LOCK_EX)
        yield
    finally:
        os.close(at)


def file_name(plugin_id: str) -> str:
    """The name of a plugin's file: safe for any id, and never the same for two."""
    return log_name(plugin_id).removesuffix(".log") + ".json"


def _load(kind: _Kind, folder: Path, plugin_id: str) -> dict[str, Any]:
    path = folder / kind.name / file_name(plugin_id)
    try:
        with _opened(kind, folder) as at:
            data = _read(kind, path, at)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _invalid(path, "unreadable", f"cannot be read: {error.strerror}") from error
    try:
        document = parse_json(data.decode())
    except UnicodeDecodeError:
        # Without its cause, which holds the bytes.
        raise _invalid(path, "parse_error", "not JSON: it is not UTF-8") from None
    if isinstance(document, Problem):
        raise ConfigInvalid(str(path), [document])
    if not isinstance(document.value, dict):
        raise _invalid(path, "invalid_type", "must be one JSON object")
    return document.value


def _read(kind: _Kind, path: Path, at: int) -> bytes:
    with open(os.open(path.name, _READ_FLAGS, dir_fd=at), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _invalid(path, "unreadable", "must be an ordinary file")
        _require_private(kind, path, status.st_mode)
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise _invalid(path, "unreadable", f"has more than {MAX_BYTES:,} bytes")
    return data


def _save(kind: _Kind, folder: Path, plugin_id: str, value: Mapping[str, Any]) -> None:
    path = folder / kind.name / file_name(plugin_id)
    data = _encoded(path, value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / kind.name).mkdir(kind.folder_mode, exist_ok=True)
        with _opened(kind, folder) as at:
            replace_at(at, path.name, data, kind.file_mode)
    except OSError as error:
        raise _invalid(path, "unwritable", f"cannot be written: {error.strerror}") from error


def _encoded(path: Path, value: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(dict(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        data = f"{text}\n".encode()
    except (TypeError, ValueError, RecursionError):
        # Without its cause, which holds the value.
        raise _invalid(path, "invalid_value", "is not JSON") from None
    if len(data) > MAX_BYTES:
        raise _invalid(path, "unwritable", f"would have more than {MAX_BYTES:,} bytes")
    return data


def replace_at(at: int, name: str, data: bytes, mode: int) -> None:
    """Write beside a file of the open folder `at`, then take its place; a power cut changes nothing of that once this
    returns.
    """
    temporary = f".{entropy.token_hex(8)}.tmp"
    try:
        with open(os.open(temporary, _WRITE_FLAGS, mode, dir_fd=at), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        _discard(temporary, at)
        raise
    os.fsync(at)


def _discard(name: str, at: int) -> None:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        pass


@contextmanager
def _opened(kind: _Kind, folder: Path) -> Iterator[int]:
    """A descriptor of the folder, so that nobody can put another in its place meanwhile."""
    path = folder / kind.name
    at = os.open(path, _FOLDER_FLAGS)
    try:
        _require_private(kind, path, os.fstat(at).st_mode)
        yield at
    finally:
        os.close(at)


def _require_private(kind: _Kind, path: Path, mode: int) -> None:
    if kind.private and mode & 0o077:
        right = kind.folder_mode if stat.S_ISDIR(mode) else kind.file_mode
        text = f"others can get at it (mode {stat.S_IMODE(mode):o}); close it with: chmod {right:o} {path}"
        raise _invalid(path, "not_private", text)


def _invalid(path: Path, code: str, text: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), [Problem(code, "", text)])
