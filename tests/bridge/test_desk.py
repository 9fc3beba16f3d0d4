"""A plugin's question goes to the one client it is working for, and to nobody when that is not certain."""

from __future__ import annotations

import asyncio
from typing import Any

from plugbay.bridge.conversation import Call
from plugbay.bridge.desk import Desk
from plugbay.host.questions import Question
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import AskUser, InvokeTool
from tests.support.requirements import requirement


class Person:
    """A client that answers."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.asked: list[Any] = []

    async def ask(self, op: Any, call: Call) -> Any:
        self.asked.append(op)
        return self.said

    def call(self) -> Call:
        return Call(self, 1, InvokeTool("t", {}), None)  # type: ignore[arg-type]  # asks like a conversation


QUESTION = Question("p", "Who?", {"type": "object"})


def ask(desk: Desk, question: Question = QUESTION) -> Any:
    return asyncio.run(desk.ask(question))


@requirement("mcp:serve-elicitation")
def test_the_client_whose_call_is_worked_on_is_asked() -> None:
    desk, person = Desk(), Person({"action": "accept", "content": {"name": "Ada"}})
    with desk.serving("p", person.call()), desk.serving("p", person.call()), desk.serving("q", Person({}).call()):
        assert ask(desk)["content"] == {"name": "Ada"}
    assert person.asked == [AskUser("Who?", {"type": "object"}, None)]


@requirement("mcp:serve-elicitation")
def test_nobody_is_asked_when_several_clients_wait_for_the_plugin() -> None:
    desk, one, other = Desk(), Person({"action": "accept"}), Person({"action": "accept"})
    with desk.serving("p", one.call()):
        with desk.serving("p", other.call()):
            assert ask(desk) == {"action": "decline"}
        assert ask(desk) == {"action": "accept"}
    assert ask(desk) == {"action": "decline"}
    assert (len(one.asked), len(other.asked)) == (1, 0)


def test_a_client_that_cannot_ask_has_declined() -> None:
    desk = Desk()
    with desk.serving("p", Person(Failure(Code.CAPABILITY_NOT_ALLOWED, "no")).call()):
        assert ask(desk) == {"action": "decline"}
