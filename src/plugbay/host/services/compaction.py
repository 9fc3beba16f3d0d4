"""Compaction of an agent's conversation, with its plugins and with built-in strategies.

The host compacts in any case: a plugin that fails or responds with nonsense is skipped and listed. No model is called:
`summarize`, `delegate` and `checkpoint` leave a note where messages were removed; a summary comes from a compactor or
from the application.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from plugbay.host.services.hooks import MAX_INJECTION, Ask, call_hook, failures_json, injections_json
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.spec import PluginSpec

PRE, POST = "pre_compact", "post_compact"
OBSERVER, COMPACTOR = "observer", "compactor"

DROP = "drop"
STRATEGIES = (DROP, "summarize", "delegate", "checkpoint")

Message = dict[str, Any]


class CompactionPlan(msgspec.Struct, frozen=True):
    """The plugins of one agent's compaction, in the order of their declaration."""

    agent: str
    observers: Sequence[str] = ()
    compactor: str | None = None
    hooks: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    """The hooks of each plugin; a plugin that is missing here has both."""

    def wants(self, plugin_id: str, hook: str) -> bool:
        return plugin_id not in self.hooks or hook in self.hooks[plugin_id]


class CompactionRequest(msgspec.Struct, frozen=True):
    """A conversation to make shorter."""

    messages: Sequence[Message]
    strategy: str = DROP
    trigger: str = "unknown"
    """The reason, such as `token_limit`."""
    keep: int = 20
    """How many of the last messages the built-in strategies keep, besides system messages."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"{self.strategy!r} is not a strategy of compaction; there are {', '.join(STRATEGIES)}")
        if self.keep < 0:
            raise ValueError("the number of kept messages must not be negative")


class CompactionOutcome(msgspec.Struct, frozen=True):
    """The compacted conversation, and the plugins that took part."""

    messages: Sequence[Message]
    removed: Sequence[Message]
    compacted_by: str | None = None
    """The compactor that made the messages; None for the built-in strategy."""
    built_in_because: str | None = None
    """Why the compactor's result was not used."""
    injections: tuple[tuple[str, str], ...] = ()
    """Text that plugins add to the conversation: (plugin, text), in the order of the calls."""
    failures: tuple[tuple[str, Failure], ...] = ()
    """Plugins that failed, or whose response has invalid parts."""

    def to_json(self) -> dict[str, Any]:
        """The public shape."""
        return {
            "messages": list(self.messages),
            "removed": list(self.removed),
            "compacted_by": self.compacted_by,
            "built_in_because": self.built_in_because,
            "injections": injections_json(self.injections),
            "failures": failures_json(self.failures),
        }


def plan_for(agent: str, plugins: Iterable[PluginSpec]) -> CompactionPlan | Failure:
    """The plan for the plugins of an agent. An agent has at most one compactor."""
    attached = list(plugins)
    compactors = [spec.id for spec in attached if COMPACTOR in spec.roles]
    if len(compactors) > 1:
        text = f"{agent} has more than one compactor: {', '.join(compactors)}; an agent has at most one"
        return Failure(Code.INVALID_INPUT, text, detail={"agent": agent, "compactors": compactors})
    observers = [spec.id for spec in attached if OBSERVER in spec.roles and spec.id not in compactors]
    hooks = {
        spec.id: frozenset(export.name for export in spec.exports if export.kind == "hook") & {PRE, POST}
        for spec in attached
    }
    return CompactionPlan(agent, tuple(observers), compactors[0] if compactors else None, hooks)


async def compact(plan: CompactionPlan, request: CompactionRequest, ask: Ask) -> CompactionOutcome:
    """Call the plugins and compact. Always returns an outcome; only a cancellation raises."""
    about = {"strategy": request.strategy, "trigger": request.trigger}
    round_ = _Round(plan, ask)
    for plugin_id in plan.observers:
        await round_.ask(plugin_id, PRE, about)
    outcome = built_in(request)
    if plan.compactor is not None:
        whole = {**about, "messages": list(request.messages), "keep": request.keep}
        answer = await round_.ask(plan.compactor, PRE, whole)
        outcome = apply_compactor(request, plan.compactor, answer)
    after = {**about, "messages_being_compacted": outcome.removed, "messages_remaining": outcome.messages}
    for plugin_id in (*plan.observers, *filter(None, (plan.compactor,))):
        await round_.ask(plugin_id, POST, after)
    return replace(outcome, injections=tuple(round_.injections), failures=tuple(round_.failures))


