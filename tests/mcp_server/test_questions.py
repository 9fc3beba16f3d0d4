"""A question goes to the client that the plugin works for, and to no client when that is not certain."""

from __future__ import annotations

import asyncio
from typing import Any

from plugbay.host.inbound.questions import Question
from plugbay.mcp_server.connection import Call
from plugbay.mcp_server.questions import QuestionRouter
from plugbay.model.errors import Code, Failure
from plugbay.model.operations import AskUser, InvokeTool
from tests.support.loops import Run
from tests.support.patience import until
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
        return Call(self, 1, InvokeTool("t", {}), None)  # type: ignore[arg-type]  # asks like a connection


QUESTION = Question("p", "Who?", {"type": "object"})


def ask(questions: QuestionRouter, question: Question = QUESTION) -> Any:
    return asyncio.run(questions.ask(question))


@requirement("mcp:serve-elicitation")
def test_the_client_whose_call_is_worked_on_is_asked() -> None:
    questions, person = QuestionRouter(), Person({"action": "accept", "content": {"name": "Ada"}})
    with (
        questions.serving("p", person.call()),
        questions.serving("p", person.call()),
        questions.serving("q", Person({}).call()),
    ):
        assert ask(questions)["content"] == {"name": "Ada"}
    assert person.asked == [AskUser("Who?", {"type": "object"}, None)]


@requirement("mcp:serve-elicitation")
def test_no_client_is_asked_when_several_wait_for_the_plugin() -> None:
    questions, one, other = QuestionRouter(), Person({"action": "accept"}), Person({"action": "accept"})
    with questions.serving("p", one.call()):
        with questions.serving("p", other.call()):
            assert ask(questions) == {"action": "decline"}
        assert ask(questions) == {"action": "accept"}
    assert ask(questions) == {"action": "decline"}
    assert (len(one.asked), len(other.asked)) == (1, 0)


@requirement("mcp:serve-elicitation")
def test_a_question_that_says_to_which_call_it_belongs_goes_to_its_client() -> None:
    questions, people = (
        QuestionRouter(),
        [Person({"action": "accept", "content": {"number": number}}) for number in range(3)],
    )
    calls = [person.call() for person in people]
    operations = [InvokeTool("t", {}) for _ in calls]
    for call, op in zip(calls, operations, strict=True):
        call.forwarded_op = op
    with questions.serving("p", calls[0]), questions.serving("p", calls[1]):
        said = [ask(questions, Question("p", "Who?", during=op)) for op in operations]
    assert said == [people[0].said, people[1].said, {"action": "decline"}]
    assert people[2].asked == []


def test_a_client_that_cannot_ask_has_declined() -> None:
    questions = QuestionRouter()
    with questions.serving("p", Person(Failure(Code.CAPABILITY_NOT_ALLOWED, "no")).call()):
        assert ask(questions) == {"action": "decline"}


class Slow(Person):
    """A client that never answers."""

    def __init__(self) -> None:
        super().__init__(None)
        self.let_go = 0

    async def ask(self, op: Any, call: Call) -> Any:
        self.asked.append(op)
        try:
            await asyncio.Event().wait()
        finally:
            self.let_go += 1


@requirement("mcp:serve-question-over")
def test_a_person_is_no_longer_asked_when_the_client_has_no_call_there_any_more(run: Run) -> None:
    async def main() -> None:
        questions, person = QuestionRouter(), Slow()
        with questions.serving("p", person.call()):
            with questions.serving("p", person.call()):
                asking = asyncio.ensure_future(questions.ask(QUESTION))
                await until(lambda: bool(person.asked))
            with questions.serving("q", person.call()):
                pass
            assert not asking.done() and person.let_go == 0
        assert await asking == {"action": "cancel"}
        assert person.let_go == 1

    run(main)


@requirement("mcp:serve-question-over")
def test_a_plugin_that_does_without_the_answer_lets_the_person_go(run: Run) -> None:
    async def main() -> None:
        questions, person = QuestionRouter(), Slow()
        with questions.serving("p", person.call()):
            asking = asyncio.ensure_future(questions.ask(QUESTION))
            await until(lambda: bool(person.asked))
            asking.cancel()
            await until(lambda: person.let_go == 1)

    run(main)
