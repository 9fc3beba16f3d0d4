"""Ports: what a host needs from outside, as small protocols, and the records that every adapter stores.

Adapters are in other packages; implementations without other services are in `records`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import asdict

from plugbay.model.errors import Failure, Outcome

DEFAULT_ORG = "default"
"""The org of a host without orgs."""


class CallRecord(msgspec.Struct, frozen=True, gc=False):
    """One call and its outcome. `to_json` is for storage: it has no inputs, outputs or stderr."""

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
        """Without the message: it may quote inputs and plugins, which may be secret. Codes and exit reasons are not."""
        return {"code": failure.code, "origin": failure.origin, "exit": failure.detail.get("exit")}


class CallLog(Protocol):
    """Takes the records of finished calls. Must not raise and must not block the loop for long."""

    def finished(self, record: CallRecord) -> None: ...


class InvocationRecord(msgspec.Struct, frozen=True, gc=False):
    """One invocation: one attempt of an execution. Has no inputs, outputs, config, secrets or stderr."""

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
    """The same for all attempts of one execution."""
    retry_count: int
    """The number of attempts before this one."""
    started_at: str
    """RFC 3339, UTC."""
    permissions: dict[str, Any]
    """The effective permissions."""
    narrowed: bool
    """Whether the manifest requests more permissions than these."""
    request_bytes: int = 0
    """Bytes of the input as JSON."""
    event_count: int = 0
    ended_at: str | None = None
    status: str | None = None
    """One of the four terminal statuses; None while it runs."""
    status_reason: str | None = None
    """The reason of a cancellation."""
    error_code: str | None = None
    """The plugin's error code where it has one, else the host's."""
    node: str | None = None
    """The node of a cluster that the call was given to last; None: this machine, or no node."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class InvocationLog(Protocol):
    """Takes the records of invocations: opened before a process is started, closed exactly once.

    `opened` may raise; then the invocation does not begin. `closed` must not raise, and retries a failed write itself.
    """

    async def opened(self, record: InvocationRecord) -> None: ...
    async def closed(self, record: InvocationRecord) -> None: ...


class TokenIssuer(Protocol):
    """Issues the tokens with which plugins call the gateway. Stores their claims, never the tokens."""

    async def issue(self, claims: Mapping[str, Any]) -> str: ...
    async def revoke(self, token: str) -> None: ...


class ResumeState(msgspec.Struct, frozen=True):
    """The trigger, the last checkpoint and the summary of a harness execution, from which it can be resumed."""

    trigger: Any = None
    checkpoint: dict[str, Any] | None = None
    summary: str | None = None
    attempts: int = 0
    """The number of attempts so far."""


class Checkpoints(Protocol):
    """Stores the resume state of each harness execution, so that it can be resumed after a crash."""

    async def save(self, execution_id: str, state: ResumeState) -> None: ...
    async def load(self, execution_id: str) -> ResumeState | None: ...


class BrokerStatus(msgspec.Struct, frozen=True):
    """The connection of a host with the broker, and its counters of events."""

    server: str
    """Its URL, without secrets."""
    joined: bool
    problem: str | None = None
    """Why it is not connected."""
    sent: int = 0
    received: int = 0
    """Events from other hosts that were published here."""
    dropped: int = 0
    """Events that were not sent, because the broker was away or slow for too long."""
    refused: int = 0
    """Messages from the broker that were invalid, of a topic that is not shared, or too many."""


class Broker(Protocol):
    """Joins the bus of this host with those of other hosts; each event is delivered at most once.

    A failure of the broker does not affect local publishing: it never blocks and never fails.
    """

    def begin(self) -> None:
        """Start connecting on the running loop, and reconnect whenever the connection is lost."""

    async def joined(self, seconds: float) -> bool:
        """Wait until it is connected, at most `seconds`; returns whether it is."""

    async def stop(self) -> None:
        """Send waiting events for a short time, and disconnect."""

    @property
    def status(self) -> BrokerStatus: ...


class Trace(Protocol):
    """Called with the name of each step of a call; `plugbay call --trace` prints them."""

    def __call__(self, step: str, /) -> object: ...
