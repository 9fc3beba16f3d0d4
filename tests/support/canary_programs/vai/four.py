"""What the canary does: an export of each of the four kinds, and nothing wrong."""

from __future__ import annotations

import os

import child
from child import SERVES, Message, cancels, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

deliveries: set[str] = set()
"""The events that were handled: a delivery may come more than once."""

CANCELLED: Message = {"status": "cancelled", "error": {"code": "canary.cancelled", "message": "stopped"}}


def succeeded(**result: Any) -> Message:
    return {"status": "succeeded", "result": result}


def text(words: str) -> list[Message]:
    return [{"type": "text", "text": words}]


def echo(message: Message) -> Message:
    """Says what it is told, after a while."""
    given = message["body"]["input"]
    words, seconds = given["text"], given.get("seconds", 0.0)
    tell(message, type="progress", message="listening: été")
    if cancels[message["id"]].wait(seconds):
        return CANCELLED
    return succeeded(content=text(words), structured_output={"text": words}, is_error=False, retryable=False)


def note(message: Message) -> Message:
    deliveries.add(message["body"]["delivery_id"])
    return {"status": "ack"}


def projection(body: Message) -> Message:
    """The conversation, from the request or from its file."""
    given: Message = body["source"]["projection"]
    if given["transport"] == "inline":
        return given
    artifact = given["artifact"]
    with open(os.path.join(body["context"]["scratch_dir"], artifact["path"]), "rb") as file:
        data = file.read()
    from hashlib import sha256  # which few of its processes need

    if sha256(data).hexdigest() != artifact["sha256"]:
        raise ValueError("another file")
    found: Message = child.json.loads(data)
    return found


def shorten(message: Message) -> Message:
    blocks = projection(message["body"])["blocks"]
    kept = [block for block in blocks if block["kind"] == "system"] + blocks[-2:]
    figures = {"input_tokens_estimate": len(blocks), "output_tokens_estimate": len(kept)}
    return succeeded(seed_blocks=kept, summary={"text": f"{len(blocks)} blocks"}, diagnostics=figures)


def walk(message: Message) -> Message:
    body = message["body"]
    step = body["checkpoint"]["data"]["step"] + 1 if body["mode"] == "resume" else 1
    reached = {"kind": "checkpoint", "data": {"step": step}}
    tell(message, type="checkpoint", checkpoint=reached)
    return succeeded(checkpoint=reached, summary={"text": f"step {step}"}, artifacts=[])


SERVES |= {"tool.invoke": echo, "hook.handle": note, "compactor.compact": shorten, "harness.run": walk}


def instead(op: str, change: Any) -> None:
    """Change what comes of an op: the function gets the message and the proper outcome."""
    proper = SERVES[op]
    SERVES[op] = lambda message: change(message, proper(message))


def result(op: str, **over: Any) -> None:
    """Lay something over what an op gives back; None takes it away."""

    def change(message: Message, outcome: Message) -> Message:
        merged = {**outcome.get("result", {}), **over}
        return {**outcome, "result": {key: value for key, value in merged.items() if value is not None}}

    instead(op, change)
