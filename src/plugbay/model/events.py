"""The events that a machine reports for received bytes: a closed union."""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from plugbay.model.errors import Failure
    from plugbay.model.operations import Operation

    CallId = int | str


class Ready(Value):
    """The greeting is over; calls may be made. `hello` is what the peer said about itself."""

    __slots__ = ("hello",)

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self.hello = hello


class CallFinished(Value):
    """A call we made has its one answer: a value, or a failure."""

    __slots__ = ("failure", "id", "value")

    def __init__(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        self.id = id
        self.value = value
        self.failure = failure


class CallProgress(Value):
    """A call we made has more to say before its answer."""

    __slots__ = ("id", "item")

    def __init__(self, id: CallId, item: Any) -> None:
        self.id = id
        self.item = item


class CallArrived(Value):
    """The peer asks us something; answer with `machine.finish(id, …)`. Legal while the greeting is still open.

    `within`: the call of ours that it belongs to, and is over with; None where the contract does not say which.
    """

    __slots__ = ("id", "op", "within")

    def __init__(self, id: CallId, op: Operation, within: CallId | None = None) -> None:
        self.id = id
        self.op = op
        self.within = within


class Notified(Value):
    """The peer tells us something; no answer."""

    __slots__ = ("op",)

    def __init__(self, op: Operation) -> None:
        self.op = op


class CancelArrived(Value):
    """The peer no longer wants the answer to what it asked."""

    __slots__ = ("id",)

    def __init__(self, id: CallId) -> None:
        self.id = id


class Noise(Value):
    """Bytes the contract lets us skip: reported, counted, shown to the operator, never fatal."""

    __slots__ = ("data", "why")

    def __init__(self, data: bytes, why: str) -> None:
        self.data = data
        self.why = why


class Fault(Value):
    """The peer broke the contract beyond repair: every waiting call fails with this, and the child must go."""

    __slots__ = ("failure",)

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Closed(Value):
    """The peer will send nothing more, in good order."""

    __slots__ = ()


if TYPE_CHECKING:
    Event = Ready | CallFinished | CallProgress | CallArrived | Notified | CancelArrived | Noise | Fault | Closed
