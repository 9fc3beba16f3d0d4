"""The exit statuses of `plugbay`, and the mapping of failures, package refusals and signals to them.

Public: scripts depend on the numbers.
"""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType

from plugbay.model.errors import Code, Failure, Origin
from plugbay.packages.errors import Reason


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
    """A package is not what its publisher signed, or could not be unpacked safely."""
    LAUNCH = 7
    """The plugin did not start, or did not get through its handshake."""
    TIMEOUT = 8
    FINDINGS = 9
    """`conform` or `doctor` found something."""
    PLUGIN_ERROR = 10
    """The plugin did its work and answered with an error."""


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
"""Codes a plugin uses for its own answer. The host uses two of them too; only the origin tells them apart."""


def for_failure(failure: Failure) -> int:
    """The status of a command whose one call failed."""
    if failure.origin == Origin.POLICY:
        return Exit.DENIED
    if failure.origin == Origin.PLUGIN and failure.code in ANSWERS:
        return Exit.PLUGIN_ERROR
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
