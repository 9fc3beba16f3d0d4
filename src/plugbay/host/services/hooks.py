"""Hooks: plugins are called in order with an event, and may change or block it.

`apply` is pure: the meaning of one response for the event and for the plugins after it. `fire` calls the plugins. A
plugin that fails or responds with nonsense is skipped: it must not stop the agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.wire.fast_json import MsgspecCodec
from plugbay.wire.strict_json import Unencodable

MAX_HANDLERS = 128
"""Plugins called per hook. Each may take its full time, and the agent waits for all of them."""

MAX_EVENT = 1_000_000
"""Bytes of an event that a plugin has changed, as JSON. Plugins read at most 1 MiB: a larger event would silence every
later plugin, including a guard that blocks."""

MAX_INJECTION = 256 * 1024
"""Characters of one text for the agent; a longer one would leave no room for the conversation."""

AFTER = "after_"
"""Prefix of hooks about past events; these cannot be blocked."""

ALLOW, BLOCK, TRANSFORM = "allow", "block", "transform"
DECISIONS = frozenset({ALLOW, BLOCK, TRANSFORM})

_CODEC = MsgspecCodec()

Ask = Callable[[str, str, Mapping[str, Any]], Awaitable[object]]
"""`ask(plugin_id, hook, event)`: the plugin's response, or a `Failure`. Has its own timeout."""


class HookOutcome(msgspec.Struct, frozen=True):
    """The result of a hook so far."""

    event: Mapping[str, Any]
    """The event as the next plugin sees it."""
    blocked: bool = False
    blocked_by: str | None = None
    reason: str | None = None
    """The last reason that a plugin gave; of a blocked event, why it is blocked."""
    decision: str | None = None
    """The last decision of a plugin."""
    transformed_body: str | None = None
    do_not_reply_again: bool = False
    """A plugin asked that the conversation gets no more automatic replies."""
    skipped: tuple[tuple[str, Failure], ...] = ()
    """Plugins that failed, or whose response has invalid parts."""
    injections: tuple[tuple[str, str], ...] = ()
    """Text that plugins add to the conversation: (plugin, text), in the order of the calls."""

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        return {
            "event": dict(self.event),
            "blocked": self.blocked,
            "blocked_by": self.blocked_by,
            "reason": self.reason,
            "decision": self.decision,
            "transformed_body": self.transformed_body,
            "do_not_reply_again": self.do_not_reply_again,
            "injections": injections_json(self.injections),
            "skipped": failures_json(self.skipped),
        }


