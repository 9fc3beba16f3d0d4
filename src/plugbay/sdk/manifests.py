"""Writes the manifest of a plugin for each contract from its declarations.

    print(rune_manifest(plugin, command=["python3", "plugin.py"]))      # > rterm-plugin.json
    print(nexo_manifest(plugin, command=["python3", "plugin.py"]))      # > nexo-plugin.toml
    print(kaged_manifest(plugin, command=["python3", "plugin.py"]))     # > kaged-plugin.yaml
    write_ainb(plugin, Path("usage"))                                   # usage/manifest.toml, usage/usage
    write_vai(plugin, Path("."))                                        # vai-plugin.toml, schemas/, bin/plugin
    print(mcp_manifest(plugin, command=["python3", "plugin.py"]))       # > .mcp.json

A plugin that serves never loads this module. Manifests are not validated here: `plugbay inspect` does that. Under vai
the permissions of an export come from capabilities such as `network`, `filesystem=scratch`, `scope=chains:read` and
`secret=jira_token`, of the plugin or of the export.
"""

from __future__ import annotations

from plugbay.contracts.kaged.messages import API_VERSION
from plugbay.contracts.rune.messages import PROTOCOL as RUNE_PROTOCOL
from plugbay.contracts.vai.messages import PROTOCOL as VAI_PROTOCOL
from plugbay.sdk.contract_support import NEXO_HOOKS, receives_event
from plugbay.sdk.contracts.ainb import ainb_manifest_object, ainb_name
from plugbay.sdk.contracts.kaged import supported_capabilities, supported_hooks
from plugbay.sdk.contracts.mcp import server_name, tools_by_name
from plugbay.sdk.contracts.nexo import nexo_id, nexo_tool_name
from plugbay.sdk.contracts.vai import COMPACTOR, HARNESS, HOOK, TOOL, offers, package_id
from plugbay.sdk.io.detect import kaged_name
from plugbay.sdk.results import RESULT
from plugbay.sdk.types.handlers import Compactor, Harness, Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from plugbay.sdk.contracts.vai import Offer
    from plugbay.sdk.plugin import Plugin


MAX_DESCRIPTION = 200
"""Characters that the contract allows."""

BINDING = "config."
"""Prefix of the config field that a knob sets."""

YAML_WORDS = frozenset("y n yes no on off true false null".split())
"""Keys that some readers of YAML take for something else than text."""


TIERS = {
    "read_only": ("safe", False),
    "idempotent_write": ("moderate", True),
    "non_idempotent_write": ("dangerous", True),
    "unknown": ("moderate", False),
}
"""By a tool's effect: how much approval a host of rune should ask for, and whether the tool changes anything."""

ANY_NEXO = ">=0.1.0"
"""The default of supported host versions: all."""

NEXO_SERVICES = ("memory.recall", "llm.complete")
"""The capabilities of nexo."""


def rune_manifest(plugin: Plugin, command: Sequence[str]) -> str:
    """The text of a `rterm-plugin.json` for a plugin that is started with `command`."""
    import json

    program, *args = command
    said = {
        "plugin_id": plugin.id,
        "plugin_version": plugin.version,
        "protocol_version": RUNE_PROTOCOL,
        "display_name": plugin.name,
        "description": plugin.description,
        "process": {"command": program, "args": args},
        "capabilities": list(plugin.capabilities),
        "tools": [_rune_tool(plugin, tool) for tool in plugin.tools.values()],
    }
    return json.dumps({key: value for key, value in said.items() if value}, indent=2, ensure_ascii=False) + "\n"


def _rune_tool(plugin: Plugin, tool: Tool) -> dict[str, Any]:
    tier, mutating = TIERS[tool.effect]
    said = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        # A tool may only ask for capabilities that the plugin names in its handshake.
        "capabilities": [name for name in tool.terms.capabilities if name in plugin.capabilities],
        "approval_tier": tier,
        "mutating": mutating,
    }
    return {key: value for key, value in said.items() if value not in (None, "", [], False)}


