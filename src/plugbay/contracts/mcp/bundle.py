"""`manifest.json` of an MCP bundle (`.mcpb`, formerly `.dxt`): a server with everything it needs in one folder.

Owns every field that says how the server is started and what a person can set, and turns them into a `PluginSpec` with
settings. `${user_config.KEY}` stays in the command until it is started: `fill` puts the settings in then. Pure: it
takes text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, field_validator

from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.mcp.spec import resident
from plugbay.contracts.validation import unknown_keys, validate
from plugbay.model.errors import Problem
from plugbay.model.ids import id_problem
from plugbay.model.spec import Knob, PluginSpec, SettingsSpec

PLATFORM = "linux"
"""Whose overrides count; nothing else is started by this host."""

_NO_FILES = "must lie inside the bundle"
_USER = re.compile(r"\$\{user_config\.([^}]+)\}")
_PLACE = re.compile(r"\$\{(__dirname|HOME|DESKTOP|DOCUMENTS|DOWNLOADS|pathSeparator|/)\}")
_FOLDERS = {"DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}

_RUNNERS = {"node": ("node",), "python": ("python3",), "uv": ("uv", "run", "--directory", "${__dirname}")}
"""How a server is started that does not say; a binary is its entry point."""


class _Launch(BaseModel):
    model_config = ConfigDict(extra="ignore")

    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None


class _Config(_Launch):
    platform_overrides: dict[str, _Launch] = {}


class _Server(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["node", "python", "binary", "uv"]
    entry_point: str
    mcp_config: _Config = _Config()

    @field_validator("entry_point")
    @classmethod
    def _inside(cls, value: str) -> str:
        if not value.strip() or value.startswith("/") or ".." in value.split("/"):
            raise ValueError(_NO_FILES)
        return value


class _Option(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: Literal["string", "number", "boolean", "directory", "file"]
    title: str = ""
    description: str = ""
    required: bool = False
    default: Any = None
    multiple: bool = False
    sensitive: bool = False
    min: float | None = None
    max: float | None = None


class _Compatibility(BaseModel):
    model_config = ConfigDict(extra="ignore")

    platforms: list[str] = []


class _Tool(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1)]
    description: str = ""


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    manifest_version: str = ""
    dxt_version: str = ""
    name: str
    version: str
    server: _Server
    display_name: str = ""
    description: str = ""
    tools: list[_Tool] = []
    user_config: dict[str, _Option] = {}
    compatibility: _Compatibility = _Compatibility()

    @field_validator("name")
    @classmethod
    def _id(cls, value: str) -> str:
        problem = id_problem(value)
        if problem:
            raise ValueError(problem)
        return value

    @field_validator("version")
    @classmethod
    def _version(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value


OTHER_KEYS = tuple(
    "author long_description repository homepage documentation support icon icons screenshots tools_generated prompts "
    "prompts_generated keywords license privacy_policies localization _meta $schema".split()
)
"""Keys for people and for other clients."""


def is_bundle(text: str) -> bool:
    """Whether a `manifest.json` is a bundle's: other programs have files of that name."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    said = isinstance(value, dict) and ("manifest_version" in value or "dxt_version" in value)
    return said and isinstance(value.get("server"), dict)