def injections_json(injections: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """The public shape of texts for the conversation."""
    return [{"plugin": plugin_id, "text": text} for plugin_id, text in injections]


def failures_json(failures: Sequence[tuple[str, Failure]]) -> list[dict[str, Any]]:
    """The public shape of the plugins that were skipped."""
    return [{"plugin": plugin_id, "failure": failure.to_json()} for plugin_id, failure in failures]


def apply(outcome: HookOutcome, hook_name: str, plugin_id: str, response: object) -> HookOutcome:
    """The outcome after one more response. Null changes nothing; an invalid field is skipped and reported."""
    if response is None:
        return outcome
    if not isinstance(response, Mapping):
        return _skip(outcome, plugin_id, _malformed(plugin_id, ["the answer"]))
    answer, wrong = _read(response)
    if wrong:
        outcome = _skip(outcome, plugin_id, _malformed(plugin_id, wrong))
    decision = answer.get("decision")
    if answer.get("inject"):
        outcome = replace(outcome, injections=(*outcome.injections, (plugin_id, answer["inject"])))
    outcome = replace(
        outcome,
        reason=answer.get("reason", outcome.reason),
        decision=answer.get("decision", outcome.decision),
        do_not_reply_again=outcome.do_not_reply_again or answer.get("do_not_reply_again", False),
    )
    if answer.get("abort") or decision == BLOCK:
        if not hook_name.startswith(AFTER):
            return replace(outcome, blocked=True, blocked_by=plugin_id, reason=answer.get("reason"), decision=BLOCK)
        outcome = _skip(outcome, plugin_id, _too_late(plugin_id, hook_name, answer))
    return _change(outcome, plugin_id, answer)


async def fire(hook: str, event: Mapping[str, Any], handlers: Sequence[str], ask: Ask) -> HookOutcome:
    """Call the plugins in order until one blocks. Always returns an outcome; only a cancellation raises."""
    outcome = HookOutcome(event)
    for plugin_id in handlers[:MAX_HANDLERS]:
        response = await call_hook(ask, plugin_id, hook, outcome.event)
        if isinstance(response, Failure):
            outcome = _skip(outcome, plugin_id, response)
        else:
            outcome = apply(outcome, hook, plugin_id, response)
        if outcome.blocked:
            return outcome
    for plugin_id in handlers[MAX_HANDLERS:]:
        text = f"{hook} calls at most {MAX_HANDLERS} plugins"
        outcome = _skip(outcome, plugin_id, Failure(Code.OVERLOADED, text, plugin=plugin_id))
    return outcome


async def call_hook(ask: Ask, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
    """The plugin's response, or a `Failure`; only a cancellation raises."""
    try:
        return await ask(plugin_id, hook, event)
    except CallFailed as error:
        return error.failure
    except Exception as error:
        return Failure(Code.INTERNAL, f"asking {plugin_id} failed: {error!r}", plugin=plugin_id)


_CHANGES = ("override", "transformed_body")

_KINDS: dict[str, Callable[[Any], bool]] = {
    "abort": lambda value: isinstance(value, bool),
    "reason": lambda value: isinstance(value, str),
    "override": lambda value: isinstance(value, Mapping),
    "decision": lambda value: isinstance(value, str) and value in DECISIONS,
    "transformed_body": lambda value: isinstance(value, str),
    "do_not_reply_again": lambda value: isinstance(value, bool),
    "inject": lambda value: isinstance(value, str) and len(value) <= MAX_INJECTION,
}


def _read(response: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The valid fields of a response, and the names of the invalid ones; null is absent, unknown names are ignored."""
    given = {name: response[name] for name in _KINDS if response.get(name) is not None}
    usable = {name: value for name, value in given.items() if _KINDS[name](value)}
    wrong = [name for name in given if name not in usable]
    if usable.get("decision") == TRANSFORM and "transformed_body" not in given:
        wrong.append("transformed_body")
    return usable, wrong


def _change(outcome: HookOutcome, plugin_id: str, answer: Mapping[str, Any]) -> HookOutcome:
    """Apply the changes of a response to the event that later plugins get."""
    changed = dict(answer.get("override", {}))
    body = answer.get("transformed_body") if answer.get("decision") == TRANSFORM else None
    if body is not None and "body" in {**outcome.event, **changed}:
        changed["body"] = body
    event = {**outcome.event, **changed}
    if changed and not _fits(event):
        return _skip(outcome, plugin_id, _malformed(plugin_id, [name for name in _CHANGES if name in answer]))
    return replace(outcome, event=event, transformed_body=outcome.transformed_body if body is None else body)


def _fits(event: Mapping[str, Any]) -> bool:
    try:
        return len(_CODEC.encode(dict(event))) <= MAX_EVENT
    except Unencodable:
        return False


def _skip(outcome: HookOutcome, plugin_id: str, failure: Failure) -> HookOutcome:
    return replace(outcome, skipped=(*outcome.skipped, (plugin_id, failure)))


def _too_late(plugin_id: str, hook_name: str, answer: Mapping[str, Any]) -> Failure:
    """A block of something that has happened already."""
    field = "abort" if answer.get("abort") else "decision"
    text = f"{hook_name} reports a past event and cannot be blocked: {field} is ignored"
    if answer.get("reason"):
        text += f" (its reason: {answer['reason']:.200})"
    return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN, plugin=plugin_id, detail={"fields": [field]})


def _malformed(plugin_id: str, fields: list[str]) -> Failure:
    text = f"the answer to a hook has parts that cannot be used: {', '.join(fields)}"
    return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN, plugin=plugin_id, detail={"fields": fields})
