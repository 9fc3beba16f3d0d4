"""What we asked: numbers, progress, calling off, answers that nobody waits for. Both roles."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.mcp.calling import MAX_CALLED_OFF
from plugbay.contracts.mcp.messages import HANDSHAKE, MODERN
from plugbay.model.events import CallArrived, CallFinished, CallProgress, CancelArrived, Noise
from plugbay.model.operations import AskUser, InvokeTool, ListRoots
from tests.contracts.mcp.talk import asked, finished, frames, host, in_era, line, of_era, request, session, told
from tests.support.requirements import requirement


@requirement("mcp:wire-ids")
def test_no_two_requests_have_one_number() -> None:
    machine = host()
    for call in (1, 2, 3):
        machine.call(call, InvokeTool("echo", {}))
    ids = [frame["id"] for frame in frames(machine)]
    assert len(set(ids)) == 3 and min(ids) > 5  # the greeting and four lists went before


@requirement("mcp:wire-progress")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_a_token_is_always_sent_and_progress_finds_its_call(era: str) -> None:
    machine = host(era=era)
    machine.call(7, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    token = frame["params"]["_meta"]["progressToken"]
    said = {"progressToken": token, "progress": 0.5, "total": 1, "message": "half"}
    item = {"progress": 0.5, "total": 1, "message": "half"}
    assert machine.receive(line(told("notifications/progress", said))) == [CallProgress(7, item)]
    bare = {"progressToken": token, "progress": 1, "total": None, "message": 5}
    assert machine.receive(line(told("notifications/progress", bare))) == [CallProgress(7, {"progress": 1})]


@requirement("mcp:wire-progress")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"progressToken": 99, "progress": 1},
        {"progressToken": "x", "progress": 1},
        {"progressToken": [], "progress": 1},
        {"progressToken": True, "progress": 1},
        {"progressToken": 6, "progress": "half"},
        {"progressToken": 6},
        None,
    ],
)
def test_progress_of_nothing_is_noise(params: Any) -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    assert frame["id"] == 6
    (event,) = machine.receive(line(told("notifications/progress", params)))
    assert isinstance(event, Noise)


@requirement("mcp:wire-progress")
def test_progress_after_the_answer_is_noise() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    machine.receive(line({"id": frame["id"], "result": {}}))
    (event,) = machine.receive(line(told("notifications/progress", {"progressToken": frame["id"], "progress": 1})))
    assert isinstance(event, Noise)


@requirement("mcp:wire-cancel")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_a_call_that_is_called_off_is_told_to_the_server(era: str) -> None:
    machine = host(era=era)
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    machine.cancel(1, "too slow")
    params = {"requestId": frame["id"], "reason": "too slow"}
    assert frames(machine) == [{"method": "notifications/cancelled", "params": params}]
    machine.cancel(1, "again")
    machine.cancel(99, "never asked")
    assert machine.outgoing() == b""


@requirement("mcp:wire-late")
def test_a_late_answer_is_counted_and_not_passed_on() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    machine.cancel(1, "")
    answer = line({"id": frame["id"], "result": {"content": []}})
    assert machine.receive(answer) == [CallFinished(1)]
    (again,) = machine.receive(answer)
    assert isinstance(again, Noise)


@requirement("mcp:wire-late")
def test_calls_that_were_called_off_are_not_remembered_for_ever() -> None:
    machine = host()
    for call in range(1, MAX_CALLED_OFF + 3):
        machine.call(call, InvokeTool("echo", {}))
        machine.cancel(call, "")
    first = next(frame["id"] for frame in frames(machine) if "id" in frame)
    (event,) = machine.receive(line({"id": first, "result": {}}))
    assert isinstance(event, Noise)
    assert machine.receive(line({"id": machine._last_id, "result": {}})) == [CallFinished(MAX_CALLED_OFF + 2)]


@pytest.mark.parametrize("id", [0, -1, 10_000, "6", None, 6.5, True, [6]])
def test_an_answer_to_nothing_is_noise(id: Any) -> None:
    (event,) = host().receive(line({"id": id, "result": {}}))
    assert isinstance(event, Noise)


# What the peer asked and no longer wants.


@requirement("mcp:wire-cancel")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("id", [5, "five", 0, "5"])
def test_nothing_more_is_sent_for_a_call_that_was_called_off(era: str, id: Any) -> None:
    machine = in_era(era)
    meta = {"_meta": {"progressToken": 1}}
    number = asked(machine.receive(line(request(id, "tools/call", of_era(era, name="echo", **meta))))).id
    assert machine.receive(line(told("notifications/cancelled", {"requestId": id}))) == [CancelArrived(number)]
    machine.progress(number, {"progress": 1})
    machine.finish(number, "late")
    assert machine.outgoing() == b""
    assert machine.dropped == 1


@requirement("mcp:wire-cancel")
@pytest.mark.parametrize("params", [{"requestId": 99}, {"requestId": "5"}, {"requestId": None}, {}, {"requestId": []}])
def test_calling_off_what_is_not_there_changes_nothing(params: Any) -> None:
    machine = session()
    number = asked(machine.receive(line(request(5, "tools/call", {"name": "echo"})))).id
    assert machine.receive(line(told("notifications/cancelled", params))) == []
    machine.finish(number, "x")
    assert [frame["id"] for frame in frames(machine)] == [5]


@requirement("mcp:wire-cancel")
def test_true_is_not_the_number_one() -> None:
    machine = session()
    asked(machine.receive(line(request(1, "tools/call", {"name": "echo"}))))
    assert machine.receive(line(told("notifications/cancelled", {"requestId": True}))) == []


@requirement("mcp:wire-cancel")
def test_a_server_may_call_off_its_question() -> None:
    machine = host()
    (event,) = machine.receive(line(request("q", "roots/list")))
    assert event == CallArrived(1, ListRoots())
    assert machine.receive(line(told("notifications/cancelled", {"requestId": "q"}))) == [CancelArrived(1)]
    machine.finish(1, [])
    assert machine.outgoing() == b""


@requirement("mcp:wire-cancel")
def test_a_plugin_may_call_off_its_question() -> None:
    machine = session()
    assert machine.call(4, AskUser("who?")) is None
    (frame,) = frames(machine)
    machine.cancel(4, "enough")
    (said,) = frames(machine)
    assert (said["method"], said["params"]["requestId"]) == ("notifications/cancelled", frame["id"])
    assert finished(machine.receive(line({"id": frame["id"], "result": {"action": "accept"}}))) == CallFinished(4)
