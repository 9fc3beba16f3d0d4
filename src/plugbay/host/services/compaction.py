"""Compaction: an agent's conversation grew too long, and plugins have a say in what is left of it.

Owns who is asked in which order, what an answer means, and the built-in strategies. The host compacts whatever the
plugins do: a plugin that fails or answers nonsense is passed over and listed. Knows nothing of processes, deadlines and
contracts. It calls no model either: `summarize`, `delegate` and `checkpoint` leave a note where messages were removed,
and an application that wants a summary in its place brings one, or a compactor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from plugbay.host.services.hooks import MAX_INJECTION, Ask
from plugbay.model.errors import CallFailed, Code, Failure, Origin
from plugbay.model.spec import PluginSpec

PRE, POST = "pre_compact", "post_compact"
OBSERVER, COMPACTOR = "observer", "compactor"

DROP = "drop"
STRATEGIES = (DROP, "summarize", "delegate", "checkpoint")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Who takes part in the compaction of one agent's conversation, in the order they were declared."""

    agent: str
    observers: Sequence[str] = ()
    compactor: str | None = None
    hooks: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The hooks each plugin wants; one that is not named here wants both."""

    def wants(self, plugin_id: str, hook: str) -> bool:
        return plugin_id not in self.hooks or hook in self.hooks[plugin_id]


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """A conversation to make shorter."""

    messages: Sequence[Message]
    strategy: str = DROP
    trigger: str = "unknown"
    """What made it necessary, as `token_limit`."""
    keep: int = 20
    """The last messages that the built-in strategies leave, besides those of the system."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"{self.strategy!r} is not a strategy of compaction; there are {', '.join(STRATEGIES)}")
        if self.keep < 0:
            raise ValueError("a compaction cannot keep fewer than no messages")


@dataclass(frozen=True, slots=True)
class CompactionOutcome:
    """What is left of the conversation, and who had a hand in it."""

    messages: Sequence[Message]
    removed: Sequence[Message]
    compacted_by: str | None = None
    """The compactor whose messages these are; None when the built-in strategy made them."""
    built_in_because: str | None = None
    """Why a compactor that was asked did not decide."""
    injections: tuple[tuple[str, str], ...] = ()
    """(plugin, text) for what plugins want the agent to be told, in the order they were asked."""
    failures: tuple[tuple[str, Failure], ...] = ()
    """Plugins that failed, and those of whose answer something could not be used."""


def plan_for(agent: str, plugins: Iterable[PluginSpec]) -> CompactionPlan | Failure:
    """Who takes part, of the plugins attached to an agent. An agent has at most one compactor."""
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
    """Ask everybody and compact. Ends with an outcome whatever they do; only cancelling it raises."""
    about = {"strategy": request.strategy, "trigger": request.trigger}
    round_ = _Round(plan, ask)
    for plugin_id in plan.observers:
        await round_.ask(plugin_id, PRE, about)
    outcome = built_in(request)
    if plan.compactor is not None:
        whole = {**about, "messages": list(request.messages), "keep": request.keep}
        answer = await round_.ask(plan.compactor, PRE, whole)
        outcome = decided(request, plan.compactor, answer)
    after = {**about, "messages_being_compacted": outcome.removed, "messages_remaining": outcome.messages}
    for plugin_id in (*plan.observers, *filter(None, (plan.compactor,))):
        await round_.ask(plugin_id, POST, after)
    return replace(outcome, injections=tuple(round_.injections), failures=tuple(round_.failures))


class _Round:
    """The walk through the plugins, and what it gathers."""

    def __init__(self, plan: CompactionPlan, ask: Ask) -> None:
        self._plan = plan
        self._ask = ask
        self.injections: list[tuple[str, str]] = []
        self.failures: list[tuple[str, Failure]] = []

    async def ask(self, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
        """The plugin's answer, or the failure to get one; None from a plugin that does not want to be asked."""
        if not self._plan.wants(plugin_id, hook):
            return None
        answer = await self._answer(plugin_id, hook, event)
        failure = answer if isinstance(answer, Failure) else _problem(plugin_id, hook, answer)
        if failure is not None:
            self.failures.append((plugin_id, failure))
        elif isinstance(answer, Mapping) and answer.get("inject"):
            self.injections.append((plugin_id, answer["inject"]))
        return answer

    async def _answer(self, plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
        try:
            return await self._ask(plugin_id, hook, event)
        except CallFailed as error:
            return error.failure
        except Exception as error:
            return Failure(Code.INTERNAL, f"asking {plugin_id} failed: {error!r}", plugin=plugin_id)


def _problem(plugin_id: str, hook: str, answer: object) -> Failure | None:
    """What of an answer cannot be used. Null is an answer, and so is an object with nothing in it."""
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


# The decisions, with values only.


def decided(request: CompactionRequest, compactor: str, answer: object) -> CompactionOutcome:
    """The compactor's messages, or the built-in strategy and why."""
    why = _why_not(answer, request)
    if why is not None or not isinstance(answer, Mapping):
        return replace(built_in(request), built_in_because=why)
    kept = list(answer["messages"])
    return CompactionOutcome(kept, _missing(request.messages, kept), compacted_by=compactor)


def _missing(messages: Sequence[Message], kept: Sequence[Message]) -> list[Message]:
    """The messages that are not kept; of two that are alike, one may be."""
    left = Counter(map(_fingerprint, kept))
    left.subtract(map(_fingerprint, messages))
    removed = []
    for message in messages:
        name = _fingerprint(message)
        if left[name] < 0:
            left[name] += 1
            removed.append(message)
    return removed


def _why_not(answer: object, request: CompactionRequest) -> str | None:
    if isinstance(answer, Failure):
        return f"it failed: {answer.message}"
    if answer is None or answer == {}:
        return "it left the decision to the host"
    messages = answer.get("messages") if isinstance(answer, Mapping) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return "its answer holds no messages (a list of objects)"
    if request.messages and not messages:
        return "its answer leaves nothing of the conversation"
    if _size(messages) > _size(request.messages):
        return "its answer is longer than the conversation it was given"
    return None


def built_in(request: CompactionRequest) -> CompactionOutcome:
    """What the system said and the last messages; every strategy but `drop` notes how many are gone."""
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