def parse(text: str, root: Path, environ: Mapping[str, str]) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the bundle in `root`, and every problem of its manifest. No spec when any of them is an error."""
    document = parse_json(text)
    if isinstance(document, Problem):
        return None, [document]
    if not isinstance(document.value, dict):
        return None, [Problem("invalid_type", "", "the manifest must be one JSON object", line=1)]
    manifest, problems = validate(_Manifest, document)
    problems += _cross_field(document) + unknown_keys(
        document.value, (*_Manifest.model_fields, *OTHER_KEYS), (), document
    )
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root, environ), problems


def _cross_field(document: Document) -> list[Problem]:
    """Rules between fields, on whatever is there."""
    value = document.value
    problems: list[Problem] = []
    platforms = _table(value.get("compatibility")).get("platforms")
    if isinstance(platforms, list) and platforms and PLATFORM not in platforms:
        names = ", ".join(str(name) for name in platforms)
        problems.append(_at(document, "unsupported_platform", ("compatibility", "platforms"), f"only for {names}"))
    options = _table(value.get("user_config"))
    config = _table(value.get("server")).get("mcp_config")
    for name in dict.fromkeys(_USER.findall(json.dumps(config, ensure_ascii=False))):
        if name not in options:
            where = ("server", "mcp_config")
            problems.append(
                _at(document, "unknown_setting", where, f"needs the setting {name!r}, which is not in user_config")
            )
    arguments = _USER.findall(json.dumps(_args(_table(value.get("server"))), ensure_ascii=False))
    for name, option in options.items():
        if _table(option).get("sensitive") is True and name in arguments:
            text = "a secret must not be an argument, which every process of this machine can read; use env"
            problems.append(_at(document, "secret_in_arguments", ("user_config", name), text))
    return problems


def _args(server: dict[str, Any]) -> list[Any]:
    """Everything that its command may be made of."""
    table = _table(server.get("mcp_config"))
    overrides = _table(_table(table.get("platform_overrides")).get(PLATFORM))
    own = [launch.get(key) for launch in (table, overrides) for key in ("command", "args")]
    return [server.get("entry_point"), *own]


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _at(document: Document, code: str, path: tuple[str, ...], text: str) -> Problem:
    return Problem(code, dotted(path), text, line=document.line(path))


def _spec(manifest: _Manifest, root: Path, environ: Mapping[str, str]) -> PluginSpec:
    config = manifest.server.mcp_config
    here = config.platform_overrides.get(PLATFORM, _Launch())
    command = here.command or config.command
    args = config.args if here.args is None else here.args

    def placed(text: str) -> str:
        return _PLACE.sub(lambda match: _place(match[1], root, environ), text)

    entry = str(root / manifest.server.entry_point)
    if command is None:
        argv = (*_RUNNERS.get(manifest.server.type, ()), entry, *(args or ()))
    else:
        argv = (command, *(args or ()))
    env = {**(config.env or {}), **(here.env or {})}
    return resident(
        manifest.name,
        tuple(placed(part) for part in argv),
        root,
        version=manifest.version,
        name=manifest.display_name or manifest.name,
        description=manifest.description,
        env=tuple((name, placed(value)) for name, value in env.items()),
        settings=_settings(manifest.user_config, placed),
    )


def _place(name: str, root: Path, environ: Mapping[str, str]) -> str:
    if name in ("pathSeparator", "/"):
        return "/"
    home = environ.get("HOME", "/")
    if name == "__dirname":
        return str(root)
    return home if name == "HOME" else f"{home.rstrip('/')}/{_FOLDERS[name]}"


def _settings(options: Mapping[str, _Option], placed: Any) -> SettingsSpec:
    """The settings for people; secrets have a schema of their own."""

    def schema(names: list[str]) -> dict[str, Any] | None:
        if not names:
            return None
        properties = {name: _property(options[name], placed) for name in names}
        required = [name for name in names if options[name].required and options[name].default is None]
        return {"type": "object", "properties": properties, "additionalProperties": False, "required": required}

    secret = [name for name, option in options.items() if option.sensitive]
    plain = [name for name in options if name not in secret]
    knobs = tuple(_knob(name, options[name]) for name in plain if not options[name].multiple)
    return SettingsSpec(schema(plain), schema(secret), tuple(knob for knob in knobs if knob is not None))


def _property(option: _Option, placed: Any) -> dict[str, Any]:
    kind = option.type if option.type in ("number", "boolean") else "string"
    bounds = {"minimum": option.min, "maximum": option.max} if kind == "number" else {}
    one: dict[str, Any] = {"type": kind, **{key: value for key, value in bounds.items() if value is not None}}
    whole = {"type": "array", "items": one} if option.multiple else one
    words = {"title": option.title, "description": option.description}
    default = {} if option.default is None else {"default": _placed_default(option.default, placed)}
    return {**whole, **{key: text for key, text in words.items() if text}, **default}


def _placed_default(value: Any, placed: Any) -> Any:
    if isinstance(value, str):
        return placed(value)
    return [_placed_default(item, placed) for item in value] if isinstance(value, list) else value


def _knob(name: str, option: _Option) -> Knob | None:
    """A control for one setting; numbers without both bounds have none that could be drawn."""
    bounds = {"min": option.min, "max": option.max}
    kinds = {"boolean": "boolean", "string": "text", "directory": "path", "file": "path", "number": "range"}
    if option.type == "number" and None in bounds.values():
        return None
    facts = bounds if option.type == "number" else {}
    label, default = option.title or name, option.default
    return Knob(name, kinds[option.type], label, name, option.description, default, facts)


def is_setting(text: str) -> bool:
    """Whether a text has a place for a setting."""
    return _USER.search(text) is not None


def fill(spec: PluginSpec, settings: Mapping[str, Any]) -> PluginSpec:
    """The spec with what was set in its command and variables; a default stands in for what was not.

    A setting with several values becomes several arguments; one that is not set leaves no argument, and no variable.
    """
    known = {**_defaults(spec), **{name: value for name, value in settings.items() if value is not None}}
    argv = [part for text in spec.command for part in _arguments(text, known)]
    env = [
        (name, _filled(value, known)) for name, value in spec.env if all(key in known for key in _USER.findall(value))
    ]
    return replace(spec, command=tuple(argv), env=tuple(env))


def _defaults(spec: PluginSpec) -> dict[str, Any]:
    schemas = (spec.settings.config_schema, spec.settings.secrets_schema)
    properties = [item for schema in schemas if schema for item in schema["properties"].items()]
    return {name: entry["default"] for name, entry in properties if "default" in entry}


def _arguments(text: str, known: Mapping[str, Any]) -> list[str]:
    alone = _USER.fullmatch(text)
    if alone is not None and isinstance(known.get(alone[1]), list):
        return [_text(item) for item in known[alone[1]]]
    if any(name not in known for name in _USER.findall(text)):
        return []
    return [_filled(text, known)]


def _filled(text: str, known: Mapping[str, Any]) -> str:
    return _USER.sub(lambda match: _text(known[match[1]]), text)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