class _Round:
    """Calls the plugins, and collects their injections and failures."""

    def __init__(self, plan: CompactionPlan, ask: Ask) -> None:
        self._plan = plan
        self._ask = ask
        self.injections: list[tuple[str, str]] = []
        self.failures: list[tuple[str, Failure]] = []

    async def ask(self, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
        """The plugin's response, or the failure; None from a plugin without this hook."""
        if not self._plan.wants(plugin_id, hook):
            return None
        answer = await call_hook(self._ask, plugin_id, hook, event)
        failure = answer if isinstance(answer, Failure) else _problem(plugin_id, hook, answer)
        if failure is not None:
            self.failures.append((plugin_id, failure))
        elif isinstance(answer, Mapping) and answer.get("inject"):
            self.injections.append((plugin_id, answer["inject"]))
        return answer


def _problem(plugin_id: str, hook: str, answer: object) -> Failure | None:
    """The invalid part of a response; None if it is valid, as null and an empty object are."""
    if answer is not None and not isinstance(answer, Mapping):
        return _malformed(plugin_id, f"the answer to {hook} is neither an object nor null")
    inject = None if answer is None else answer.get("inject")
    if inject is not None and not isinstance(inject, str):
        return _malformed(plugin_id, f"inject in the answer to {hook} is not a string")
    if inject is not None and len(inject) > MAX_INJECTION:
        text = f"inject in the answer to {hook} has {len(inject):,} characters; at most {MAX_INJECTION:,}"
        return _malformed(plugin_id, text)
    return None


def _malformed(plugin_id: str, text: str) -> Failure:
    return Failure(Code.MALFORMED_RESPONSE, text, origin=Origin.PLUGIN, plugin=plugin_id)


# Pure decisions.


def apply_compactor(request: CompactionRequest, compactor: str, answer: object) -> CompactionOutcome:
    """The compactor's messages, or the built-in strategy and why."""
    why = _rejection(answer, request)
    if why is not None or not isinstance(answer, Mapping):
        return replace(built_in(request), built_in_because=why)
    kept = list(answer["messages"])
    return CompactionOutcome(kept, _removed(request.messages, kept), compacted_by=compactor)


def _removed(messages: Sequence[Message], kept: Sequence[Message]) -> list[Message]:
    """The messages that are not kept; equal messages are counted."""
    left = Counter(map(_fingerprint, kept))
    left.subtract(map(_fingerprint, messages))
    removed = []
    for message in messages:
        name = _fingerprint(message)
        if left[name] < 0:
            left[name] += 1
            removed.append(message)
    return removed


def _rejection(answer: object, request: CompactionRequest) -> str | None:
    if isinstance(answer, Failure):
        return f"it failed: {answer.message}"
    if answer is None or answer == {}:
        return "it left the decision to the host"
    messages = answer.get("messages") if isinstance(answer, Mapping) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return "its answer has no messages (a list of objects)"
    if request.messages and not messages:
        return "its answer leaves no messages"
    if _size(messages) > _size(request.messages):
        return "its answer is longer than the conversation it was given"
    return None


def built_in(request: CompactionRequest) -> CompactionOutcome:
    """System messages and the last ones; every strategy but `drop` leaves a note with the number of removed ones."""
    others = [at for at, message in enumerate(request.messages) if message.get("role") != "system"]
    gone = set(others[: max(len(others) - request.keep, 0)])
    removed = [request.messages[at] for at in sorted(gone)]
    kept = [message for at, message in enumerate(request.messages) if at not in gone]
    if removed and request.strategy != DROP:
        kept.insert(min(gone), _note(len(removed)))
    return CompactionOutcome(kept, removed)


def _note(count: int) -> Message:
    messages = "1 earlier message was" if count == 1 else f"{count} earlier messages were"
    return {"role": "system", "content": f"[{messages} removed from this conversation]"}


def _size(messages: Sequence[Message]) -> int:
    return sum(len(_fingerprint(message)) for message in messages)


def _fingerprint(message: Message) -> bytes:
    return msgspec.json.encode(message, order="deterministic")
