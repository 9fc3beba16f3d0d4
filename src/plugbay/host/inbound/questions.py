"""`Questions`: the port through which a plugin's question reaches a person, and what counts as an answer.

Owns the shape of a question and of its answer. Who the person is and how they are asked is the application's business,
which brings an async function: `Host(…, questions=ask)`. Without one, every question is declined.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plugbay.contracts.schemas import compile_schema
from plugbay.model.errors import Code, Failure

if TYPE_CHECKING:
    from plugbay.model.operations import Operation

ACCEPT, DECLINE, CANCEL = ACTIONS = ("accept", "decline", "cancel")
"""What a person makes of a question: answers it, says no, or goes away."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a plugin wants to know of a person."""

    plugin: str
    message: str
    schema: Any = None
    """JSON Schema of the answer's content: a flat object; None where the person is only to go to `url`."""
    url: str | None = None
    during: Operation | None = field(default=None, compare=False)
    """The operation that the plugin works on when it asks, the very object; None where nobody knows."""


Questions = Callable[[Question], Awaitable[Mapping[str, Any]]]
"""Puts a question to a person: `{"action": "accept", "content": {…}}`, `{"action": "decline"}` or "cancel"."""


async def answer(questions: Questions | None, question: Question) -> dict[str, Any] | Failure:
    """What the person said, if it is an answer to this question; a `Failure` says why it is none."""
    if questions is None:
        return {"action": DECLINE}
    try:
        said: Any = await questions(question)
    except Exception as error:
        return Failure(Code.INTERNAL, f"the question could not be put to anybody: {error!r}")
    action = said.get("action") if isinstance(said, Mapping) else None
    if action not in ACTIONS:
        return Failure(Code.INTERNAL, f"{action!r} is no answer to a question; there are {', '.join(ACTIONS)}")
    if action != ACCEPT or question.url is not None:
        return {"action": action}
    content = said.get("content")
    content = {} if content is None else content
    problem = _problem(question.schema, content)
    if problem is not None:
        return Failure(Code.INVALID_INPUT, f"the answer does not fit the question: {problem}")
    return {"action": ACCEPT, "content": dict(content)}


def _problem(schema: Any, content: Any) -> str | None:
    if not isinstance(content, Mapping):
        return "it is no object"
    if schema is None:
        return None
    try:
        validator = compile_schema(schema)
    except ValueError as error:
        return f"its schema cannot be used: {error}"
    first = next(iter(validator.iter_errors(dict(content))), None)
    return None if first is None else f"{'/'.join(map(str, first.instance_path)) or 'content'}: {first.message}"
