"""Errors that handlers raise as their answer, and errors that the host's services raise.

    HandlerError                     a handler's own answer; `code` names it
    ├── ToolError                    a tool's, with a code of the author's choice
    │   └── ToolNotFound, ToolArgumentInvalid, ToolExecutionFailed, ToolUnavailable, ToolDenied
    ├── ChannelConnectionFailed, ChannelAuthenticationFailed, RecipientInvalid, UnsupportedFeature
    ├── LlmConnectionFailed, LlmAuthenticationFailed, ModelNotFound, ContextOverflow
    ├── CollectionNotFound, DimensionMismatch, WriteFailed
    ├── RateLimited                  of a channel, a model or a vector store
    ├── Cancelled                    the host no longer wants it, and the handler has stopped
    └── MethodMissing                the plugin offers the thing, but not this part of it
    ServiceError                     the host refused or failed a request of the plugin
    └── Unsupported                  this host does not have the service; names the hosts that do

Each class is a row of a table: its name for every contract (`kind`), our failure code, whether trying again may help.
The number on the wire belongs to the contract. Loaded only when an error is named or happens.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin, PlugbayError
from plugbay.sdk.io.stdio import exit_copy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


INTERNAL = "internal"
"""The code of an unexpected exception."""

MAX_BUG_TEXT = 1_000
"""Characters of an unexpected exception that the host gets; the traceback is on stderr."""


class HandlerError(PlugbayError):
    """Raised by a handler, it is the answer. `data` is sent beside the message."""

    kind = ""
    meaning = Code.PLUGIN_ERROR
    retryable = False

    def __init__(self, message: str = "", **data: Any) -> None:
        super().__init__(message or self.kind.replace("_", " "))
        self.code = self.kind
        self.data = {key: value for key, value in data.items() if value is not None}

    def failure(self) -> Failure:
        """The error as every contract's machine takes it."""
        named = {"kind": self.kind} if self.kind else {}
        return Failure(
            self.meaning,
            str(self),
            origin=Origin.PLUGIN,
            detail={"plugin_code": self.code, **named, **self.data},
            retryable=self.retryable,
            retry_after_ms=self._retry_after_ms(),
        )

    def _retry_after_ms(self) -> int | None:
        if "retry_after_secs" in self.data:
            return int(self.data["retry_after_secs"] * 1000)
        return self.data.get("retry_after_ms")


class ToolError(HandlerError):
    """Raise it in a tool to answer with an error of your own; `code` is yours to choose."""

    def __init__(self, message: str = "", code: str = "plugin_error", **data: Any) -> None:
        super().__init__(message, **data)
        self.code = self.kind or code
        if code in (Code.INVALID_INPUT, Code.NOT_FOUND):
            self.meaning = code


class ToolNotFound(ToolError):
    """The tool is offered, but there is nothing behind it."""

    kind, meaning = "tool_not_found", Code.TOOL_NOT_EXPOSED


class ToolArgumentInvalid(ToolError):
    """The arguments cannot be used; `details` names them, in any JSON shape."""

    kind, meaning = "tool_argument_invalid", Code.INVALID_INPUT

    def __init__(self, message: str = "", details: Any = None) -> None:
        super().__init__(message, details=details)


class ToolExecutionFailed(ToolError):
    """The tool ran and did not succeed."""

    kind = "tool_execution_failed"


class ToolUnavailable(ToolError):
    """Temporarily unavailable; `retry_after_ms` is the time to wait, if known."""

    kind, meaning, retryable = "tool_unavailable", Code.UNAVAILABLE, True

    def __init__(self, message: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)


class ToolDenied(ToolError):
    """The caller is not allowed to use the tool."""

    kind, meaning = "tool_denied", Code.CAPABILITY_NOT_ALLOWED


class ChannelConnectionFailed(HandlerError):
    """The service behind the channel cannot be reached."""

    kind, meaning, retryable = "connection_failed", Code.UNAVAILABLE, True


class ChannelAuthenticationFailed(HandlerError):
    """The service behind the channel refuses our credentials."""

    kind = "authentication_failed"


class RecipientInvalid(HandlerError):
    """The message cannot go to `recipient`."""

    kind, meaning = "recipient_invalid", Code.INVALID_INPUT

    def __init__(self, recipient: str, reason: str) -> None:
        super().__init__(f"{recipient}: {reason}", recipient=recipient, reason=reason)


class UnsupportedFeature(HandlerError):
    """The channel cannot do `feature`."""

    kind, meaning = "unsupported_feature", Code.NOT_FOUND

    def __init__(self, feature: str) -> None:
        super().__init__(f"{feature} is not supported", feature=feature)


