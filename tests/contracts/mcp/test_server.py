"""What a plugin answers and tells, in both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugbay.contracts.base import Misuse
from plugbay.contracts.mcp import listing
from plugbay.contracts.mcp.messages import (
    CAPABILITIES,
    HANDSHAKE,
    LOG_LEVEL,
    MODERN,
    REVISIONS,
    SUBSCRIPTION,
    VERSION,
    Server,
)
from plugbay.contracts.mcp.server import MAX_LISTENERS, MAX_PARKED, MAX_WATCHED, ServerMachine
from plugbay.contracts.rpc import GREETING, READY
from plugbay.model.errors import Code, Failure
from plugbay.model.events import CallArrived, CallFinished, CancelArrived, Noise, Notified, Ready
from plugbay.model.operations import (
    AskUser,
    ChangeResource,
    ChangeRoots,
    CompleteArgument,
    CompleteChat,
    GetPrompt,
    InvokeTool,
    ListRoots,
    OfferExports,
    ReadResource,
    RecallMemory,
    SetLogLevel,
    WatchResource,
    WriteLog,
)
from plugbay.wire.strict_json import stdlib_codec
from tests.contracts.mcp.talk import (
    ALL,
    CAN_BE_ASKED,
    ECHO,
    ME,
    OFFER,
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
    from plugbay.wire.strict_json import Codec

ERAS = pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
COMPLETION = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}


def error(machine: ServerMachine) -> tuple[Any, int]:
    (frame,) = frames(machine)
    return frame["id"], frame["error"]["code"]


# Who asks.


@requirement("mcp:wire-initialize", "mcp:wire-version")
@pytest.mark.parametrize("version", [*REVISIONS, "2099-01-01", "nonsense", None, 5])
def test_initialize_is_answered_in_the_revision_asked_for_or_in_our_newest(version: Any, codec: Codec) -> None:
    machine = plugin(codec, title="Notes", instructions="be nice")
    params = {"protocolVersion": version, "capabilities": {"roots": {}}, "clientInfo": ME}
    agreed = version if version in REVISIONS else "2025-11-25"
    hello: dict[str, Any] = {
        "era": "handshake",
        "protocol_version": agreed,
        "client": ME,
        "capabilities": {"roots": {}},
    }
    assert machine.receive(line(request("i", "initialize", params))) == [Ready(hello)]
    info = {"name": "notes", "version": "2.0", "title": "Notes"}
    result = {"protocolVersion": agreed, "capabilities": ALL, "serverInfo": info, "instructions": "be nice"}
    assert frames(machine) == [{"id": "i", "result": result}]
    assert machine.receive(line(told("notifications/initialized"))) == [Notified(ChangeRoots())]
    assert machine.state == READY


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("params", [..., None, {}, [], {"capabilities": None, "clientInfo": "x"}])
def test_a_client_that_says_little_is_welcome(params: Any) -> None:
    machine = plugin()
    (ready,) = machine.receive(line(request(1, "initialize", params)))
    assert isinstance(ready, Ready)
    assert (ready.hello["client"], ready.hello["capabilities"]) == ({}, {})
    assert "result" in frames(machine)[0]


def test_initialize_may_be_said_again() -> None:
    machine = session(version="2024-11-05")
    assert machine.receive(line(request(2, "initialize", {"protocolVersion": "2025-06-18"}))) == []
    assert frames(machine)[0]["result"]["protocolVersion"] == "2025-06-18"


def test_a_new_session_has_subscribed_to_nothing() -> None:
    machine = session()
    machine.finish(asked(machine.receive(line(request(1, "resources/subscribe", {"uri": "note:a"})))).id)
    machine.receive(line(request(2, "initialize", {})))
    machine.outgoing()
    machine.notify(ChangeResource("note:a"))
    assert machine.outgoing() == b""


@requirement("mcp:wire-discover", "mcp:wire-caching")
def test_discover_says_everything(codec: Codec) -> None:
    machine = plugin(codec, instructions="be nice")
    hello = {"era": "modern", "protocol_version": "2026-07-28", "client": ME, "capabilities": CAN_BE_ASKED}
    assert machine.receive(line(request(1, "server/discover", modern()))) == [Ready(hello)]
    (frame,) = frames(machine)
    assert frame["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": ALL,
        "instructions": "be nice",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "notes", "version": "2.0"}},
    }


@requirement("mcp:wire-discover")
def test_a_modern_client_need_not_discover_anything() -> None:
    machine = plugin()
    ready, arrived = machine.receive(line(request(1, "tools/call", modern(name="echo"))))
    assert isinstance(ready, Ready)
    assert asked([arrived]).op == InvokeTool("echo", {}, {})


@requirement("mcp:wire-unsupported-version")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "tools/call"])
@pytest.mark.parametrize("version", ["1900-01-01", "2025-11-25", ""])
def test_a_revision_that_we_do_not_serve_is_refused_with_those_we_do(method: str, version: str) -> None:
    machine = plugin()
    assert machine.receive(line(request(1, method, modern(_meta={VERSION: version})))) == []
    (frame,) = frames(machine)
    assert frame["error"]["code"] == -32022
    assert frame["error"]["data"] == {"supported": ["2026-07-28", *REVISIONS], "requested": version}
    assert machine.state == GREETING


@requirement("mcp:wire-meta-required")
@pytest.mark.parametrize(
    "meta",
    [
        {VERSION: 5},
        {VERSION: None},
        {CAPABILITIES: None},
        {CAPABILITIES: []},
        {LOG_LEVEL: "loud"},
        {LOG_LEVEL: []},
    ],
)
def test_a_request_that_does_not_say_who_asks_is_refused(meta: dict[str, Any]) -> None:
    machine = plugin()
    assert machine.receive(line(request(1, "tools/list", modern(_meta=meta)))) == []
    assert error(machine) == (1, -32602)


@requirement("mcp:wire-meta-required")
@pytest.mark.parametrize("method", ["server/discover", "subscriptions/listen", "tools/list", "tools/call", "x"])
@pytest.mark.parametrize("params", [..., {}, {"_meta": {}}, {"_meta": None}])
def test_a_request_before_any_greeting_that_says_nothing_is_refused(method: str, params: Any) -> None:
    machine = plugin()
    assert machine.receive(line(request(1, method, params))) == []
    assert error(machine) == (1, -32602)


@requirement("mcp:wire-both-eras")
def test_both_eras_are_served_at_once() -> None:
    machine = session()
    machine.receive(line(request(1, "tools/list", {})))
    machine.receive(line(request(2, "tools/list", modern())))
    handshake, new = frames(machine)
    assert handshake["result"] == {"tools": [ECHO]}
    assert new["result"]["resultType"] == "complete"


@requirement("mcp:wire-ping")
def test_a_ping_is_answered_before_and_after_the_greeting() -> None:
    for machine in (plugin(), session()):
        assert machine.receive(line(request("p", "ping"))) == []
        assert frames(machine) == [{"id": "p", "result": {}}]
    machine = plugin()
    machine.receive(line(request(1, "ping", modern())))
    assert error(machine) == (1, -32601)


# Lists.


@requirement("mcp:wire-lists", "mcp:wire-caching")
@ERAS
@pytest.mark.parametrize(
    ("method", "key", "name"),
    [
        ("tools/list", "tools", "tools"),
        ("resources/list", "resources", "resources"),
        ("resources/templates/list", "resourceTemplates", "resource_templates"),
        ("prompts/list", "prompts", "prompts"),
    ],
)
def test_the_machine_lists_what_is_offered(era: str, method: str, key: str, name: str, codec: Codec) -> None:
    machine = in_era(era, codec)
    assert machine.receive(line(request(1, method, of_era(era)))) == []
    (frame,) = frames(machine)
    assert frame["result"][key] == OFFER[name]
    kept = {"ttlMs", "cacheScope", "resultType", "_meta"} & set(frame["result"])
    assert len(kept) == (4 if era == MODERN else 0)


@requirement("mcp:wire-paging")
@ERAS
def test_a_list_that_does_not_fit_comes_in_pages(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PAGE_BYTES", 60)
    tools = [{**ECHO, "name": f"t{n}"} for n in range(3)]
    machine = in_era(era, offer={"tools": tools})
    read: list[Any] = []
    cursor: dict[str, str] = {}
    while cursor is not None:
        machine.receive(line(request(1, "tools/list", of_era(era, **cursor))))
        (frame,) = frames(machine)
        read += frame["result"]["tools"]
        if "nextCursor" not in frame["result"]:
            break
        cursor = {"cursor": frame["result"]["nextCursor"]}
    assert read == tools
    assert cursor != {}
    machine.notify(OfferExports({"tools": tools[:2]}))
    machine.outgoing()
    machine.receive(line(request(2, "tools/list", of_era(era, **cursor))))
    assert error(machine) == (2, -32602)


@requirement("mcp:wire-server-capabilities")
@ERAS
@pytest.mark.parametrize(
    "method",
    [
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "resources/subscribe",
        "logging/setLevel",
    ],
)
def test_what_is_not_announced_is_a_method_nobody_knows(era: str, method: str) -> None:
    machine = in_era(era, offer={}, capabilities={"tools": {}})
    params = of_era(era, uri="a:b", name="p", level="info", **COMPLETION)
    assert machine.receive(line(request(1, method, params))) == []
    assert error(machine) == (1, -32601)


# Calls.


@requirement("mcp:wire-methods", "mcp:wire-ids")
@ERAS
@pytest.mark.parametrize("id", [5, "five", 0, -1, 1.5, None, "\u00e9\n"])
@pytest.mark.parametrize(
    ("method", "params", "op", "value", "result"),
    [
        (
            "tools/call",
            {"name": "echo", "arguments": {"a": 1}},
            InvokeTool("echo", {"a": 1}, {}),
            "hi",
            {"content": [{"type": "text", "text": "hi"}]},
        ),
        ("resources/read", {"uri": "note:a"}, ReadResource("note:a", {}), {"contents": []}, {"contents": []}),
        (
            "prompts/get",
            {"name": "greet", "arguments": {"who": "x"}},
            GetPrompt("greet", {"who": "x"}, {}),
            {"messages": []},
            {"messages": []},
        ),
        (
            "completion/complete",
            COMPLETION,
            CompleteArgument(COMPLETION),
            {"completion": {"values": []}},
            {"completion": {"values": []}},
        ),
    ],
)
def test_a_call_arrives_and_its_answer_goes_back(
    era: str, id: Any, method: str, params: Any, op: Any, value: Any, result: Any
) -> None:
    machine = in_era(era)
    arrived = asked(machine.receive(line(request(id, method, of_era(era, **params)))))
    assert arrived.op == op
    machine.finish(arrived.id, value)
    (frame,) = frames(machine)
    assert frame["id"] == id
    assert {key: frame["result"][key] for key in result} == result
    assert ("resultType" in frame["result"]) is (era == MODERN)
    assert ("ttlMs" in frame["result"]) is (era == MODERN and method == "resources/read")


@requirement("mcp:wire-unknown-tool")
@ERAS
def test_a_tool_that_nobody_has_is_an_error_of_the_protocol(era: str) -> None:
    machine = in_era(era)
    assert machine.receive(line(request(1, "tools/call", of_era(era, name="shout")))) == []
    assert error(machine) == (1, -32602)


@requirement("mcp:wire-invalid-params")
@ERAS
def test_parameters_without_sense_are_refused(era: str) -> None:
    machine = in_era(era)
    assert machine.receive(line(request(1, "tools/call", of_era(era, name="echo", arguments=[])))) == []
    assert error(machine) == (1, -32602)


@requirement("mcp:wire-unknown-method")
@ERAS
@pytest.mark.parametrize("method", ["tasks/list", "tools/uncall", "rpc.discover"])
def test_a_method_that_nobody_knows_is_refused(era: str, method: str) -> None:
    machine = in_era(era)
    assert machine.receive(line(request(1, method, of_era(era)))) == []
    assert error(machine) == (1, -32601)


@requirement("mcp:wire-is-error")
@ERAS
def test_a_tool_that_fails_tells_the_model(era: str) -> None:
    machine = in_era(era)
    arrived = asked(machine.receive(line(request(1, "tools/call", of_era(era, name="echo")))))
    machine.finish(arrived.id, None, Failure(Code.PLUGIN_ERROR, "no such city"))
    (frame,) = frames(machine)
    assert frame["result"]["isError"] is True
    assert frame["result"]["content"] == [{"type": "text", "text": "no such city"}]


@requirement("mcp:wire-error-codes")
@ERAS
def test_anything_else_that_fails_is_an_error(era: str) -> None:
    machine = in_era(era)
    arrived = asked(machine.receive(line(request(1, "resources/read", of_era(era, uri="note:x")))))
    machine.finish(arrived.id, None, Failure(Code.NOT_FOUND, "no such note"))
    assert error(machine) == (1, -32002 if era == HANDSHAKE else -32602)


def test_a_result_that_is_no_json_is_an_error() -> None:
    machine = session()
    for value in (object(), {"a": float("nan")}, {"content": [], "x": object()}):
        arrived = asked(machine.receive(line(request(1, "tools/call", {"name": "echo"}))))
        machine.finish(arrived.id, value)
        assert error(machine) == (1, -32603)


@requirement("mcp:wire-progress")
@ERAS
@pytest.mark.parametrize("token", ["t", 5, 0])
def test_progress_is_told_to_who_gave_a_token(era: str, token: Any) -> None:
    machine = in_era(era)
    params = of_era(era, name="echo", _meta={"progressToken": token})
    number = asked(machine.receive(line(request(1, "tools/call", params)))).id
    machine.progress(number, {"progress": 1, "total": 2, "message": "m"})
    machine.progress(number, "words")
    machine.progress(number, {"delta": "x"})
    said = [frame["params"] for frame in frames(machine)]
    assert said == [
        {"progressToken": token, "progress": 1, "total": 2, "message": "m"},
        {"progressToken": token, "progress": 2, "message": "words"},
        {"progressToken": token, "progress": 3},
    ]
    machine.finish(number, "x")
    machine.outgoing()
    assert machine.progress(number, "late") is None
    assert machine.outgoing() == b""


@requirement("mcp:wire-progress")
@pytest.mark.parametrize("meta", [{}, {"progressToken": None}, {"progressToken": []}, {"progressToken": 1.5}])
def test_progress_is_told_to_nobody_else(meta: dict[str, Any]) -> None:
    machine = session()
    number = asked(machine.receive(line(request(1, "tools/call", {"name": "echo", "_meta": meta})))).id
    machine.progress(number, {"progress": 1})
    assert machine.outgoing() == b""


@requirement("mcp:wire-unknown-notification")
def test_notifications_that_nobody_knows_are_noise() -> None:
    machine = session()
    (event,) = machine.receive(line(told("notifications/novelty")))
    assert isinstance(event, Noise)
    assert machine.receive(line(told("notifications/tasks/status"))) == []
    assert machine.outgoing() == b""


@requirement("mcp:wire-roots-changed")
@pytest.mark.parametrize("method", ["notifications/initialized", "notifications/roots/list_changed"])
def test_a_server_hears_that_there_are_other_roots_from_clients_that_have_roots(method: str) -> None:
    machine = session()
    assert machine.receive(line(told(method))) == [Notified(ChangeRoots())]
    machine.receive(line(request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}})))
    assert machine.receive(line(told(method))) == []


# Who hears of changes.

NEW = {**OFFER, "tools": [], "resource_templates": []}


@requirement("mcp:wire-list-changed")
def test_a_session_is_told_which_lists_changed() -> None:
    machine = session()
    assert machine.notify(OfferExports(NEW)) is None
    methods = [frame["method"] for frame in frames(machine)]
    assert methods == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
    machine.notify(OfferExports(NEW))
    assert machine.outgoing() == b""
    machine.receive(line(request(1, "tools/call", {"name": "echo"})))
    assert error(machine) == (1, -32602)
    machine.receive(line(request(2, "tools/list")))
    assert frames(machine)[0]["result"] == {"tools": []}


@requirement("mcp:wire-list-changed")
def test_who_was_not_told_that_lists_may_change_is_not_told_that_they_did() -> None:
    machine = session(capabilities={"tools": {}, "resources": {}})
    machine.notify(OfferExports(NEW))
    assert machine.outgoing() == b""
    machine = plugin()
    machine.notify(OfferExports(NEW))
    assert machine.outgoing() == b""


@requirement("mcp:wire-listen")
def test_a_modern_client_hears_of_what_it_listens_for() -> None:
    machine = in_era(MODERN)
    wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["note:a", 5]}
    events = machine.receive(line(request("sub", "subscriptions/listen", modern(notifications=wanted))))
    assert events == [Notified(WatchResource("note:a"))]
    meta = {SUBSCRIPTION: "sub"}
    agreed = {"toolsListChanged": True, "resourceSubscriptions": ["note:a"]}
    assert frames(machine) == [
        {"method": "notifications/subscriptions/acknowledged", "params": {"_meta": meta, "notifications": agreed}}
    ]
    machine.notify(OfferExports(NEW))
    assert frames(machine) == [{"method": "notifications/tools/list_changed", "params": {"_meta": meta}}]
    machine.notify(ChangeResource("note:a"))
    machine.notify(ChangeResource("note:b"))
    updated = {"method": "notifications/resources/updated", "params": {"_meta": meta, "uri": "note:a"}}
    assert frames(machine) == [updated]


@requirement("mcp:wire-listen")
def test_listening_ends_when_it_is_called_off() -> None:
    machine = in_era(MODERN)
    both = [("a", ["note:a", "note:b"]), ("b", ["note:b"])]
    for id, uris in both:
        params = modern(notifications={"toolsListChanged": True, "resourceSubscriptions": uris})
        machine.receive(line(request(id, "subscriptions/listen", params)))
    machine.outgoing()
    ended = machine.receive(line(told("notifications/cancelled", {"requestId": "a"})))
    assert ended == [Notified(WatchResource("note:a", False))]
    assert machine.outgoing() == b""
    machine.notify(OfferExports(NEW))
    assert [frame["params"]["_meta"][SUBSCRIPTION] for frame in frames(machine)] == ["b"]


@requirement("mcp:wire-listen")
def test_only_what_is_announced_is_agreed_to() -> None:
    machine = in_era(MODERN, capabilities={"tools": {}, "resources": {}})
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note:a"]}
    assert machine.receive(line(request(1, "subscriptions/listen", modern(notifications=wanted)))) == []
    assert frames(machine)[0]["params"]["notifications"] == {}


@requirement("mcp:wire-listen")
def test_a_server_that_goes_ends_its_subscriptions_in_good_order() -> None:
    machine = in_era(MODERN)
    machine.receive(line(request(3, "subscriptions/listen", modern(notifications={"toolsListChanged": True}))))
    machine.outgoing()
    machine.close("")
    result = {"resultType": "complete", "_meta": {SUBSCRIPTION: 3}}
    ended = {"method": "notifications/cancelled", "params": {"requestId": 3}}
    assert frames(machine) == [{"id": 3, "result": result}, ended]


@requirement("mcp:wire-listen")
def test_there_is_an_end_to_subscriptions() -> None:
    machine = in_era(MODERN)
    for id in range(MAX_LISTENERS + 1):
        machine.receive(line(request(id, "subscriptions/listen", modern(notifications={}))))
    assert frames(machine)[-1]["error"]["code"] == -32603


@requirement("mcp:wire-watch")
def test_a_session_hears_of_the_resources_it_subscribed_to() -> None:
    machine = session()
    for method, wanted in (("resources/subscribe", True), ("resources/unsubscribe", False)):
        arrived = asked(machine.receive(line(request(1, method, {"uri": "note:a"}))))
        assert arrived.op == WatchResource("note:a", wanted)
        machine.finish(arrived.id)
        assert frames(machine) == [{"id": 1, "result": {}}]
        machine.notify(ChangeResource("note:a"))
        updated = {"method": "notifications/resources/updated", "params": {"uri": "note:a"}}
        assert frames(machine) == [updated] * wanted


@requirement("mcp:wire-watch")
def test_a_subscription_that_was_refused_is_none() -> None:
    machine = session()
    arrived = asked(machine.receive(line(request(1, "resources/subscribe", {"uri": "note:x"}))))
    machine.finish(arrived.id, None, Failure(Code.NOT_FOUND, "no such note"))
    machine.outgoing()
    machine.notify(ChangeResource("note:x"))
    assert machine.outgoing() == b""
    machine = session(capabilities={**ALL, "resources": {}})
    assert machine.receive(line(request(1, "resources/subscribe", {"uri": "note:x"}))) == []
    assert error(machine) == (1, -32601)


@requirement("mcp:wire-logging")
def test_a_session_hears_log_lines_from_the_level_it_wants() -> None:
    machine = session()
    machine.notify(WriteLog("debug", "one"))
    assert frames(machine) == [{"method": "notifications/message", "params": {"level": "debug", "data": "one"}}]
    arrived = asked(machine.receive(line(request(1, "logging/setLevel", {"level": "warning"}))))
    assert arrived.op == SetLogLevel("warning")
    machine.finish(arrived.id)
    machine.outgoing()
    machine.notify(WriteLog("info", "two"))
    machine.notify(WriteLog("warn", "three"))
    assert [frame["params"]["data"] for frame in frames(machine)] == ["three"]


@requirement("mcp:wire-logging")
def test_a_modern_client_hears_them_only_during_a_call_that_wants_them() -> None:
    machine = in_era(MODERN)
    machine.notify(WriteLog("error", "nobody asked"))
    deaf = asked(machine.receive(line(request(1, "tools/call", modern(name="echo")))))
    machine.notify(WriteLog("error", "nobody asked"))
    assert machine.outgoing() == b""
    params = modern(name="echo", _meta={LOG_LEVEL: "warning"})
    hears = asked(machine.receive(line(request(2, "tools/call", params))))
    machine.notify(WriteLog("info", "too low"))
    machine.notify(WriteLog("error", "heard"))
    assert [frame["params"]["data"] for frame in frames(machine)] == ["heard"]
    machine.finish(hears.id, "x")
    machine.finish(deaf.id, "x")
    machine.outgoing()
    machine.notify(WriteLog("error", "over"))
    assert machine.outgoing() == b""


@requirement("mcp:wire-logging")
def test_who_does_not_announce_logging_does_not_log() -> None:
    machine = session(capabilities={"tools": {}})
    machine.notify(WriteLog("error", "x"))
    assert machine.outgoing() == b""


@requirement("mcp:wire-watch-bounds")
def test_there_is_an_end_to_what_a_client_watches() -> None:
    machine = session()
    for number in range(MAX_WATCHED):
        events = machine.receive(line(request(number, "resources/subscribe", {"uri": f"a://{number}"})))
        machine.finish(asked(events).id)
    assert all("result" in frame for frame in frames(machine))
    assert machine.receive(line(request("x", "resources/subscribe", {"uri": "a://x"}))) == []
    (refused,) = frames(machine)
    assert refused["error"]["code"] == -32603
    wanted = {"resourceSubscriptions": [f"a://{number}" for number in range(MAX_WATCHED + 5)]}
    events = machine.receive(line(request("l", "subscriptions/listen", modern(notifications=wanted))))
    assert len([event for event in events if isinstance(event, Notified)]) == MAX_WATCHED
    (agreed,) = frames(machine)
    assert len(agreed["params"]["notifications"]["resourceSubscriptions"]) == MAX_WATCHED


FORM = {"type": "object", "properties": {"name": {"type": "string"}}}
WHO = AskUser("who?", FORM)
YES = {"action": "accept", "content": {"name": "x"}}


def calling(id: Any = 5, machine: ServerMachine | None = None, **params: Any) -> tuple[ServerMachine, CallId]:
    """A plugin of the modern era that is being called, and under which number."""
    machine = machine or in_era(MODERN)
    arrived = asked(machine.receive(line(request(id, "tools/call", modern(name="echo", **params)))))
    return machine, arrived.id


def parked(machine: ServerMachine) -> tuple[dict[str, Any], str]:
    """The questions that end a call, and its state."""
    (frame,) = frames(machine)
    assert frame["result"]["resultType"] == "input_required"
    return frame["result"]["inputRequests"], frame["result"]["requestState"]


def again(machine: ServerMachine, state: Any, answers: Any, id: Any = 6, **params: Any) -> list[Any]:
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
    machine = ServerMachine(stdlib_codec(), server=Server("s", "1", offer={"tools": [ECHO]}))
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
