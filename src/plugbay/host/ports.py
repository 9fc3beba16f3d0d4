"""What the host needs of the outside, as small protocols. Adapters live in other packages, doubles beside this.

Owns the records of calls and of invocations, because every adapter must store the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from plugbay.model.errors import Failure, Outcome

DEFAULT_ORG = "default"
"""The org of a host that serves no other."""


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


class InvocationRecord(msgspec.Struct, frozen=True, gc=False):
    """One invocation: an attempt at a piece of work. Tells nothing of inputs, outputs, config, secrets or stderr."""

    invocation_id: str
    trace_id: str
    export_kind: str
    export_id: str
    package_id: str
    package_version: str
    binding_id: str | None
    execution_class: str
    org_id: str
    project_id: str | None
    session_id: str | None
    chain_id: str | None
    run_id: str | None
    execution_id: str
    """The work it is an attempt at: the same for all attempts."""
    retry_count: int
    """Attempts before this one."""
    started_at: str
    """RFC 3339, UTC."""
    permissions: dict[str, Any]
    """What it may do."""
    narrowed: bool
    """Whether its manifest asks for more than that."""
    request_bytes: int = 0
    """Of its input as JSON."""
    event_count: int = 0
    ended_at: str | None = None
    status: str | None = None
    """How it ended, one of four; None while it runs."""
    status_reason: str | None = None
    """Why it was cancelled."""
    error_code: str | None = None
    """The plugin's word for what went wrong where it has one, else the host's."""

    def to_json(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self)


class InvocationLog(Protocol):
    """Where invocations go: each is opened before anything is started and closed exactly once, however it ends.

    What cannot be opened is not begun: `opened` may raise. `closed` must not, and sees to it itself that what it was
    told is kept.
    """

    async def opened(self, record: InvocationRecord) -> None: ...
    async def closed(self, record: InvocationRecord) -> None: ...


class TokenIssuer(Protocol):
    """Makes the tokens with which plugins come to the gateway. Keeps what they stand for, never the tokens."""

    async def issue(self, claims: Mapping[str, Any]) -> str: ...
    async def revoke(self, token: str) -> None: ...


class ResumeState(msgspec.Struct, frozen=True):
    """How far the work of a harness has come, and what it began with: what a resume can be made from."""

    trigger: Any = None
    checkpoint: dict[str, Any] | None = None
    summary: str | None = None


class Checkpoints(Protocol):
    """Keeps how far each execution has come, so that what comes after a crash can go on from there."""

    async def save(self, execution_id: str, journey: ResumeState) -> None: ...
    async def load(self, execution_id: str) -> ResumeState | None: ...


class BrokerStatus(msgspec.Struct, frozen=True):
    """How a host stands with the broker that joins it with others, and how many events have gone which way."""

    server: str
    """Its URL; there is no secret in it."""
    joined: bool
    problem: str | None = None
    """Why it is not joined, when it is not."""
    sent: int = 0
    received: int = 0
    """Taken from others, and told here."""
    dropped: int = 0
    """Would have left, but the broker was away or slow for too long."""
    refused: int = 0
    """Came from the broker and were no events, or not of a shared topic, or too many."""


class Broker(Protocol):
    """Joins the bus of this host with those of others, at most once for each event.

    Whatever happens to the broker, publishing here goes on as if there were none: it never blocks and never fails.
    """

    def begin(self) -> None:
        """Join as soon as that is possible, on the running loop, and again whenever it was lost."""

    async def joined(self, seconds: float) -> bool:
        """Wait until it is joined, for so long at most; whether it is."""

    async def stop(self) -> None:
        """Send what waits, for a moment, and leave."""

    @property
    def status(self) -> BrokerStatus: ...


class Trace(Protocol):
    """Told the name of each step a call takes; the names are the operator's log vocabulary."""

    def __call__(self, step: str, /) -> object: ...
