"""What each service asks of the host, whatever the line."""

from __future__ import annotations

import traceback
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
    WriteLog,
)
from plugbay.sdk.context import ASK_SECONDS, Config, Context, Log, Secrets, Settings, unconnected
from plugbay.sdk.errors import ServiceError
from plugbay.sdk.services.host_client import SERVICE_SECONDS, Unconnected
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
def test_the_context_of_a_call_has_only_the_fields_of_the_host() -> None:
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


def test_configuration_is_read_by_name_and_never_written() -> None:
    config = Config({"depth": 3, "name": "x"})
    assert (config["depth"], config.get("nope", 7), list(config), len(config)) == (3, 7, ["depth", "name"], 2)
    assert config == {"depth": 3, "name": "x"}
    assert repr(config) == "Config({'depth': 3, 'name': 'x'})"
    with pytest.raises(TypeError):
        config["depth"] = 4  # type: ignore[index]


def test_what_is_set_is_not_what_the_host_said_later_changes() -> None:
    said = {"depth": 3}
    config = Config(said)
    said["depth"] = 4
    assert config["depth"] == 3


@requirement("kaged:sdk-secrets")
@pytest.mark.parametrize("show", [repr, str, "{}".format, "{0!r:>3}".format, lambda secrets: f"%s {secrets}"])
def test_a_secret_is_masked_however_it_is_shown(show: type[str]) -> None:
    secrets = Secrets({"token": "hunter2", "key": {"inner": "hunter2"}})
    for thing in (secrets, secrets.items(), secrets.values(), [secrets]):
        text = show(thing)
        assert ("hunter2" in text, "***" in text, "token" in text) == (False, True, True)
    assert secrets["token"] == "hunter2"


@requirement("kaged:sdk-secrets")
def test_an_error_that_quotes_the_secrets_quotes_the_mask() -> None:
    secrets = Secrets({"token": "hunter2"})
    try:
        raise RuntimeError("cannot log in", secrets)
    except RuntimeError as error:
        assert "hunter2" not in "".join(traceback.format_exception(error))


def test_settings_are_empty_until_they_are_said() -> None:
    settings = Settings()
    assert (dict(settings.config), dict(settings.secrets)) == ({}, {})
    settings.take({"a": 1}, {"b": 2})
    assert (settings.config["a"], settings.secrets["b"]) == (1, 2)


LINES: list[tuple[Callable[[Log], Any], WriteLog, str]] = [
    (lambda log: log("one", 2), WriteLog("info", "one 2"), "one 2\n"),
    (lambda log: log.trace("x"), WriteLog("trace", "x"), "trace: x\n"),
    (lambda log: log.debug("x"), WriteLog("debug", "x"), "debug: x\n"),
    (lambda log: log.info("x", at=1), WriteLog("info", "x", {"at": 1}), "x at=1\n"),
    (lambda log: log.warn("x", path="/p"), WriteLog("warn", "x", {"path": "/p"}), "warn: x path='/p'\n"),
    (lambda log: log.warning("x"), WriteLog("warn", "x"), "warn: x\n"),
    (lambda log: log.error("x"), WriteLog("error", "x"), "error: x\n"),
]


@requirement("ainb:sdk-log")
@pytest.mark.parametrize(("write", "op", "text"), LINES)
def test_a_line_goes_to_the_host_where_it_has_a_log(
    write: Callable[[Log], Any], op: WriteLog, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = Recorder()
    write(Log(line))
    assert (line.said, capsys.readouterr().err) == ([op], "")


@pytest.mark.parametrize(("write", "op", "text"), LINES)
def test_a_line_goes_to_stderr_where_it_has_none(
    write: Callable[[Log], Any], op: WriteLog, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(Log(Unconnected()))
    assert capsys.readouterr().err == text
