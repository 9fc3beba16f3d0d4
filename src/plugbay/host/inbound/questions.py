"""`Questions`: the port through which a plugin asks the user, and the validation of answers.

The application brings an async function that asks the user: `Host(…, questions=ask)`. Without one, every question is
declined. `AskClient` is the port for requests that an MCP client can answer in place of the host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from plugbay.contracts.schemas import answer_problem
from plugbay.model.errors import Code, Failure
from plugbay.model.gate import refuse_answer

if TYPE_CHECKING:
    from plugbay.model.operations import CompleteChat, ListRoots, Operation

ACCEPT, DECLINE, CANCEL = ACTIONS = ("accept", "decline", "cancel")
"""The user answers, refuses, or dismisses the question."""


class Question(msgspec.Struct, frozen=True):
    """A question of a plugin to the user."""

    plugin: str
    message: str
    schema: Any = None
    """JSON Schema of the answer's content: a flat object; None if the user is only to open `url`."""
    url: str | None = None
    during: Operation | None = None
    """The operation (the same object) during which the plugin asks; None if unknown."""


Questions = Callable[[Question], Awaitable[Mapping[str, Any]]]
"""Asks the user: `{"action": "accept", "content": {…}}`, `{"action": "decline"}` or "cancel"."""


AskClient = Callable[[str, "CompleteChat | ListRoots"], Awaitable[Any]]
"""Asks the client that a plugin (its id) works for: the answer or a `Failure`; None if no client can be asked."""


async def ask_user(questions: Questions | None, question: Question) -> dict[str, Any] | Failure:
    """Ask the user and validate the answer; a `Failure` if it does not fit the question."""
    if questions is None:
        return {"action": DECLINE}
    try:
        response: Any = await questions(question)
    except Exception as error:
        return Failure(Code.INTERNAL, f"the user could not be asked: {error!r}")
    action = response.get("action") if isinstance(response, Mapping) else None
    if action not in ACTIONS:
        return Failure(Code.INTERNAL, f"{action!r} is not an answer; use one of {', '.join(ACTIONS)}")
    if action != ACCEPT or question.url is not None:
        return {"action": action}
    content = response.get("content")
    content = {} if content is None else content
    problem = answer_problem(question.schema, content)
    return {"action": ACCEPT, "content": dict(content)} if problem is None else refuse_answer(problem)
