"""The client of the host's services as `ctx` uses it, and which contract supports which service.

`HostClient` is implemented by a blocking and an awaitable client in `runtime`, and by `Unconnected` for contracts
without services. A request for an unsupported service raises `Unsupported`, which names the contracts that have it.
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
        """Sends requests and notifications to the host; blocking, awaitable, or refusing."""

        within: Any
        """The host's call that requests are made for, where the contract carries it."""

        def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def stream(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any: ...
        def tell(self, op: HostOp) -> Any: ...


SERVICE_SECONDS = 30.0
"""Default timeout of a service; that of the published nexo SDKs."""

MODELS = frozenset({RecallMemory, CompleteChat})
"""Services of nexo hosts: memory and language models."""

STORAGE = frozenset({GetStored, SetStored, DeleteStored, ListStored})
"""Storage of kaged hosts."""

PEOPLE = frozenset({AskUser})
"""Questions to the user of an MCP client."""

SNAPSHOTS = frozenset({GetSnapshot, PublishSnapshot, SubscribeSnapshot})

BROKERED = SNAPSHOTS | {InvokeAction, ReadFile, ReadFolder, FetchUrl, WriteLog}
"""Services of ainb hosts."""

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
"""By operation: the name on `ctx`, and the contracts that support it."""


class Unconnected:
    """The client of a plugin without host services: every request raises `Unsupported`."""

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
    """The error of a request that hosts of `contract` do not support."""
    service, contracts = _SERVICES[type(op)]
    return Unsupported(service, contract, contracts)
