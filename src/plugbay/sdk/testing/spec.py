"""The plugin's spec as a host reads it from the generated manifest, and the operator's settings in a test.

Owns grants, configuration and the validation of inputs against schemas. The only SDK module that loads manifest readers
and schema validation. For tests only.
"""

from __future__ import annotations

import os
import platform
import sys
from itertools import islice
from pathlib import Path

from plugbay.contracts.contract import HostSide
from plugbay.contracts.mcp.offers import exports_of
from plugbay.contracts.registry import CONTRACTS
from plugbay.contracts.schemas import compile_schema
from plugbay.contracts.vai.platforms import named
from plugbay.model.errors import CallFailed, Code, ConfigInvalid, Failure, ManifestInvalid, Problem
from plugbay.model.gate import Gate, grant, refuse_call
from plugbay.sdk import manifests
from plugbay.sdk.contracts.ainb import ainb_name
from plugbay.wire.strict_json import stdlib_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from plugbay.contracts.base import Machine
    from plugbay.model.spec import Export, PluginSpec
    from plugbay.sdk.plugin import Plugin

COMMAND = ("python3", "plugin.py")
"""The command in manifests; it is never run."""

MAX_LISTED = 12
"""Violated rules that are listed."""

_WRITERS: dict[str, Callable[[Plugin], str]] = {
    "rune": lambda plugin: manifests.rune_manifest(plugin, COMMAND),
    "nexo": lambda plugin: manifests.nexo_manifest(plugin, COMMAND),
    "kaged": lambda plugin: manifests.kaged_manifest(plugin, COMMAND),
    "ainb": manifests.ainb_manifest,
    "vai": manifests.vai_manifest,
    "mcp": lambda plugin: manifests.mcp_manifest(plugin, COMMAND),
}


class Site:
    """The folder of a plugin without one: the files that its manifest names, from its code."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    @property
    def platform(self) -> tuple[str, str]:
        return named(sys.platform, platform.machine())

    def read(self, path: str, limit: int) -> bytes | Problem:
        text = self._files.get(path)
        return Problem("file_missing", "", "does not exist") if text is None else text.encode()

    def program_problem(self, path: str) -> str | None:
        return None


def spec_of(plugin: Plugin, contract: str, folder: str | os.PathLike[str] | None = None) -> PluginSpec:
    """The plugin as a host sees it, by the manifest in a folder if one is given; raises `ManifestInvalid`."""
    if contract not in _WRITERS:
        raise ValueError(f"there is no contract {contract!r}; there is {', '.join(_WRITERS)}")
    files = manifests.vai_files(plugin) if contract == "vai" and folder is None else {}
    root = Path.cwd() / ainb_name(plugin.id) if folder is None else Path(folder).resolve()
    text = _WRITERS[contract](plugin) if folder is None else _read(contract, root, files)
    spec, problems = CONTRACTS[contract].parse_manifest(text, root, os.environ, Site(files))
    if spec is None:
        raise ManifestInvalid(f"the manifest of {plugin.id} under {contract}", problems)
    return spec


def with_greeting(spec: PluginSpec, hello: Mapping[str, Any]) -> PluginSpec:
    """The same plugin with the exports of its greeting, if its manifest has none."""
    return spec.with_exports(tuple(exports_of(hello["offer"])[0])) if "offer" in hello else spec


def _read(contract: str, root: Path, files: dict[str, str]) -> str:
    """The text of a manifest; adds the files that it may name to `files`."""
    files |= {str(path.relative_to(root)): path.read_text("utf-8") for path in root.rglob("*.json")}
    for name in CONTRACTS[contract].manifest_files:
        if (root / name).exists():
            return (root / name).read_text("utf-8")
    raise FileNotFoundError(f"there is no {' or '.join(CONTRACTS[contract].manifest_files)} in {root}")


class OperatorSettings:
    """The operator's grants and settings in a test."""

    def __init__(
        self,
        spec: PluginSpec,
        grants: Iterable[str] | None,
        config: Mapping[str, Any] | None,
        secrets: Mapping[str, Any] | None,
    ) -> None:
        """`grants` None: everything that the plugin requests. Raises `ConfigInvalid` if settings break their schema."""
        named = None if grants is None else frozenset([grants] if isinstance(grants, str) else grants)
        self.granted = grant(spec, named)
        self.gate = Gate(spec, self.granted)
        self.config = {**_defaults(spec), **(config or {})}
        self.secrets = dict(secrets or {})
        schemas = [spec.settings.config_schema, *(export.facts.get("config_schema") for export in spec.exports)]
        problems = [problem for schema in schemas for problem in _violations(schema, self.config)]
        problems += _violations(spec.settings.secrets_schema, self.secrets, secret=True)
        if problems:
            raise ConfigInvalid(f"the settings of {spec.id}", problems)

    def machine(self, spec: PluginSpec) -> Machine:
        """A HOST machine, ready to greet."""
        side = HostSide(
            granted=self.granted,
            nonce=int.from_bytes(os.urandom(8)),
            config=self.config,
            secrets=self.secrets,
            storage=any(item.kind in ("storage_read", "storage_write") for item in self.gate.access),
        )
        return CONTRACTS[spec.contract].host_machine(spec, side, stdlib_codec())

    def missing(self, spec: PluginSpec, export: Export) -> Failure | None:
        """Why a call is not allowed; None if it is. Invocations run with fewer permissions instead."""
        return None if "execution_class" in export.facts else refuse_call(spec, export, self.granted)


def _defaults(spec: PluginSpec) -> dict[str, Any]:
    """The default of every field. That of a knob goes before that of the schema."""
    schema = spec.settings.config_schema
    fields = schema.get("properties", {}) if isinstance(schema, dict) else {}
    of_schema = {name: field["default"] for name, field in fields.items() if "default" in field}
    return of_schema | {knob.binds_to: knob.default for knob in spec.settings.knobs if knob.default is not None}


def _violations(schema: Any, values: Mapping[str, Any], *, secret: bool = False) -> list[Problem]:
    """The problems of settings; of a secret, only the rule that it breaks."""
    errors = () if schema is None else compile_schema(schema).iter_errors(dict(values))
    return [
        Problem(
            error.kind.name,
            "/".join(map(str, error.instance_path)),
            _redact_rule(error.kind) if secret else error.message,
        )
        for error in errors
    ]


def _redact_rule(kind: Any) -> str:
    return f"{kind.value} is required, and is not set" if kind.name == "required" else f"breaks the rule {kind.name}"


def check(schema: Any, value: Any, name: str, plugin_id: str) -> None:
    """Raise `CallFailed`, with path and rule, if an input does not fit the schema of its export."""
    errors = [
        {"path": "/".join(map(str, error.instance_path)) or "input", "rule": error.message}
        for error in islice(compile_schema(schema).iter_errors(value), MAX_LISTED)
    ]
    if errors:
        text = f"the input does not fit {name}'s schema: {errors[0]['path']}: {errors[0]['rule']}"
        raise CallFailed(Failure(Code.INVALID_INPUT, text, plugin=plugin_id, detail={"errors": errors}))
