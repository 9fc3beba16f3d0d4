"""Questions to the client during a call: outright in the handshake era, by parking the call in the modern one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.mcp.machine import McpMachine
from plugbay.contracts.mcp.messages import CAPABILITIES, HANDSHAKE, LOG_LEVEL, MODERN, Server
from plugbay.contracts.mcp.parking import MAX_PARKED
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CancelArrived
from plugbay.model.operations import AskUser, CompleteChat, InvokeTool, ListRoots, RecallMemory, WriteLog
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.mcp.talk import (
    CAN_BE_ASKED,
    ECHO,
    asked,
    finished,
    frames,
    in_era,
    line,
    modern,
    of_era,
    plugin,
    request,
    session,
    told,
)
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.model.events import CallId

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
WHO = AskUser("who?", FORM)
YES = {"action": "accept", "content": {"name": "x"}}


def calling(id: Any = 5, machine: McpMachine | None = None, **params: Any) -> tuple[McpMachine, CallId]:
    """A plugin of the modern era that is being called, and under which number."""
    machine = machine or in_era(MODERN)
    arrived = asked(machine.receive(line(request(id, "tools/call", modern(name="echo", **params)))))
    return machine, arrived.id


def parked(machine: McpMachine) -> tuple[dict[str, Any], str]:
    """The questions that end a call, and its state."""
    (frame,) = frames(machine)
    assert frame["result"]["resultType"] == "input_required"
    return frame["result"]["inputRequests"], frame["result"]["requestState"]


def again(machine: McpMachine, state: Any, answers: Any, id: Any = 6, **params: Any) -> list[Any]:
    given = modern(name="echo", requestState=state, inputResponses=answers, **params)
    return list(machine.receive(line(request(id, "tools/call", given))))


# Outright.


@requirement("mcp:wire-sampling", "mcp:wire-elicitation", "mcp:wire-roots")
@pytest.mark.parametrize(
    ("op", "method", "result", "value"),
    [
        (WHO, "elicitation/create", YES, YES),
        (AskUser("go", None, "https://x"), "elicitation/create", {"action": "cancel"}, {"action": "cancel"}),
        (ListRoots(), "roots/list", {"roots": [{"uri": "file:///a"}]}, [{"uri": "file:///a"}]),
        (
            CompleteChat("", "", [{"role": "user", "content": "hi"}]),
            "sampling/createMessage",
            {"role": "assistant", "content": {"type": "text", "text": "ho"}, "model": "m", "stopReason": "endTurn"},
            {"content": "ho", "finish_reason": "stop", "usage": None, "tool_calls": [], "model": "m"},
        ),
    ],
)
def test_a_client_of_the_handshake_era_is_asked_outright(op: Any, method: str, result: Any, value: Any) -> None:
    machine = session()
    assert machine.call(9, op) is None
    (frame,) = frames(machine)
    assert frame["method"] == method
    assert machine.receive(line({"id": frame["id"], "result": result})) == [CallFinished(9, value)]


def test_a_page_that_people_are_sent_to_has_a_number_of_its_own() -> None:
    machine = session()
    for call in (1, 2):
        machine.call(call, AskUser("go", None, "https://x"))
    first, second = frames(machine)
    assert first["params"]["elicitationId"] != second["params"]["elicitationId"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"error": {"code": -1, "message": "User rejected"}}, Code.CAPABILITY_NOT_ALLOWED),
        ({"error": {"code": -32601, "message": "?"}}, Code.NOT_FOUND),
        ({"result": 5}, Code.MALFORMED_RESPONSE),
        ({}, Code.MALFORMED_RESPONSE),
        ({"result": {"action": "perhaps"}}, Code.MALFORMED_RESPONSE),
    ],
)
def test_a_client_that_does_not_answer_properly_is_a_failure(answer: dict[str, Any], code: str) -> None:
    machine = session()
    machine.call(9, WHO)
    (frame,) = frames(machine)
    failure = finished(machine.receive(line({"id": frame["id"], **answer}))).failure
    assert failure is not None and failure.code == code


@requirement("mcp:wire-client-capabilities")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_a_client_is_not_asked_what_it_cannot_be_asked(era: str) -> None:
    machine = plugin()
    machine.receive(line(request(0, "initialize", {"capabilities": {"elicitation": {}}})))
    machine.receive(line(request(1, "tools/call", of_era(era, name="echo", _meta={CAPABILITIES: {"elicitation": {}}}))))
    machine.outgoing()
    for op, requires in (
        (ListRoots(), {"roots": {}}),
        (AskUser("go", None, "https://x"), {"elicitation": {"url": {}}}),
    ):
        failure = machine.call(9, op)
        assert failure is not None
        assert (failure.code, failure.detail) == (Code.CAPABILITY_NOT_ALLOWED, {"requires": requires})
    assert machine.outgoing() == b""
    assert machine.call(9, WHO) is None


def test_without_a_client_there_is_nobody_to_ask() -> None:
    failure = plugin().call(1, WHO)
    assert failure is not None and failure.code == Code.UNAVAILABLE


def test_a_modern_client_is_asked_only_during_a_call() -> None:
    machine = in_era(MODERN)
    failure = machine.call(1, WHO)
    assert failure is not None and failure.code == Code.UNAVAILABLE
    completion = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}
    arrived = asked(machine.receive(line(request(1, "completion/complete", modern(**completion)))))
    failure = machine.call(1, WHO, arrived.id)
    assert failure is not None and failure.code == Code.UNAVAILABLE


def test_what_mcp_cannot_ask_is_our_own_bug() -> None:
    with pytest.raises(Misuse):
        session().call(1, RecallMemory("a", "b"))


def test_a_server_that_asks_needs_entropy() -> None:
    machine = McpMachine(Role.PLUGIN, stdlib_codec(), server=Server("s", "1", offer={"tools": [ECHO]}))
    machine.greet()
    machine.receive(line(request(1, "tools/call", modern(name="echo"))))
    with pytest.raises(Misuse, match="entropy"):
        machine.call(1, WHO)


def test_a_question_that_is_no_json_is_not_asked() -> None:
    bad = AskUser("who?", {"type": object()})
    for machine in (session(), calling()[0]):
        failure = machine.call(1, bad)
        assert failure is not None and failure.code == Code.INVALID_INPUT
        assert machine.outgoing() == b""


# Parked.


@requirement("mcp:wire-input-required", "mcp:wire-no-server-requests")
def test_a_call_is_ended_with_the_question_and_goes_on_with_the_answer() -> None:
    machine, number = calling(arguments={"a": 1})
    assert machine.call(1, WHO, number) is None
    wanted, state = parked(machine)
    assert list(wanted.values()) == [
        {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": FORM}}
    ]
    (key,) = wanted
    meta = {"progressToken": "new"}
    events = again(machine, state, {key: YES, "unasked": 5}, arguments={"a": 1}, _meta=meta)
    assert events == [CallFinished(1, YES)]
    assert machine.outgoing() == b""
    machine.progress(number, {"progress": 1})
    machine.finish(number, "done")
    progress, frame = frames(machine)
    assert progress["params"]["progressToken"] == "new"
    assert (frame["id"], frame["result"]["content"][0]["text"]) == (6, "done")


@requirement("mcp:wire-input-required")
def test_a_call_may_ask_several_times() -> None:
    machine, number = calling()
    states = []
    for question in range(3):
        machine.call(question, WHO, number)
        wanted, state = parked(machine)
        states.append(state)
        assert again(machine, state, dict.fromkeys(wanted, YES), id=question + 10) == [CallFinished(question, YES)]
    assert len(set(states)) == 3
    machine.finish(number, "done")
    assert frames(machine)[0]["id"] == 12


@requirement("mcp:wire-input-required")
def test_what_is_asked_while_the_client_has_the_word_is_asked_next() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    machine.call(2, ListRoots(), number)
    wanted, state = parked(machine)
    assert again(machine, state, dict.fromkeys(wanted, YES)) == [CallFinished(1, YES)]
    wanted, state = parked(machine)
    assert [each["method"] for each in wanted.values()] == ["roots/list"]
    assert again(machine, state, {key: {"roots": []} for key in wanted}, id=7) == [CallFinished(2, [])]


@requirement("mcp:wire-input-required")
def test_an_answer_that_is_missing_is_asked_for_again() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    _, state = parked(machine)
    unanswered: tuple[Any, ...] = ({}, None, [], {"other": YES})
    for answers in unanswered:
        assert again(machine, state, answers) == []
        wanted, fresh = parked(machine)
        assert len(wanted) == 1 and fresh != state
        state = fresh


def test_an_answer_without_sense_is_a_failure_of_the_question() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    wanted, state = parked(machine)
    (event,) = again(machine, state, {key: {"action": "perhaps"} for key in wanted})
    assert event.failure is not None and event.failure.code == Code.MALFORMED_RESPONSE


@requirement("mcp:wire-request-state")
def test_a_state_is_good_for_one_call_once() -> None:
    machine, number = calling(arguments={"a": 1})
    machine.call(1, WHO, number)
    wanted, state = parked(machine)
    answers = dict.fromkeys(wanted, YES)
    for params in ({"arguments": {"a": 2}}, {}):
        assert again(machine, state, answers, **params) == []
        assert frames(machine)[0]["error"]["code"] == -32602
    assert again(machine, state, answers, arguments={"a": 1}) == [CallFinished(1, YES)]
    assert again(machine, state, answers, arguments={"a": 1}) == []
    assert frames(machine)[0]["error"]["code"] == -32602


@requirement("mcp:wire-request-state")
@pytest.mark.parametrize("state", ["", "guess", 5, [], {}])
def test_a_state_that_was_not_given_is_refused(state: Any) -> None:
    machine = in_era(MODERN)
    assert again(machine, state, {}) == []
    assert frames(machine)[0]["error"]["code"] == -32602


def over_without_an_answer(event: Any) -> Any:
    """The number of a question that nobody answers any more."""
    assert isinstance(event, CallFinished) and event.failure is not None and event.failure.code == Code.CANCELLED
    return event.id


@requirement("mcp:wire-input-required")
def test_a_call_that_ends_while_the_client_has_the_word_is_answered_when_it_comes_back() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    _, state = parked(machine)
    machine.progress(number, {"progress": 1})
    machine.finish(number, None, Failure(Code.TIMEOUT, "too late"))
    assert machine.outgoing() == b""
    assert over_without_an_answer(*again(machine, state, {})) == 1
    (frame,) = frames(machine)
    assert (frame["id"], frame["result"]["isError"]) == (6, True)


@requirement("mcp:wire-input-required")
def test_what_was_asked_with_a_call_that_has_ended_since_is_answered_or_over() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    _, state = parked(machine)
    machine.call(2, ListRoots(), number)
    machine.finish(number, "done")
    answered, over = again(machine, state, {"q1": YES})
    assert answered == CallFinished(1, YES)
    assert over_without_an_answer(over) == 2
    assert [frame["id"] for frame in frames(machine)] == [6]


@requirement("mcp:wire-input-required")
def test_a_question_that_is_called_off_is_not_asked_again() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    wanted, state = parked(machine)
    machine.cancel(1, "enough")
    assert again(machine, state, dict.fromkeys(wanted, YES)) == []
    machine.finish(number, "done")
    assert frames(machine)[0]["id"] == 6


@requirement("mcp:wire-cancel")
def test_with_a_call_its_questions_are_over() -> None:
    machine, number = calling()
    machine.call(1, WHO, number)
    _, state = parked(machine)
    machine.call(2, ListRoots(), number)
    again(machine, state, {"q1": YES})
    machine.outgoing()
    # The request that was answered with questions is over: it cannot be called off any more.
    assert machine.receive(line(told("notifications/cancelled", {"requestId": 6}))) == []
    machine, number = calling()
    machine.call(1, WHO, number)
    _, state = parked(machine)
    assert again(machine, state, {"q1": YES}) == [CallFinished(1, YES)]
    assert machine.receive(line(told("notifications/cancelled", {"requestId": 6}))) == [CancelArrived(number)]
    machine.finish(number, "late")
    assert machine.outgoing() == b""


@requirement("mcp:wire-input-bounds")
def test_of_too_many_parked_calls_the_oldest_gives_way() -> None:
    machine = in_era(MODERN)
    numbers, states = [], []
    for call in range(MAX_PARKED + 1):
        _, number = calling(call + 10, machine)
        machine.call(call, WHO, number)
        states.append(parked(machine)[1])
        numbers.append(number)
    events = machine.receive(line(request("next", "tools/call", modern(name="echo"))))
    assert [type(event) for event in events] == [CancelArrived, CallFinished, CallArrived]
    cancelled, over, _ = events
    assert cancelled == CancelArrived(numbers[0])
    assert over_without_an_answer(over) == 0
    assert again(machine, states[0], {}) == []
    assert frames(machine)[0]["error"]["code"] == -32602
    assert again(machine, states[1], {"q1": YES}) == [CallFinished(1, YES)]


@requirement("mcp:wire-input-bounds")
def test_a_call_that_ended_while_it_was_parked_gives_way_with_its_question() -> None:
    machine = in_era(MODERN)
    for call in range(MAX_PARKED + 1):
        _, number = calling(call + 10, machine)
        machine.call(call, WHO, number)
        machine.finish(number, "over")
    machine.outgoing()
    over, arrived = machine.receive(line(request("next", "tools/call", modern(name="echo"))))
    assert over_without_an_answer(over) == 0
    assert isinstance(arrived, CallArrived) and arrived.op == InvokeTool("echo", {}, {})


def test_questions_that_are_too_long_together_fail_alone() -> None:
    machine, number = calling()
    long = AskUser("x" * (9 << 20))
    for call in (1, 2, 3):
        assert machine.call(call, long, number) is None
    _, state = parked(machine)
    events = again(machine, state, {"q1": YES})
    assert [(event.id, event.failure and event.failure.code) for event in events] == [
        (1, None),
        (2, Code.FRAME_TOO_LARGE),
        (3, Code.FRAME_TOO_LARGE),
    ]
    machine.finish(number, "done")
    assert frames(machine)[0]["id"] == 6


def test_a_question_goes_with_a_call_that_is_not_parked_where_there_is_one() -> None:
    machine, _ = calling(5)
    _, second = calling(6, machine)
    machine.call(1, WHO, second)
    machine.outgoing()
    machine.call(2, WHO)
    assert frames(machine)[0]["id"] == 5


def test_where_nobody_says_during_which_call_the_latest_carries_the_question() -> None:
    machine, first = calling(5)
    _, second = calling(6, machine)
    machine.call(1, WHO)
    (frame,) = frames(machine)
    assert frame["id"] == 6
    state = frame["result"]["requestState"]
    assert again(machine, state, {"q1": YES}, id=7) == [CallFinished(1, YES)]
    machine.finish(first, "a")
    machine.finish(second, "b")
    assert [frame["id"] for frame in frames(machine)] == [5, 7]


@requirement("mcp:wire-both-eras")
def test_in_a_process_of_both_eras_a_call_asks_in_its_own() -> None:
    machine = session()
    old = asked(machine.receive(line(request(1, "tools/call", {"name": "echo"}))))
    new = asked(machine.receive(line(request(2, "tools/call", modern(name="echo")))))
    machine.call(1, WHO, old.id)
    assert frames(machine)[0]["method"] == "elicitation/create"
    machine.call(2, WHO, new.id)
    assert frames(machine)[0]["result"]["resultType"] == "input_required"


@requirement("mcp:wire-logging")
def test_a_parked_call_hears_no_log() -> None:
    machine, number = calling(_meta={LOG_LEVEL: "debug", CAPABILITIES: CAN_BE_ASKED})
    machine.notify(WriteLog("info", "heard"))
    machine.call(1, WHO, number)
    machine.outgoing()
    machine.notify(WriteLog("info", "unheard"))
    assert machine.outgoing() == b""
