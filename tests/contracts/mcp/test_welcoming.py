"""From the greeting through the catalogue to `Ready`, and staying up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.mcp.machine import DISCOVERING, LISTING, McpMachine
from plugbay.contracts.mcp.messages import (
    CAPABILITIES,
    CLIENT,
    HANDSHAKE,
    MODERN,
    SUBSCRIPTION,
    VERSION,
    empty_offer,
)
from plugbay.contracts.mcp.welcoming import MAX_RELISTS
from plugbay.contracts.rpc import CLOSING, FAILED, GREETING, READY
from plugbay.model.errors import Code
from plugbay.model.events import CallFinished, Fault, Noise, Notified, Ready
from plugbay.model.operations import ChangeResource, InvokeTool, OfferExports, WatchResource, WriteLog
from plugbay.wire.fast_json import MsgspecCodec
from tests.contracts.mcp.talk import (
    ALL,
    ECHO,
    EVERYTHING,
    ME,
    OFFER,
    discovered,
    finished,
    frames,
    greeting,
    host,
    line,
    list_answers,
    told,
    welcome,
)
from tests.support.requirements import requirement

if TYPE_CHECKING:
    from plugbay.wire.strict_json import Codec


def ready(events: list[Any]) -> dict[str, Any]:
    (hello,) = [event.hello for event in events if isinstance(event, Ready)]
    return dict(hello)


@requirement("mcp:wire-initialize", "mcp:wire-initialized", "mcp:wire-catalogue")
def test_the_greeting_of_the_handshake_era_byte_for_byte(codec: Codec) -> None:
    machine = McpMachine(Role.HOST, codec, client=ME, offers=frozenset({"roots"}))
    machine.greet()
    assert machine.outgoing() == (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        b'"capabilities":{"roots":{}},"clientInfo":{"name":"tester","version":"1"}}}\n'
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
    machine = McpMachine(Role.HOST, codec, era=MODERN, client=ME, offers=frozenset({"roots"}))
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
    with pytest.raises(Misuse, match="no era"):
        McpMachine(Role.HOST, MsgspecCodec(), era="stone")


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


def listening(**changes: Any) -> tuple[McpMachine, dict[str, Any]]:
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
