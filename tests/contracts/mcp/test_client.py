"""What a host asks and answers, in both eras."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from plugbay.contracts.base import Misuse
from plugbay.contracts.mcp.client import (
    ANSWER_ROOM,
    MAX_QUESTIONS,
    MAX_RELISTS,
    MAX_ROUNDS,
    ClientMachine,
    Greeting,
    Welcome,
)
from plugbay.contracts.mcp.machine import DISCOVERING, LISTING
from plugbay.contracts.mcp.messages import (
    CAPABILITIES,
    CLIENT,
    HANDSHAKE,
    LOG_LEVEL,
    MAX_LINE,
    MODERN,
    REVISIONS,
    SUBSCRIPTION,
    VERSION,
    empty_offer,
)
from plugbay.contracts.rpc import CLOSING, FAILED, GREETING, READY
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.events import CallArrived, CallFinished, Fault, Noise, Notified, Ready
from plugbay.model.operations import (
    AskUser,
    CallMethod,
    ChangeResource,
    ChangeRoots,
    CheckHealth,
    CompleteArgument,
    CompleteChat,
    GetPrompt,
    InvokeTool,
    ListRoots,
    OfferExports,
    ReadResource,
    SetLogLevel,
    WatchResource,
    WriteLog,
)
from plugbay.wire.fast_json import MsgspecCodec
from tests.contracts.mcp.talk import (
    ALL,
    ECHO,
    EVERYTHING,
    ME,
    OFFER,
    asked,
    discovered,
    finished,
    frames,
    greeting,
    host,
    line,
    list_answers,
    request,
    told,
    value_of,
    welcome,
)
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec

ERAS = pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
COMPLETION = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}


def answer(machine: ClientMachine, **answer: Any) -> Any:
    """Answer the one request that waits; the one event that follows."""
    (frame,) = [frame for frame in frames(machine) if "method" in frame and "id" in frame]
    return finished(machine.receive(line({"jsonrpc": "2.0", "id": frame["id"], **answer})))


# Calls.


@requirement("mcp:wire-tools-call")
def test_a_call_byte_for_byte(codec: Codec) -> None:
    machine = host(codec)
    assert machine.call(1, InvokeTool("echo", codec.dump({"a": "é"}))) is None
    assert (
        machine.outgoing()
        == (
            '{"jsonrpc":"2.0","id":6,"method":"tools/call","params":'
            '{"name":"echo","arguments":{"a":"é"},"_meta":{"progressToken":6}}}\n'
        ).encode()
    )


@ERAS
@pytest.mark.parametrize("given", [{}, {"a": [1, None]}, {"text": "one\ntwo"}])
def test_arguments_that_are_json_already_are_sent_as_those_that_are_not(era: str, given: Any) -> None:
    codec, written = MsgspecCodec(), []
    for arguments in (given, codec.dump(given), msgspec.Raw(json.dumps(given, indent=1).encode())):
        machine = host(codec, era)
        assert machine.call(1, InvokeTool("echo", arguments)) is None
        written.append(machine.outgoing())
    assert written[0] == written[1] == written[2]
    assert written[0].count(b"\n") == 1


@pytest.mark.parametrize("given", [None, [], "text", {"a": "x" * MAX_LINE}])
def test_raw_arguments_are_held_to_what_holds_for_all(given: Any) -> None:
    codec = MsgspecCodec()
    plain, raw = (host(codec).call(1, InvokeTool("echo", each)) for each in (given, codec.dump(given)))
    assert plain == raw
    assert (plain is None) == (given is None)


@requirement("mcp:wire-methods")
@ERAS
@pytest.mark.parametrize(
    ("op", "result"),
    [
        (InvokeTool("echo", {}), {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": 1}}),
        (ReadResource("note:a"), {"contents": [{"uri": "note:a", "text": "x"}]}),
        (GetPrompt("greet", {"who": "me"}), {"messages": []}),
        (CompleteArgument(COMPLETION), {"completion": {"values": ["x"]}}),
    ],
)
def test_an_operation_is_asked_and_its_result_comes_whole(era: str, op: Any, result: Any, codec: Codec) -> None:
    machine = host(codec, era)
    assert machine.call(3, op) is None
    told = {"resultType": "complete", **result} if era == MODERN else result
    event = answer(machine, result=told)
    assert event.id == 3
    assert value_of(machine, event) == result


@requirement("mcp:wire-meta")
@ERAS
def test_what_a_caller_says_beside_the_arguments_travels_and_ours_wins(era: str) -> None:
    machine = host(era=era)
    meta = {"traceparent": "00", "progressToken": "theirs", VERSION: "1900-01-01"}
    machine.call(1, InvokeTool("echo", {}, {"_meta": meta, "agent_id": "secret"}))
    (frame,) = frames(machine)
    said = frame["params"]["_meta"]
    assert (said["traceparent"], said["progressToken"]) == ("00", frame["id"])
    assert said.get(VERSION) == (None if era == HANDSHAKE else "2026-07-28")
    assert "agent_id" not in json.dumps(frame)


def test_a_meta_that_is_no_json_is_refused() -> None:
    failure = host().call(1, InvokeTool("echo", {}, {"_meta": {"a": object()}}))
    assert failure is not None and failure.code == Code.INVALID_INPUT


@requirement("mcp:wire-ping")
def test_health_is_a_ping_in_the_handshake_era_and_nothing_in_the_modern_one() -> None:
    machine = host()
    assert machine.call(1, CheckHealth()) is None
    assert answer(machine, error={"code": -32601, "message": "?"}).failure is not None
    machine.call(2, CheckHealth())
    assert answer(machine, result={}) == CallFinished(2)
    assert (machine.has_probe, host(era=MODERN).has_probe) == (True, False)
    failure = host(era=MODERN).call(1, CheckHealth())
    assert failure is not None and failure.code == Code.CAPABILITY_NOT_DECLARED


@requirement("mcp:wire-logging")
def test_a_level_is_set_once_in_one_era_and_said_each_time_in_the_other() -> None:
    machine = host()
    machine.call(1, SetLogLevel("error"))
    (frame,) = frames(machine)
    assert (frame["method"], frame["params"]["level"]) == ("logging/setLevel", "error")
    machine = host(era=MODERN)
    machine.call(1, SetLogLevel("error"))
    (frame,) = frames(machine)
    assert (frame["method"], frame["params"]["_meta"][LOG_LEVEL]) == ("server/discover", "error")
    assert finished(machine.receive(line({"id": frame["id"], "result": {}}))) == CallFinished(1)
    machine.call(2, InvokeTool("echo", {}))
    assert frames(machine)[0]["params"]["_meta"][LOG_LEVEL] == "error"


@requirement("mcp:wire-server-capabilities")
@ERAS
@pytest.mark.parametrize(
    "op",
    [
        ReadResource("note:a"),
        GetPrompt("greet", {}),
        CompleteArgument(COMPLETION),
        SetLogLevel("info"),
        WatchResource("note:a"),
    ],
)
def test_a_server_is_not_asked_what_it_does_not_announce(era: str, op: Any) -> None:
    machine = host(era=era, capabilities={"tools": {}})
    failure = machine.call(1, op)
    assert failure is not None and failure.code == Code.CAPABILITY_NOT_DECLARED
    assert machine.outgoing() == b""


@requirement("mcp:wire-server-capabilities")
@ERAS
def test_resources_that_cannot_be_watched_are_not(era: str) -> None:
    failure = host(era=era, capabilities={"tools": {}, "resources": {}}).call(1, WatchResource("note:a"))
    assert failure is not None and failure.code == Code.CAPABILITY_NOT_DECLARED


def test_a_tool_that_is_not_offered_is_not_called() -> None:
    failure = host().call(1, InvokeTool("shout", {}))
    assert failure is not None and failure.code == Code.TOOL_NOT_EXPOSED
    assert "shout" in failure.message
    assert "echo" not in failure.message  # what else it offers may be what nobody has approved


def test_a_level_that_is_none_is_refused() -> None:
    failure = host().call(1, SetLogLevel("loud"))
    assert failure is not None and failure.code == Code.INVALID_INPUT


def test_what_mcp_cannot_ask_is_our_own_bug() -> None:
    with pytest.raises(Misuse):
        host().call(1, CallMethod("x", {}))


@requirement("mcp:wire-error-codes")
@ERAS
def test_an_error_is_a_failure_with_its_number(era: str) -> None:
    machine = host(era=era)
    machine.call(1, InvokeTool("echo", {}))
    failure = answer(machine, error={"code": -32602, "message": "bad city", "data": {"city": 5}}).failure
    assert failure == Failure(
        Code.INVALID_INPUT, "bad city", origin=Origin.PLUGIN, detail={"plugin_code": -32602, "data": {"city": 5}}
    )


@ERAS
def test_an_answer_that_says_nothing_ends_its_call(era: str) -> None:
    machine = host(era=era)
    machine.call(1, InvokeTool("echo", {}))
    failure = answer(machine).failure
    assert failure is not None and failure.code == Code.MALFORMED_RESPONSE


# What a server asks: the handshake era.

QUESTIONS: list[tuple[str, dict[str, Any], Any, Any, dict[str, Any]]] = [
    ("roots/list", {}, ListRoots(), [{"uri": "file:///w"}], {"roots": [{"uri": "file:///w"}]}),
    (
        "elicitation/create",
        {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
        AskUser("who?", {"type": "object", "properties": {}}),
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {}},
    ),
    (
        "elicitation/create",
        {"mode": "url", "message": "go", "url": "https://x", "elicitationId": "1"},
        AskUser("go", None, "https://x"),
        {"action": "decline"},
        {"action": "decline"},
    ),
    (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}], "maxTokens": 9},
        CompleteChat("", "", [{"role": "user", "content": "hi"}], max_tokens=9),
        {"content": "ho", "finish_reason": "stop", "usage": {}, "tool_calls": [], "model": "m"},
        {
            "role": "assistant",
            "content": {"type": "text", "text": "ho"},
            "model": "m",
            "stopReason": "endTurn",
        },
    ),
]
EACH_QUESTION = pytest.mark.parametrize(("method", "params", "op", "value", "result"), QUESTIONS)


@requirement("mcp:wire-sampling", "mcp:wire-elicitation", "mcp:wire-roots", "mcp:wire-ids")
@EACH_QUESTION
@pytest.mark.parametrize("id", [7, "seven", 1.5, None])
def test_a_question_arrives_and_its_answer_goes_back(
    id: Any, method: str, params: Any, op: Any, value: Any, result: Any
) -> None:
    machine = host()
    arrived = asked(machine.receive(line(request(id, method, params))))
    assert arrived.op == op
    machine.finish(arrived.id, value)
    assert frames(machine) == [{"id": id, "result": result}]


@requirement("mcp:wire-client-capabilities")
@EACH_QUESTION
def test_a_question_that_was_not_granted_is_a_method_nobody_knows(
    method: str, params: Any, op: Any, value: Any, result: Any
) -> None:
    machine = host(offers=frozenset())
    (event,) = machine.receive(line(request(7, method, params)))
    assert isinstance(event, Noise)
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (7, -32601)


@requirement("mcp:wire-unknown-method")
@pytest.mark.parametrize("method", ["tasks/list", "tools/call", "x"])
def test_a_request_that_nobody_knows_is_refused(method: str) -> None:
    machine = host()
    assert machine.receive(line(request(7, method))) == []
    assert frames(machine)[0]["error"]["code"] == -32601


@requirement("mcp:wire-invalid-params")
def test_a_question_without_sense_is_refused() -> None:
    machine = host()
    assert machine.receive(line(request(7, "sampling/createMessage", {"messages": []}))) == []
    assert frames(machine)[0]["error"]["code"] == -32602


@requirement("mcp:wire-sampling")
def test_a_failure_to_answer_goes_back_as_an_error() -> None:
    machine = host()
    arrived = asked(machine.receive(line(request(7, *QUESTIONS[3][:2]))))
    machine.finish(arrived.id, None, Failure(Code.CAPABILITY_NOT_ALLOWED, "the operator says no"))
    (frame,) = frames(machine)
    assert (frame["error"]["code"], frame["error"]["message"]) == (-1, "the operator says no")
    arrived = asked(machine.receive(line(request(8, *QUESTIONS[3][:2]))))
    machine.finish(arrived.id, "no object")
    assert frames(machine)[0]["error"]["code"] == -32603


@requirement("mcp:wire-ping")
@pytest.mark.parametrize("id", [3, "x"])
def test_a_server_may_ping_at_any_time(id: Any) -> None:
    for machine in (host(), host(offers=frozenset())):
        assert machine.receive(line(request(id, "ping"))) == []
        assert frames(machine) == [{"id": id, "result": {}}]


@requirement("mcp:wire-ping")
def test_even_before_it_has_answered_the_greeting() -> None:
    machine = greeting()
    machine.receive(line(request(3, "ping")))
    assert frames(machine) == [{"id": 3, "result": {}}]


@requirement("mcp:wire-no-server-requests")
@pytest.mark.parametrize("method", ["ping", "roots/list", "sampling/createMessage"])
def test_in_the_modern_era_a_servers_request_is_noise_and_never_answered(method: str) -> None:
    machine = host(era=MODERN)
    (event,) = machine.receive(line(request(3, method)))
    assert isinstance(event, Noise)
    assert machine.outgoing() == b""


@requirement("mcp:wire-logging")
def test_log_lines_are_heard() -> None:
    machine = host()
    said = told("notifications/message", {"level": "warning", "logger": "db", "data": "slow"})
    assert machine.receive(line(said)) == [Notified(WriteLog("warning", "slow", {"logger": "db"}))]
    (odd,) = machine.receive(line(told("notifications/message", {"level": "info"})))
    assert isinstance(odd, Noise)


@requirement("mcp:wire-unknown-notification")
def test_a_notification_that_nobody_knows_is_noise() -> None:
    (event,) = host().receive(line(told("notifications/novelty", {"a": 1})))
    assert isinstance(event, Noise)
    assert host().receive(line(told("notifications/elicitation/complete", {"elicitationId": "1"}))) == []


# What a server asks: the modern era.


def wants(machine: ClientMachine, *questions: tuple[str, Any], state: str | None = "s1") -> list[Any]:
    """Answer the one request that waits with questions; what follows."""
    (frame,) = [frame for frame in frames(machine) if "id" in frame]
    entries = {f"k{n}": {"method": method, "params": params} for n, (method, params) in enumerate(questions)}
    given = {} if state is None else {"requestState": state}
    result = {"resultType": "input_required", **({"inputRequests": entries} if entries else {}), **given}
    return list(machine.receive(line({"id": frame["id"], "result": result})))


def calling(op: Any = None, **given: Any) -> ClientMachine:
    machine = host(era=MODERN, **given)
    assert machine.call(1, op or InvokeTool("echo", {"a": 1})) is None
    return machine


@requirement("mcp:wire-input-required")
@pytest.mark.parametrize(
    "during", [InvokeTool("echo", {"a": 1}), ReadResource("note:a"), GetPrompt("greet", {"who": "x"})]
)
@EACH_QUESTION
def test_a_question_inside_an_answer_looks_like_any_other(
    during: Any, method: str, params: Any, op: Any, value: Any, result: Any, codec: Codec
) -> None:
    machine = calling(during, codec=codec)
    (first,) = frames(machine)
    entry = {"method": method, "params": params}
    answer = {"resultType": "input_required", "inputRequests": {"k": entry}, "requestState": "s1"}
    (arrived,) = machine.receive(line({"id": first["id"], "result": answer}))
    assert isinstance(arrived, CallArrived) and arrived.within == 1
    if isinstance(arrived.op, AskUser):
        assert arrived.op.during is during
        arrived.op.during = None
    assert arrived.op == op
    assert machine.outgoing() == b""
    machine.finish(arrived.id, value)
    (again,) = frames(machine)
    assert again["id"] != first["id"] and again["method"] == first["method"]
    assert again["params"]["inputResponses"] == {"k": result}
    assert again["params"]["requestState"] == "s1"
    own = {key: value for key, value in first["params"].items() if key != "_meta"}
    assert {key: again["params"][key] for key in own} == own
    assert again["params"]["_meta"][CAPABILITIES]
    event = finished(machine.receive(line({"id": again["id"], "result": {"resultType": "complete", "content": []}})))
    assert (event.id, value_of(machine, event)) == (1, {"content": []})


@requirement("mcp:wire-input-required")
def test_all_answers_are_awaited() -> None:
    machine = calling()
    first, second = wants(machine, ("roots/list", {}), QUESTIONS[1][:2])
    machine.finish(second.id, {"action": "decline"})
    assert machine.outgoing() == b""
    machine.finish(first.id, [])
    (again,) = frames(machine)
    assert again["params"]["inputResponses"] == {"k0": {"roots": []}, "k1": {"action": "decline"}}


@requirement("mcp:wire-input-required")
def test_without_questions_the_call_is_made_again_at_once() -> None:
    machine = calling()
    assert wants(machine, state="only") == []
    (again,) = frames(machine)
    assert again["params"]["requestState"] == "only"


@requirement("mcp:wire-input-required")
def test_without_a_state_none_comes_back() -> None:
    machine = calling()
    (arrived,) = wants(machine, ("roots/list", {}), state=None)
    machine.finish(arrived.id, [])
    (again,) = frames(machine)
    assert "requestState" not in again["params"]


@requirement("mcp:wire-input-bounds")
def test_a_server_that_always_asks_again_is_cut_short() -> None:
    machine = calling()
    for _ in range(MAX_ROUNDS):
        (arrived,) = wants(machine, ("roots/list", {}))
        machine.finish(arrived.id, [])
    (over,) = wants(machine, ("roots/list", {}))
    assert isinstance(over, CallFinished) and over.failure is not None
    assert over.failure.code == Code.PLUGIN_ERROR


@requirement("mcp:wire-input-bounds")
def test_a_server_that_asks_too_much_at_once_is_cut_short() -> None:
    (over,) = wants(calling(), *[("roots/list", {})] * (MAX_QUESTIONS + 1))
    assert isinstance(over, CallFinished) and over.failure is not None


@requirement("mcp:wire-client-capabilities")
def test_a_question_that_was_not_granted_ends_the_call() -> None:
    (over,) = wants(calling(offers=frozenset({"roots"})), QUESTIONS[1][:2])
    assert isinstance(over, CallFinished) and over.failure is not None
    assert (over.failure.code, over.failure.origin) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY)


@pytest.mark.parametrize("question", [("tools/call", {}), ("elicitation/create", {}), (5, {}), ("", None)])
def test_a_question_that_cannot_be_put_ends_the_call(question: Any) -> None:
    (over,) = wants(calling(), question)
    assert isinstance(over, CallFinished) and over.failure is not None
    assert over.failure.code == Code.MALFORMED_RESPONSE


@requirement("mcp:wire-input-required")
def test_only_some_calls_may_be_answered_with_questions() -> None:
    (over,) = wants(calling(CompleteArgument(COMPLETION)), ("roots/list", {}))
    assert isinstance(over, CallFinished) and over.failure is not None
    assert over.failure.code == Code.MALFORMED_RESPONSE
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (over,) = wants(machine, ("roots/list", {}))
    assert isinstance(over, CallFinished) and over.failure is not None  # there is no such thing in the handshake era


@requirement("mcp:wire-input-required")
def test_nobody_there_to_answer_is_an_answer_of_a_person() -> None:
    machine = calling()
    (arrived,) = wants(machine, QUESTIONS[1][:2])
    machine.finish(arrived.id, None, Failure(Code.TIMEOUT, "nobody"))
    (again,) = frames(machine)
    assert again["params"]["inputResponses"] == {"k0": {"action": "cancel"}}


@requirement("mcp:wire-input-required")
@pytest.mark.parametrize("value", [None, "nonsense", {"content": object()}])
def test_a_model_that_does_not_answer_is_left_out_and_not_asked_for_twice(value: Any) -> None:
    machine = calling()
    (arrived,) = wants(machine, QUESTIONS[3][:2])
    refusal = Failure(Code.UNAVAILABLE, "no model") if value is None else None
    machine.finish(arrived.id, value, refusal)
    machine_frames = frames(machine)
    assert machine_frames[0]["params"]["inputResponses"] == {}
    again = {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}}
    event = finished(machine.receive(line({"id": machine_frames[0]["id"], "result": again})))
    assert event.id == 1 and event.failure is not None
    assert refusal is None or event.failure == refusal


@requirement("mcp:wire-input-required")
def test_a_server_may_do_without_the_answer() -> None:
    machine = calling()
    (arrived,) = wants(machine, QUESTIONS[3][:2])
    machine.finish(arrived.id, None, Failure(Code.UNAVAILABLE, "no model"))
    assert answer(machine, result={"resultType": "complete", "content": []}).failure is None


def test_answers_that_are_too_long_count_as_none() -> None:
    machine = calling()
    (arrived,) = wants(machine, QUESTIONS[1][:2])
    machine.finish(arrived.id, {"action": "accept", "content": {"x": "x" * (17 << 20)}})
    (again,) = frames(machine)
    assert again["params"]["inputResponses"] == {}
    over = {"resultType": "input_required", "requestState": "s"}
    event = finished(machine.receive(line({"id": again["id"], "result": over})))
    assert event.failure is not None and event.failure.code == Code.FRAME_TOO_LARGE


@requirement("mcp:wire-cancel")
def test_a_call_that_is_called_off_while_somebody_is_asked_is_not_made_again() -> None:
    machine = calling()
    (arrived,) = wants(machine, ("roots/list", {}))
    frames(machine)
    machine.cancel(1, "enough")
    machine.finish(arrived.id, [])
    assert machine.outgoing() == b""
    assert machine.dropped == 1
    assert machine._incoming == {}


@requirement("mcp:wire-input-bounds")
def test_a_state_that_could_not_be_sent_back_ends_the_call_before_anybody_is_asked() -> None:
    (over,) = wants(calling(), QUESTIONS[1][:2], state="s" * (MAX_LINE - ANSWER_ROOM))
    assert isinstance(over, CallFinished) and over.failure is not None
    assert over.failure.code == Code.FRAME_TOO_LARGE
    (asked,) = wants(calling(), QUESTIONS[1][:2], state="s" * (MAX_LINE - 2 * ANSWER_ROOM))
    assert isinstance(asked, CallArrived)


def ready(events: list[Any]) -> dict[str, Any]:
    (hello,) = [event.hello for event in events if isinstance(event, Ready)]
    return dict(hello)


@requirement("mcp:wire-initialize", "mcp:wire-initialized", "mcp:wire-catalogue")
def test_the_greeting_of_the_handshake_era_byte_for_byte(codec: Codec) -> None:
    machine = ClientMachine(codec, client=ME, offers=frozenset({"roots"}))
    machine.greet()
    assert machine.outgoing() == (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{"roots":{"listChanged":true}},"clientInfo":{"name":"tester","version":"1"}}}\n'
    )
    assert machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}})})) == []
    assert machine.state == LISTING
    assert machine.outgoing() == (
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
        b'{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}\n'
    )
    events = machine.receive(line({"id": 2, "result": {"tools": [ECHO]}}))
    offer = {"tools": [ECHO], "resources": [], "resource_templates": [], "prompts": []}
    assert ready(events) == {
        "era": "handshake",
        "protocol_version": "2025-11-25",
        "server": {"name": "notes", "version": "2.0"},
        "capabilities": {"tools": {}},
        "offer": offer,
        "warnings": [],
    }
    assert machine.state == READY


@requirement("mcp:wire-discover", "mcp:wire-meta-required", "mcp:wire-catalogue")
def test_the_greeting_of_the_modern_era(codec: Codec) -> None:
    machine = ClientMachine(codec, era=MODERN, client=ME, offers=frozenset({"roots"}))
    machine.greet()
    assert machine.state == DISCOVERING
    meta = {VERSION: "2026-07-28", CLIENT: ME, CAPABILITIES: {"roots": {}}}
    assert frames(machine) == [{"id": 1, "method": "server/discover", "params": {"_meta": meta}}]
    machine.receive(line({"id": 1, "result": discovered(capabilities={"tools": {}})}))
    assert frames(machine) == [{"id": 2, "method": "tools/list", "params": {"_meta": meta}}]
    page = {"resultType": "complete", "tools": [ECHO], "ttlMs": 0, "cacheScope": "public"}
    hello = ready(machine.receive(line({"id": 2, "result": page})))
    assert (hello["era"], hello["protocol_version"], hello["offer"]["tools"]) == ("modern", "2026-07-28", [ECHO])
    assert machine.outgoing() == b""  # the server announces no changes, so nobody listens for any


@requirement("mcp:wire-catalogue")
def test_every_list_that_is_announced_is_read() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome()}))
    assert ready(list_answers(machine))["offer"] == OFFER


@requirement("mcp:wire-paging")
def test_pages_are_asked_for_one_after_the_other() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}})}))
    machine.outgoing()
    machine.receive(line({"id": 2, "result": {"tools": [ECHO], "nextCursor": ""}}))
    assert frames(machine) == [{"id": 3, "method": "tools/list", "params": {"cursor": ""}}]
    hello = ready(machine.receive(line({"id": 3, "result": {"tools": [{**ECHO, "name": "b"}]}})))
    assert [tool["name"] for tool in hello["offer"]["tools"]] == ["echo", "b"]


@requirement("mcp:wire-tolerance")
def test_a_server_that_announces_nothing_and_has_tools_is_taken_at_its_word() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(capabilities={})}))
    machine.outgoing()
    hello = ready(machine.receive(line({"id": 2, "result": {"tools": [ECHO]}})))
    assert hello["warnings"] == ["answers tools/list without announcing tools"]
    assert machine.call(1, InvokeTool("echo", {})) is None


@requirement("mcp:wire-tolerance")
def test_a_server_that_announces_nothing_and_has_nothing_is_ready_too() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(capabilities={})}))
    machine.outgoing()
    hello = ready(machine.receive(line({"id": 2, "error": {"code": -32601, "message": "Method not found"}})))
    assert (hello["warnings"], hello["offer"]["tools"]) == ([], [])


@requirement("mcp:wire-tolerance")
def test_a_list_that_fails_is_warned_about_and_the_others_count() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome()}))
    machine.receive(line({"id": 2, "result": {"tools": [ECHO]}}))
    machine.receive(line({"id": 3, "error": {"code": -32603, "message": "no database"}}))
    machine.receive(line({"id": 4, "error": {"code": -32601, "message": "no templates"}}))
    hello = ready(machine.receive(line({"id": 5, "result": {"prompts": None}})))
    assert hello["offer"] == {"tools": [ECHO], "resources": [], "resource_templates": [], "prompts": []}
    assert hello["warnings"] == [
        "resources/list failed: no database",
        "prompts/list was answered without prompts (an array)",
    ]


def test_a_list_that_is_too_long_is_warned_about() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}})}))
    events = machine.receive(b'{"jsonrpc":"2.0","id":2,"result":{"tools":[' + b" " * (17 << 20) + b"\n")
    assert [type(event) for event in events] == [Noise, Ready]
    assert "tools/list failed" in ready(events)["warnings"][0]


@requirement("mcp:wire-era-fallback")
def test_a_modern_server_is_found_in_the_same_process() -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "error": {"code": -32601, "message": "Method not found: initialize"}}))
    assert machine.state == DISCOVERING
    (frame,) = frames(machine)
    assert (frame["id"], frame["method"]) == (2, "server/discover")
    machine.receive(line({"id": 2, "result": discovered()}))
    assert ready(list_answers(machine))["era"] == MODERN


@requirement("mcp:wire-era-fallback")
def test_a_server_that_is_no_longer_modern_is_found_too() -> None:
    machine = greeting(era=MODERN)
    machine.receive(line({"id": 1, "error": {"code": -32601, "message": "Method not found: server/discover"}}))
    assert machine.state == GREETING
    (frame,) = frames(machine)
    assert (frame["id"], frame["method"]) == (2, "initialize")
    machine.receive(line({"id": 2, "result": welcome()}))
    assert ready(list_answers(machine))["era"] == HANDSHAKE


@requirement("mcp:wire-unsupported-version")
def test_an_older_revision_is_asked_for_where_the_server_says_which() -> None:
    machine = greeting()
    data = {"supported": ["2024-11-05"], "requested": "2025-11-25"}
    machine.receive(line({"id": 1, "error": {"code": -32602, "message": "Unsupported", "data": data}}))
    (frame,) = frames(machine)
    assert (frame["method"], frame["params"]["protocolVersion"]) == ("initialize", "2024-11-05")
    assert machine.state == GREETING


@requirement("mcp:wire-version")
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"error": {"code": -32000, "message": "no key"}}, Code.HANDSHAKE_FAILED),
        ({"result": {**welcome(), "protocolVersion": "2099-01-01"}}, Code.PROTOCOL_VERSION_MISMATCH),
        ({"result": None}, Code.HANDSHAKE_FAILED),
    ],
)
def test_a_server_we_cannot_stay_with_is_a_fault(answer: dict[str, Any], code: str) -> None:
    machine = greeting()
    (fault,) = machine.receive(line({"id": 1, **answer}))
    assert isinstance(fault, Fault) and fault.failure.code == code
    assert machine.state == FAILED
    assert machine.receive(line({"id": 1, "result": welcome()})) == []


def test_after_a_fault_nothing_more_is_heard() -> None:
    refused = {"id": 1, "error": {"code": -32000, "message": "no key"}}
    log = told("notifications/message", {"level": "info", "data": "x"})
    (only,) = greeting().receive(line(refused) + line(log) + line(log))
    assert isinstance(only, Fault)
    (only,) = greeting().receive(line([refused, log]))
    assert isinstance(only, Fault)


def test_a_greeting_that_cannot_be_read_is_a_fault() -> None:
    events = greeting().receive(b'{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":\n')
    assert [type(event) for event in events] == [Noise, Fault]


def test_a_greeting_answered_after_we_gave_up_is_nothing() -> None:
    machine = greeting()
    machine.close("")
    assert machine.receive(line({"id": 1, "result": welcome()})) == []
    assert (machine.state, machine.outgoing()) == (CLOSING, b"")
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}})}))
    machine.close("")
    assert not any(isinstance(event, Ready) for event in machine.receive(line({"id": 2, "result": {"tools": []}})))


def test_an_era_that_is_none_is_our_own_bug() -> None:
    with pytest.raises(Misuse, match="not an era"):
        ClientMachine(MsgspecCodec(), era="stone")


@requirement("mcp:wire-tolerance")
def test_what_is_said_before_the_greeting_was_answered_is_heard_or_shown() -> None:
    machine = greeting()
    (log,) = machine.receive(line(told("notifications/message", {"level": "info", "data": "starting"})))
    assert log == Notified(WriteLog("info", "starting"))
    (noise,) = machine.receive(line(told("notifications/tools/list_changed")))
    assert isinstance(noise, Noise)
    machine.receive(line({"id": 1, "result": welcome()}))
    assert ready(list_answers(machine))["offer"] == OFFER


# Changes.


@requirement("mcp:wire-list-changed")
@pytest.mark.parametrize("params", [{}, {"params": None}, {"params": {}}])
def test_a_list_that_changed_is_read_again_and_the_whole_offer_told(params: dict[str, Any]) -> None:
    machine = host()
    assert machine.receive(line({"method": "notifications/tools/list_changed", **params})) == []
    (frame,) = frames(machine)
    assert frame["method"] == "tools/list"
    new = {**ECHO, "name": "new"}
    events = machine.receive(line({"id": frame["id"], "result": {"tools": [new]}}))
    assert events == [Notified(OfferExports({**OFFER, "tools": [new]}))]
    assert machine.call(1, InvokeTool("new", {})) is None
    gone = machine.call(2, InvokeTool("echo", {}))
    assert gone is not None and gone.code == Code.TOOL_NOT_EXPOSED


@requirement("mcp:wire-list-changed")
def test_a_list_that_is_the_same_is_no_news() -> None:
    machine = host()
    machine.receive(line(told("notifications/prompts/list_changed")))
    assert list_answers(machine) == []


@requirement("mcp:wire-list-changed")
def test_resources_and_their_templates_change_together() -> None:
    machine = host()
    machine.receive(line(told("notifications/resources/list_changed")))
    changed = {**OFFER, "resource_templates": []}
    assert list_answers(machine, changed) == [Notified(OfferExports(changed))]


@requirement("mcp:wire-list-changed")
def test_a_change_during_a_reading_makes_another_one() -> None:
    machine = host()
    machine.receive(line(told("notifications/tools/list_changed")))
    (first,) = frames(machine)
    machine.receive(line(told("notifications/tools/list_changed")))
    machine.receive(line(told("notifications/prompts/list_changed")))
    assert machine.outgoing() == b""
    machine.receive(line({"id": first["id"], "result": {"tools": []}}))
    (second,) = frames(machine)
    assert second["method"] == "tools/list"
    machine.receive(line({"id": second["id"], "result": {"tools": [ECHO]}}))
    (third,) = frames(machine)
    assert third["method"] == "prompts/list"


@requirement("mcp:wire-list-changed")
def test_a_list_that_cannot_be_read_again_stays_and_is_noise() -> None:
    machine = host()
    machine.receive(line(told("notifications/tools/list_changed")))
    (frame,) = frames(machine)
    (event,) = machine.receive(line({"id": frame["id"], "error": {"code": 1, "message": "busy"}}))
    assert event == Noise(b"", "tools/list failed: busy")
    assert machine.call(1, InvokeTool("echo", {})) is None


@requirement("mcp:wire-list-changed")
def test_a_server_that_changes_with_every_reading_is_left_alone_in_the_end() -> None:
    machine = host()
    changed = line(told("notifications/tools/list_changed"))
    for _ in range(MAX_RELISTS):
        machine.receive(changed)
        list_answers(machine)
    (event,) = machine.receive(changed)
    assert isinstance(event, Noise)
    assert machine.outgoing() == b""


# Subscriptions of the modern era.


def listening(**changes: Any) -> tuple[ClientMachine, dict[str, Any]]:
    """A host of the modern era, and its subscription."""
    machine = greeting(era=MODERN)
    machine.receive(line({"id": 1, "result": discovered(**changes)}))
    while machine.state != READY:
        (frame,) = frames(machine)
        key = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}.get(frame["method"])
        machine.receive(line({"id": frame["id"], "result": {key or "resourceTemplates": []}}))
    (frame,) = frames(machine)
    return machine, frame


@requirement("mcp:wire-listen")
def test_a_host_listens_for_what_the_server_announces() -> None:
    machine, frame = listening()
    assert frame["method"] == "subscriptions/listen"
    assert frame["params"]["notifications"] == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
    }
    assert frame["params"]["_meta"][VERSION] == "2026-07-28"
    about = {"_meta": {SUBSCRIPTION: frame["id"]}}
    assert machine.receive(line(told("notifications/subscriptions/acknowledged", about))) == []
    machine.receive(line(told("notifications/tools/list_changed", about)))
    assert list_answers(machine) == [Notified(OfferExports({**empty_offer(), "tools": OFFER["tools"]}))]


@requirement("mcp:wire-watch")
def test_watching_a_resource_renews_the_subscription() -> None:
    machine, first = listening()
    assert machine.call(1, WatchResource("note:a")) is None
    second, ended = frames(machine)
    assert second["params"]["notifications"]["resourceSubscriptions"] == ["note:a"]
    assert ended == {"method": "notifications/cancelled", "params": {"requestId": first["id"]}}
    old, new = ({"_meta": {SUBSCRIPTION: frame["id"]}} for frame in (first, second))
    assert machine.receive(line(told("notifications/subscriptions/acknowledged", old))) == []
    assert machine.receive(line(told("notifications/subscriptions/acknowledged", new))) == [CallFinished(1)]
    changed = told("notifications/resources/updated", {**new, "uri": "note:a"})
    assert machine.receive(line(changed)) == [Notified(ChangeResource("note:a"))]
    assert machine.call(2, WatchResource("note:a", False)) is None
    assert frames(machine)[0]["params"]["notifications"]["resourceSubscriptions"] == []


@requirement("mcp:wire-watch")
@pytest.mark.parametrize("how", ["error", "result", "cancelled"])
def test_a_subscription_that_ends_is_shown_and_fails_who_waits_for_it(how: str) -> None:
    machine, _ = listening()
    machine.call(1, WatchResource("note:a"))
    frame = frames(machine)[0]
    answers = {
        "error": {"id": frame["id"], "error": {"code": -32601, "message": "no such method"}},
        "result": {"id": frame["id"], "result": {"resultType": "complete"}},
        "cancelled": told("notifications/cancelled", {"requestId": frame["id"]}),
    }
    noise, over = machine.receive(line(answers[how]))
    assert isinstance(noise, Noise)
    assert isinstance(over, CallFinished) and over.failure is not None
    assert (over.id, over.failure.code) == (1, Code.UNAVAILABLE)


@requirement("mcp:wire-listen")
@pytest.mark.parametrize("which", [[], {}, None, "x", True, 1.5, 99])
@pytest.mark.parametrize("method", ["notifications/subscriptions/acknowledged", "notifications/cancelled"])
def test_what_is_said_of_no_subscription_of_ours_changes_nothing(method: str, which: Any) -> None:
    machine, _ = listening()
    machine.call(1, WatchResource("note:a"))
    machine.outgoing()
    said = {"_meta": {SUBSCRIPTION: which}, "requestId": which}
    assert machine.receive(line(told(method, said))) == []
    assert machine.receive(line(told(method))) == []


@requirement("mcp:wire-cancel")
def test_a_modern_server_cannot_call_off_our_calls() -> None:
    machine = host(era=MODERN)
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    assert machine.receive(line(told("notifications/cancelled", {"requestId": frame["id"]}))) == []
    assert finished(machine.receive(line({"id": frame["id"], "result": {}}))).id == 1


@requirement("mcp:wire-watch")
def test_a_watch_that_is_called_off_is_not_waited_for() -> None:
    machine, _ = listening()
    machine.call(1, WatchResource("note:a"))
    frame = frames(machine)[0]
    machine.cancel(1, "")
    said = told("notifications/subscriptions/acknowledged", {"_meta": {SUBSCRIPTION: frame["id"]}})
    assert machine.receive(line(said)) == []


@requirement("mcp:wire-watch")
def test_in_the_handshake_era_a_resource_is_subscribed_to_by_itself() -> None:
    machine = host()
    assert machine.call(1, WatchResource("note:a")) is None
    (frame,) = frames(machine)
    assert (frame["method"], frame["params"]["uri"]) == ("resources/subscribe", "note:a")
    assert finished(machine.receive(line({"id": frame["id"], "result": {}}))) == CallFinished(1)
    changed = told("notifications/resources/updated", {"uri": "note:a"})
    assert machine.receive(line(changed)) == [Notified(ChangeResource("note:a"))]
    (odd,) = machine.receive(line(told("notifications/resources/updated", {"uri": 5})))
    assert isinstance(odd, Noise)


@requirement("mcp:wire-meta-required")
def test_every_request_of_the_modern_era_says_who_asks() -> None:
    machine = greeting(era=MODERN, offers=EVERYTHING)
    machine.receive(line({"id": 1, "result": discovered(capabilities={**ALL, "tools": {}})}))
    (frame,) = frames(machine)
    assert set(frame["params"]["_meta"]) == {VERSION, CLIENT, CAPABILITIES}


# The negotiation of era and revision.


def opened_greeting(era: str = HANDSHAKE) -> Greeting:
    """One that has opened."""
    made = Greeting(era, ME, frozenset({"roots"}))
    made.build_opening()
    return made


def welcomed(verdict: Any) -> Welcome:
    assert isinstance(verdict, Welcome), verdict
    return verdict


@requirement("mcp:wire-roots-changed")
@pytest.mark.parametrize(
    ("era", "offers", "told"),
    [(HANDSHAKE, EVERYTHING, True), (HANDSHAKE, frozenset({"sampling"}), False), (MODERN, EVERYTHING, False)],
)
def test_a_server_that_may_ask_for_roots_is_told_that_they_changed(
    era: str, offers: frozenset[str], told: bool
) -> None:
    machine = host(era=era, offers=offers)
    assert machine.notify(ChangeRoots()) is None
    assert frames(machine) == [{"method": "notifications/roots/list_changed"}] * told


@requirement("mcp:wire-initialize")
def test_a_host_opens_with_initialize_in_the_newest_revision() -> None:
    said = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {"listChanged": True}}, "clientInfo": ME}
    assert Greeting(HANDSHAKE, ME, frozenset({"roots"})).build_opening() == ("initialize", said)


@requirement("mcp:wire-discover")
def test_in_the_modern_era_it_opens_with_a_question() -> None:
    meta = {VERSION: "2026-07-28", CLIENT: ME, CAPABILITIES: {}}
    assert Greeting(MODERN, ME, frozenset()).build_opening() == ("server/discover", {"_meta": meta})


@requirement("mcp:wire-version")
@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision_that_we_know_is_accepted(version: str) -> None:
    accepted = welcomed(opened_greeting().take_result(welcome(protocolVersion=version)))
    assert (accepted.version, accepted.warnings) == (version, [])


@requirement("mcp:wire-version")
@pytest.mark.parametrize("version", ["2024-10-07", "2027-01-01", "2026-07-28"])
def test_a_revision_that_we_do_not_know_is_refused_with_what_both_speak(version: str) -> None:
    failure = opened_greeting().take_result(welcome(protocolVersion=version))
    assert isinstance(failure, Failure)
    assert failure.code == Code.PROTOCOL_VERSION_MISMATCH
    assert version in failure.message and "2025-11-25" in failure.message


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("version", [..., None, "", "1.0", "latest", 2, "2025-11-2x", "2025/11/25", ["2025-11-25"]])
def test_nonsense_in_the_place_of_a_revision_is_taken_as_the_one_asked_for(version: Any) -> None:
    accepted = welcomed(opened_greeting().take_result(welcome(protocolVersion=version)))
    assert accepted.version == "2025-11-25"
    assert len(accepted.warnings) == 1


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize(
    ("info", "server", "warnings"),
    [
        ({"name": "n", "version": "1"}, {"name": "n", "version": "1"}, 0),
        ({"name": "n", "version": "1", "title": "T"}, {"name": "n", "version": "1", "title": "T"}, 0),
        ({"name": "n", "version": "1", "title": None}, {"name": "n", "version": "1"}, 0),
        ({"name": "n"}, {"name": "n", "version": ""}, 1),
        ({"name": "n", "version": None}, {"name": "n", "version": ""}, 1),
        ({}, {"name": "", "version": ""}, 2),
        (None, {"name": "", "version": ""}, 2),
        (..., {"name": "", "version": ""}, 2),
    ],
)
def test_a_server_that_does_not_say_who_it_is_may_stay(info: Any, server: dict[str, str], warnings: int) -> None:
    accepted = welcomed(opened_greeting().take_result(welcome(serverInfo=info)))
    assert (accepted.server, len(accepted.warnings)) == (server, warnings)


def test_instructions_belong_to_the_server() -> None:
    accepted = welcomed(opened_greeting().take_result(welcome(instructions="be nice")))
    assert accepted.server == {"name": "notes", "version": "2.0", "instructions": "be nice"}
    assert "instructions" not in welcomed(opened_greeting().take_result(welcome(instructions=None))).server


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("capabilities", [..., None, [], "x"])
def test_a_server_without_capabilities_announces_none(capabilities: Any) -> None:
    accepted = welcomed(opened_greeting().take_result(welcome(capabilities=capabilities)))
    assert (accepted.capabilities, accepted.warnings) == ({}, ["announces no capabilities"])


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("result", [None, 5, [], "hello"])
def test_an_answer_that_is_no_object_is_no_greeting(era: str, result: Any) -> None:
    failure = opened_greeting(era).take_result(result)
    assert isinstance(failure, Failure) and failure.code == Code.HANDSHAKE_FAILED


@requirement("mcp:wire-discover")
def test_a_modern_server_says_who_it_is_in_meta() -> None:
    accepted = welcomed(opened_greeting(MODERN).take_result(discovered(instructions="x")))
    assert accepted == Welcome("2026-07-28", {"name": "notes", "version": "2.0", "instructions": "x"}, ALL, [])


# The other era.


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("number", [-32601, -32602, -32600, -32022])
def test_a_server_that_does_not_know_initialize_is_asked_in_the_modern_era(number: int) -> None:
    each = opened_greeting()
    assert each.take_error({"code": number, "message": "what?"}) is None
    assert each.era == MODERN
    assert each.build_opening()[0] == "server/discover"


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("number", [-32603, -32000, 5, None, "x", []])
def test_any_other_refusal_is_final(number: Any) -> None:
    failure = opened_greeting().take_error({"code": number, "message": "no key"})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.origin) == (Code.HANDSHAKE_FAILED, Origin.PLUGIN)
    assert failure.message == "the server refused the greeting (initialize: no key)"


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("error", [{"code": -32601, "message": "?"}, {"code": -32603, "message": "?"}, None, "x"])
def test_a_server_that_was_modern_and_no_longer_is_gets_its_handshake(error: Any) -> None:
    each = opened_greeting(MODERN)
    assert each.take_error(error) is None
    assert (each.era, each.build_opening()[0]) == (HANDSHAKE, "initialize")


@requirement("mcp:wire-era-fallback")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_every_way_is_tried_once(era: str) -> None:
    each = opened_greeting(era)
    assert each.take_error({"code": -32601, "message": "one"}) is None
    each.build_opening()
    failure = each.take_error({"code": -32601, "message": "two"})
    assert isinstance(failure, Failure)
    assert failure.code == Code.HANDSHAKE_FAILED
    assert "one" in failure.message and "two" in failure.message
    assert failure.detail == {"plugin_code": -32601}


@requirement("mcp:wire-unsupported-version")
@pytest.mark.parametrize(
    ("era", "supported", "then"),
    [
        (HANDSHAKE, ["2024-11-05"], (HANDSHAKE, "2024-11-05")),
        (HANDSHAKE, ["2024-11-05", "2025-06-18", "x"], (HANDSHAKE, "2025-06-18")),
        (HANDSHAKE, ["2026-07-28"], (MODERN, "2026-07-28")),
        (MODERN, ["2025-11-25", "2025-06-18"], (HANDSHAKE, "2025-11-25")),
        (MODERN, [["x"], {}, None, "2024-11-05"], (HANDSHAKE, "2024-11-05")),
    ],
)
def test_a_refusal_that_names_revisions_is_followed(era: str, supported: list[Any], then: tuple[str, str]) -> None:
    each = opened_greeting(era)
    error = {"code": -32022, "message": "Unsupported", "data": {"supported": supported, "requested": "x"}}
    assert each.take_error(error) is None
    assert (each.era, each.version) == then


@requirement("mcp:wire-unsupported-version")
def test_without_a_common_revision_there_is_nothing_to_say() -> None:
    failure = opened_greeting(MODERN).take_error({"code": -32022, "data": {"supported": ["2027-01-01", 5]}})
    assert isinstance(failure, Failure)
    assert (failure.code, failure.detail["supported"]) == (Code.PROTOCOL_VERSION_MISMATCH, ["2027-01-01"])


@requirement("mcp:wire-unsupported-version")
def test_a_server_found_to_speak_only_an_older_revision_is_greeted_in_that() -> None:
    each = opened_greeting(MODERN)
    assert each.take_result(discovered(supportedVersions=["2025-06-18"])) is None
    assert (each.era, each.version) == (HANDSHAKE, "2025-06-18")
    each = opened_greeting(MODERN)
    failure = each.take_result(discovered(supportedVersions=["2030-01-01"]))
    assert isinstance(failure, Failure) and failure.code == Code.PROTOCOL_VERSION_MISMATCH


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("supported", [..., None, "2026-07-28"])
def test_a_modern_server_that_names_no_versions_speaks_the_one_asked_for(supported: Any) -> None:
    accepted = welcomed(opened_greeting(MODERN).take_result(discovered(supportedVersions=supported)))
    assert (accepted.version, len(accepted.warnings)) == ("2026-07-28", 1)
