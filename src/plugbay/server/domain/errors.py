"""`GatewayError`: why a request is refused, as the error envelope of the contract.

Defines which kind of error has which HTTP status. Clients branch on `code` (`family.reason`) only. Neither code nor
message may contain a secret, a token, or another tenant's name.
"""

from __future__ import annotations

import errno
from typing import Any

import msgspec

from plugbay.model.errors import Failure, PlugbayError

INVALID, AUTHENTICATION, PERMISSION = "invalid_request_error", "authentication_error", "permission_error"
NOT_FOUND, CONFLICT, RATE_LIMIT = "not_found_error", "conflict_error", "rate_limit_error"
API, OVERLOADED = "api_error", "overloaded_error"


class GatewayError(PlugbayError):
    """A refused request."""

    def __init__(
        self,
        type: str,
        code: str,
        status: int,
        message: str,
        *,
        param: str | None = None,
        details: dict[str, Any] | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        self.type = type
        self.code = code
        self.status = status
        self.message = message
        self.param = param
        self.details = details or {}
        self.retryable = retryable
        self.retry_after = retry_after
        super().__init__(f"{code}: {message}")

    def to_json(self, request_id: str | None = None) -> dict[str, Any]:
        """The error envelope."""
        return {
            "error": {
                "type": self.type,
                "code": self.code,
                "message": self.message,
                "param": self.param,
                "request_id": request_id,
                "retryable": self.retryable,
                "retry_after": self.retry_after,
                "details": self.details,
            }
        }


FULL_DISK_SECONDS = 30.0
"""After which a request that found the disk full may be sent again."""

MAX_DETAIL = 16 << 10
"""Bytes of one detail of a stored failure as JSON; a larger one is left out."""


def failure_json(failure: Failure) -> dict[str, Any]:
    """A failure of a plugin in the shape of the API. The code is the plugin's own if it gave one."""
    return {
        "code": str(failure.detail.get("plugin_code") or failure.code),
        "origin": failure.origin,
        "message": failure.message,
        "retryable": failure.retryable,
        "retry_after_ms": failure.retry_after_ms,
        "detail": failure.detail,
    }


def stored_failure(failure: Failure) -> dict[str, Any]:
    """The same for storing: bounded, and without the result, which is stored apart."""
    detail = {
        name: value
        for name, value in failure.detail.items()
        if name != "result" and len(msgspec.json.encode(value)) <= MAX_DETAIL
    }
    return {**failure_json(failure), "detail": detail}


def not_found(kind: str, id: str) -> GatewayError:
    """Not found for this caller: the same message whether it belongs to another tenant or does not exist."""
    return GatewayError(NOT_FOUND, f"{kind}.not_found", 404, f"there is no {kind.replace('_', ' ')} {id!r}")


def invalid(code: str, message: str, param: str | None = None, **details: Any) -> GatewayError:
    """The request is malformed."""
    return GatewayError(INVALID, code, 400, message, param=param, details=details)


def unprocessable(code: str, message: str, param: str | None = None, **details: Any) -> GatewayError:
    """The request is well-formed but semantically invalid."""
    return GatewayError(INVALID, code, 422, message, param=param, details=details)


def too_large(code: str, message: str, **details: Any) -> GatewayError:
    """The request is too large."""
    return GatewayError(INVALID, code, 413, message, details=details)


def conflict(
    code: str, message: str, param: str | None = None, *, retryable: bool = False, **details: Any
) -> GatewayError:
    """The request conflicts with the current state."""
    return GatewayError(CONFLICT, code, 409, message, param=param, details=details, retryable=retryable)


def denied(code: str, message: str, **details: Any) -> GatewayError:
    """The caller lacks a permission."""
    return GatewayError(PERMISSION, code, 403, message, details=details)


def unauthenticated(code: str, message: str, **details: Any) -> GatewayError:
    """The caller is not authenticated."""
    return GatewayError(AUTHENTICATION, code, 401, message, details=details)


def too_many(message: str, *, retry_after: float, code: str = "quota.rate_limited", **details: Any) -> GatewayError:
    """The caller exceeds its rate."""
    return GatewayError(RATE_LIMIT, code, 429, message, details=details, retryable=True, retry_after=retry_after)


def unavailable(code: str, message: str, *, retry_after: float | None = None, **details: Any) -> GatewayError:
    """A temporary failure; the client may retry."""
    return GatewayError(OVERLOADED, code, 503, message, details=details, retryable=True, retry_after=retry_after)


def full_disk(error: OSError) -> GatewayError | None:
    """The error if the disk is full; None for any other reason."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    text = "the disk of the server is full, and nothing was stored; free some space and send the request again"
    return unavailable("disk.full", text, retry_after=FULL_DISK_SECONDS)
