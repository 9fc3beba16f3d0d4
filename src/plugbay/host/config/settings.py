"""The settings and secrets of plugins: validation, changes, display, and the files they are saved in.

    <folder>/config/<plugin>.json    <folder>/secrets/<plugin>.json    <folder>/logins/<plugin>.json

No message contains the value of a secret. Files are replaced atomically; links are never followed; a secrets file that
other users could read is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from plugbay.contracts.document import dotted, parse_json
from plugbay.contracts.schemas import compile_schema
from plugbay.contracts.validation import suggestion
from plugbay.host.disk.durable import replace_at
from plugbay.model.errors import Code, ConfigInvalid, Failure, Problem
from plugbay.model.knobs import broken_rule, value_of
from plugbay.model.spec import Knob, SettingsSpec
from plugbay.process.stderr import log_name
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.json_gate import Malformed
from plugbay.wire.strict_json import Unencodable

Versions = tuple[tuple[int, ...] | None, ...]

_CODEC = MsgspecCodec()

_SAFE_RULES = frozenset({"minLength", "maxLength", "minimum", "maximum", "type", "pattern", "format"})
"""Rules whose parameter may be shown for a secret that breaks them: it comes from the schema, not from the secret."""


def check_config(spec: SettingsSpec, config: Mapping[str, Any]) -> list[Problem]:
    """The problems of a config; the code of each is the broken rule of the schema."""
    if spec.config_schema is None:
        return [_unknown_setting(name, "settings") for name in config]
    fields, problems = _split_fields(config, spec.secrets_schema, "is a secret: set it with plugbay config secret")
    return problems + [
        Problem(error.kind.name, dotted(tuple(error.instance_path)), error.message)
        for error in _errors(spec.config_schema, fields)
    ]


def check_secrets(spec: SettingsSpec, secrets: Mapping[str, Any]) -> list[Problem]:
    """The problems of secrets, in messages that do not reveal them."""
    if spec.secrets_schema is None:
        return [_unknown_setting(name, "secrets") for name in secrets]
    fields, problems = _split_fields(secrets, spec.config_schema, "is not a secret: change it with plugbay config set")
    return problems + [
        Problem(error.kind.name, dotted(tuple(error.instance_path)), _secret_message(error.kind))
        for error in _errors(spec.secrets_schema, fields)
    ]


def without_secrets(spec: SettingsSpec, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config without secrets that were put there by mistake, for display."""
    secrets = _properties(spec.secrets_schema)
    return {name: value for name, value in config.items() if name not in secrets}


def defaults(spec: SettingsSpec) -> dict[str, Any]:
    """The default values. A knob's default overrides the schema's."""
    fields = _properties(spec.config_schema)
    of_schema = {name: field["default"] for name, field in fields.items() if "default" in field}
    of_knobs = {knob.binds_to: knob.default for knob in spec.knobs if knob.default is not None}
    return {**of_schema, **of_knobs}


def set_knob(spec: SettingsSpec, config: Mapping[str, Any], name: str, value: Any) -> dict[str, Any] | Failure:
    """The config with one knob set. A string is parsed as an operator types it: `0.5`, `true`, a name of an enum.

    Refused if the knob's bounds or the schema forbid it. Existing problems of the config do not count: otherwise they
    could not be fixed one knob at a time.
    """
    knob = next((knob for knob in spec.knobs if knob.name == name), None)
    if knob is None:
        known = [knob.name for knob in spec.knobs]
        return Failure(Code.NOT_FOUND, f"there is no knob {name!r}{suggestion(name, known)}", detail={"knobs": known})
    meant = value_of(knob, value) if isinstance(value, str) else value
    broken = broken_rule(knob, meant)
    if broken is not None:
        return _refused(knob, f"{name} {broken[1]}, got {value!r:.60}", broken[0])
    rest = {field: item for field, item in {**defaults(spec), **config}.items() if field != knob.binds_to}
    known_problems = check_config(spec, rest)
    for problem in check_config(spec, {**rest, knob.binds_to: meant}):
        if problem not in known_problems:
            return _refused(knob, f"{name} cannot be {value!r:.60}: {problem}", f"schema.{problem.code}", problem.path)
    return {**config, knob.binds_to: meant}


