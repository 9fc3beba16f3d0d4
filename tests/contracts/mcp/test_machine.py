"""The MCP machine as a whole: its states, a HOST against a PLUGIN in both eras, any bytes in any pieces."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugbay.contracts.base import Misuse, Role
from plugbay.contracts.mcp.client import ClientMachine
from plugbay.contracts.mcp.machine import DISCOVERING, LISTING, MAX_BATCH, MAX_CANCELLED, TOO_LONG, McpMachine
from plugbay.contracts.mcp.messages import (
    CAPABILITIES,
    HANDSHAKE,
    MAX_LINE,
    MODERN,
    REVISIONS,
    SUBSCRIPTION,
    VERSION,
    Server,
)
from plugbay.contracts.mcp.server import ServerMachine, requested_id
from plugbay.contracts.rpc import CLOSED, CLOSING, FAILED, GREETING, READY, START
from plugbay.model.errors import CODES, ORIGINS, Code, Failure, Origin
from plugbay.model.events import (
    CallArrived,
    CallFinished,
    CallProgress,
    CancelArrived,
    Closed,
    Fault,
    Noise,
    Notified,
    Ready,
)
from plugbay.model.operations import (
    AskUser,
    ChangeResource,
    CheckHealth,
    CompleteArgument,
    CompleteChat,
    DeliverEvent,
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
    OFFER,
    asked,
    discovered,
    finished,
    frames,
    greeting,
    host,
    in_era,
    line,
    modern,
    of_era,
    plugin,
    request,
    session,
    told,
    value_of,
    welcome,
)
from tests.support.codecs import CODECS
from tests.support.pairs import exchange
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

if TYPE_CHECKING:
    from plugbay.model.events import Event

ERAS = pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
PAIRS = pytest.mark.parametrize("codecs", first_alone(product(CODECS, CODECS)))


def pair(
    era: str, codecs: tuple[str, str] = ("msgspec", "stdlib"), **server: Any
) -> tuple[ClientMachine, ServerMachine]:
    """A host and a plugin that know each other."""
    ours = ClientMachine(CODECS[codecs[0]](), era=era, offers=EVERYTHING)
    theirs = plugin(CODECS[codecs[1]](), **server)
    ours.greet()
    at_host, at_plugin = exchange(ours, theirs)
    assert [type(event) for event in (*at_host, *at_plugin)] == [Ready, Ready, *[Notified] * (era == HANDSHAKE)]
    return ours, theirs


# The table.


def test_the_states_of_a_host() -> None:
    machine = ClientMachine(MsgspecCodec())
    assert machine.state == START
    machine.greet()
    assert machine.state == GREETING
    machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}})}))
    assert machine.state == LISTING
    machine.receive(line({"id": 2, "result": {"tools": []}}))
    assert machine.state == READY
    machine.close("")
    assert machine.state == CLOSING
    assert machine.receive_eof() == [Closed()]
    assert machine.state == CLOSED


@pytest.mark.parametrize("state", [START, GREETING, DISCOVERING, LISTING, READY, CLOSING, CLOSED, FAILED])
def test_a_host_may_close_in_every_state_and_says_nothing(state: str) -> None:
    machine = ClientMachine(MsgspecCodec())
    machine.state = state
    machine.close("")
    assert machine.state in (CLOSING, CLOSED)
    machine.close("")
    assert machine.outgoing() == b""


@requirement("mcp:wire-shutdown")
@pytest.mark.parametrize("state", [GREETING, DISCOVERING, LISTING, READY])
def test_a_server_that_leaves_unasked_has_crashed(state: str) -> None:
    machine = ClientMachine(MsgspecCodec())
    machine.greet()
    machine.state = state
    (fault,) = machine.receive_eof()
    assert isinstance(fault, Fault)
    assert (fault.failure.code, fault.failure.origin) == (Code.CRASHED, Origin.PLUGIN)
    assert machine.state == FAILED
    assert machine.receive_eof() == []


@requirement("mcp:wire-shutdown")
@pytest.mark.parametrize("make", [plugin, session])
def test_a_plugin_leaves_when_its_input_ends(make: Any) -> None:
    machine = make()
    assert machine.receive_eof() == [Closed()]
    assert machine.state == CLOSED
    assert machine.receive(line(request(1, "ping"))) == []


def test_a_plugin_answers_what_it_was_asked_after_its_input_has_ended() -> None:
    machine = session()
    number = asked(machine.receive(line(request(1, "tools/call", {"name": "echo"})))).id
    machine.receive_eof()
    machine.finish(number, "x")
    assert frames(machine)[0]["id"] == 1


def test_nothing_is_asked_before_the_greeting_or_after_the_end() -> None:
    with pytest.raises(Misuse):
        greeting().call(1, InvokeTool("echo", {}))
    machine = host()
    machine.close("")
    failure = machine.call(1, InvokeTool("echo", {}))
    assert failure is not None and failure.code == Code.UNAVAILABLE
    server = session()
    server.receive_eof()
    failure = server.notify(WriteLog("info", "x"))
    assert failure is not None and failure.code == Code.UNAVAILABLE


def test_what_mcp_cannot_tell_is_our_own_bug() -> None:
    with pytest.raises(Misuse):
        host().notify(WriteLog("info", "x"))
    with pytest.raises(Misuse):
        session().notify(DeliverEvent("t", {}))
    with pytest.raises(Misuse):
        session().finish(99, "x")


def test_what_both_ends_support_is_said() -> None:
    assert InvokeTool in McpMachine.SUPPORTS and CheckHealth in McpMachine.SUPPORTS
    assert not McpMachine.GOOD_BYE_IS_ANSWERED


@requirement("mcp:wire-ids")
@pytest.mark.parametrize("id", [True, [], {}, [1]])
def test_a_request_with_an_id_that_is_none_is_noise(id: Any) -> None:
    for machine in (host(), session()):
        (event,) = machine.receive(line(request(id, "ping")))
        assert isinstance(event, Noise)
        assert machine.outgoing() == b""


@pytest.mark.parametrize(
    "message", [{}, {"id": 1}, {"id": None, "error": {"code": -32700}}, {"method": ""}, {"method": 5, "id": 1}]
)
def test_a_message_that_is_none_is_noise(message: Any) -> None:
    for machine in (host(), session()):
        (event,) = machine.receive(line(message))
        assert isinstance(event, Noise)


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("kind", list(CODECS))
def test_keys_that_hold_null_are_as_good_as_missing(kind: str) -> None:
    machine = greeting(CODECS[kind]())
    machine.receive(line({"id": 1, "result": welcome(capabilities={"tools": {}}, instructions=None), "error": None}))
    page = {"tools": [{**ECHO, "title": None, "annotations": None}], "nextCursor": None, "_meta": None}
    (ready,) = machine.receive(line({"id": 2, "result": page, "error": None, "method": None, "params": None}))
    assert isinstance(ready, Ready) and ready.hello["warnings"] == []
    machine.outgoing()
    said = {"id": None, "method": "notifications/message", "params": {"level": "info", "logger": None, "data": "x"}}
    assert machine.receive(line(said)) == [Notified(WriteLog("info", "x"))]
    assert machine.outgoing() == b""
    machine.call(1, InvokeTool("echo", {}))
    machine.call(2, InvokeTool("echo", {}))
    first, second = frames(machine)
    assert machine.receive(line({"id": first["id"], "result": {}, "error": None})) != []
    (over,) = machine.receive(line({"id": second["id"], "result": None, "error": {"code": 1, "message": "no"}}))
    assert isinstance(over, CallFinished) and over.failure is not None and over.failure.message == "no"


# The pair.


@requirement("mcp:wire-both-eras", "mcp:wire-catalogue")
@ERAS
@PAIRS
def test_two_machines_get_to_know_each_other(era: str, codecs: tuple[str, str]) -> None:
    ours = ClientMachine(CODECS[codecs[0]](), era=era, offers=EVERYTHING)
    theirs = plugin(CODECS[codecs[1]]())
    ours.greet()
    (ready,), (met, *_) = exchange(ours, theirs)
    assert isinstance(ready, Ready) and isinstance(met, Ready)
    assert (ready.hello["era"], ready.hello["offer"], ready.hello["warnings"]) == (era, OFFER, [])
    assert met.hello["era"] == era


OPERATIONS: list[tuple[Any, Any]] = [
    (InvokeTool("echo", {"a": [1, "é"]}, {}), {"content": [], "_meta": {"a/b": 1}}),
    (ReadResource("note:a", {}), {"contents": [{"uri": "note:a", "blob": "aa=="}]}),
    (GetPrompt("greet", {"who": "x"}, {}), {"description": "d", "messages": []}),
    (CompleteArgument({"ref": {"type": "ref/prompt"}, "argument": {}}), {"completion": {"values": []}}),
]


@requirement("mcp:wire-methods")
@ERAS
@PAIRS
@pytest.mark.parametrize(("op", "value"), OPERATIONS)
def test_every_operation_crosses(era: str, codecs: tuple[str, str], op: Any, value: Any) -> None:
    ours, theirs = pair(era, codecs)
    assert ours.call(1, op) is None
    _, events = exchange(ours, theirs)
    arrived = asked(events)
    assert arrived.op == op
    theirs.progress(arrived.id, {"progress": 1, "total": 2})
    theirs.finish(arrived.id, value)
    (progress, over), _ = exchange(ours, theirs)
    assert progress == CallProgress(1, {"progress": 1, "total": 2})
    assert isinstance(over, CallFinished) and value_of(ours, over) == value


@requirement("mcp:wire-watch", "mcp:wire-logging", "mcp:wire-ping")
@ERAS
def test_everything_else_crosses(era: str) -> None:
    ours, theirs = pair(era)
    for call, op in ((1, WatchResource("note:a")), (2, SetLogLevel("info"))):
        ours.call(call, op)
        at_host, at_plugin = exchange(ours, theirs)
        for event in at_plugin:
            if isinstance(event, CallArrived):
                assert event.op == op
                theirs.finish(event.id)
                at_host += exchange(ours, theirs)[0]
            else:
                assert event == Notified(op)
        assert at_host == [CallFinished(call)]
    theirs.notify(ChangeResource("note:a"))
    theirs.notify(OfferExports({"tools": [ECHO]}))
    events, _ = exchange(ours, theirs)
    changed = {"tools": [ECHO], "resources": [], "resource_templates": [], "prompts": []}
    assert events[0] == Notified(ChangeResource("note:a"))
    assert events[-1] == Notified(OfferExports(changed))


@requirement("mcp:wire-input-required", "mcp:wire-elicitation", "mcp:wire-sampling", "mcp:wire-roots")
@ERAS
@PAIRS
def test_above_the_machines_a_question_looks_the_same_in_both_eras(era: str, codecs: tuple[str, str]) -> None:
    ours, theirs = pair(era, codecs)
    ours.call(1, InvokeTool("echo", {}))
    _, events = exchange(ours, theirs)
    working = asked(events).id
    said: dict[str, Any] = {"content": "ho", "finish_reason": "stop", "model": "m"}
    for op, value, heard in (
        (AskUser("who?", {"type": "object", "properties": {}}), {"action": "decline"}, {"action": "decline"}),
        (ListRoots(), [{"uri": "file:///a"}], [{"uri": "file:///a"}]),
        (
            CompleteChat("", "m", [{"role": "user", "content": "hi"}]),
            said,
            {**said, "usage": None, "tool_calls": []},
        ),
    ):
        assert theirs.call(40, op, working) is None
        events, _ = exchange(ours, theirs)
        question = asked(events)
        if isinstance(question.op, AskUser):
            question.op.during = None  # only one of them says to which call it belongs
        assert question.op == op
        ours.finish(question.id, value)
        _, answers = exchange(ours, theirs)
        assert answers == [CallFinished(40, heard)]
    theirs.finish(working, "done")
    (over,), _ = exchange(ours, theirs)
    assert isinstance(over, CallFinished) and over.id == 1 and over.failure is None


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@requirement("mcp:wire-error-round-trip")
@settings(max_examples=60)
@given(
    st.sampled_from([HANDSHAKE, MODERN]),
    st.sampled_from([op for op, _ in OPERATIONS]),
    st.sampled_from(sorted(CODES)),
    st.sampled_from(sorted(ORIGINS)),
    texts.filter(str.strip),
    st.dictionaries(texts, st.none() | st.integers(-5, 5) | texts, max_size=2),
    st.booleans(),
)
def test_a_failure_crosses_whole(
    era: str, op: Any, code: str, origin: str, message: str, detail: dict[str, Any], retryable: bool
) -> None:
    ours, theirs = pair(era)
    ours.call(1, op)
    _, events = exchange(ours, theirs)
    theirs.finish(asked(events).id, None, Failure(code, message, origin=origin, detail=detail, retryable=retryable))
    (over,), _ = exchange(ours, theirs)
    failure = Failure(code, message, origin=Origin.PLUGIN, detail=detail, retryable=retryable)
    assert over == CallFinished(1, None, failure)


@requirement("mcp:wire-cancel")
@ERAS
def test_calling_off_crosses_and_nothing_comes_back(era: str) -> None:
    ours, theirs = pair(era)
    ours.call(1, InvokeTool("echo", {}))
    _, events = exchange(ours, theirs)
    ours.cancel(1, "enough")
    _, told = exchange(ours, theirs)
    assert told == [CancelArrived(asked(events).id)]
    theirs.finish(asked(events).id, "late")
    assert exchange(ours, theirs) == ([], [])


@requirement("mcp:wire-paging")
@ERAS
def test_a_large_catalogue_crosses_in_pages(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugbay.contracts.mcp.listing.PAGE_BYTES", 1_000)
    tools = [{**ECHO, "name": f"t{n}", "description": "x" * n} for n in range(100)]
    ours, _ = pair(era, offer={"tools": tools}, capabilities={"tools": {}})
    assert ours.offer["tools"] == tools


# Any bytes.


def transcript(era: str) -> tuple[ClientMachine, bytes]:
    """A host that has opened, and everything a server then says."""
    machine = greeting(era=era)
    hello = welcome() if era == HANDSHAKE else discovered()
    said = [
        {"id": 1, "result": hello},
        {"method": "notifications/message", "params": {"level": "info", "data": "up"}},
        {"id": 2, "result": {"tools": [ECHO], "nextCursor": "a"}},
        {"id": 3, "result": {"tools": [{"name": "b"}]}},
        {"id": 4, "result": {"resources": []}},
        {"id": 5, "error": {"code": -32601, "message": "?"}},
        b"plain words\n",
        [{"id": 6, "result": {"prompts": [{"name": "p"}]}}, {"id": "q", "method": "roots/list"}],
        {"method": "notifications/tools/list_changed"},
        {"id": 99, "result": {}},
    ]
    return machine, b"".join(line(message) for message in said)


@requirement("mcp:wire-lines")
@settings(max_examples=50)
@given(st.sampled_from([HANDSHAKE, MODERN]), st.lists(st.integers(1, 60), max_size=30))
def test_any_cutting_gives_the_same_events(era: str, cuts: list[int]) -> None:
    whole_machine, said = transcript(era)
    expected = whole_machine.receive(said)
    machine, _ = transcript(era)
    events: list[Event] = []
    at = 0
    for size in cuts:
        events += machine.receive(said[at : at + size])
        at += size
    events += machine.receive(said[at:])
    assert events == expected
    assert machine.outgoing() == whole_machine.outgoing()
    assert any(isinstance(event, Ready) for event in events)


scalars: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats(-2, 2) | st.text(max_size=3)
)
words = st.sampled_from(
    "initialize ping server/discover subscriptions/listen tools/list tools/call resources/read prompts/get roots/list "
    "resources/subscribe logging/setLevel completion/complete sampling/createMessage elicitation/create echo note:a "
    "notifications/cancelled notifications/progress notifications/message notifications/tools/list_changed "
    "notifications/resources/updated notifications/subscriptions/acknowledged notifications/initialized "
    "input_required complete info user 2026-07-28".split()
)
keys = st.sampled_from(
    "id method params result error _meta name arguments uri tools nextCursor cursor code message data level ref "
    "argument requestId progressToken progress resultType inputRequests inputResponses requestState q1 notifications "
    "resourceSubscriptions protocolVersion supportedVersions supported capabilities serverInfo content isError "
    f"messages role requestedSchema mode {VERSION} {SUBSCRIPTION} {CAPABILITIES}".split()
)
anything: st.SearchStrategy[Any] = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "id": scalars,
        "method": words | scalars,
        "params": st.dictionaries(keys, anything, max_size=5) | anything,
        "result": st.dictionaries(keys, anything, max_size=5) | anything,
        "error": anything,
    },
)


@requirement("mcp:wire-never-raises")
@given(st.sampled_from(["greeting", "host", "plugin", "session", "modern"]), st.lists(messages | anything, max_size=6))
def test_no_message_makes_a_machine_raise(kind: str, said: list[Any]) -> None:
    makes: dict[str, Any] = {
        "greeting": lambda: greeting(era=MODERN),
        "host": lambda: host(era=MODERN if len(said) % 2 else HANDSHAKE),
        "plugin": plugin,
        "session": session,
        "modern": lambda: in_era(MODERN),
    }
    machine = makes[kind]()
    if kind == "host":
        machine.call(1, InvokeTool("echo", {}))
    for message in said:
        body = line(message)
        events = machine.receive(body)
        for event in events:
            if isinstance(event, CallArrived) and machine.role == Role.PLUGIN and len(body) % 2:
                machine.call(1, AskUser("?"), event.id)
    machine.receive_eof()
    for frame in machine.outgoing().split(b"\n")[:-1]:
        json.loads(frame)


@requirement("mcp:wire-never-raises")
@given(st.sampled_from(["host", "session"]), st.binary(max_size=200))
def test_no_bytes_make_a_machine_raise(kind: str, data: bytes) -> None:
    machine = host() if kind == "host" else session()
    machine.receive(data)
    machine.receive_eof()


@requirement("mcp:wire-version")
@pytest.mark.parametrize("version", REVISIONS)
def test_every_revision_of_the_handshake_era_is_spoken(version: str) -> None:
    machine = greeting()
    machine.receive(line({"id": 1, "result": welcome(protocolVersion=version, capabilities={"tools": {}})}))
    (ready,) = machine.receive(line({"id": 2, "result": {"tools": [ECHO]}}))
    assert isinstance(ready, Ready) and ready.hello["protocol_version"] == version
    assert machine.call(1, InvokeTool("echo", {})) is None


def test_a_server_that_says_nothing_of_itself_can_be_made() -> None:
    machine = ServerMachine(MsgspecCodec())
    assert machine.server == Server("", "")
    assert ALL["tools"] == machine.server.capabilities["tools"]
    machine.greet()
    assert machine.receive(line(told("x"))) != []
    assert isinstance(machine.receive(line(request(1, "tools/list", modern())))[0], Ready)


@requirement("mcp:wire-lines")
@pytest.mark.parametrize("junk", [b"listening on 3000", b"{", b"null", b"5", b'"x"', b"\xff\xfe", b"{}x"])
def test_a_line_that_is_no_message_is_noise_and_the_next_one_counts(junk: bytes) -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    noise, answer = machine.receive(junk + b"\n" + line({"id": frame["id"], "result": {"content": []}}))
    assert isinstance(noise, Noise)
    assert isinstance(answer, CallFinished) and value_of(machine, answer) == {"content": []}


def test_a_blank_line_is_nothing() -> None:
    assert host().receive(b"\n  \r\n\n") == []


@requirement("mcp:wire-line-limit")
def test_an_answer_that_is_too_long_ends_its_call_and_nothing_else() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    machine.call(2, InvokeTool("echo", {}))
    first, second = frames(machine)
    head = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % first["id"]
    events = machine.receive(head + b"x" * (MAX_LINE + 10_000))
    assert [type(event) for event in events] == [Noise, CallFinished]
    failure = events[1].failure  # type: ignore[union-attr]
    assert (events[1].id, failure.code) == (1, Code.FRAME_TOO_LARGE)  # type: ignore[union-attr]
    answer = line({"id": second["id"], "result": {"content": []}})
    assert finished(machine.receive(b'"}]}}\n' + answer)).id == 2


@requirement("mcp:wire-line-limit")
def test_a_line_of_full_length_is_read_and_one_byte_more_is_not() -> None:
    def answer(machine: Any, size: int) -> bytes:
        machine.call(1, InvokeTool("echo", {}))
        (frame,) = frames(machine)
        empty = json.dumps({"id": frame["id"], "result": {"text": ""}}, separators=(",", ":")).encode()
        return empty.replace(b'""', b'"%b"' % (b"x" * (size - len(empty)))) + b"\n"

    machine = host()
    assert finished(machine.receive(answer(machine, MAX_LINE))).failure is None
    machine = host()
    assert [type(event) for event in machine.receive(answer(machine, MAX_LINE + 1))] == [Noise, CallFinished]


@requirement("mcp:wire-line-limit")
def test_what_the_peer_would_not_read_is_not_sent() -> None:
    machine = host()
    failure = machine.call(1, InvokeTool("echo", {"text": "x" * MAX_LINE}))
    assert failure is not None and failure.code == Code.FRAME_TOO_LARGE
    assert machine.outgoing() == b""


@requirement("mcp:wire-line-limit")
def test_a_result_that_is_too_long_becomes_an_error_that_says_so() -> None:
    machine = session()
    number = asked(machine.receive(line(request(5, "tools/call", {"name": "echo"})))).id
    machine.finish(number, "x" * MAX_LINE)
    (frame,) = frames(machine)
    assert frame["id"] == 5
    assert frame["error"]["data"]["dev.plugbay/failure"]["code"] == Code.FRAME_TOO_LARGE


@requirement("mcp:wire-line-limit")
def test_a_request_that_is_too_long_is_answered_where_it_can_be_seen_whose_it_is() -> None:
    machine = session()
    head = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"x":"'
    assert machine.receive(head + b"x" * (MAX_LINE + 10_000)) == [Noise(head + b"x" * (200 - len(head)), TOO_LONG)]
    (frame,) = frames(machine)
    assert (frame["id"], frame["error"]["code"]) == (9, -32600)


@pytest.mark.parametrize(
    ("head", "id"),
    [
        (b'{"jsonrpc":"2.0","id":9,"method":"m","params":{', 9),
        (b'{"id": 9 ,"method":"m","params":{"id":4', 9),
        (b'{"method":"m","params":{"id":4,', None),
        (b'{"id":"a","method":"m","params":{', None),
        (b'{"id":9,"result":{', None),
        (b'{"id":9999999999999999,"method":"m","params":{', None),
        (b"junk", None),
    ],
)
def test_the_id_of_a_request_is_seen_only_where_it_is_certain(head: bytes, id: int | None) -> None:
    assert requested_id(head) == id


@requirement("mcp:wire-batch")
def test_a_batch_is_taken_as_if_each_message_had_come_alone() -> None:
    batch = [request(1, "ping"), request("b", "tools/call", {"name": "echo"}), {"jsonrpc": "2.0", "method": "x"}, 7]
    machine = session()
    arrived, unknown, wrong = machine.receive(line(batch))
    assert isinstance(arrived, CallArrived) and arrived.op == InvokeTool("echo", {}, {})
    assert isinstance(unknown, Noise) and isinstance(wrong, Noise)
    assert frames(machine) == [{"id": 1, "result": {}}]


@requirement("mcp:wire-batch")
def test_answers_may_come_in_a_batch() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    machine.call(2, InvokeTool("echo", {}))
    ids = [frame["id"] for frame in frames(machine)]
    events = machine.receive(line([{"jsonrpc": "2.0", "id": id, "result": {"content": []}} for id in ids]))
    assert [event.id for event in events if isinstance(event, CallFinished)] == [1, 2]


@requirement("mcp:wire-batch")
def test_a_batch_that_would_keep_everybody_waiting_is_noise() -> None:
    machine = session()
    assert machine.receive(line([request(1, "ping")] * MAX_BATCH)) == []
    assert len(frames(machine)) == MAX_BATCH
    (event,) = machine.receive(line([request(1, "ping")] * (MAX_BATCH + 1)))
    assert isinstance(event, Noise) and "1,001 messages" in event.why
    assert frames(machine) == []


@requirement("mcp:wire-batch")
@pytest.mark.parametrize("batch", [b"[]\n", b"[1,\n"])
def test_a_batch_of_nothing_is_noise(batch: bytes) -> None:
    (event,) = session().receive(batch)
    assert isinstance(event, Noise)


def test_the_last_line_need_not_have_its_end() -> None:
    machine = plugin()
    whole = line(request(1, "server/discover", modern()))[:-1]
    assert machine.receive(whole) == []
    assert machine.pending == len(whole)
    machine.receive_eof()
    assert [frame["id"] for frame in frames(machine)] == [1]


def test_half_a_message_at_the_end_is_no_message() -> None:
    machine = session()
    machine.receive(line(request(1, "tools/list"))[:-5])
    machine.receive_eof()
    assert machine.outgoing() == b""


def test_half_an_answer_at_the_end_is_no_answer_but_the_end_of_the_server() -> None:
    machine = host()
    machine.call(1, InvokeTool("echo", {}))
    (frame,) = frames(machine)
    machine.receive(line({"id": frame["id"], "result": {"content": []}})[:-5])
    (fault,) = machine.receive_eof()
    assert isinstance(fault, Fault) and fault.failure.code == Code.CRASHED


def test_a_blank_at_the_end_is_nothing() -> None:
    machine = session()
    machine.receive(b"  ")
    assert machine.receive_eof() == [Closed()]


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
    for call in range(1, MAX_CANCELLED + 3):
        machine.call(call, InvokeTool("echo", {}))
        machine.cancel(call, "")
    first = next(frame["id"] for frame in frames(machine) if "id" in frame)
    (event,) = machine.receive(line({"id": first, "result": {}}))
    assert isinstance(event, Noise)
    assert machine.receive(line({"id": machine._last_id, "result": {}})) == [CallFinished(MAX_CANCELLED + 2)]


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