def nexo_manifest(plugin: Plugin, command: Sequence[str]) -> str:
    """The text of a `nexo-plugin.toml` for a plugin that is started with `command`."""
    id, (program, *args) = nexo_id(plugin.id), command
    label = plugin.name or plugin.id
    tables: list[tuple[str, dict[str, Any]]] = [
        ("plugin.requires", {"nexo_capabilities": [name for name in plugin.capabilities if name in NEXO_SERVICES]}),
        ("plugin.entrypoint", {"command": program, "args": args}),
        *(
            ("plugin.channels.register", {"kind": kind, "adapter": _adapter(it)})
            for kind, it in plugin.channels.items()
        ),
        (
            "plugin.extends",
            {
                "tools": [nexo_tool_name(id, tool) for tool in plugin.tools],
                "channels": list(plugin.channels),
                "llm_providers": list(plugin.llm_providers),
                "memory_backends": list(plugin.vector_backends),
                "hooks": [hook for hook in plugin.hooks if hook in NEXO_HOOKS],
            },
        ),
        (
            "plugin.capabilities.broker",
            {"subscribe": [pattern for pattern, _ in plugin.events if pattern and receives_event(pattern, plugin.id)]},
        ),
    ]
    said = [(name, {key: value for key, value in table.items() if value != []}) for name, table in tables]
    identity = {
        "id": id,
        "version": plugin.version,
        "name": label,
        "description": plugin.description or label,
        "min_nexo_version": ANY_NEXO,
    }
    return "\n".join(
        "".join(f"{line}\n" for line in _table(name, table, many=name == "plugin.channels.register"))
        for name, table in [("plugin", identity), *said]
        if table
    )


def _adapter(channel: object) -> str:
    return type(channel).__name__


def kaged_manifest(plugin: Plugin, command: Sequence[str]) -> str:
    """The text of a `kaged-plugin.yaml` for a plugin that is started with `command`."""
    said = {
        "name": kaged_name(plugin.id),
        "version": plugin.version,
        "kaged_api": API_VERSION,
        "description": (plugin.description or plugin.name or plugin.id)[:MAX_DESCRIPTION],
        "author": plugin.author or None,
        "license": plugin.license or None,
        "homepage": plugin.homepage or None,
        "command": list(command),
        "env": plugin.env or None,
        "capabilities": list(supported_capabilities(plugin.capabilities)),
        "tools": [_tool(tool) for tool in plugin.tools.values()],
        "methods": list(plugin.methods),
        "notifications": plugin.notifications,
        "hooks": list(supported_hooks(plugin)),
        "roles": _roles(plugin),
        "config_schema": plugin.config_schema,
        "system_config_schema": plugin.secrets_schema,
        "knobs": {name: _knob(facts) for name, facts in plugin.knobs.items()} or None,
        "shutdown_timeout_sec": plugin.shutdown_seconds,
        "health_interval_sec": plugin.health_seconds,
        "hook_timeout_sec": plugin.hook_seconds,
    }
    return "".join(
        f"{line}\n" for line in _block({key: value for key, value in said.items() if value not in (None, [])})
    )


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters_schema": tool.input_schema}


def _roles(plugin: Plugin) -> list[str]:
    """A plugin with a hook of a session is an observer."""
    observes = any(hook in plugin.hooks for hook in supported_hooks(plugin))
    return [*(["observer"] if observes else ()), *(["compactor"] if plugin.compaction is not None else ())]


def _knob(facts: Mapping[str, Any]) -> dict[str, Any]:
    field = str(facts["binds_to"]).removeprefix(BINDING)
    return {**facts, "binds_to": f"{BINDING}{field}"}


def ainb_manifest(plugin: Plugin) -> str:
    """The text of a `manifest.toml`."""
    return "\n".join(
        "".join(f"{line}\n" for line in _table(name, table, many=isinstance(section, list)))
        for name, section in ainb_manifest_object(plugin).items()
        for table in (section if isinstance(section, list) else [section])
    )


def ainb_program(source: str = "plugin.py", python: str = "python3") -> str:
    """The text of the program beside the manifest: it runs `source` in the same folder."""
    from shlex import quote

    return f'#!/bin/sh\nexec {quote(python)} "${{0%/*}}"/{quote(source)}\n'


def write_ainb(plugin: Plugin, folder: Path, source: str = "plugin.py", python: str = "python3") -> None:
    """Make a folder with the plugin's source in it a plugin of ainb: a manifest, and a program of the same name."""
    name = ainb_name(plugin.id)
    if folder.resolve().name != name:
        raise ValueError(f"the folder of this plugin must be called {name!r}, as its program is")
    (folder / "manifest.toml").write_text(ainb_manifest(plugin), encoding="utf-8")
    program = folder / name
    program.write_text(ainb_program(source, python), encoding="utf-8")
    program.chmod(0o755)


