"""Whether work that failed is tried again, and how its failure counts. Decides with values.

The effect class of a tool decides, never the plugin: what may have happened twice must not happen twice. A compactor
changes nothing, so it may always try again; a harness only goes on from a checkpoint; a hook is delivered again by
whoever delivers it, not here.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin

MORE = 2
"""Attempts after the first."""

REPEATABLE = frozenset({"read_only", "idempotent_write"})
"""Effect classes of work that may be done twice; the second kind because every attempt has the same execution id."""

FIRST_DELAY = 0.1
"""Seconds before the second attempt where the plugin does not say; twice as many before the third."""

_LOST = frozenset({Code.CRASHED, Code.MALFORMED_RESPONSE})
"""Nobody knows what the plugin did: it is gone, or what it said cannot be understood."""

NO_CHANGES = frozenset({"hook", "compactor"})
"""Kinds whose contract says that they may be asked again."""


def repeatable(kind: str, effect_class: str | None, *, has_checkpoint: bool = False) -> bool:
    """Whether work of this kind may be attempted again at all."""
    if kind == "tool":
        return effect_class in REPEATABLE
    return kind in NO_CHANGES or (kind == "harness" and has_checkpoint)


def judged(failure: Failure, kind: str, may_repeat: bool, *, asked: bool = True) -> Failure:
    """The failure as it counts: a crash is worth another attempt, or else what was done before it is unknown.

    A delivery that ran out of time is worth another one too. Where the plugin was never `asked`, nothing was done.
    """
    lost = failure.code in _LOST
    late = failure.code == Code.TIMEOUT and failure.origin == Origin.HOST
    if (lost and may_repeat) or (late and kind == "hook"):
        return _retryable(failure)
    if (lost or late) and not may_repeat and asked:
        return failure.with_detail(execution_outcome="unknown")
    return failure


def wants_retry(kind: str, may_repeat: bool, failure: Failure | None, *, says_retryable: bool, attempts: int) -> bool:
    """Whether there is another attempt after `attempts` of them. `says_retryable`: the result of a tool says so."""
    if not may_repeat or attempts > MORE or kind == "hook":
        return False
    return says_retryable if failure is None else failure.retryable


def delay(failure: Failure | None, attempts: int) -> float:
    """Seconds until the next attempt, after `attempts` of them."""
    if failure is not None and failure.retry_after_ms is not None:
        return failure.retry_after_ms / 1000
    return FIRST_DELAY * 2.0 ** (attempts - 1)


def _retryable(failure: Failure) -> Failure:
    return Failure(
        failure.code,
        failure.message,
        origin=failure.origin,
        plugin=failure.plugin,
        detail=failure.detail,
        retryable=True,
        retry_after_ms=failure.retry_after_ms,
    )
