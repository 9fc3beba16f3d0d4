"""The exit statuses of `plugbay`, the mapping of failures and signals to them, and `Refusal`, which ends a command.

Public: scripts depend on the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from plugbay.model.errors import Code, Failure, Origin, PlugbayError
from plugbay.packages.errors import Reason

if TYPE_CHECKING:
    from plugbay.host.discovery.folders import Found


class Exit(IntEnum):
    """Every status except those of signals, which are 128 plus the signal's number."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    INVALID = 3
    """A manifest or plugbay.toml cannot be used."""
    NOT_FOUND = 4
    DENIED = 5
    INTEGRITY = 6
    """The signature of a package is invalid, its archive is unsafe, or its installed files were changed."""
    LAUNCH = 7
    """The plugin did not start, or its handshake failed."""
    TIMEOUT = 8
    FINDINGS = 9
    """`conform`, `doctor` or another check has findings."""
    PLUGIN_ERROR = 10
    """The plugin returned an error."""


BY_CODE = MappingProxyType(
    {
        Code.LAUNCH_FAILED: Exit.LAUNCH,
        Code.HANDSHAKE_FAILED: Exit.LAUNCH,
        Code.TIMEOUT: Exit.TIMEOUT,
        Code.CRASHED: Exit.FAILURE,
        Code.MALFORMED_RESPONSE: Exit.FAILURE,
        Code.TOOL_NOT_EXPOSED: Exit.NOT_FOUND,
        Code.PROTOCOL_VERSION_MISMATCH: Exit.LAUNCH,
        Code.CAPABILITY_NOT_DECLARED: Exit.DENIED,
        Code.CAPABILITY_NOT_ALLOWED: Exit.DENIED,
        Code.INVALID_INPUT: Exit.USAGE,
        Code.PLUGIN_ERROR: Exit.PLUGIN_ERROR,
        Code.UNAVAILABLE: Exit.FAILURE,
        Code.CANCELLED: Exit.FAILURE,
        Code.OVERLOADED: Exit.FAILURE,
        Code.FRAME_TOO_LARGE: Exit.FAILURE,
        Code.SANDBOX_UNAVAILABLE: Exit.LAUNCH,
        Code.QUARANTINED: Exit.FAILURE,
        Code.NOT_FOUND: Exit.NOT_FOUND,
        Code.INTERNAL: Exit.FAILURE,
    }
)
"""The status of each code, unless `for_failure` decides by the origin."""

ANSWERS = frozenset({Code.PLUGIN_ERROR, Code.INVALID_INPUT, Code.NOT_FOUND})
"""Codes that a plugin returns itself. The host uses two of them as well; the origin distinguishes them."""


def for_failure(failure: Failure) -> int:
    """The status of a command whose one call failed."""
    if failure.origin == Origin.POLICY:
        return Exit.DENIED
    if failure.origin == Origin.PLUGIN and failure.code in ANSWERS:
        return Exit.PLUGIN_ERROR
    if failure.code == Code.LAUNCH_FAILED and failure.detail.get("reason") == Reason.TAMPERED:
        return Exit.INTEGRITY
    return BY_CODE[failure.code]


def for_signal(number: int) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, as shells report them."""
    return 128 + number


BY_REASON = MappingProxyType(
    {
        **dict.fromkeys(
            (
                Reason.DOWNGRADE,
                Reason.REPLAYED,
                Reason.VERSION_CONFLICT,
                Reason.PINNED,
                Reason.CONSENT_NEEDED,
                Reason.ALREADY_INSTALLED,
                Reason.INSECURE_TRANSPORT,
                Reason.UNAUTHORIZED,
                Reason.KEY_CONFLICT,
            ),
            Exit.DENIED,
        ),
        **dict.fromkeys((Reason.INVALID_MANIFEST, Reason.INVALID_CONFIG), Exit.INVALID),
        **dict.fromkeys((Reason.NOT_FOUND, Reason.NOT_INSTALLED, Reason.NO_EARLIER_RELEASE), Exit.NOT_FOUND),
        **dict.fromkeys((Reason.REGISTRY_FAILED, Reason.MISSING_EXTRA, Reason.CHANGED_MEANWHILE), Exit.FAILURE),
    }
)
"""The status of each refusal of a package; reasons not listed concern its content or signature (`INTEGRITY`)."""


def for_refusal(reason: Reason) -> int:
    """The status of a command that refused a package."""
    return BY_REASON.get(reason, Exit.INTEGRITY)


# The error that ends a command.

BY_STATUS: Mapping[int, str] = MappingProxyType(
    {
        Exit.USAGE: Code.INVALID_INPUT,
        Exit.NOT_FOUND: Code.NOT_FOUND,
        Exit.DENIED: Code.CAPABILITY_NOT_ALLOWED,
        Exit.LAUNCH: Code.LAUNCH_FAILED,
        Exit.TIMEOUT: Code.TIMEOUT,
    }
)
"""The failure code in the JSON of a command that ends with this status; `UNAVAILABLE` for other statuses."""


class Refusal(PlugbayError):
    """The command cannot go on. Carries the failure, the exit status, and the folders whose problems explain it.

    `main` prints it: a message and a hint on stderr or, with `--json`, a document on stdout.
    """

    def __init__(self, failure: Failure, found: Sequence[Found] = (), status: int | None = None) -> None:
        self.failure = failure
        self.found = found
        self.status = for_failure(failure) if status is None else status
        self.document: Any = None
        """The public JSON of the command, for commands that print it even when they fail."""
        super().__init__(failure.message)


def refusal(message: str, hint: str = "", status: int = Exit.FAILURE, **detail: Any) -> Refusal:
    """The refusal with this exit status."""
    return Refusal(to_failure(message, hint, status, **detail), status=status)


def to_failure(message: str, hint: str, status: int, **detail: Any) -> Failure:
    """A failure with the code of an exit status."""
    return Failure(
        BY_STATUS.get(status, Code.UNAVAILABLE), message, detail={**({"hint": hint} if hint else {}), **detail}
    )