VAI_PROGRAM = "bin/plugin"
"""The path of the program in a package."""


def vai_manifest(plugin: Plugin, entrypoint: Sequence[str] = (f"./{VAI_PROGRAM}",)) -> str:
    """The text of a `vai-plugin.toml` for a plugin that is started with `entrypoint`."""
    manifest = vai_manifest_object(plugin, entrypoint)
    runtime, exports = manifest.pop("runtime"), manifest.pop("exports")
    tables = [_keys(manifest), _table("runtime", runtime, many=False), *map(_vai_export, exports)]
    return "\n".join("".join(f"{line}\n" for line in table) for table in tables)


def _vai_export(export: dict[str, Any]) -> list[str]:
    """An export with its tables, each after an empty line."""
    facts = {key: value for key, value in export.items() if not isinstance(value, dict)}
    tables = ((f"exports.{key}", value) for key, value in export.items() if isinstance(value, dict))
    return [
        *_table("exports", facts, many=True),
        *(line for name, table in tables for line in ["", *_table(name, table, many=False)]),
    ]


def vai_program(source: str = "plugin.py", python: str = "python3") -> str:
    """The text of `bin/plugin`: it runs `source` in the package's folder."""
    from shlex import quote

    return f'#!/bin/sh\nexec {quote(python)} "${{0%/*}}"/../{quote(source)}\n'


def vai_files(plugin: Plugin, source: str = "plugin.py", python: str = "python3") -> dict[str, str]:
    """The texts of a manifest, of a program and of all schemas, by their paths in the package."""
    import json

    texts = {"vai-plugin.toml": vai_manifest(plugin), VAI_PROGRAM: vai_program(source, python)}
    return texts | {path: f"{json.dumps(schema, indent=2)}\n" for path, schema in schemas_of(plugin).items()}


def write_vai(plugin: Plugin, folder: Path, source: str = "plugin.py", python: str = "python3") -> None:
    """Make a folder with the plugin's source in it a package of vai: a manifest, its schemas, and a program."""
    for path, text in vai_files(plugin, source, python).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    (folder / VAI_PROGRAM).chmod(0o755)


def mcp_manifest(plugin: Plugin, command: Sequence[str]) -> str:
    """The text of a `.mcp.json` for a server that is started with `command`, in the folder of that file.

    Its tools are listed at run time; raises ValueError for tools with the same name there.
    """
    import json

    tools_by_name(plugin)
    program, *args = command
    entry = {"command": program, "args": args}
    return json.dumps({"mcpServers": {server_name(plugin.id): entry}}, indent=2, ensure_ascii=False) + "\n"


# TOML: one line for each key, and values as in JSON.


def _table(name: str, table: Mapping[str, Any], *, many: bool) -> list[str]:
    return [f"[[{name}]]" if many else f"[{name}]", *_keys(table)]


def _keys(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(key)} = {_inline(value)}" for key, value in table.items()]


def _key(key: str) -> str:
    return key if key.replace("_", "").isalnum() and key.isascii() else _inline(key)


# YAML, in its block style: one line for each key, and values as in JSON.


def _block(value: Any) -> list[str]:
    if isinstance(value, dict) and value:
        return [line for key, item in value.items() for line in _entry(key, item)]
    if isinstance(value, list | tuple) and value:
        return [line for item in value for line in _hung("- ", _block(item))]
    return [_inline(value)]


def _entry(key: str, item: Any) -> list[str]:
    label = key if key.isascii() and key.isidentifier() and key.lower() not in YAML_WORDS else _inline(key)
    lines = _block(item)
    if isinstance(item, dict | list | tuple) and item:
        return [f"{label}:", *(f"  {line}" for line in lines)]
    return [f"{label}: {lines[0]}"]


def _hung(mark: str, lines: list[str]) -> list[str]:
    first, *rest = lines
    return [f"{mark}{first}", *(f"{' ' * len(mark)}{line}" for line in rest)]


def _inline(value: Any) -> str:
    """A value on one line. Neither YAML nor TOML reads a pair of surrogates as one character, so little is escaped."""
    import json

    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


VAI_API_VERSION = "vai.plugin.v1"

SECONDS = {HARNESS: 1_800, TOOL: 20, HOOK: 15, COMPACTOR: 120}
"""Default timeouts by kind of export, from the contract's own example."""

SYSTEMS = ("linux", "darwin")

