"""Gives back what a hook, a compactor or a harness may not give, as KIND says; where that is nothing, what it may."""

from __future__ import annotations

from child import KIND, OPS, SERVES, Message, serve, tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT = [{"type": "text", "text": "hello"}]
SUMMARY = {"text": "short"}


def seed(*blocks: Any, **more: Any) -> Message:
    return {"seed_blocks": list(blocks), "summary": SUMMARY, **more}


def block(kind: str, **more: Any) -> Message:
    return {"kind": kind, "content": TEXT, **more}


SYSTEM = block("system")

RESULTS: dict[str, Any] = {
    "good_seed": seed(SYSTEM, block("input")),
    "boasts": seed(SYSTEM, block("input"), diagnostics={"output_tokens_estimate": 999_999_999}),
    "no_seed": {"summary": SUMMARY},
    "empty_seed": seed(),
    "seed_text": {"seed_blocks": "hello", "summary": SUMMARY},
    "own_kind": seed(SYSTEM, block("digest")),
    "content_text": seed(SYSTEM, {"kind": "input", "content": "hello"}),
    "call_without_result": seed(SYSTEM, block("tool_call", tool_call_id="a", name="t")),
    "result_without_call": seed(SYSTEM, block("tool_result", tool_call_id="a")),
    "no_system": seed(block("input")),
    "over_budget": seed(SYSTEM, block("input", pad="x" * 100_000)),
    "says_small": seed(SYSTEM, block("input", pad="x" * 100_000), diagnostics={"output_tokens_estimate": 1}),
    "good_walk": {"checkpoint": {"kind": "checkpoint", "data": {"step": 1}}, "summary": SUMMARY, "artifacts": []},
    "walk_text": "done",
    "bare_checkpoint": {"checkpoint": {"step": 1}, "summary": SUMMARY},
    "large_checkpoint": {"checkpoint": {"kind": "checkpoint", "data": "x" * 300_000}, "summary": SUMMARY},
    "artifact_elsewhere": {
        "summary": SUMMARY,
        "artifacts": [{"path": "../../secret", "media_type": "x/y", "size_bytes": 1, "sha256": "0" * 64}],
    },
    "odd_checkpoint_event": {"summary": SUMMARY, "artifacts": []},
}

STATUSES: dict[str, Message] = {
    "hook_acknowledges": {"status": "ack"},
    "hook_succeeds": {"status": "succeeded", "result": {"veto": True}},
    "hook_fails": {"status": "failed", "error": {"code": "canary.broken", "message": "no"}},
    "hook_says_ok": {"status": "ok"},
}


def work(message: Message) -> Message:
    if KIND == "odd_checkpoint_event":
        tell(message, type="checkpoint", data=1)
    return STATUSES.get(KIND) or {"status": "succeeded", "result": RESULTS[KIND]}


SERVES |= dict.fromkeys(OPS, work)
serve()
