"""What a hook may answer, each in the words every host understands. `None` or `{}` lets things be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def block(reason: str, *, do_not_reply_again: bool = False) -> dict[str, Any]:
    """Stop what is about to happen. Some hosts read `abort`, some `decision`: both are said."""
    answer: dict[str, Any] = {"abort": True, "reason": reason, "decision": "block"}
    return {**answer, "do_not_reply_again": True} if do_not_reply_again else answer


def transform(body: str, *, reason: str | None = None) -> dict[str, Any]:
    """Let it happen with another message body."""
    answer: dict[str, Any] = {"abort": False, "decision": "transform", "transformed_body": body}
    return answer if reason is None else {**answer, "reason": reason}


def inject(text: str) -> dict[str, Any]:
    """Have the agent told something; a hook of a session may return the text alone."""
    return {"inject": text}


def override(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Let it happen with these keys of the event changed."""
    return {"abort": False, "decision": "allow", "override": dict(changes)}