PROCESSORS = ("amd64", "arm64")
"""Python runs on all of them."""

MAX_LABEL = 128
"""Characters of a text in lists."""


def vai_manifest_object(plugin: Plugin, entrypoint: Sequence[str]) -> dict[str, Any]:
    """The manifest as an object; empty fields are left out."""
    return {
        "api_version": VAI_API_VERSION,
        "package_id": package_id(plugin.id),
        "version": plugin.version,
        "name": (plugin.name or plugin.id)[:MAX_LABEL],
        **_said(description=plugin.description),
        "runtime": {
            "protocol": VAI_PROTOCOL,
            "transport": "stdio",
            "entrypoint": list(entrypoint),
            "os": list(SYSTEMS),
            "arch": list(PROCESSORS),
        },
        "exports": [_export(plugin, offer) for offer in offers(plugin).values()],
    }


def schemas_of(plugin: Plugin) -> dict[str, dict[str, Any]]:
    """Every schema that the manifest names, by its path."""
    return {
        path: schema
        for offer in offers(plugin).values()
        for path, schema in _schemas(plugin, offer).values()
        if schema is not None
    }


def _export(plugin: Plugin, offer: Offer) -> dict[str, Any]:
    terms = offer.handler.terms
    seconds = SECONDS[offer.kind] if terms.timeout is None else terms.timeout
    paths = {key: path for key, (path, schema) in _schemas(plugin, offer).items() if schema is not None}
    config = paths.pop("config_schema", None)
    return {
        "id": offer.id,
        "kind": offer.kind,
        "display_name": offer.id.replace("_", " ").strip().title() or offer.id,
        **_said(description=offer.handler.description, execution_class=terms.execution_class),
        "default_timeout_ms": max(round(seconds * 1000), 1),
        **_said(max_concurrency=terms.max_concurrency, config_schema=config),
        "permissions": permissions_of((*plugin.capabilities, *terms.capabilities), plugin.secrets_schema),
        offer.kind: {**_facts(offer), **paths},
    }


def _facts(offer: Offer) -> dict[str, Any]:
    match offer.handler:
        case Harness() as harness:
            return {"mode": harness.mode, "fidelity": harness.fidelity, "supports": list(harness.supports)}
        case Tool() as tool:
            return {"effect_class": tool.effect, "streaming": tool.streaming}
        case Compactor() as compactor:
            return {
                "target_context": compactor.target_context,
                "supports_pinned_items": compactor.supports_pinned_items,
            }
    return {"subscribes_to": list(offer.by_event)}


def permissions_of(capabilities: Iterable[str], secrets_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The permissions of these capabilities. Scopes need the network, and write access includes read access."""
    asked: dict[str, list[str]] = {"network": [], "filesystem": [], "scope": [], "secret": []}
    for capability in dict.fromkeys(capabilities):
        name, _, target = capability.partition("=")
        if name in asked:
            asked[name].append(target)
    kinds = [kind for kind in ("scratch", "assets_ro") if kind in asked["filesystem"]]
    slots = [*asked["secret"], *(secrets_schema or {}).get("properties", {})]
    return {
        "network": "egress" if asked["network"] or asked["scope"] else "none",
        "filesystem": kinds[0] if kinds else "none",
        "gateway_api_scopes": asked["scope"],
        "secret_slots": list(dict.fromkeys(slots)),
    }


def _schemas(plugin: Plugin, offer: Offer) -> dict[str, tuple[str, dict[str, Any] | None]]:
    """The schemas of an export by their key in the manifest, each with its path; None for those it does not have."""
    own = offer.handler.terms.config_schema
    found = {"config_schema": ("schemas/config.json", plugin.config_schema)}
    if own is not None:
        found["config_schema"] = (f"schemas/{offer.id}_config.json", own)
    if isinstance(offer.handler, Tool):
        found["input_schema"] = (f"schemas/{offer.id}_input.json", offer.handler.input_schema)
        found["output_schema"] = (f"schemas/{offer.id}_output.json", structured(offer.handler.output_schema))
    return found


def structured(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema of structured output, which is an object, for a tool that returns values of `schema`."""
    if schema is None or "object" in schema.get("type", "object"):  # a word, or a list of them
        return schema
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner = {name: rule for name, rule in schema.items() if name != "$defs"}
    return {"type": "object", "properties": {RESULT: inner}, "required": [RESULT], **shared}


def _said(**facts: Any) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "")}
