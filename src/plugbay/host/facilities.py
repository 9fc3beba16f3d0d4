"""`Facilities`: what an application can use of a host beside calls: its services, its bus, its journal.

A part of `Host`'s public face. Owns nothing: everything is made in `assembly`.
"""

from __future__ import annotations

from typing import Any

from plugbay.host.assembly import Backends
from plugbay.host.events.bus import Stream
from plugbay.host.events.snapshots import Snapshots
from plugbay.host.events.subjects import subject_problem
from plugbay.host.inbound.questions import Questions
from plugbay.host.journal import Journal
from plugbay.host.ports import BrokerStatus
from plugbay.host.providers.plugin_backends import Channels
from plugbay.host.screens.screens import Screens
from plugbay.host.services.actions import Actions
from plugbay.host.services.agent_memory import AgentMemory
from plugbay.host.services.llm.registry import LlmRegistry
from plugbay.host.services.vectors import VectorRegistry


class Facilities:
    """The services of a host."""

    _backends: Backends
    _screens: Screens

    def publish(self, topic: str, payload: Any, *, source: str = "host") -> None:
        """Put an event on the bus, from the host's own loop; raises `ValueError` for a topic that cannot be one."""
        problem = subject_problem(topic)
        if problem is not None:
            raise ValueError(f"cannot publish to {topic!r}: {problem}")
        self._backends.services.publish_event(topic, source, payload)

    def subscribe(self, *patterns: str, depth: int = 64) -> Stream:
        """Events of these topics as an async iterator, on the host's own loop. Try `plugin.lifecycle.>`."""
        return self._backends.services.bus.subscribe(*patterns, depth=depth)

    @property
    def broker(self) -> BrokerStatus | None:
        """How this host is joined with others, and what went which way; None when it is not configured."""
        broker = self._backends.broker
        return None if broker is None else broker.status

    @property
    def questions(self) -> Questions | None:
        """Who puts to a person what plugins ask; None: nobody does."""
        return self._backends.services.questions

    @questions.setter
    def questions(self, questions: Questions | None) -> None:
        self._backends.services.questions = questions

    @property
    def memory(self) -> AgentMemory | None:
        """What agents remember; None when it is not configured."""
        return self._backends.services.memory

    @property
    def llm(self) -> LlmRegistry:
        """Language models, from plugbay.toml and from plugins."""
        return self._backends.services.llm

    @property
    def vectors(self) -> VectorRegistry:
        """Vector backends: the embedded one and those of plugins."""
        return self._backends.vectors

    @property
    def channels(self) -> Channels:
        """Channels that plugins carry."""
        return self._backends.channels

    @property
    def screens(self) -> Screens:
        """What plugins draw, on the host's own loop."""
        return self._screens

    @property
    def snapshots(self) -> Snapshots:
        """What was last published under each topic, on the host's own loop."""
        return self._backends.services.snapshots

    @property
    def actions(self) -> Actions:
        """What plugins can have the host do, on the host's own loop."""
        return self._backends.services.actions

    @property
    def journal(self) -> Journal:
        """What plugins logged and what happened to them."""
        return self._backends.services.journal
