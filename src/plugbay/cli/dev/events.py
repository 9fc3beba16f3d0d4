"""What happens while a plugin is being developed, as values: one class for each kind, each with its public JSON shape.

Owns what `plugbay dev --json` prints. Refuses to know how it looks on a screen, and why it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    from plugbay.conformance.differences import Difference
    from plugbay.host.discovery.folders import Found
    from plugbay.host.ports import CallRecord
    from plugbay.model.errors import Failure
    from plugbay.model.spec import PluginSpec


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    kind: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **self.facts()}

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Watching(Event):
    """The plugin is under development from now on, or is another one than before."""

    kind: ClassVar[str] = "watching"
    spec: PluginSpec

    def facts(self) -> dict[str, Any]:
        spec = self.spec
        exports = [{"kind": export.kind, "name": export.name} for export in spec.exports]
        plugin = {"id": spec.id, "version": spec.version, "contract": spec.contract}
        return {"plugin": plugin, "root": str(spec.root), "exports": exports}


@dataclass(frozen=True, slots=True)
class Validated(Event):
    """What is wrong in the manifest; it can be used where that is nothing but warnings."""

    kind: ClassVar[str] = "manifest"
    found: Found

    def facts(self) -> dict[str, Any]:
        return {"usable": self.found.spec is not None, "problems": [item.to_json() for item in self.found.problems]}


@dataclass(frozen=True, slots=True)
class Changed(Event):
    """Files were saved."""

    kind: ClassVar[str] = "changed"
    paths: Sequence[str]


@dataclass(frozen=True, slots=True)
class Ready(Event):
    """It starts and greets."""

    kind: ClassVar[str] = "ready"
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """It does not start, or has ended although nobody wanted that."""

    kind: ClassVar[str] = "failed"
    failure: Failure

    def facts(self) -> dict[str, Any]:
        return {"failure": self.failure.to_json()}


@dataclass(frozen=True, slots=True)
class Said(Event):
    """A line on its stderr."""

    kind: ClassVar[str] = "stderr"
    text: str


@dataclass(frozen=True, slots=True)
class Noted(Event):
    """A line of its log, or a remark of the host's about it."""

    kind: ClassVar[str] = "note"
    level: str
    about: str
    text: str


@dataclass(frozen=True, slots=True)
class Asked(Event):
    """A call was made."""

    kind: ClassVar[str] = "call"
    export: str
    input: Any
    again: bool


@dataclass(frozen=True, slots=True)
class Progressed(Event):
    """What a call says before its answer."""

    kind: ClassVar[str] = "progress"
    export: str
    item: Any

    def facts(self) -> dict[str, Any]:
        return {"export": self.export, "item": self.item}


@dataclass(frozen=True, slots=True)
class Answered(Event):
    """How a call ended, and how that differs from the time before; None when there was none."""

    kind: ClassVar[str] = "result"
    record: CallRecord
    output: bytes | None
    differences: Sequence[Difference] | None

    def facts(self) -> dict[str, Any]:
        record = self.record
        changes = None
        if self.differences is not None:
            changes = [{"path": item.path, "gone": item.gone, "new": item.new} for item in self.differences]
        return {
            "export": record.export,
            "status": record.status,
            "output": None if self.output is None else msgspec.Raw(self.output),
            "failure": record.failure.to_json() if record.failure else None,
            "call_id": record.call_id,
            "duration_ms": record.duration_ms,
            "differences": changes,
        }


@dataclass(frozen=True, slots=True)
class Invited(Event):
    """Where the author's own process is to connect."""

    kind: ClassVar[str] = "attach"
    address: str
    line: str
    """What to type in another terminal."""
    interactive: bool
    """Whether the plugin's stdin and stdout are that terminal's."""


@dataclass(frozen=True, slots=True)
class Attached(Event):
    """The author's own process is here."""

    kind: ClassVar[str] = "attached"
    pid: int


@dataclass(frozen=True, slots=True)
class Detached(Event):
    """It has gone."""

    kind: ClassVar[str] = "detached"
    pid: int


@dataclass(frozen=True, slots=True)
class Remarked(Event):
    """Something worth knowing that stops nothing."""

    kind: ClassVar[str] = "remark"
    text: str
