"""A plugin under nexo: names, manifest and machine.

Loaded when a nexo host has spoken, or when a plugin is declared from its `nexo-plugin.toml`. Ids and tool names are
spelt in nexo's alphabet. The conversation runs in the resident loop.
"""

from __future__ import annotations

from plugbay.contracts.base import Role
from plugbay.contracts.nexo.machine import NexoMachine
from plugbay.contracts.nexo.messages import Identity
from plugbay.sdk.context import Context, Settings
from plugbay.sdk.runtime.connection import BlockingClient, Connection
from plugbay.sdk.runtime.dispatch import Dispatcher
from plugbay.sdk.runtime.resident import Resident
from plugbay.sdk.services.host_client import BROKERED, PEOPLE, STORAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn, Protocol

    from plugbay.sdk.io.stdio import Wire
    from plugbay.sdk.runtime.dispatch import Offers
    from plugbay.sdk.runtime.resident import Served
    from plugbay.sdk.types.handlers import Tool
    from plugbay.wire.strict_json import Codec

    class Plugin(Served, Offers, Protocol):
        """The plugin that is served."""

        @property
        def server_version(self) -> str | None: ...
        @property
        def manifest(self) -> dict[str, Any] | None: ...
        @property
        def full_events(self) -> bool: ...


def serve(plugin: Plugin, wire: Wire, codec: Codec, first: bytes) -> NoReturn:
    """Serve a nexo host; `first` was read already."""
    manifest = plugin.manifest or default_manifest(plugin.id, plugin.version, plugin.name, plugin.description)
    id = manifest["plugin"]["id"]
    tools = {nexo_tool_name(id, tool.name): tool for tool in plugin.tools.values()}
    if len(tools) < len(plugin.tools):
        raise ValueError(f"two tools of {id} have one name in nexo's alphabet: {', '.join(plugin.tools)}")
    dispatcher = Dispatcher(plugin, tools)
    identity = Identity(
        manifest, plugin.server_version or f"{id}-{plugin.version}", _catalogue(tools), dispatcher.serves()
    )
    machine = NexoMachine(Role.PLUGIN, codec, identity=identity)
    machine.greet()
    connection = Connection(machine, wire, unsupported=STORAGE | BROKERED | PEOPLE)
    settings = Settings(full_events=plugin.full_events)
    plugin.connect(Context(BlockingClient(connection), id, settings=settings))
    resident = Resident(connection, dispatcher, id, plugin.ready_handlers, plugin.shutdown_handlers, settings=settings)
    wire.attend(resident)
    resident.run(first)


def _catalogue(tools: Mapping[str, Tool]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"name": name, "description": tool.description, "input_schema": tool.input_schema}
        for name, tool in tools.items()
    )


ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")


def nexo_id(id: str) -> str:
    """An id in nexo's alphabet: lower case, and `_` for all other characters."""
    return "".join(char if char in ALPHABET else "_" for char in id.lower())


def nexo_tool_name(id: str, tool: str) -> str:
    """The name of a tool as plugin `id` offers it: with the plugin's prefix, unless it has one."""
    return tool if tool.startswith((f"{id}_", f"ext_{id}_")) else f"{id}_{nexo_id(tool)}"


def parse(text: str) -> dict[str, Any]:
    """A `nexo-plugin.toml`; raises ValueError if it lacks the id of the plugin."""
    import tomllib

    manifest = tomllib.loads(text)
    table = manifest.get("plugin")
    wanted = {"id": _is_id, "version": _is_text}
    for key, is_good in wanted.items():
        if not isinstance(table, dict) or not is_good(table.get(key)):
            raise ValueError(f"the manifest has no usable plugin.{key}")
    return manifest


def declared_tools(manifest: dict[str, Any]) -> list[str]:
    """The tools that a manifest declares; a host refuses a plugin that offers any other."""
    extends = manifest.get("plugin", {}).get("extends", {})
    return list(extends.get("tools", ()))


def default_manifest(id: str, version: str, name: str, description: str) -> dict[str, Any]:
    """The manifest of a plugin that has no file."""
    return {"plugin": {"id": nexo_id(id), "version": version, "name": name or id, "description": description}}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_id(value: object) -> bool:
    return isinstance(value, str) and value[:1].isalpha() and ALPHABET.issuperset(value)
