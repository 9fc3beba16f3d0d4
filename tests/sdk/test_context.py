"""What each service asks of the host, whatever the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from plugbay.model.errors import Code
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    GetStored,
    ListStored,
    Publish,
    RecallMemory,
    SetStored,
)
from plugbay.sdk.context import ASK_SECONDS, Context, unconnected
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.services.host_client import SERVICE_SECONDS
from plugbay.sdk.settings import Settings
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.operations import HostOp


class Recorder:
    """A line that keeps what was asked and answers with what it was given."""

    def __init__(self, answer: Any = None) -> None:
        self.said: list[Any] = []
        self.within: Any = None
        self._answer = answer

    def ask(self, op: HostOp, read: Callable[[Any], Any], timeout: float) -> Any:
        self.said.append((op, timeout))
        return read(self._answer)

    stream = ask

    def tell(self, op: HostOp) -> Any:
        self.said.append(op)


def test_memory_is_asked_for_an_agent() -> None:
    line = Recorder([{"content": "c"}])
    assert Context(line, "p").memory.recall("a", "q", timeout=2) == [{"content": "c"}]
    assert Context(line, "p").memory.recall("a", "q", limit=3)
    assert line.said == [(RecallMemory("a", "q", 10), 2), (RecallMemory("a", "q", 3), SERVICE_SECONDS)]


def test_a_completion_is_an_object() -> None:
    line = Recorder({"content": "hi", "finish_reason": "stop", "usage": {"prompt_tokens": 1}})
    llm, messages = Context(line, "p").llm, [{"role": "user", "content": "x"}]
    done = llm.complete("minimax", "m", messages, max_tokens=5, temperature=0, system_prompt="s", timeout=1)
    assert (done.content, done.finish_reason, done.usage) == ("hi", "stop", {"prompt_tokens": 1})
    llm.stream("minimax", "m", messages)
    asked = CompleteChat("minimax", "m", messages, max_tokens=5, temperature=0, system_prompt="s")
    assert line.said == [(asked, 1), (CompleteChat("minimax", "m", messages, stream=True), SERVICE_SECONDS)]
    empty = Context(Recorder({}), "p").llm.complete("minimax", "m", messages)
    assert (empty.content, empty.finish_reason, empty.usage) == (None, "", {})


def test_an_event_is_published_under_the_plugins_name() -> None:
    line = Recorder()
    events = Context(line, "p").events
    events.publish("t", {"x": 1})
    events.publish("t", 1, source="other", correlation_id="c", metadata={"m": 1})
    events.publish("t", 1, full=True, session_id="s")
    assert line.said[:2] == [
        Publish("t", {"topic": "t", "source": "p", "payload": {"x": 1}}),
        Publish("t", {"topic": "t", "source": "other", "payload": 1, "correlation_id": "c", "metadata": {"m": 1}}),
    ]
    full = line.said[2].event
    assert sorted(full) == ["id", "payload", "session_id", "source", "timestamp", "topic"]
    assert full["session_id"] == "s"


@requirement("kaged:sdk-storage")
def test_storage_reads_answers_as_plain_values() -> None:
    line = Recorder({"found": True, "value": None})
    assert Context(line, "p").storage.get("k", "default") is None
    line = Recorder({"found": False, "value": None})
    storage = Context(line, "p").storage
    assert (storage.get("k"), storage.get("k", 7, timeout=2)) == (None, 7)
    assert line.said == [(GetStored("k"), SERVICE_SECONDS), (GetStored("k"), 2)]


@requirement("kaged:sdk-storage")
@pytest.mark.parametrize(
    ("ask", "answer", "op"),
    [
        (lambda storage: storage.set("k", {"x": 1}), None, SetStored("k", {"x": 1})),
        (lambda storage: storage.delete("k"), True, DeleteStored("k")),
        (lambda storage: storage.keys("a."), ["a.b"], ListStored("a.", 1000)),
        (lambda storage: storage.keys(limit=1), ["a.b"], ListStored("", 1)),
    ],
)
def test_storage_is_asked_for_keys(ask: Callable[[Any], Any], answer: Any, op: HostOp) -> None:
    line = Recorder(answer)
    assert ask(Context(line, "p").storage) == answer
    assert line.said == [(op, SERVICE_SECONDS)]


@requirement("kaged:sdk-context")
def test_who_a_call_is_for_is_what_the_host_said_and_nothing_else() -> None:
    said = {"agent_path": "primary", "session_id": "s", "project_id": "p", "operator_id": "o", "request_id": "r"}
    ctx = Context(Recorder(), "p", said)
    assert {key: getattr(ctx, key) for key in said} == said
    assert ctx.agent_id == "primary"
    assert Context(Recorder(), "p", {"agent_id": "a"}).agent_id == "a"
    odd = Context(Recorder(), "p", {"agent_path": 7, "session_id": None})
    assert (odd.agent_id, odd.agent_path, odd.session_id, odd.request_id) == (None, None, None, None)


@requirement("kaged:sdk-secrets")
def test_settings_are_there_and_a_context_shows_none_of_them() -> None:
    settings = Settings()
    ctx = Context(Recorder(), "p", settings=settings)
    assert (dict(ctx.config), dict(ctx.secrets), dict(unconnected().config)) == ({}, {}, {})
    settings.take({"depth": 3}, {"token": "hunter2"})
    assert (ctx.config["depth"], ctx.secrets["token"]) == (3, "hunter2")
    assert "hunter2" not in f"{ctx!r}{ctx}{ctx.secrets}"


def test_a_log_line_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    unconnected().log("one", 2)
    assert capsys.readouterr().err == "one 2\n"


@pytest.mark.parametrize(
    "ask",
    [
        lambda ctx: ctx.memory.recall("a", "q"),
        lambda ctx: ctx.llm.complete("p", "m", []),
        lambda ctx: ctx.llm.stream("p", "m", []),
        lambda ctx: ctx.events.publish("t", 1),
        lambda ctx: ctx.storage.get("k"),
    ],
)
def test_a_contract_without_services_says_so(ask: Callable[[Context], Any]) -> None:
    with pytest.raises(ServiceError, match=r"what runs here does not offer ctx\.\w+; hosts of \w+") as caught:
        ask(unconnected("p"))
    assert (caught.value.code, caught.value.rpc_code) == (Code.NOT_FOUND, None)


@requirement("vai:sdk-one-source")
def test_what_other_hosts_do_not_say_reads_as_nothing_and_costs_nothing() -> None:
    ctx = unconnected("p", {"session_id": "s"})
    names = "invocation_id trace_id org_id chain_id run_id deadline_at tool_execution_id delivery_id attempt compaction"
    assert [getattr(ctx, name) for name in names.split()] == [None] * 10
    assert (ctx.remaining, ctx.cancelled, ctx.scratch, ctx.gateway) == (None, False, None, None)
    ctx.progress("half", percent=50)
    ctx.checkpoint({"step": 1})
    ctx.check_cancelled()
    ctx.sleep(0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"action": "accept", "content": {"name": "Ada"}}, {"name": "Ada"}),
        ({"action": "accept"}, {}),
        ({"action": "decline"}, None),
        ({"action": "cancel"}, None),
    ],
)
def test_a_person_is_asked_and_may_say_nothing(answer: Any, said: Any) -> None:
    line = Recorder(answer)
    assert Context(line, "p").ask("Who?", {"type": "object"}) == said
    assert Context(line, "p").ask("Go there.", url="https://example.org", timeout=5) == said
    assert line.said == [
        (AskUser("Who?", {"type": "object"}), ASK_SECONDS),
        (AskUser("Go there.", None, "https://example.org"), 5),
    ]


def test_during_a_call_questions_are_asked_for_it_and_progress_is_reported() -> None:
    line, told = Recorder(), list[Any]()
    context = Context(line, "p")
    context.progress("nobody hears this")
    assert context.during(7, lambda message, more: told.append((message, more))) is context
    context.progress("half", share=0.5)
    assert (line.within, told) == (7, [("half", {"share": 0.5})])
