"""The exceptions of a failed start. Imports nothing of this package, so that every part of a start may raise them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plugbay.model.errors import Code, PlugbayError


class LaunchFailed(PlugbayError):
    """A process could not be started; nothing of it is left. `detail` is JSON-ready."""

    code: str = Code.LAUNCH_FAILED

    def __init__(self, message: str, hint: str = "", detail: Mapping[str, Any] | None = None) -> None:
        self.message = message
        self.hint = hint
        self.detail: dict[str, Any] = dict(detail or {})
        super().__init__(message)


class SandboxUnavailable(LaunchFailed):
    """A process must be confined and cannot be; it was not started, or is dead before its program ran."""

    code = Code.SANDBOX_UNAVAILABLE
