"""What a call over the wire ends with when no plugin answered it: the mapping of events to failures. Pure.

Two facts decide. Whether a plugin may have received the call: if not, another node gets it. And whether the outcome is
known: if not, the failure is `crashed` or `malformed_response`, which the retry rules of the host repeat only where
that is harmless.
"""

from __future__ import annotations

from plugbay.model.errors import Code, Failure, Origin

MAX_NODES = 3
"""Nodes that one call is given to, one after the other."""

NODE_LOST, LINK_LOST, NOT_KNOWN = "node_lost", "link_lost", "not_known"
"""The `cause` of a lost call."""

SUCCEEDED, FAILED, CANCELLED, REFUSED, LOST = OUTCOMES = ("succeeded", "failed", "cancelled", "refused", "lost")
"""What became of a call that was given to a node. `refused`: no plugin has received it. `lost`: no answer came."""

STALLED, GONE = "stalled", "gone"
"""The `reason` of a node that stood still, and of one that NATS does not reach; both may take calls again soon."""

OLD_EPOCH, HELD_ELSEWHERE, NOT_HELD = "old_epoch", "held_elsewhere", "not_held"
"""The `reason` of a node that does not hold the lease of a call."""

_TEXTS = {
    NODE_LOST: "the node {} is gone, and with it the answer",
    LINK_LOST: "the connection to NATS was lost, and with it the answer of the node {}",
    NOT_KNOWN: "the node {} does not know the call",
}


def outcome_of(failure: Failure | None, *, elsewhere: bool) -> str:
    """One of `OUTCOMES`; `elsewhere`: another node may take the call."""
    if failure is None:
        return SUCCEEDED
    if elsewhere or failure.detail.get("asked") is False:
        return REFUSED
    if failure.origin == Origin.SYSTEM and failure.detail.get("cause") in _TEXTS:
        return LOST
    return CANCELLED if failure.code == Code.CANCELLED else FAILED


def lost(node: str, cause: str) -> Failure:
    """No answer will come, and a plugin may have received the call."""
    detail = {"cause": cause, "node": node}
    return Failure(Code.CRASHED, _TEXTS[cause].format(node), origin=Origin.SYSTEM, detail=detail)


def malformed(node: str, why: str) -> Failure:
    """The node has answered, and nothing can be made of it."""
    text = f"the answer of the node {node} cannot be used: {why}"
    return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.SYSTEM, detail={"node": node})


def late() -> Failure:
    """Neither the plugin nor the node has answered in time."""
    return Failure(Code.TIMEOUT, "no answer within the time allowed for the call")


def nobody_listens(node: str) -> Failure:
    """NATS reports that the node is not connected, so it has not received the call."""
    return refused(GONE, f"the node {node} is not connected", node)


def refused(reason: str, text: str, node: str, code: str = Code.UNAVAILABLE) -> Failure:
    """A node refuses a call that no plugin has received."""
    detail = {"reason": reason, "node": node}
    return Failure(code, text, origin=Origin.SYSTEM, detail=detail, retryable=True, retry_after_ms=1000)


def stalled(node: str) -> Failure:
    """The node stood still: the gateway may have given the call to another node meanwhile."""
    return refused(STALLED, f"the node {node} stood still, and the call may be elsewhere by now", node)


def too_large(size: int, limit: int) -> Failure:
    text = f"the call has {size:,} bytes; nodes take at most {limit:,}"
    return Failure(Code.FRAME_TOO_LARGE, text, origin=Origin.SYSTEM)


def too_much(node: str) -> Failure:
    """Large answers of a node exceed the memory of the gateway for them."""
    text = f"the node {node} sends too many large answers at once"
    return Failure(Code.OVERLOADED, text, origin=Origin.SYSTEM, detail={"node": node})


def unreachable() -> Failure:
    """The gateway has no connection to NATS, so nothing was sent."""
    hint = "plugbay nodes shows whether NATS is reached; the address is in [cluster] of plugbay.toml"
    return Failure(
        Code.UNAVAILABLE,
        "the gateway is not connected to NATS",
        origin=Origin.SYSTEM,
        detail={"hint": hint},
        retryable=True,
        retry_after_ms=1000,
    )
