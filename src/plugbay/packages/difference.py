"""What a plugin asks of its operator, and what changes from one release to the next.

Pure, over two specs, for every contract alike: a question in neutral words is the same question in the next release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plugbay.model.spec import PluginSpec, SandboxRequest


@dataclass(frozen=True, slots=True)
class Difference:
    """From an installed release to another."""

    asked: tuple[str, ...]
    """What it asks for and the other did not: a person has to agree."""
    dropped: tuple[str, ...]
    """What it no longer asks for."""
    added_exports: tuple[str, ...]
    removed_exports: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay upgrade --json`."""
        return {
            "asked": list(self.asked),
            "dropped": list(self.dropped),
            "added_exports": list(self.added_exports),
            "removed_exports": list(self.removed_exports),
        }


def difference(before: PluginSpec, after: PluginSpec) -> Difference:
    """What changes for the operator when `after` takes the place of `before`."""
    old, new = asks(before), asks(after)
    had, has = _exports(before), _exports(after)
    asked = (*_other_contract(before, after), *_without(new, old), *_widened(before, after))
    return Difference(asked, _without(old, new), _without(has, had), _without(had, has))


def _other_contract(before: PluginSpec, after: PluginSpec) -> tuple[str, ...]:
    """The same words may mean other things there."""
    return () if before.contract == after.contract else (f"another contract, {after.contract}",)


def _widened(before: PluginSpec, after: PluginSpec) -> tuple[str, ...]:
    """What an export may do now, and before only another one could."""
    had = {(export.kind, export.name): export.capabilities for export in before.exports}
    return tuple(
        f"{word} for {export.kind} {export.name}"
        for export in after.exports
        for word in export.capabilities
        if word in before.capabilities and word not in had.get((export.kind, export.name), (word,))
    )


def asks(spec: PluginSpec) -> tuple[str, ...]:
    """Everything the plugin wants to be allowed or given."""
    secrets = (spec.settings.secrets_schema or {}).get("properties", {})
    found = [
        *spec.capabilities,
        *(f"may ask for {name}" for name in spec.optional_capabilities),
        *_freedoms(spec.sandbox),
        *(f"variable {name}" for name in spec.env_inherit),
        *(f"hears {topic}" for topic in (*spec.subscribes, *spec.snapshots)),
        *(f"publishes {topic}" for topic in spec.publishes),
        *(f"secret {name}" for name in secrets),
    ]
    return tuple(dict.fromkeys(found))


def _freedoms(sandbox: SandboxRequest | None) -> list[str]:
    """What the plugin's own sandbox leaves open."""
    if sandbox is None:
        return ["no sandbox of its own"]
    return [
        *(["the host's network"] if sandbox.host_network else []),
        *(f"reads {path}" for path in sandbox.read),
        *(f"writes {path}" for path in sandbox.write),
    ]


def _exports(spec: PluginSpec) -> tuple[str, ...]:
    return tuple(f"{export.kind} {export.name}" for export in spec.exports)


def _without(names: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in others)
