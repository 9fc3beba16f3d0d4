"""The line to the host: how what is asked of it gets there, and which hosts can be asked for what.

Owns the groups of services that contracts have or lack, and the one word for a service that is not there. Refuses to
know threads, loops and wires: the lines that use them are elsewhere.
"""

from __future__ import annotations

from plugbay.model.errors import Code
from plugbay.model.operations import (
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeAction,
    ListStored,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.sdk.errors import ServiceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from plugbay.model.operations import HostOp

    class Line(Protocol):
        """How what is asked reaches the host; blocking, awaitable, or not at all."""

        def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def tell(self, op: HostOp) -> Any: ...


SERVICE_SECONDS = 30.0
"""How long a service may take, unless the caller says otherwise; what the published SDKs of nexo wait."""

MODELS = frozenset({RecallMemory, CompleteChat})
"""What hosts of nexo know: what agents remember, and language models."""

STORAGE = frozenset({GetStored, SetStored, DeleteStored, ListStored})
"""What hosts of kaged keep for a plugin."""

SNAPSHOTS = frozenset({GetSnapshot, PublishSnapshot, SubscribeSnapshot})

BROKERED = SNAPSHOTS | {InvokeAction, ReadFile, ReadFolder, FetchUrl, WriteLog}
"""What hosts of ainb do for a plugin."""

_SERVICES: dict[type, str] = {
    RecallMemory: "memory",
    CompleteChat: "language models",
    Publish: "event bus",
    InvokeAction: "actions",
    ReadFile: "files",
    ReadFolder: "files",
    FetchUrl: "network",
    WriteLog: "log",
    **dict.fromkeys(STORAGE, "storage"),
    **dict.fromkeys(SNAPSHOTS, "snapshots"),
}


class Unconnected:
    """The line of a plugin that has no host with services: every question is refused, with the reason."""

    __slots__ = ()

    def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        raise lacking(op)

    stream = ask

    def tell(self, op: HostOp) -> Any:
        raise lacking(op)


def lacking(op: HostOp) -> ServiceError:
    """What a plugin hears that asks for something its host's contract has no word for."""
    return ServiceError(Code.NOT_FOUND, f"this host has no {_SERVICES[type(op)]}")
