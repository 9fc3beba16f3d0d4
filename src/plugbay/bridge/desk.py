"""`Desk`: whom a plugin's question goes to: the client whose call the plugin is working on.

A plugin does not say which of its calls a question belongs to. While all of them come from one client, that is the one
who knows; when several do, nobody is asked, for the wrong person must not get to see the question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from plugbay.bridge.conversation import Call
from plugbay.host.questions import DECLINE, Question
from plugbay.model.errors import Failure
from plugbay.model.operations import AskUser


class Desk:
    """Who is being served, by which plugin. `Host(questions=desk.ask)` lets plugins ask."""

    def __init__(self) -> None:
        self._busy: dict[str, list[Call]] = {}

    @contextmanager
    def serving(self, plugin_id: str, call: Call) -> Iterator[None]:
        """As long as the plugin works on the call."""
        calls = self._busy.setdefault(plugin_id, [])
        calls.append(call)
        try:
            yield
        finally:
            calls.remove(call)
            if not calls:
                del self._busy[plugin_id]

    async def ask(self, question: Question) -> Mapping[str, Any]:
        """What the person at the client says; a client that cannot ask one has declined."""
        calls = self._busy.get(question.plugin, [])
        if len({id(call.conversation) for call in calls}) != 1:
            return {"action": DECLINE}
        said = await calls[0].ask(AskUser(question.message, question.schema, question.url))
        return {"action": DECLINE} if isinstance(said, Failure) else said
