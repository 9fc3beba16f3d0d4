"""`Operated`: the operator's settings for a plugin, as a gateway sends them to nodes with each call.

They are sealed with the call, and a node keeps them in memory alone: they have the secrets of the plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from plugbay.host.config.config import Config, PluginConfig
from plugbay.host.supervision.binding import Binding
from plugbay.host.supervision.instance import Runtime
from plugbay.host.supervision.supervisor import Supervise, Supervisor, supervise
from plugbay.wire.json_gate import Malformed

LOCAL = frozenset({"enabled", "grants", "config", "env", "on", "copies"})
"""Fields of `[plugins.ID]` that a gateway has applied."""


class Operated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator has decided for one plugin."""

    plugin: Annotated[str, msgspec.Meta(max_length=1 << 20)]
    """`[plugins.ID]` of the gateway, as JSON."""
    granted: tuple[str, ...] = ()
    env: dict[str, str] = {}
    config: dict[str, Any] | None = None
    secrets: dict[str, Any] | None = None


def encode_settings(binding: Binding, plugin: PluginConfig) -> bytes:
    """The settings of a plugin as one line. Equal settings are equal bytes at every gateway."""
    own = plugin.model_dump_json(exclude_defaults=True, exclude=set(LOCAL))
    config, secrets = (None if each is None else dict(each) for each in (binding.config, binding.secrets))
    operated = Operated(own, binding.granted, dict(binding.env), config, secrets)
    return msgspec.json.encode(operated, order="sorted")


def decode_settings(line: bytes) -> tuple[Operated, PluginConfig]:
    """The settings in a call; raises `Malformed`."""
    try:
        operated = msgspec.json.decode(line, type=Operated)
        plugin = PluginConfig.model_validate_json(operated.plugin)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"the settings of the plugin: {error}") from None
    update = {"grants": list(operated.granted), "env": operated.env, "config": operated.config or {}}
    return operated, plugin.model_copy(update=update)


def operated_config(config: Config, plugin_id: str, plugin: PluginConfig) -> Config:
    """The configuration of a node for the host of this plugin: its own, with the gateway's settings of the plugin."""
    return config.model_copy(update={"plugins": {plugin_id: plugin}, "mcp": {}, "agents": {}, "memory": None})


def supervise_with(operated: Operated) -> Supervise:
    """Makes supervisors whose instances get the config and the secrets of the call; they touch no disk."""
    make: Callable[[Binding, Runtime], Supervisor] = supervise

    def supervised(binding: Binding, runtime: Runtime) -> Supervisor:
        own = replace(binding, config=operated.config, secrets=operated.secrets, refusal=binding.confinement.refusal)
        return make(own, runtime)

    return supervised
