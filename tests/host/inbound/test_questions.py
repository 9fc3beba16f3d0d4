"""Questions of plugins to the user, and the validation of answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.discovery.folders import discover
from plugbay.host.host import Host
from plugbay.host.inbound.questions import Question, ask_user
from plugbay.model.errors import Code, Failure
from tests.mcp_server.running_servers import declare
from tests.support.loops import Run
from tests.support.requirements import requirement

FORM = Question("srv", "How many?", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
PAGE = Question("srv", "Log in.", url="https://login.example/")


def said(question: Question, reply: Any) -> Any:
    async def person(asked: Question) -> Any:
        assert asked is question
        return reply

    return asyncio.run(ask_user(person, question))


@requirement("mcp:host-elicitation")
def test_without_a_person_every_question_is_declined() -> None:
    assert asyncio.run(ask_user(None, FORM)) == {"action": "decline"}


def test_an_answer_that_fits_is_passed_on() -> None:
    assert said(FORM, {"action": "accept", "content": {"n": 3}}) == {"action": "accept", "content": {"n": 3}}
    assert said(FORM, {"action": "cancel", "content": {"n": 3}}) == {"action": "cancel"}
    assert said(PAGE, {"action": "accept"}) == {"action": "accept"}


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"action": "accept", "content": {"n": "many"}}, Code.INVALID_INPUT),
        ({"action": "accept"}, Code.INVALID_INPUT),
        ({"action": "accept", "content": [3]}, Code.INVALID_INPUT),
        ({"action": "maybe"}, Code.INTERNAL),
        ("yes", Code.INTERNAL),
    ],
)
def test_an_answer_that_does_not_fit_is_a_failure(reply: Any, code: str) -> None:
    failure = said(FORM, reply)
    assert isinstance(failure, Failure) and failure.code == code


def test_an_application_that_fails_to_ask_is_a_failure_of_the_question() -> None:
    async def broken(question: Question) -> Any:
        raise RuntimeError("no terminal")

    failure = asyncio.run(ask_user(broken, FORM))
    assert isinstance(failure, Failure) and "no terminal" in failure.message


@requirement("mcp:host-question-over")
def test_a_question_ends_with_the_call_that_was_cancelled(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        asked, let_go = asyncio.Event(), asyncio.Event()

        async def person(question: Question) -> dict[str, Any]:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                let_go.set()
            return {}

        found = discover([declare(tmp_path / "plugins", all="modern")])
        async with Host(found, grant_all=True, state_dir=tmp_path / "state", questions=person) as host:
            await host.meet()
            calling = asyncio.ensure_future(host.call("all/ask"))
            await asked.wait()
            calling.cancel()
            await let_go.wait()

    run(main)