def set_field(spec: SettingsSpec, config: Mapping[str, Any], name: str, value: Any) -> dict[str, Any] | Failure:
    """The config with one field set that has no knob; checked against the schema like a knob."""
    fields = list(_properties(spec.config_schema))
    if name not in fields:
        known = [knob.name for knob in spec.knobs] + fields
        text = f"there is no knob and no setting {name!r}{suggestion(name, known)}"
        return Failure(Code.NOT_FOUND, text, detail={"known": known})
    rest = {field: item for field, item in config.items() if field != name}
    known_problems = check_config(spec, rest)
    for problem in check_config(spec, {**rest, name: value}):
        if problem not in known_problems:
            detail = {"rule": f"schema.{problem.code}", "path": problem.path}
            return Failure(Code.INVALID_INPUT, f"{name} cannot be {value!r:.60}: {problem}", detail=detail)
    return {**config, name: value}


def describe(spec: SettingsSpec, config: Mapping[str, Any], secrets: Collection[str] = ()) -> dict[str, Any]:
    """Knobs and secrets as JSON, for a settings page. `secrets` are the names of those that are set."""
    current = {**defaults(spec), **config}
    required = _required(spec.secrets_schema)
    return {
        "knobs": [_describe_knob(knob, current.get(knob.binds_to)) for knob in spec.knobs],
        "secrets": [
            {
                "name": name,
                "description": field.get("description", ""),
                "required": name in required,
                "set": name in secrets,
            }
            for name, field in _properties(spec.secrets_schema).items()
        ],
    }


def _describe_knob(knob: Knob, value: Any) -> dict[str, Any]:
    return {
        "name": knob.name,
        "type": knob.type,
        "label": knob.label,
        "description": knob.description,
        "field": knob.binds_to,
        "value": value,
        "default": knob.default,
        **knob.facts,
    }


def _split_fields(fields: Mapping[str, Any], others: Any, misplaced: str) -> tuple[dict[str, Any], list[Problem]]:
    """The fields to validate, as JSON; and the problems of the others, in messages without values.

    A field of the other schema is misplaced. It is not validated any further, because the messages for a config may
    quote its value.
    """
    valid: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value in fields.items():
        try:
            if name in _properties(others):
                problems.append(Problem("misplaced", name, misplaced))
            else:
                valid[name] = _CODEC.decode(_CODEC.encode(value))
        except (Unencodable, Malformed) as error:
            problems.append(Problem("not_json", name, f"cannot be sent as JSON: {error}"))
    return valid, problems


def _errors(schema: Any, value: Mapping[str, Any]) -> Iterator[Any]:
    return iter(compile_schema(schema).iter_errors(value))


def _unknown_setting(name: str, what: str) -> Problem:
    return Problem("not_asked_for", name, f"the plugin has no {what}, so it would not get it")


def _secret_message(kind: Any) -> str:
    if kind.name == "required":
        return f"{kind.value} is required, and is not set"
    return f"breaks the rule {kind.name}: {kind.value}" if kind.name in _SAFE_RULES else f"breaks the rule {kind.name}"


def _refused(knob: Knob, message: str, rule: str, path: str = "") -> Failure:
    detail = {"knob": knob.name, "rule": rule, "path": path or knob.binds_to}
    return Failure(Code.INVALID_INPUT, message, detail=detail)


def _properties(schema: Any) -> dict[str, dict[str, Any]]:
    found = schema.get("properties") if isinstance(schema, dict) else None
    # `true` is a schema too.
    return {name: field if isinstance(field, dict) else {} for name, field in (found or {}).items()}


