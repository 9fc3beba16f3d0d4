"""Every way something can go wrong, in one place.

    PlugbayError                 base of everything plugbay raises on purpose
    ├── CallFailed               a call ended without a result; carries the Failure
    ├── ManifestInvalid          a manifest cannot be used; carries every Problem found
    └── ConfigInvalid            plugbay.toml cannot be used; carries every Problem found

A mistake of a peer is a `Failure` value and travels through return values and events; only the public API turns it into
an exception. `Code` is closed: callers match on codes, never on text.
"""

from __future__ import annotations

from plugbay.model.values import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Code:
    """The closed set of failure codes. The first nine are rune's; they mean the same for every contract."""

    LAUNCH_FAILED = "launch_failed"
    HANDSHAKE_FAILED = "handshake_failed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    MALFORMED_RESPONSE = "malformed_response"
    TOOL_NOT_EXPOSED = "tool_not_exposed"
    PROTOCOL_VERSION_MISMATCH = "protocol_version_mismatch"
    CAPABILITY_NOT_DECLARED = "capability_not_declared"
    CAPABILITY_NOT_ALLOWED = "capability_not_allowed"
    INVALID_INPUT = "invalid_input"
    PLUGIN_ERROR = "plugin_error"
    UNAVAILABLE = "unavailable"
    CANCELLED = "cancelled"
    OVERLOADED = "overloaded"
    FRAME_TOO_LARGE = "frame_too_large"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    QUARANTINED = "quarantined"
    NOT_FOUND = "not_found"
    INTERNAL = "internal"


CODES = frozenset(value for name, value in vars(Code).items() if name.isupper())


class Origin:
    """The party that decided that the call fails."""

    HOST = "host"
    PLUGIN = "plugin"
    POLICY = "policy"
    SYSTEM = "system"


ORIGINS = frozenset(value for name, value in vars(Origin).items() if name.isupper())


PASSING = frozenset({"EMFILE", "ENFILE", "EAGAIN", "ENOMEM"})
"""Errors of a host or machine that lacks descriptors, processes or memory at the moment; by name, as in the `errno` of
a failure's detail."""


class Outcome:
    """The four ways a call ends; exactly one of them, exactly once."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RETRYABLE_FAILURE = "retryable_failure"


class Failure(Value):
    """Why a call has no result. `detail` is JSON-ready: exit code, stderr tail, the offending bytes, a hint."""

    __slots__ = ("code", "detail", "message", "origin", "plugin", "retry_after_ms", "retryable")

    def __init__(
        self,
        code: str,
        message: str,
        *,
        origin: str = Origin.HOST,
        plugin: str = "",
        detail: Mapping[str, Any] | None = None,
        retryable: bool = False,
        retry_after_ms: int | None = None,
    ) -> None:
        if code not in CODES:
            raise ValueError(f"{code!r} is not a failure code; model/errors.py lists them all")
        if origin not in ORIGINS:
            raise ValueError(f"{origin!r} is not a failure origin; model/errors.py lists them all")
        self.code = code
        self.origin = origin
        self.plugin = plugin
        self.message = message
        self.detail: dict[str, Any] = dict(detail or {})
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms

    @property
    def outcome(self) -> str:
        """Which of the four outcomes a call with this failure has."""
        if self.code == Code.CANCELLED:
            return Outcome.CANCELLED
        return Outcome.RETRYABLE_FAILURE if self.retryable else Outcome.FAILED

    def with_detail(self, plugin: str = "", **more: Any) -> Failure:
        """The same failure, knowing more; what was known first wins."""
        return Failure(
            self.code,
            self.message,
            origin=self.origin,
            plugin=self.plugin or plugin,
            detail={**more, **self.detail},
            retryable=self.retryable,
            retry_after_ms=self.retry_after_ms,
        )

    def replace_detail(self, **changed: Any) -> Failure:
        """The same failure with other details; what is given wins."""
        return Failure(
            self.code,
            self.message,
            origin=self.origin,
            plugin=self.plugin,
            detail={**self.detail, **changed},
            retryable=self.retryable,
            retry_after_ms=self.retry_after_ms,
        )

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay call --json`."""
        return {
            "code": self.code,
            "origin": self.origin,
            "message": self.message,
            "detail": self.detail,
            "retry_after_ms": self.retry_after_ms,
        }

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> Failure:
        """The failure of `to_json`, as another plugbay sent it; with `plugin` if it is there."""
        known = {name: shape[name] for name in ("origin", "detail", "retry_after_ms")}
        return cls(shape["code"], shape["message"], plugin=shape.get("plugin", ""), **known)


class Problem(Value):
    """One thing wrong in a manifest or config file: what, where, and what to do about it."""

    __slots__ = ("code", "line", "message", "path", "severity")

    def __init__(self, code: str, path: str, message: str, *, line: int | None = None, severity: str = "error") -> None:
        self.severity = severity
        self.code = code
        self.path = path
        self.line = line
        self.message = message

    def to_json(self) -> dict[str, Any]:
        """The public shape, as in `plugbay inspect --json`."""
        return {
            "severity": self.severity,
            "code": self.code,
            "path": self.path,
            "line": self.line,
            "message": self.message,
        }

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        subject = f"{self.path}: " if self.path else ""
        return f"{where}{subject}{self.message}"


class PlugbayError(Exception):
    """Base of everything plugbay raises on purpose."""


class CallFailed(PlugbayError):
    """A call ended without a result. `failure.code` says why; `call_id` finds it in the log."""

    def __init__(self, failure: Failure, call_id: str = "") -> None:
        self.failure = failure
        self.call_id = call_id
        super().__init__(self._text())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failure, self.call_id)

    @property
    def code(self) -> str:
        return self.failure.code

    def _text(self) -> str:
        plugin = f"{self.failure.plugin}: " if self.failure.plugin else ""
        from plugbay.model.text import error_excerpt, printable  # a plugin raises none of these

        message = printable(self.failure.message.encode("utf-8", "backslashreplace"))
        text = f"{plugin}{self.failure.code}: {message}"
        hint = self.failure.detail.get("hint")
        tail = self.failure.detail.get("stderr_tail")
        if hint:
            text += f"\n  hint: {hint}"
        if tail:
            text += "\n  stderr: " + "\n          ".join(error_excerpt(tail, 5))
        return text


class _FileInvalid(PlugbayError):
    """A file the host must read has problems; the text lists all of them."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source} cannot be used:\n{lines}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.problems)


class ManifestInvalid(_FileInvalid):
    """A manifest cannot be used."""


class ConfigInvalid(_FileInvalid):
    """plugbay.toml cannot be used."""
