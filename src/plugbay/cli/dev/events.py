"""The events of `plugbay dev`, one class for each kind.

`to_json` is the public shape that `plugbay dev --json` prints: do not change keys or `kind` values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec.structs import asdict

if TYPE_CHECKING:
    from plugbay.conformance.replay.differences import Difference
    from plugbay.host.discovery.folders import Found
    from plugbay.host.ports import CallRecord
    from plugbay.model.errors import Failure
    from plugbay.model.spec import PluginSpec


class Event(msgspec.Struct, frozen=True):
    """Base class of all events."""

    kind: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        return {"event": self.kind, **self.facts()}

    def facts(self) -> dict[str, Any]:
        return asdict(self)


class Watching(Event, frozen=True):
    """A plugin is watched from now on; sent again when its spec changes."""

    kind: ClassVar[str] = "watching"
    spec: PluginSpec

    def facts(self) -> dict[str, Any]:
        spec = self.spec
        exports = [{"kind": export.kind, "name": export.name} for export in spec.exports]
        plugin = {"id": spec.id, "version": spec.version, "contract": spec.contract}
        return {"plugin": plugin, "root": str(spec.root), "exports": exports}


class Validated(Event, frozen=True):
    """The manifest has problems; it is usable if all of them are warnings."""

    kind: ClassVar[str] = "manifest"
    found: Found

    def facts(self) -> dict[str, Any]:
        return {"usable": self.found.spec is not None, "problems": [item.to_json() for item in self.found.problems]}


class Changed(Event, frozen=True):
    """Files were saved."""

    kind: ClassVar[str] = "changed"
    paths: Sequence[str]


class Generated(Event, frozen=True):
    """Generated manifests were written again, because the declarations of their source have changed."""

    kind: ClassVar[str] = "generated"
    paths: Sequence[str]


class Ready(Event, frozen=True):
    """The plugin started and completed its handshake."""

    kind: ClassVar[str] = "ready"
    duration_ms: float


class Failed(Event, frozen=True):
    """The plugin did not start, or ended unexpectedly."""

    kind: ClassVar[str] = "failed"
    failure: Failure

    def facts(self) -> dict[str, Any]:
        return {"failure": self.failure.to_json()}


class StderrWritten(Event, frozen=True):
    """The plugin wrote a line to stderr."""

    kind: ClassVar[str] = "stderr"
    text: str


class LogNoted(Event, frozen=True):
    """A log line of the plugin, or a note of the host about it."""

    kind: ClassVar[str] = "note"
    level: str
    about: str
    text: str


class CallStarted(Event, frozen=True):
    """A call started."""

    kind: ClassVar[str] = "call"
    export: str
    input: Any
    again: bool


class CallProgressed(Event, frozen=True):
    """A call reported progress."""

    kind: ClassVar[str] = "progress"
    export: str
    item: Any

    def facts(self) -> dict[str, Any]:
        return {"export": self.export, "item": self.item}


class CallFinished(Event, frozen=True):
    """A call ended. `differences` to the previous result of the same call are None when there was no previous one."""

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


class AttachOffered(Event, frozen=True):
    """The address for the author's own process, and the command that attaches it."""

    kind: ClassVar[str] = "attach"
    address: str
    line: str
    """The shell command to type in another terminal."""
    interactive: bool
    """Whether the plugin keeps that terminal as its stdin and stdout."""


class Attached(Event, frozen=True):
    """The author's own process has attached."""

    kind: ClassVar[str] = "attached"
    pid: int


class Detached(Event, frozen=True):
    """The author's own process has disconnected."""

    kind: ClassVar[str] = "detached"
    pid: int


class Remark(Event, frozen=True):
    """A message that needs no reaction."""

    kind: ClassVar[str] = "remark"
    text: str
