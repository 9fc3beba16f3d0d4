"""`Pin`: the offer and the sources of an adapter, fixed when the adapter was made. The content of `adapter.json`.

An adapter greets its host with the pinned offer, before it has started anything. Loaded by every adapter, also by one
that lives for a single call, so it imports nothing heavy.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

VERSION = 1

FILE = "adapter.json"
"""The name of the file in the folder of an adapter."""

MAX_BYTES = 64 << 20
"""Bytes of the file; the definitions of a server are at most as large."""


USUAL_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "SHELL", "TERM", "PLUGBAY_ADAPTER_IDLE")
"""Variables that an adapter has from the environment of `plugbay adapt`, where its host gives it none: rune starts
plugins with an empty environment. None of them is secret."""


class PinInvalid(ValueError):
    """The file of an adapter cannot be used."""


class PinnedExport:
    """One export of a source, and what it is for the other host."""

    __slots__ = (
        "description",
        "effect",
        "events",
        "form",
        "input_schema",
        "kind",
        "name",
        "output_schema",
        "plugin",
        "served",
        "timeout",
        "wraps",
    )

    def __init__(
        self,
        plugin: str,
        kind: str,
        name: str,
        form: str,
        served: str,
        *,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        effect: str = "unknown",
        timeout: float | None = None,
        wraps: bool = False,
        events: Sequence[str] = (),
    ) -> None:
        self.plugin, self.kind, self.name = plugin, kind, name
        """The source and its export."""
        self.form, self.served = form, served
        """What it is for the other host, and its name there."""
        self.description = description
        self.input_schema = dict(input_schema or {"type": "object"})
        self.output_schema = None if output_schema is None else dict(output_schema)
        self.effect = effect
        self.timeout = timeout
        self.wraps = wraps
        """Whether the input of the source is one argument of the tool."""
        self.events = tuple(events)
        """Of a hook: the events that it is called for."""

    @property
    def full_name(self) -> str:
        return f"{self.plugin}/{self.name}"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Source:
    """Where a plugin of the adapter is: a manifest or folder, or a server that the operator's plugbay.toml names."""

    __slots__ = ("contract", "id", "path")

    def __init__(self, id: str, contract: str, path: str = "") -> None:
        self.id = id
        self.contract = contract
        self.path = path
        """Absolute; empty for a server of plugbay.toml."""

    def to_json(self) -> dict[str, str]:
        return {"id": self.id, "contract": self.contract, "path": self.path}


class Settings:
    """The operator's side of an adapter: its host has the files, grants and usual variables that the command had."""

    __slots__ = ("config", "environment", "grant_all", "grants", "logs", "state", "unconfined")

    def __init__(
        self,
        *,
        config: str | None = None,
        state: str = "",
        logs: str = "",
        grants: Sequence[str] = (),
        grant_all: bool = False,
        unconfined: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.environment = dict(environment or {})
        self.config, self.state, self.logs = config, state, logs
        self.grants, self.grant_all, self.unconfined = tuple(grants), grant_all, unconfined

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Pin:
    """Everything that a running adapter needs."""

    __slots__ = ("approvals", "description", "exports", "id", "name", "settings", "sources", "target", "version")

    def __init__(
        self,
        target: str,
        id: str,
        version: str,
        sources: Sequence[Source],
        exports: Sequence[PinnedExport],
        settings: Settings,
        *,
        name: str = "",
        description: str = "",
        approvals: Mapping[str, Any] | None = None,
    ) -> None:
        self.target, self.id, self.version = target, id, version
        self.name, self.description = name, description
        self.sources = tuple(sources)
        self.exports = tuple(exports)
        self.settings = settings
        self.approvals = dict(approvals or {})
        """By plugin: the approved offer of a source that declares its exports at run time, as approvals are kept."""

    def of_form(self, form: str) -> list[PinnedExport]:
        return [export for export in self.exports if export.form == form]

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "target": self.target,
            "plugin": {"id": self.id, "version": self.version, "name": self.name, "description": self.description},
            "sources": [source.to_json() for source in self.sources],
            "settings": self.settings.to_json(),
            "exports": [export.to_json() for export in self.exports],
            "approvals": self.approvals,
        }


def to_text(pin: Pin) -> str:
    """The content of the file."""
    import json

    return json.dumps(pin.to_json(), indent=1, ensure_ascii=False) + "\n"


def parse(text: str | bytes) -> Pin:
    """The pin in the content of a file; raises `PinInvalid`."""
    import json

    try:
        value = json.loads(text)
        if value["version"] != VERSION:
            raise PinInvalid(f"{FILE} has version {value['version']!r:.20}, and this plugbay reads version {VERSION}")
        exports = [
            PinnedExport(**{"plugin": "", **{key: item[key] for key in PinnedExport.__slots__ if key in item}})
            for item in value["exports"]
        ]
        sources = [Source(item["id"], item["contract"], item["path"]) for item in value["sources"]]
        plugin = value["plugin"]
        return Pin(
            value["target"],
            plugin["id"],
            plugin["version"],
            sources,
            exports,
            Settings(**value["settings"]),
            name=plugin["name"],
            description=plugin["description"],
            approvals=value["approvals"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, PinInvalid):
            raise
        raise PinInvalid(f"{FILE} cannot be used ({type(error).__name__}: {error}); run plugbay adapt again") from None


def load(path: str) -> Pin:
    """The pin in a file; raises `PinInvalid`."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PinInvalid(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise PinInvalid(f"{path} has more than {MAX_BYTES:,} bytes")
    return parse(data)
