"""Answers of the peer: which have a value, which a failure, and which cannot be used.

What a tool, method or hook returns is nobody's business here and stays unread; only answers of storage are looked into.
Refuses to know ids and states.
"""

from __future__ import annotations

from plugbay.contracts.kaged import errors, storage
from plugbay.contracts.rpc import malformed
from plugbay.wire.strict_json import ABSENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plugbay.model.errors import Failure


def outcome(op: type, method: str, message: Any, line: bytes, load: Callable[[Any], Any]) -> tuple[Any, Failure | None]:
    """An answer to `op`, asked for with `method`, as (value, failure)."""
    error, result = message.error, message.result
    if error is not ABSENT:
        failure = errors.from_wire(op, method, error)
        if result is not ABSENT:
            what = f"the answer to {method} has both a result and an error ({failure.message})"
            failure = malformed(what, line, **failure.detail)
        return None, failure
    if result is ABSENT:
        return None, malformed(f"the answer to {method} has neither a result nor an error", line)
    if op not in errors.STORAGE:
        return result, None
    value, problem = storage.answered(op, load(result))
    return (None, malformed(f"the answer to {method}: {problem}", line)) if problem else (value, None)


def is_unknown_method(error: Any) -> bool:
    """Whether an answer's `error` says that the peer does not know what it was asked for."""
    return isinstance(error, dict) and error.get("code") == errors.METHOD_NOT_FOUND
