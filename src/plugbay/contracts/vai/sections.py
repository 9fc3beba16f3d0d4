"""The shape of `vai-plugin.toml`: every table, every field, its type and its default; and `Part`, one table as written.

An unlisted key is refused. `manifest`, `permissions` and `platforms` check the values; fields whose every mistake has
one name there accept anything here. `Part` skips values of the wrong type, because the shapes report them already.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from plugbay.contracts.document import KeyPath
from plugbay.contracts.draft import Draft

Words = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(min_length=1, max_length=128)]
"""Fields for people."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)  # built by the first manifest, not by each start


class Runtime(_Section):
    """The program to start, and its platforms."""

    protocol: str
    transport: str
    entrypoint: list[str]
    os: list[str]
    arch: list[str]


class Permissions(_Section):
    """The permissions that an export requests; none by default."""

    network: str = "none"
    filesystem: str = "none"
    gateway_api_scopes: list[str] = []
    secret_slots: list[str] = []


class Harness(_Section):
    """A program of several steps."""

    mode: str = "composite"
    fidelity: str
    """Required: it cannot be inferred which part of a run survives."""
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


class Part:
    """One table under inspection; what is not a table is an empty one."""

    def __init__(self, draft: Draft, path: KeyPath = (), table: Any = None) -> None:
        self._draft = draft
        self._path = path
        self._table: dict[str, Any] = table if isinstance(table, dict) else {}

    def __contains__(self, key: str) -> bool:
        return key in self._table

    def value(self, key: str) -> Any:
        """The value; None when there is none."""
        return self._table.get(key)

    def text(self, key: str) -> str | None:
        found = self.value(key)
        return found if isinstance(found, str) else None

    def texts(self, key: str) -> list[tuple[int, str]]:
        """The strings in a list, each with its place in it."""
        found = self.value(key)
        items = enumerate(found) if isinstance(found, list) else ()
        return [(at, item) for at, item in items if isinstance(item, str)]

    def part(self, key: str) -> Part:
        return Part(self._draft, (*self._path, key), self.value(key))

    def parts(self, key: str) -> list[Part]:
        """The tables in a list."""
        found = self.value(key)
        items = enumerate(found) if isinstance(found, list) else ()
        return [Part(self._draft, (*self._path, key, at), item) for at, item in items if isinstance(item, dict)]

    def error(self, code: str, message: str, *where: str | int) -> None:
        """Report something at `where` in this table that keeps the plugin from being used."""
        self._draft.error(code, (*self._path, *where), message)

    def warn(self, code: str, message: str, *where: str | int) -> None:
        """Report something that the plugin can live with."""
        self._draft.warn(code, (*self._path, *where), message)

    def one_of(self, key: str, allowed: tuple[str, ...]) -> None:
        """Report a string that is none of these."""
        found = self.text(key)
        if found is not None and found not in allowed:
            self.error("invalid_enum", f"must be one of {', '.join(allowed)}, got {found!r:.60}", key)
