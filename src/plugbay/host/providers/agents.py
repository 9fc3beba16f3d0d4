"""`Agents`: hooks and compaction for agents, with the plugins attached to each.

Owns which plugins belong to which agent, and their order. The meaning of responses is in the services `hooks` and
`compaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plugbay.host.calls.calls import Calls
from plugbay.host.config.config import AgentConfig
from plugbay.host.request import CallRequest
from plugbay.host.services import compaction, hooks
from plugbay.host.services.compaction import CompactionOutcome, CompactionPlan, CompactionRequest
from plugbay.host.services.hooks import HookOutcome
from plugbay.model.errors import CallFailed, ConfigInvalid, Failure, Problem
from plugbay.model.ids import full_name
from plugbay.model.operations import RunHook
from plugbay.model.spec import Export, PluginSpec

PRIMARY = "primary"
"""The default agent."""

HOOK_FAILED = "hook_failed"
"""The counter of a plugin's failed hooks, and of responses with parts that are ignored."""


class Agents:
    """Every agent of one host; an agent that is not configured has every plugin."""

    def __init__(
        self,
        settings: Mapping[str, AgentConfig],
        specs: Mapping[str, PluginSpec],
        calls: Calls,
        note: Callable[[str, str, str], object],
    ) -> None:
        """`note(plugin_id, kind, text)` adds to the journal.

        Raises `ConfigInvalid` for an invalid agent, such as one with two compactors.
        """
        self._note = note
        self._settings = settings
        self._specs = specs
        self._calls = calls
        problems = [problem for name in settings for problem in self._problems(name)]
        if problems:
            raise ConfigInvalid("plugbay.toml", problems)

    def attached(self, agent: str) -> list[PluginSpec]:
        """The plugins of an agent, in the order of their calls."""
        settings = self._settings.get(agent)
        if settings is None:
            return list(self._specs.values())
        return [self._specs[plugin_id] for plugin_id in settings.plugins if plugin_id in self._specs]

    def missing(self) -> dict[str, list[str]]:
        """Plugins of agents that this host does not have."""
        named = {agent: ours.plugins for agent, ours in self._settings.items()}
        absent = {agent: [name for name in names if name not in self._specs] for agent, names in named.items()}
        return {agent: names for agent, names in absent.items() if names}

    async def fire(
        self, agent: str, hook: str, event: Mapping[str, Any], context: Mapping[str, Any], timeout: float | None
    ) -> HookOutcome:
        """Call every plugin of the agent that handles `hook`; a plugin that fails is skipped, and that is noted."""
        exports = {spec.id: _export(spec, hook) for spec in self.attached(agent)}
        handlers = {
            plugin_id: bool(export.facts.get("advisory"))
            for plugin_id, export in exports.items()
            if export is not None and (agent == PRIMARY or not export.facts.get("primary_only"))
        }
        ask = self._make_ask(agent, context, timeout)

        async def ask_handler(plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
            answer = await ask(plugin_id, hook, event)
            return _only_inject(answer) if handlers[plugin_id] else answer

        outcome = await hooks.fire(hook, event, list(handlers), ask_handler)
        for plugin_id, failure in outcome.skipped:
            self._note(plugin_id, HOOK_FAILED, f"{hook}: {failure.code}: {failure.message}")
        return outcome

    async def compact(
        self, agent: str, messages: Sequence[Mapping[str, Any]], trigger: str, context: Mapping[str, Any]
    ) -> CompactionOutcome:
        """Compact the agent's conversation with its plugins."""
        plan = self._plan(agent)
        if isinstance(plan, Failure):
            raise CallFailed(plan)
        settings = self._settings.get(agent) or AgentConfig.default()
        request = CompactionRequest([dict(item) for item in messages], settings.strategy, trigger, settings.keep)
        return await compaction.compact(plan, request, self._make_ask(agent, context, None))

    def _plan(self, agent: str) -> CompactionPlan | Failure:
        return compaction.plan_for(agent, self.attached(agent))

    def _make_ask(self, agent: str, context: Mapping[str, Any], timeout: float | None) -> hooks.Ask:
        about = {"agent_path": agent, **context}

        async def ask(plugin_id: str, hook: str, event: Mapping[str, Any]) -> object:
            op = RunHook(hook, dict(event), about)
            result = await self._calls.run(
                CallRequest(full_name(plugin_id, hook), timeout=timeout, make_operation=lambda _: op)
            )
            return result.failure if result.failure is not None else result.value()

        return ask

    def _problems(self, agent: str) -> list[Problem]:
        plan = self._plan(agent)
        path = f"agents.{agent}.plugins"
        return [Problem("two_compactors", path, plan.message)] if isinstance(plan, Failure) else []


def _export(spec: PluginSpec, hook: str) -> Export | None:
    """The hook of that name. Hooks with subscriptions get delivered events and are not part of an agent's turn."""
    hooks = (export for export in spec.exports if export.kind == "hook" and "subscribes_to" not in export.facts)
    return next((export for export in hooks if export.name == hook), None)


def _only_inject(answer: object) -> object:
    """The response of an advisory hook: it may add text but decide nothing."""
    return {"inject": answer.get("inject")} if isinstance(answer, Mapping) else answer
