"""Hooks: plugins are asked one after the other what they think of an event, and may change or stop it.

Owns what an answer means for the event and for the plugins that are asked later (`apply`, pure), and the walk through
them (`fire`). A plugin that fails or answers nonsense is passed over: it must not stop the agent. Knows nothing of
processes, deadlines and who is registered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plugbay.model.errors import CallFailed, Code, Failure, Origin

MAX_HANDLERS = 128
"""Plugins asked per hook. Each may take its full time, and the agent waits for all of them."""

AFTER = "after_"
"""Hooks whose name starts so tell what has happened already; there is nothing left to stop."""

ALLOW, BLOCK, TRANSFORM = "allow", "block", "transform"
DECISIONS = frozenset({ALLOW, BLOCK, TRANSFORM})

Ask = Callable[[str, str, Mapping[str, Any]], Awaitable[object]]
"""`ask(plugin_id, hook, event)`: the plugin's answer, or the `Failure` to get one. Bounds its own time."""


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What came out of the hook so far."""

    event: Mapping[str, Any]
    """The event as the next plugin sees it."""
    blocked: bool = False
    blocked_by: str | None = None
    reason: str | None = None
    """The last explanation a plugin gave; of a blocked event, why it is blocked."""
    decision: str | None = None
    """The last decision a plugin named."""
    transformed_body: str | None = None
    do_not_reply_again: bool = False
    """A plugin asked that the conversation gets no more automatic replies."""
    skipped: tuple[tuple[str, Failure], ...] = ()
    """Plugins that failed, and those of whose answer something could not be used."""


def apply(outcome: HookOutcome, hook_name: str, plugin_id: str, response: object) -> HookOutcome:
    """The outcome after one more answer. A field of a wrong kind counts as absent and is reported."""
    if not isinstance(response, Mapping):
        return _skip(outcome, plugin_id, _malformed(plugin_id, ["the answer"]))
    answer, wrong = _read(response)
    if wrong:
        outcome = _skip(outcome, plugin_id, _malformed(plugin_id, wrong))
    decision = answer.get("decision")
    outcome = replace(
        outcome,
        reason=answer.get("reason", outcome.reason),
        decision=answer.get("decision", outcome.decision),
        do_not_reply_again=outcome.do_not_reply_again or answer.get("do_not_reply_again", False),
    )
    if (answer.get("abort") or decision == BLOCK) and not hook_name.startswith(AFTER):
        return replace(outcome, blocked=True, blocked_by=plugin_id, reason=answer.get("reason"), decision=BLOCK)
    outcome = replace(outcome, event={**outcome.event, **answer.get("override", {})})
    if decision == TRANSFORM and "transformed_body" in answer:
        return _transform(outcome, answer["transformed_body"])
    return outcome


async def fire(hook: str, event: Mapping[str, Any], handlers: Sequence[str], ask: Ask) -> HookOutcome:
    """Ask the plugins in order until one blocks. Ends with an outcome whatever they do; only cancelling it raises."""
    outcome = HookOutcome(event)
    for plugin_id in handlers[:MAX_HANDLERS]:
        response = await _answer(ask, plugin_id, hook, outcome.event)
        if isinstance(response, Failure):
            outcome = _skip(outcome, plugin_id, response)
        else:
            outcome = apply(outcome, hook, plugin_id, response)
        if outcome.blocked:
            return outcome
    for plugin_id in handlers[MAX_HANDLERS:]:
        text = f"{hook} asks at most {MAX_HANDLERS} plugins"
        outcome = _skip(outcome, plugin_id, Failure(Code.OVERLOADED, text, plugin=plugin_id))
    return outcome


async def _answer(ask: Ask, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
    try:
        return await ask(plugin_id, hook, event)
    except CallFailed as error:
        return error.failure
    except Exception as error:
        return Failure(Code.INTERNAL, f"asking {plugin_id} failed: {error!r}", plugin=plugin_id)


_KINDS: dict[str, Callable[[Any], bool]] = {
    "abort": lambda value: isinstance(value, bool),
    "reason": lambda value: isinstance(value, str),
    "override": lambda value: isinstance(value, Mapping),
    "decision": lambda value: isinstance(value, str) and value in DECISIONS,
    "transformed_body": lambda value: isinstance(value, str),
    "do_not_reply_again": lambda value: isinstance(value, bool),
}


def _read(response: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The usable fields of an answer, and the names of the others; null is absent, unknown names are ignored."""
    given = {name: response[name] for name in _KINDS if response.get(name) is not None}
    usable = {name: value for name, value in given.items() if _KINDS[name](value)}
    wrong = [name for name in given if name not in usable]
    if usable.get("decision") == TRANSFORM and "transformed_body" not in given:
        wrong.append("transformed_body")
    return usable, wrong


def _transform(outcome: HookOutcome, body: str) -> HookOutcome:
    event = {**outcome.event, "body": body} if "body" in outcome.event else outcome.event
    return replace(outcome, event=event, transformed_body=body)


def _skip(outcome: HookOutcome, plugin_id: str, failure: Failure) -> HookOutcome:
    return replace(outcome, skipped=(*outcome.skipped, (plugin_id, failure)))


def _malformed(plugin_id: str, fields: list[str]) -> Failure:
    text = f"the answer to a hook has parts that cannot be used: {', '.join(fields)}"
    return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN, plugin=plugin_id, detail={"fields": fields})
