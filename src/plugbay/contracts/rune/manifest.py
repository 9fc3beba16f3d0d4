"""`rterm-plugin.json`: the bundle manifest of a rune plugin.

Owns every field, default and rule of the file, and turns it into a `PluginSpec`. Pure: it takes text, and whether the
command exists on this machine is asked elsewhere. Unknown keys are ignored by the contract and warned about here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from plugbay.contracts.document import Document, dotted, parse_json
from plugbay.contracts.rune.messages import PROTOCOL
from plugbay.contracts.rune.spec import TIMEOUTS
from plugbay.contracts.schemas import schema_problem
from plugbay.contracts.validation import unknown_keys, validate
from plugbay.model.errors import Problem
from plugbay.model.ids import id_problem
from plugbay.model.spec import Export, Lifetime, PluginSpec

COMMENT = "$comment"
"""Says something to people, as in JSON Schema; no host looks at it."""


class _Process(BaseModel):
    model_config = ConfigDict(extra="ignore")

    command: str
    args: list[str] = []
    dir: str = ""
    env: list[str] = []

    @field_validator("command")
    @classmethod
    def _command(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must contain a program")
        return value

    @field_validator("env")
    @classmethod
    def _env(cls, value: list[str]) -> list[str]:
        for entry in value:
            if "=" not in entry or entry.startswith("=") or "\0" in entry:
                raise ValueError(f"{entry!r} is not NAME=VALUE")
        return value


class _Tool(BaseModel):
    model_config = ConfigDict(extra="ignore")

    name: str
    description: str = ""
    input_schema: Any = None
    output_schema: Any = None
    capabilities: list[str] = []
    approval_tier: Literal["safe", "moderate", "dangerous", "destructive"] = "safe"
    mutating: bool = False
    target_kind: Literal["workspace", "widget", "policy"] = "workspace"

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not value.strip() or value != value.strip():
            raise ValueError("must be a name without spaces around it")
        return value


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="ignore")

    plugin_id: str
    plugin_version: str
    protocol_version: str
    process: _Process
    tools: Annotated[list[_Tool], Field(min_length=1)]
    display_name: str = ""
    description: str = ""
    capabilities: list[str] = []

    @field_validator("plugin_id")
    @classmethod
    def _id(cls, value: str) -> str:
        problem = id_problem(value)
        if problem:
            raise ValueError(problem)
        return value

    @field_validator("plugin_version")
    @classmethod
    def _version(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("must not be blank")
        return value

    @field_validator("protocol_version")
    @classmethod
    def _protocol(cls, value: str) -> str:
        if value != PROTOCOL:
            raise ValueError(f"must be {PROTOCOL!r}, got {value!r}")
        return value


def parse(text: str, root: Path, environ: Mapping[str, str] | None = None) -> tuple[PluginSpec | None, list[Problem]]:
    """The spec of the plugin in `root`, and every problem of its manifest. No spec when any of them is an error.

    rune gives no variable of the host a meaning, so `environ` is not looked at.
    """
    document = parse_json(text)
    if isinstance(document, Problem):
        return None, [document]
    if not isinstance(document.value, dict):
        return None, [Problem("invalid_type", "", "the manifest must be one JSON object", line=1)]
    manifest, problems = validate(_Manifest, document)
    problems += _cross_field(document) + _warnings(document)
    if manifest is None or any(problem.severity == "error" for problem in problems):
        return None, problems
    return _spec(manifest, root), problems


def _cross_field(document: Document) -> list[Problem]:
    """Rules between fields, checked on whatever is there, so they are reported beside the others."""
    tools = _tables(document.value.get("tools"))
    declared = _names(document.value.get("capabilities"))
    problems: list[Problem] = []
    seen: set[str] = set()
    for position, tool in tools:
        name = tool.get("name")
        if isinstance(name, str) and name in seen:
            problems.append(_at(document, "duplicate_tool", (position, "name"), f"{name!r} is the name of two tools"))
        seen.add(str(name))
        for missing in [cap for cap in _names(tool.get("capabilities")) if declared and cap not in declared]:
            text = f"{missing!r} is not among the plugin's own capabilities"
            problems.append(_at(document, "undeclared_capability", (position, "capabilities"), text))
    return problems


def _warnings(document: Document) -> list[Problem]:
    problems = unknown_keys(document.value, (*_Manifest.model_fields, COMMENT), (), document)
    problems += unknown_keys(document.value.get("process"), _Process.model_fields, ("process",), document)
    for position, tool in _tables(document.value.get("tools")):
        problems += unknown_keys(tool, _Tool.model_fields, ("tools", position), document)
        for key in ("input_schema", "output_schema"):
            problems += _schema_warning(document, position, key, tool.get(key))
    return problems


def _schema_warning(document: Document, position: int, key: str, schema: Any) -> list[Problem]:
    """Real hosts never look at the schemas, so a broken one is not fatal; it just cannot be enforced."""
    why = None if schema is None else schema_problem(schema)
    if why is None:
        return []
    text = f"cannot be enforced, so inputs go unchecked: {why}"
    return [_at(document, "invalid_schema", (position, key), text, severity="warning")]


def _at(document: Document, code: str, where: tuple[int, str], text: str, severity: str = "error") -> Problem:
    path = ("tools", *where)
    return Problem(code, dotted(path), text, line=document.line(path), severity=severity)


def _tables(value: Any) -> list[tuple[int, dict[str, Any]]]:
    items = value if isinstance(value, list) else []
    return [(position, item) for position, item in enumerate(items) if isinstance(item, dict)]


def _names(value: Any) -> list[str]:
    """A capability list as the contract reads it in a bundle: trimmed, without blanks and repeats."""
    items = value if isinstance(value, list) else []
    trimmed = [item.strip() for item in items if isinstance(item, str)]
    return list(dict.fromkeys(name for name in trimmed if name))


def _spec(manifest: _Manifest, root: Path) -> PluginSpec:
    process = manifest.process
    return PluginSpec(
        id=manifest.plugin_id,
        version=manifest.plugin_version,
        contract="rune",
        root=root,
        command=(process.command, *process.args),
        name=manifest.display_name or manifest.plugin_id,
        description=manifest.description,
        cwd=root / process.dir if process.dir else None,
        env=tuple((name, value) for name, _, value in (entry.partition("=") for entry in process.env)),
        lifetime=Lifetime.PER_CALL,
        clean_exit_required=True,
        cancelled_is_timeout=True,
        exports=tuple(_export(tool) for tool in manifest.tools),
        capabilities=tuple(_names(manifest.capabilities)),
        requests_at_run_time=True,
        timeouts=TIMEOUTS,
    )


def _export(tool: _Tool) -> Export:
    def usable(schema: Any) -> Any:
        """None accepts anything, as real hosts do, whatever the documented default says."""
        return schema if schema is not None and schema_problem(schema) is None else None

    return Export(
        kind="tool",
        name=tool.name,
        description=tool.description,
        input_schema=usable(tool.input_schema),
        output_schema=usable(tool.output_schema),
        capabilities=tuple(_names(tool.capabilities)),
        facts={
            "approval_tier": tool.approval_tier,
            "mutating": tool.mutating,
            "target_kind": tool.target_kind,
        },
    )
