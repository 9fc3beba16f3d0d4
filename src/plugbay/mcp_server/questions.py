"""`QuestionRouter`: whom a plugin's question goes to: the client whose call the plugin is working on.

In the modern era of MCP a question comes with the call that it belongs to. In the other one a plugin does not say which
of its calls that is: while all of them come from one client, that is the one who knows; when several do, nobody is
asked, for the wrong person must not get to see the question. When the client has no call at the plugin any more, it is
no longer asked: no plugin keeps a person busy with what nobody waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from plugbay.host.inbound.questions import CANCEL, DECLINE, Question
from plugbay.mcp_server.connection import Call, ClientConnection
from plugbay.model.errors import Failure
from plugbay.model.operations import AskUser


class QuestionRouter:
    """Who is being served, by which plugin. `Host(questions=desk.ask)` lets plugins ask."""

    def __init__(self) -> None:
        self._busy: dict[str, list[Call]] = {}
        self._asking: dict[asyncio.Future[Any], tuple[str, ClientConnection]] = {}
        """Questions that are not answered yet: whose, and to whom."""

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
            if self._asking and all(other.conversation is not call.conversation for other in calls):
                self._withdraw(plugin_id, call.conversation)

    def _withdraw(self, plugin_id: str, client: ClientConnection) -> None:
        for asking, between in self._asking.items():
            if between == (plugin_id, client):
                asking.cancel()

    async def ask(self, question: Question) -> Mapping[str, Any]:
        """What the person at the client says; a client that cannot ask one has declined."""
        calls = self._busy.get(question.plugin, [])
        if question.during is not None:
            calls = [call for call in calls if call.passed_on is question.during]
        if len({id(call.conversation) for call in calls}) != 1:
            return {"action": DECLINE}
        call = calls[0]
        asking = asyncio.ensure_future(call.ask(AskUser(question.message, question.schema, question.url)))
        self._asking[asking] = (question.plugin, call.conversation)
        try:
            await asyncio.wait({asking})
        finally:
            del self._asking[asking]
            asking.cancel()
        if asking.cancelled():
            return {"action": CANCEL}
        said = asking.result()
        return {"action": DECLINE} if isinstance(said, Failure) else said
