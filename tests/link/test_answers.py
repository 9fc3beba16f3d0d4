"""The peer's requests: answered by tasks, capped, cancellable."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

from plugbay.contracts.base import Role
from plugbay.link.answers import MAX_HANDLERS, Answers
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived
from plugbay.model.operations import WriteLog
from plugbay.wire.strict_json import stdlib_codec
from tests.support.echo import EchoMachine
from tests.support.loops import Run
from tests.support.patience import until

if TYPE_CHECKING:
    from plugbay.model.events import CallId
    from plugbay.model.operations import Operation


class Recorder(EchoMachine):
    """Remembers what it was told to answer."""

    def __init__(self) -> None:
        super().__init__(Role.HOST, stdlib_codec())
        self.answers: list[tuple[CallId, Any]] = []
        self.steps: list[Any] = []

    def finish(self, id: CallId, value: Any = None, failure: Failure | None = None) -> None:
        self.answers.append((id, failure.code if failure else value))

    def progress(self, id: CallId, item: Any) -> None:
        self.steps.append(item)


class Requests(Answers):
    """Answers requests with one handler, as a link does."""

    def __init__(self, machine: Recorder, handler: Callable[[Operation, Callable[[Any], None]], Any]) -> None:
        super().__init__(machine)
        self._progress = machine.progress
        self._handler = handler

    def arrived(self, number: int, within: int | None = None) -> None:
        event = CallArrived(number, WriteLog("info", str(number)), within)
        progress = functools.partial(self._progress, number)
        self.start(event, lambda: None, self._handler, event.op, progress, context=Context())


def test_a_handlers_value_failure_or_exception_is_the_answer(run: Run) -> None:
    async def main() -> None:
        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, WriteLog)
            progress("half")
            if op.message == "2":
                return Failure(Code.NOT_FOUND, "no")
            if op.message == "3":
                raise RuntimeError("bug")
            return op.message

        machine = Recorder()
        answers = Requests(machine, handler)
        for number in (1, 2, 3):
            answers.arrived(number)
        await until(lambda: len(machine.answers) == 3)
        assert machine.answers == [(1, "1"), (2, Code.NOT_FOUND), (3, Code.INTERNAL)]
        assert machine.steps == ["half"] * 3
        assert len(answers) == 0

    run(main)


def test_requests_beyond_the_cap_are_refused_at_once(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            await gate.wait()
            return "done"

        machine = Recorder()
        answers = Requests(machine, handler)
        for number in range(MAX_HANDLERS + 2):
            answers.arrived(number)
        assert machine.answers == [(MAX_HANDLERS, Code.OVERLOADED), (MAX_HANDLERS + 1, Code.OVERLOADED)]
        gate.set()
        await until(lambda: len(machine.answers) == MAX_HANDLERS + 2)

    run(main)


def test_a_cancelled_request_is_never_answered_and_stop_cancels_the_rest(run: Run) -> None:
    async def main() -> None:
        stopped: list[str] = []

        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, WriteLog)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(op.message)
                raise

        machine = Recorder()
        answers = Requests(machine, handler)
        answers.arrived(1)
        answers.arrived(2)
        await asyncio.sleep(0)
        answers.cancel(1)
        answers.cancel(99)
        await until(lambda: stopped == ["1"])
        answers.stop()
        await until(lambda: stopped == ["1", "2"])
        assert machine.answers == []

    run(main)


def test_requests_that_are_taken_back_at_once_leave_room_for_others(run: Run) -> None:
    async def main() -> None:
        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            return "done"

        machine = Recorder()
        answers = Requests(machine, handler)
        for number in range(MAX_HANDLERS):  # the task of none of them has begun
            answers.arrived(number)
            answers.cancel(number)
        answers.arrived(MAX_HANDLERS)
        await until(lambda: machine.answers == [(MAX_HANDLERS, "done")])
        assert len(answers) == 0

    run(main)


def test_with_a_call_of_ours_what_was_asked_because_of_it_is_over(run: Run) -> None:
    async def main() -> None:
        let_go: list[str] = []

        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            assert isinstance(op, WriteLog)
            try:
                await asyncio.Event().wait()
            finally:
                let_go.append(op.message)

        machine = Recorder()
        answers = Requests(machine, handler)
        for number, within in ((1, 7), (2, 8), (3, None), (4, 7)):
            answers.arrived(number, within)
        await asyncio.sleep(0)
        answers.abandon(7)
        await until(lambda: len(let_go) == 2)
        assert (sorted(let_go), machine.answers, len(answers)) == (["1", "4"], [], 2)
        answers.abandon(7)
        answers.stop()

    run(main)


def test_a_handler_does_not_inherit_the_context_of_another_caller(run: Run) -> None:
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")

    async def main() -> None:
        async def handler(op: Operation, progress: Callable[[Any], None]) -> Any:
            return whose.get()

        machine = Recorder()
        answers = Requests(machine, handler)
        whose.set("somebody's")
        answers.arrived(1)
        await until(lambda: len(machine.answers) == 1)
        assert machine.answers == [(1, "nobody's")] and whose.get() == "somebody's"

    run(main)
