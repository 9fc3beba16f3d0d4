"""The shape of an ainb manifest: every section and field, its type and its default.

Owns what may be written where. Which values make sense is said in `rules`, `capabilities` and `settings`; a key that is
not listed is warned about there. Every section but `[plugin]` may be left out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0, le=(1 << 32) - 1)]
"""Fits 32 bits."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Plugin(_Section):
    """Who it is."""

    name: str
    version: str
    abi_version: Count
    description: str = ""


class Provides(_Section):
    """What a host can show, offer and route to."""

    screens: list[str] = []
    commands: list[str] = []
    cli_namespaces: list[str] = []
    snapshots: list[str] = []


class Subscribes(_Section):
    """Topics the plugin is told about without asking."""

    snapshots: list[str] = []
    latest_state: list[str] = []
    """Those of `snapshots` that do not keep an idle plugin alive."""


class Lifecycle(_Section):
    """When the plugin is started, and when it is stopped again."""

    spawn: Literal["lazy", "eager"] = "lazy"
    idle_reap_secs: Count = 600
    """0: never."""


class Setting(_Section):
    """One value an operator may set; `default` is text whatever the kind is."""

    key: str
    kind: Literal["path", "string", "bool", "enum", "int"]
    label: str
    default: str = ""
    choices: list[str] = []


class Manifest(_Section):
    """The whole file. What a grant looks like depends on the capability, so `capabilities` judges them."""

    plugin: Plugin
    capabilities: dict[str, Any] = {}
    provides: Provides = Provides()
    subscribes: Subscribes = Subscribes()
    lifecycle: Lifecycle = Lifecycle()
    config: list[Setting] = []
