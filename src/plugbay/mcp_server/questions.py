"""`QuestionRouter`: sends the question of a plugin to the client whose call the plugin is working on.

In the modern era a question names its call. With a handshake it does not: if all open calls of the plugin come from one
client, that client is asked; if several clients have calls open, the question is declined, because a question must
never reach the wrong person. A question is withdrawn when its client has no call open at the plugin.
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
    """The open calls of each plugin. Pass `Host(questions=router.ask)` so that plugins can ask."""

    def __init__(self) -> None:
        self._busy: dict[str, list[Call]] = {}
        self._asking: dict[asyncio.Future[Any], tuple[str, ClientConnection]] = {}
        """Open questions, each with its plugin and client."""

    @contextmanager
    def serving(self, plugin_id: str, call: Call) -> Iterator[None]:
        """Mark the plugin as working on the call, for the duration of the block."""
        calls = self._busy.setdefault(plugin_id, [])
        calls.append(call)
        try:
            yield
        finally:
            calls.remove(call)
            if not calls:
                del self._busy[plugin_id]
            if self._asking and all(other.connection is not call.connection for other in calls):
                self._withdraw(plugin_id, call.connection)

    def _withdraw(self, plugin_id: str, client: ClientConnection) -> None:
        for asking, between in self._asking.items():
            if between == (plugin_id, client):
                asking.cancel()

    async def ask(self, question: Question) -> Mapping[str, Any]:
        """The answer of the person at the client; a client that cannot ask a person declines."""
        calls = self._busy.get(question.plugin, [])
        if question.during is not None:
            calls = [call for call in calls if call.forwarded_op is question.during]
        if len({id(call.connection) for call in calls}) != 1:
            return {"action": DECLINE}
        call = calls[0]
        asking = asyncio.ensure_future(call.ask(AskUser(question.message, question.schema, question.url)))
        self._asking[asking] = (question.plugin, call.connection)
        try:
            await asyncio.wait({asking})
        finally:
            del self._asking[asking]
            asking.cancel()
        if asking.cancelled():
            return {"action": CANCEL}
        answer = asking.result()
        return {"action": DECLINE} if isinstance(answer, Failure) else answer
