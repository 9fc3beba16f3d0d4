"""Whether a failed execution is attempted again, and how its failure is reported. Pure decisions.

The effect class of a tool decides, never the plugin: an effect must not happen twice. A compactor changes nothing, so
it may always be repeated; a harness only resumes from a checkpoint; a hook is delivered again by its dispatcher.
"""

from __future__ import annotations

from plugbay.host.limits import QUEUE_SECONDS
from plugbay.model.errors import Code, Failure, Origin

MAX_RETRIES = 2
"""Attempts after the first."""

REPEATABLE = frozenset({"read_only", "idempotent_write"})
"""Effect classes that may run twice; an idempotent write because every attempt has the same execution id."""

FIRST_DELAY = 0.1
"""Seconds before the second attempt when the plugin gives no delay; doubled before the third."""

_LOST = frozenset({Code.CRASHED, Code.MALFORMED_RESPONSE})
"""Codes after which the effects are unknown: the plugin is gone, or its response is malformed."""

NO_CHANGES = frozenset({"hook", "compactor"})
"""Kinds that may be repeated by contract."""


def repeatable(kind: str, effect_class: str | None, *, has_checkpoint: bool = False) -> bool:
    """Whether an execution of this kind may be attempted again at all."""
    if kind == "tool":
        return effect_class in REPEATABLE
    return kind in NO_CHANGES or (kind == "harness" and has_checkpoint)


def classify(failure: Failure, kind: str, may_repeat: bool, *, asked: bool = True) -> Failure:
    """The failure to report: a crash is retryable where repeating is allowed, else its outcome is unknown.

    A hook delivery that timed out is retryable too. Where the plugin was never `asked`, it had no effect.
    """
    lost = failure.code in _LOST
    late = failure.code == Code.TIMEOUT and failure.origin == Origin.HOST
    if (lost and may_repeat) or (late and kind == "hook"):
        return _retryable(failure)
    if (lost or late) and not may_repeat and asked:
        return failure.with_detail(execution_outcome="unknown")
    return failure


def should_retry(kind: str, may_repeat: bool, failure: Failure | None, *, is_retryable: bool, attempts: int) -> bool:
    """Whether to try again after `attempts` attempts. `is_retryable`: the tool's own result says so."""
    if not may_repeat or attempts > MAX_RETRIES or kind == "hook":
        return False
    if failure is not None and QUEUE_SECONDS in failure.detail:
        return False  # the caller does not want to queue, and a further attempt would
    return is_retryable if failure is None else failure.retryable


def delay(failure: Failure | None, attempts: int) -> float:
    """Seconds until the next attempt, after `attempts` attempts."""
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