def _required(schema: Any) -> list[str]:
    found = schema.get("required") if isinstance(schema, dict) else None
    return found if isinstance(found, list) else []


MAX_BYTES = 1 << 20
"""Maximum bytes of one file."""

_TICK_NS = 20_000_000
"""More than one tick of the clock that stamps files (10 ms at 100 Hz, the slowest kernels)."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Kind(msgspec.Struct, frozen=True):
    """One of the folders of settings files."""

    name: str
    folder_mode: int
    file_mode: int
    private: bool


_CONFIG = _Kind("config", 0o777, 0o666, private=False)
_SECRETS = _Kind("secrets", 0o700, 0o600, private=True)
_LOGINS = _Kind("logins", 0o700, 0o600, private=True)


def load_config(folder: Path, plugin_id: str) -> dict[str, Any]:
    """The saved config of the plugin, empty if there is none; raises `ConfigInvalid` for an unusable file."""
    return _load(_CONFIG, folder, plugin_id)


def save_config(folder: Path, plugin_id: str, config: Mapping[str, Any]) -> None:
    """Replace the plugin's saved config; raises `ConfigInvalid` if it cannot be written."""
    _save(_CONFIG, folder, plugin_id, config)


def load_secrets(folder: Path, plugin_id: str) -> dict[str, Any]:
    """The plugin's secrets; raises `ConfigInvalid` also if other users could read them."""
    return _load(_SECRETS, folder, plugin_id)


def save_secrets(folder: Path, plugin_id: str, secrets: Mapping[str, Any]) -> None:
    """Replace the plugin's secrets, in a private file."""
    _save(_SECRETS, folder, plugin_id, secrets)


def load_login(folder: Path, plugin_id: str) -> dict[str, Any]:
    """The OAuth login of a server on the network, empty if there is none; raises as `load_secrets` does."""
    return _load(_LOGINS, folder, plugin_id)


def save_login(folder: Path, plugin_id: str, login: Mapping[str, Any]) -> None:
    """Replace the login, in a private file."""
    _save(_LOGINS, folder, plugin_id, login)


def file_versions(folder: Path, plugin_id: str) -> Versions:
    """Inode, mode, size and change time of the plugin's settings files and of their folders; None for a missing one.

    Equal versions mean equal settings, except for a change in the same tick of the kernel's clock as the one before:
    see `is_settled`.
    """
    name = file_name(plugin_id)
    folders = [os.path.join(folder, kind.name) for kind in (_CONFIG, _SECRETS, _LOGINS)]
    return tuple(_version(path) for each in folders for path in (each, os.path.join(each, name)))


def is_settled(versions: Versions, now_ns: int) -> bool:
    """Whether the last change is old enough for the next one to have another change time."""
    return all(version is None or not 0 <= now_ns - version[-1] < _TICK_NS for version in versions)


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Lock the settings in a folder across processes, for a read-modify-write."""
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
    """The file name for a plugin: safe for any id, and unique."""
    return log_name(plugin_id).removesuffix(".log") + ".json"


def _version(path: str) -> tuple[int, ...] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns


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
        # Without its cause, which contains the bytes.
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
        # Without its cause, which contains the value.
        raise _invalid(path, "invalid_value", "is not JSON") from None
    if len(data) > MAX_BYTES:
        raise _invalid(path, "unwritable", f"would have more than {MAX_BYTES:,} bytes")
    return data


@contextmanager
def _opened(kind: _Kind, folder: Path) -> Iterator[int]:
    """A descriptor of the folder, so that it cannot be replaced meanwhile."""
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
        text = f"other users can access it (mode {stat.S_IMODE(mode):o}); run: chmod {right:o} {path}"
        raise _invalid(path, "not_private", text)


def _invalid(path: Path, code: str, text: str) -> ConfigInvalid:
    return ConfigInvalid(str(path), [Problem(code, "", text)])
