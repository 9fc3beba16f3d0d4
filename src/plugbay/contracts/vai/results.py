"""What comes back: the four ways in which work ends, as bodies of responses.

A hook acknowledges and has no result; everything else that succeeds has one, and whatever ends early may leave one,
such as a checkpoint to go on from. Refuses to know frames, ids and states, and what a result means.
"""

from __future__ import annotations

from plugbay.contracts.vai import errors
from plugbay.contracts.vai.messages import HOOK
from plugbay.model.errors import Outcome
from plugbay.wire.strict_json import Unencodable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from plugbay.model.errors import Failure
    from plugbay.wire.strict_json import Codec

ACK = "ack"
"""How a hook says that it succeeded."""

MAX_LEFT = 512 * 1024
"""Bytes of a result that a failure carries: twice the largest checkpoint. Failures are remembered, many at a time."""

_EARLY = frozenset({Outcome.FAILED, Outcome.RETRYABLE_FAILURE, Outcome.CANCELLED})


def read(kind: str, ok: Any, body: Any, error: Any, codec: Codec) -> tuple[Any, Failure | None]:
    """HOST: the value in a response to an export of this kind, or why there is none."""
    if ok is not True:
        return None, errors.refused(error) if ok is False else errors.invalid("it says neither ok=true nor ok=false")
    if not isinstance(body, dict):
        return None, errors.invalid("it has no body")
    status = body.get("status")
    if not isinstance(status, str):
        return None, errors.invalid("its body has no status")
    if status in _EARLY:
        return None, _early(status, body, codec)
    if kind == HOOK and status in (ACK, Outcome.SUCCEEDED):
        return codec.dump({}), None
    if status != Outcome.SUCCEEDED:
        return None, errors.invalid(f"its status {status!r:.100} is not one that a {kind} ends with")
    return _value(body, codec)


def _value(body: dict[str, Any], codec: Codec) -> tuple[Any, Failure | None]:
    if "result" not in body:
        return None, errors.invalid("it succeeded without a result")
    try:
        return codec.dump(body["result"]), None
    except Unencodable as error:
        return None, errors.invalid(str(error))


def _early(status: str, body: dict[str, Any], codec: Codec) -> Failure:
    failure = errors.ended(status, body.get("error"))
    result = body.get("result")
    if result is None:
        return failure
    size = len(codec.encode(result))
    return failure.with_detail(**({"result": result} if size <= MAX_LEFT else {"result_left_out": size}))


def success(kind: str, value: Any) -> dict[str, Any]:
    """PLUGIN: the body that says what came out."""
    return {"status": ACK} if kind == HOOK else {"status": Outcome.SUCCEEDED, "result": value}


def end(failure: Failure, *, leave: bool = True) -> dict[str, Any]:
    """PLUGIN: the body that says how it ended early, with what the handler leaves."""
    left = failure.detail.get("result") if leave else None
    return {
        "status": failure.outcome,
        "error": errors.error_of(failure),
        **({} if left is None else {"result": left}),
    }
