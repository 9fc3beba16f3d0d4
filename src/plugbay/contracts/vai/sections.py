"""The shape of `vai-plugin.toml`: every table, every field, its type and its default.

Owns what may be written where; a key that is not listed is refused. Which values make sense is said in `rules`,
`permissions`, `kinds` and `platforms`. Fields whose every mistake has one name there take anything here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Words = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
"""What people read."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Runtime(_Section):
    """What to start, and where it can run."""

    protocol: str
    transport: str
    entrypoint: list[str]
    os: list[str]
    arch: list[str]


class Permissions(_Section):
    """What an export asks for. Nothing, when it says nothing."""

    network: str = "none"
    filesystem: str = "none"
    gateway_api_scopes: list[str] = []
    secret_slots: list[str] = []


class Harness(_Section):
    """A program of several steps."""

    mode: str = "composite"
    fidelity: str
    """Required: nobody can guess what of a run survives."""
    supports: list[str] = []


class Tool(_Section):
    """A function with a result."""

    effect_class: str = "unknown"
    streaming: bool = False
    input_schema: str
    output_schema: str | None = None


class Hook(_Section):
    """A handler of events."""

    subscribes_to: list[str]


class Compactor(_Section):
    """A way to make conversations shorter."""

    target_context: str = ""
    supports_pinned_items: bool = False


class Entry(_Section):
    """One `[[exports]]`. It has the one table that is called like its kind."""

    id: str
    kind: str
    display_name: Label
    description: str = ""
    execution_class: str | None = None
    default_timeout_ms: Any = None
    max_concurrency: Any = 1
    config_schema: str | None = None
    permissions: Permissions = Permissions()
    harness: Harness | None = None
    tool: Tool | None = None
    hook: Hook | None = None
    compactor: Compactor | None = None


class Manifest(_Section):
    """The whole file."""

    api_version: str
    package_id: str
    version: str
    name: Label
    description: str = ""
    license: Words | None = None
    source: str | None = None
    runtime: Runtime
    exports: list[Entry]
