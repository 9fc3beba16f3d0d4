"""A connection: concurrent calls, answers with the right origin, cancellation, questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plugbay.contracts.mcp.messages import Server
from plugbay.contracts.mcp.server import ServerMachine
from plugbay.mcp_server import connection
from plugbay.mcp_server.connection import Call, ClientConnection
from plugbay.model.errors import CallFailed, Code, Failure
from plugbay.model.operations import AskUser, OfferExports, WatchResource, WriteLog
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.loops import Run
from tests.support.patience import until
from tests.support.requirements import requirement

TOOL = {"name": "t", "inputSchema": {"type": "object"}}
OURS = "io.modelcontextprotocol/"

Answer = Callable[[Call], Awaitable[Any]]


class Bench:
    """A connection with a recording transport and service."""

    def __init__(self, answer: Answer, era: str = "handshake", **capabilities: Any) -> None:
        self.answer = answer
        self.sent: list[tuple[dict[str, Any], Any]] = []
        self.given_up: list[Any] = []
        self.told_ops: list[Any] = []
        self.why: list[str] = []
        self.room = True
        self._era, self._capabilities = era, capabilities
        server = Server("s", "1", offer={"tools": [TOOL]})
        machine = ServerMachine(MsgspecCodec(), server=server, entropy=lambda: b"0123456789abcdef")
        self.connection = ClientConnection(machine, self, self)
        if era == "handshake":
            params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {}}
            self.say({"id": 0, "method": "initialize", "params": params})
            self.sent.clear()

    def say(self, message: dict[str, Any], origin: Any = None) -> None:
        self.connection.receive(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n", origin)

    def call(self, id: Any, origin: Any = None, **params: Any) -> None:
        meta = {"progressToken": id}
        if self._era == "modern":
            meta |= {f"{OURS}protocolVersion": "2026-07-28", f"{OURS}clientCapabilities": self._capabilities}
        self.say({"id": id, "method": "tools/call", "params": {"name": "t", "_meta": meta, **params}}, origin)

    def answers(self) -> dict[Any, Any]:
        return {message["id"]: message for message, _ in self.sent if "method" not in message}

    async def answered(self, id: Any) -> Any:
        await until(lambda: id in self.answers())
        return self.answers()[id]

    # Transport.

    def has_room(self, origin: Any) -> bool:
        return self.room

    def send(self, data: bytes, origin: Any) -> None:
        self.sent += [(json.loads(line), origin) for line in data.splitlines()]

    def drop_answer(self, origin: Any) -> None:
        self.given_up.append(origin)

    # Service.

    def handle_notification(self, client: ClientConnection, op: Any) -> None:
        self.told_ops.append(op)

    def report_noise(self, why: str) -> None:
        self.why.append(why)


async def hello(call: Call) -> Any:
    return {"content": [{"type": "text", "text": "hello"}]}


@requirement("mcp:serve-concurrent")
def test_calls_are_answered_as_they_come_ready_each_to_its_origin(run: Run) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def answer(call: Call) -> Any:
            assert call.op.__class__.__name__ == "InvokeTool"
            if call.origin == "slow":
                await gate.wait()
            call.progress({"progress": 1})
            return await hello(call)

        bench = Bench(answer)
        bench.call(1, "slow")
        bench.call("two", "fast")
        await bench.answered("two")
        assert bench.connection.busy == 1
        gate.set()
        await bench.answered(1)
        assert [(message.get("id"), origin) for message, origin in bench.sent] == [
            (None, "fast"),
            ("two", "fast"),
            (None, "slow"),
            (1, "slow"),
        ]

    run(main)


@requirement("mcp:serve-errors")
def test_failures_and_our_own_bugs_are_answers(run: Run) -> None:
    async def main() -> None:
        outcomes: list[Any] = [
            Failure(Code.TIMEOUT, "too slow"),
            CallFailed(Failure(Code.OVERLOADED, "too many")),
            RuntimeError("oops"),
        ]

        async def answer(call: Call) -> Any:
            outcome = outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        bench = Bench(answer)
        for number, text in enumerate(["too slow", "too many", "a bug in plugbay: RuntimeError('oops')"], 1):
            bench.call(number)
            result = (await bench.answered(number))["result"]
            assert (result["isError"], result["content"][0]["text"]) == (True, text)

    run(main)


@requirement("mcp:serve-cancel")
def test_a_call_that_is_called_off_says_nothing_more(run: Run) -> None:
    async def main() -> None:
        ended: list[str] = []

        async def answer(call: Call) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("stopped")

        bench = Bench(answer)
        bench.call(1, "mine")
        await until(lambda: bench.connection.busy == 1)
        await asyncio.sleep(0)
        bench.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await until(lambda: bench.given_up == ["mine"])
        assert ended == ["stopped"]
        assert bench.sent == []
        assert bench.connection.busy == 0

    run(main)


@requirement("mcp:serve-cancel")
def test_a_call_cancelled_before_it_starts_frees_its_place(run: Run) -> None:
    async def main() -> None:
        bench = Bench(hello)
        bench.call(1, "mine")
        bench.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
        await until(lambda: bench.given_up == ["mine"])
        assert (bench.sent, bench.connection.busy) == ([], 0)
        bench.call(2)
        bench.connection.close()
        await bench.connection.finished()
        await until(lambda: bench.given_up == ["mine", None])

    run(main)


@requirement("mcp:serve-limits")
def test_a_client_with_too_many_calls_is_refused_one_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CALLS", 2)

    async def main() -> None:
        gate = asyncio.Event()

        async def answer(call: Call) -> Any:
            await gate.wait()
            return await hello(call)

        bench = Bench(answer)
        for number in (1, 2, 3):
            bench.call(number)
        assert "already in progress" in (await bench.answered(3))["result"]["content"][0]["text"]
        gate.set()
        await bench.answered(1)
        await bench.answered(2)
        bench.call(4)
        assert "isError" not in (await bench.answered(4))["result"]

    run(main)


def test_progress_is_left_out_when_the_client_does_not_read(run: Run) -> None:
    async def main() -> None:
        calls: list[Call] = []

        async def answer(call: Call) -> Any:
            calls.append(call)
            for bench.room in (False, True):
                call.progress({"progress": 1, "message": str(bench.room)})
            return await hello(call)

        bench = Bench(answer)
        bench.call(1)
        await bench.answered(1)
        calls[0].progress({"progress": 2})
        said = [message["params"]["message"] for message, _ in bench.sent if "method" in message]
        assert said == ["True"]

    run(main)


async def asks(call: Call) -> Any:
    said = await call.ask(AskUser("Who?", {"type": "object"}))
    text = said.code if isinstance(said, Failure) else said["content"]["name"]
    return {"content": [{"type": "text", "text": text}]}


@requirement("mcp:serve-elicitation")
def test_a_question_goes_where_its_call_came_from(run: Run) -> None:
    async def main() -> None:
        bench = Bench(asks, elicitation={})
        bench.call(1, "mine")
        await until(lambda: len(bench.sent) == 1)
        question, origin = bench.sent[0]
        assert (question["method"], origin) == ("elicitation/create", "mine")
        bench.say({"id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}})
        assert (await bench.answered(1))["result"]["content"][0]["text"] == "Ada"

    run(main)


@requirement("mcp:serve-elicitation")
def test_a_modern_question_ends_the_call_which_is_continued(run: Run) -> None:
    async def main() -> None:
        bench = Bench(asks, "modern", elicitation={})
        bench.call(1)
        result = (await bench.answered(1))["result"]
        (key,) = result["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        bench.call(2, inputResponses=answers, requestState=result["requestState"])
        assert (await bench.answered(2))["result"]["content"][0]["text"] == "Ada"

    run(main)


def test_a_client_that_cannot_be_asked_is_not(run: Run) -> None:
    async def main() -> None:
        bench = Bench(asks)
        bench.call(1)
        assert (await bench.answered(1))["result"]["content"][0]["text"] == Code.CAPABILITY_NOT_ALLOWED

    run(main)


def test_a_question_to_a_person_times_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.01)

    async def main() -> None:
        bench = Bench(asks, elicitation={})
        bench.call(1)
        assert (await bench.answered(1))["result"]["content"][0]["text"] == Code.TIMEOUT
        assert [message["method"] for message, _ in bench.sent if "method" in message] == [
            "elicitation/create",
            "notifications/cancelled",
        ]

    run(main)


@requirement("mcp:serve-end")
def test_closing_gives_everything_up(run: Run) -> None:
    async def main() -> None:
        ended: list[Any] = []

        async def answer(call: Call) -> Any:
            try:
                ended.append(await call.ask(AskUser("Who?", {"type": "object"})))
                await asyncio.Event().wait()
            finally:
                ended.append("stopped")

        bench = Bench(answer, elicitation={})
        bench.call(1)
        await until(lambda: len(bench.sent) == 1)
        bench.connection.close()
        bench.connection.close()
        await bench.connection.finished()
        assert ended[-1] == "stopped"
        sent = len(bench.sent)
        bench.call(2)
        bench.connection.notify(OfferExports({"tools": []}))
        assert len(bench.sent) == sent

    run(main)


def test_notifications_and_protocol_violations_reach_the_service(run: Run) -> None:
    async def main() -> None:
        bench = Bench(hello, "modern")
        bench.connection.machine.server.capabilities["resources"] = {"subscribe": True}
        bench.connection.receive(b"what?\n")
        assert len(bench.why) == 1
        meta = {f"{OURS}protocolVersion": "2026-07-28", f"{OURS}clientCapabilities": {}}
        params = {"_meta": meta, "notifications": {"resourceSubscriptions": ["a://b"]}}
        bench.say({"id": 1, "method": "subscriptions/listen", "params": params})
        assert bench.told_ops == [WatchResource("a://b")]
        bench.connection.close()
        assert 1 in bench.answers()

    run(main)


@requirement("mcp:serve-list-changed")
def test_a_session_is_notified_that_its_lists_changed(run: Run) -> None:
    async def main() -> None:
        bench = Bench(hello)
        bench.connection.notify(OfferExports({"tools": [TOOL, {**TOOL, "name": "u"}]}))
        assert [message["method"] for message, _ in bench.sent] == ["notifications/tools/list_changed"]

    run(main)


@requirement("mcp:serve-deaf-clients")
def test_a_client_that_does_not_read_hears_only_that_its_lists_changed(run: Run) -> None:
    async def main() -> None:
        bench = Bench(hello)
        for bench.room in (True, False):
            bench.connection.notify(WriteLog("info", "a line"))
            bench.connection.notify(OfferExports({"tools": [{**TOOL, "name": str(bench.room)}]}))
        told = [message["method"].removeprefix("notifications/") for message, _ in bench.sent]
        assert told == ["message", "tools/list_changed", "tools/list_changed"]

    run(main)
