"""`InvocationResult`: how work ended that was done in invocations, with the record of every attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plugbay.host.calls.calls import CallResult
from plugbay.host.ports import InvocationRecord
from plugbay.model.errors import Failure


@dataclass(frozen=True, slots=True)
class InvocationResult:
    """The outcome of `Host.invoke`; a failure is a value here."""

    call: CallResult
    records: tuple[InvocationRecord, ...]
    """One for each attempt, the last one last; none when it was refused before there was one."""

    @property
    def record(self) -> InvocationRecord | None:
        """The attempt that counts."""
        return self.records[-1] if self.records else None

    @property
    def status(self) -> str:
        """One of the four terminal statuses."""
        status = None if self.record is None else self.record.status
        return status or self.call.record.status

    @property
    def failure(self) -> Failure | None:
        return self.call.failure

    def value(self) -> Any:
        """The result as Python values; None when there is none."""
        return self.call.value()

    def value_or_raise(self) -> Any:
        """The same; raises `CallFailed` when the work failed."""
        return self.call.value_or_raise()