class LlmConnectionFailed(HandlerError):
    """The model's service cannot be reached."""

    kind, meaning, retryable = "connection_failed", Code.UNAVAILABLE, True


class LlmAuthenticationFailed(HandlerError):
    """The model's service refuses our credentials."""

    kind = "authentication_failed"


class ModelNotFound(HandlerError):
    """The model does not exist."""

    kind, meaning = "model_not_found", Code.NOT_FOUND


class ContextOverflow(HandlerError):
    """The conversation is longer than the model can take."""

    kind, meaning = "context_overflow", Code.INVALID_INPUT


class CollectionNotFound(HandlerError):
    """The collection of vectors does not exist."""

    kind, meaning = "collection_not_found", Code.NOT_FOUND

    def __init__(self, collection: str) -> None:
        super().__init__(f"there is no collection {collection!r}", collection=collection)


class DimensionMismatch(HandlerError):
    """A vector has another length than its collection."""

    kind, meaning = "dimension_mismatch", Code.INVALID_INPUT

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"a vector of {got} dimensions where {expected} are expected", expected=expected, got=got)


class WriteFailed(HandlerError):
    """The vectors could not be stored."""

    kind = "write_failed"


class RateLimited(HandlerError):
    """Too many requests; `retry_after_secs` is the time to wait, if known."""

    kind, meaning, retryable = "rate_limited", Code.OVERLOADED, True

    def __init__(self, retry_after_secs: float | None = None, message: str = "") -> None:
        super().__init__(message, retry_after_secs=retry_after_secs)


class Cancelled(HandlerError):
    """The work was stopped before its end. `ctx.check_cancelled()` raises it; clean up, and let it pass."""

    kind, meaning = "cancelled", Code.CANCELLED

    def __init__(self, message: str = "", code: str = "cancelled") -> None:
        super().__init__(message)
        self.code = code


class MethodMissing(HandlerError):
    """The request has no handler. The SDK raises it; a handler may too."""

    kind, meaning = "method_not_found", Code.NOT_FOUND


class ServiceError(PlugbayError):
    """The host refused or failed a request. `code` is the reason:

    `timeout` no answer in time · `unavailable` the host is gone or going, or could not · `not_found` this contract has
    no such service · any other code of the host. `rpc_code` is the number of an error the host answered with.
    """

    def __init__(self, code: str, message: str, rpc_code: int | None = None) -> None:
        self.code = code
        self.rpc_code = rpc_code
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, str(self), self.rpc_code)


class Unsupported(ServiceError):
    """There is no `ctx.<service>` here: the host speaks `contract`, and only hosts of `contracts` have it."""

    def __init__(self, service: str, contract: str, contracts: tuple[str, ...]) -> None:
        self.service = service
        self.contract = contract
        self.contracts = contracts
        who = f"this host speaks {contract} and" if contract else "what runs here"
        others = f"hosts of {' and '.join(contracts)} do" if contract not in contracts else "others of its kind may"
        super().__init__(Code.NOT_FOUND, f"{who} does not offer ctx.{service}; {others}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.service, self.contract, self.contracts)


def service_error(failure: Failure) -> ServiceError:
    """The exception of a failed service request."""
    number = failure.detail.get("plugin_code")
    return ServiceError(failure.code, failure.message, number if type(number) is int else None)


_NOT_GIVEN = frozenset(
    (Code.UNAVAILABLE, Code.TIMEOUT, Code.NOT_FOUND, Code.OVERLOADED, Code.CAPABILITY_NOT_ALLOWED, Code.CANCELLED)
)
"""Codes of a service that was unavailable, as opposed to called wrongly."""


def failure_of(error: BaseException) -> Failure:
    """The exception of a handler, as its answer. A bug is a short text for the host and a traceback on stderr.

    A service that the host does not have or did not give is no bug of the author's.
    """
    exit_copy(error)
    if isinstance(error, ServiceError) and error.code in _NOT_GIVEN:
        return Failure(Code.UNAVAILABLE, f"it needs the host: {error}", origin=Origin.PLUGIN)
    try:
        if isinstance(error, HandlerError):
            return error.failure()
    except BaseException as bug:  # an error made of the wrong things is a bug, too
        error = bug
    _print_traceback(error)
    said = _text(error)
    text = (f"{type(error).__name__}: {said}" if said else type(error).__name__)[:MAX_BUG_TEXT]
    return Failure(Code.PLUGIN_ERROR, text, origin=Origin.PLUGIN, detail={"plugin_code": INTERNAL})


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # SystemExit too: the caller gets an answer
        return "(its text cannot be read)"


def _print_traceback(error: BaseException) -> None:
    import traceback

    try:
        traceback.print_exception(error)
    except BaseException:
        pass  # stderr is closed, or the error cannot be printed; the answer still has the reason
