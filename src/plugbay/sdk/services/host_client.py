"""The line to the host: how what is asked of it gets there, and which hosts can be asked for what.

Owns the groups of services that contracts have or lack, and the one word for a service that is not there. Refuses to
know threads, loops and wires: the lines that use them are elsewhere.
"""

from __future__ import annotations

from plugbay.model.operations import (
    AskUser,
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
from plugbay.sdk.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from plugbay.model.operations import HostOp

    class HostClient(Protocol):
        """How what is asked reaches the host; blocking, awaitable, or not at all."""

        within: Any
        """The call that it is for, where a contract wants to know."""

        def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def tell(self, op: HostOp) -> Any: ...


SERVICE_SECONDS = 30.0
"""How long a service may take, unless the caller says otherwise; what the published SDKs of nexo wait."""

MODELS = frozenset({RecallMemory, CompleteChat})
"""What hosts of nexo know: what agents remember, and language models."""

STORAGE = frozenset({GetStored, SetStored, DeleteStored, ListStored})
"""What hosts of kaged keep for a plugin."""

PEOPLE = frozenset({AskUser})
"""Whom clients of MCP can ask."""

SNAPSHOTS = frozenset({GetSnapshot, PublishSnapshot, SubscribeSnapshot})

BROKERED = SNAPSHOTS | {InvokeAction, ReadFile, ReadFolder, FetchUrl, WriteLog}
"""What hosts of ainb do for a plugin."""

_SERVICES: dict[type, tuple[str, tuple[str, ...]]] = {
    RecallMemory: ("memory", ("nexo",)),
    CompleteChat: ("llm", ("nexo", "mcp")),
    Publish: ("events", ("nexo", "kaged")),
    **dict.fromkeys(STORAGE, ("storage", ("kaged",))),
    **dict.fromkeys(SNAPSHOTS, ("snapshots", ("ainb",))),
    InvokeAction: ("actions", ("ainb",)),
    ReadFile: ("files", ("ainb",)),
    ReadFolder: ("files", ("ainb",)),
    FetchUrl: ("http", ("ainb",)),
    WriteLog: ("log", ("ainb", "mcp")),
    AskUser: ("ask", ("mcp",)),
}
"""What an author calls it, and the contracts that have a word for it."""


class Unconnected:
    """The line of a plugin that has no host with services: every question is refused, with the reason."""

    __slots__ = ("_contract", "within")

    def __init__(self, contract: str = "") -> None:
        self._contract = contract
        self.within: Any = None

    def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        raise unsupported_service(op, self._contract)

    stream = ask

    def tell(self, op: HostOp) -> Any:
        raise unsupported_service(op, self._contract)


def unsupported_service(op: HostOp, contract: str) -> Unsupported:
    """What a plugin hears that asks for something its host, which speaks `contract`, does not offer."""
    service, contracts = _SERVICES[type(op)]
    return Unsupported(service, contract, contracts)
