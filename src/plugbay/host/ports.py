"""What the host needs of the outside, as small protocols. Adapters live in other packages, doubles in `call_log`.

Owns the record of a call, because every adapter must store the same thing.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from plugbay.model.errors import Failure, Outcome


class CallRecord(msgspec.Struct, frozen=True, gc=False):
    """One call, from question to outcome. `to_json` is for storage: it tells nothing of inputs, outputs or stderr."""

    call_id: str
    plugin: str
    version: str
    contract: str
    export: str
    started_at: float
    """Seconds since the epoch, UTC."""
    duration_ms: float
    failure: Failure | None = None

    @property
    def status(self) -> str:
        return Outcome.SUCCEEDED if self.failure is None else self.failure.outcome

    def to_json(self) -> dict[str, Any]:
        return {
            "call_id": self.call_id,
            "plugin": {"id": self.plugin, "version": self.version, "contract": self.contract},
            "export": self.export,
            "started_at": self.started_at,
            "duration_ms": self.duration_ms,
            "status": self.status,
            "failure": None if self.failure is None else self._stored(self.failure),
        }

    @staticmethod
    def _stored(failure: Failure) -> dict[str, Any]:
        """Messages quote inputs and plugins' words, and both may be secret; codes and exit reasons are not."""
        return {"code": failure.code, "origin": failure.origin, "exit": failure.detail.get("exit")}


class CallLog(Protocol):
    """Where finished calls go. Must not raise and must not block the loop for long."""

    def finished(self, record: CallRecord) -> None: ...


class Trace(Protocol):
    """Told the name of each step a call takes; the names are the operator's log vocabulary."""

    def __call__(self, step: str, /) -> object: ...
