"""A call on the running server ends as one on a host of our own would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plugbay.cli.call_view import Question
from plugbay.cli.exit_codes import Exit
from plugbay.cli.remote import Remote
from plugbay.cli.remote_call import run

PLUGIN = {"id": "p", "version": "1", "contract": "rune"}
DONE = {
    "status": "succeeded",
    "output": {"a": 1},
    "failure": None,
    "plugin": PLUGIN,
    "call_id": "c",
    "duration_ms": 2.0,
}
FAILURE = {"code": "timeout", "origin": "host", "message": "late", "detail": {"x": 1}, "retry_after_ms": 5}


class There(Remote):
    """A server that gives one answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.asked: list[Any] = []

    def post(self, path: str, body: Any = None) -> Any:
        self.asked.append((path, body))
        return self.answer

    def events(self, method: str, path: str, body: Any = None, **query: Any) -> Iterator[tuple[str, Any]]:
        yield "progress", {"step": 1}
        yield "result", self.answer


def test_what_came_back_is_the_output_and_the_record() -> None:
    there = There(DONE)
    ending = run(there, Question("p/t", {"b": 2}, {}, 0.5))
    assert ending.status == 0 and bytes(ending.output) == b'{"a":1}'
    assert ending.record is not None and (ending.record.plugin, ending.record.export) == ("p", "t")
    body = {"export": "p/t", "input": {"b": 2}, "context": {}, "timeout_ms": 500}
    assert there.asked == [("/api/v1/calls", body)]


def test_a_failure_is_the_same_failure_here() -> None:
    ending = run(
        There({**DONE, "status": "retryable_failure", "output": None, "failure": FAILURE}),
        Question("p/t", {}, {}, None),
    )
    assert ending.status == Exit.TIMEOUT and ending.record is not None and ending.record.failure is not None
    assert ending.record.failure.retryable and ending.record.failure.to_json() == FAILURE


def test_pieces_are_shown_as_they_come() -> None:
    pieces: list[Any] = []
    ending = run(There(DONE), Question("p/t", {}, {}, None, pieces.append))
    assert pieces == [{"step": 1}] and ending.status == 0
