"""The gate for requests of plugins, and that the host and the test host of the SDK refuse alike.

The table runs each request through the real handler with real services and through the services in memory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.inbound.handler import InboundHandler, Services
from plugbay.host.inbound.questions import Question
from plugbay.host.services.storage import PluginStorage
from plugbay.model.errors import Code, Failure, Origin
from plugbay.model.gate import (
    MAX_EVENT,
    MAX_KEY,
    MAX_PATH,
    MAX_SUBSCRIPTIONS,
    MAX_VALUE,
    Gate,
    access,
    capability_for_path,
    covers_topic,
    grant,
    is_readable,
    may_spawn,
    path_problem,
    refuse_call,
    refuse_capability,
    refuse_event_size,
    refuse_network,
    refuse_snapshot_size,
    refuse_storage,
    renounced,
    requested_capabilities,
)
from plugbay.model.operations import (
    AskUser,
    CompleteChat,
    DeleteStored,
    FetchUrl,
    GetSnapshot,
    GetStored,
    InvokeTool,
    ListRoots,
    ListStored,
    Publish,
    PublishSnapshot,
    ReadFile,
    ReadFolder,
    RecallMemory,
    SetStored,
    SubscribeSnapshot,
    WriteLog,
)
from plugbay.model.spec import Access, Export, PluginSpec
from plugbay.model.topics import MAX_SUBJECT, MAX_TOPIC
from plugbay.sdk.testing.services import HostServices
from tests.support.requirements import requirement

SPEC = PluginSpec("p", "1", "nexo", Path("/p"), ("x",))

GRANTS = ("memory.recall", "llm.complete", "elicitation", "roots", "r", "w", "t", "n", "f")
FULL = replace(
    SPEC,
    capabilities=GRANTS,
    publishes=("plugin.p.>",),
    access=(
        Access("storage_read", capability="r"),
        Access("storage_write", capability="w"),
        Access("topic", "a*", capability="t"),
        Access("topic", "ui.state*", capability="t"),
        Access("topic", "fleet.x", capability="t"),
        Access("network", "shop.example", 443, capability="n"),
        Access("read_path", "/srv/notes", capability="f"),
        Access("read_path", "/proc", capability="f"),
    ),
)
"""Requests every kind of access."""
MCP = replace(FULL, contract="mcp", optional_capabilities=("sampling", "elicitation", "roots"))

EVENT = {"payload": {"n": 1}}
ASKED = [
    RecallMemory("ada", "tea"),
    CompleteChat("p", "m", [{"role": "user", "content": "hi"}]),
    AskUser("Who?"),
    ListRoots(),
    Publish("plugin.p.note", EVENT),
    GetStored("k"),
    SetStored("k", 1),
    DeleteStored("k"),
    ListStored("k"),
    GetSnapshot("ab"),
    SubscribeSnapshot("ab"),
    PublishSnapshot("ab", b"1"),
    ReadFile("/srv/notes/a"),
    ReadFolder("/srv/notes"),
    FetchUrl("https://shop.example/"),
]
"""One valid request or notification of each kind that needs a grant or a declaration."""


async def host_verdict(spec: PluginSpec, granted: tuple[str, ...], op: Any, state: Path) -> Failure | None:
    """Why the host refuses, or why it drops a notification; None if the request reaches its service."""
    services = Services()
    async with PluginStorage(state / "storage.db") as services.storage:
        handler = InboundHandler(spec, granted, services)
        handler._snapshots.open(lambda topic, data: None)
        if isinstance(op, PublishSnapshot):
            return handler._gate.refuse(op) or handler._snapshots.publish(op.topic, op.data)
        answer = await handler.handle_request(op, lambda item: None)
    return answer if isinstance(answer, Failure) else None


def memory_verdict(spec: PluginSpec, granted: tuple[str, ...], op: Any) -> Failure | None:
    """The same of the test host."""
    services = HostServices(spec, Gate(spec, granted))
    if isinstance(op, PublishSnapshot):
        services.notified(op)
        return next(iter(services.refused), None)
    answer = services.answer(op, lambda item: None)
    return answer if isinstance(answer, Failure) else None


def verdicts(spec: PluginSpec, granted: tuple[str, ...], op: Any, state: Path) -> tuple[Failure | None, Failure | None]:
    return asyncio.run(host_verdict(spec, granted, op, state)), memory_verdict(spec, granted, op)


@requirement("ainb:host-topics-gated", "ainb:host-network-allow-list")
@pytest.mark.parametrize("op", ASKED, ids=lambda op: type(op).__name__)
def test_without_a_grant_both_hosts_refuse_with_the_same_failure(op: Any, tmp_path: Path) -> None:
    of_host, of_memory = verdicts(SPEC, (), op, tmp_path)
    assert of_host is not None and of_host == of_memory
    assert (of_host.code, of_host.origin) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY)


@pytest.mark.parametrize("op", ASKED, ids=lambda op: type(op).__name__)
def test_with_every_grant_the_gate_refuses_none_of_them(op: Any) -> None:
    assert Gate(FULL, GRANTS).refuse(op) is None


@pytest.mark.parametrize(
    ("op", "code", "words"),
    [
        (Publish("plugin.q.note", EVENT), Code.CAPABILITY_NOT_ALLOWED, "outside this plugin's topics (plugin.p.>)"),
        (Publish("plugin.p", EVENT), Code.CAPABILITY_NOT_ALLOWED, "outside this plugin's topics"),
        (Publish("plugin.p.*", EVENT), Code.INVALID_INPUT, "has a wildcard"),
        (Publish("plugin.p..x", EVENT), Code.INVALID_INPUT, "has an empty segment"),
        (Publish("plugin.p." + "x" * MAX_SUBJECT, EVENT), Code.INVALID_INPUT, "at most 1024 characters"),
        (Publish("plugin.p.x", [1]), Code.INVALID_INPUT, "an event is an object, not list"),
        (Publish("plugin.p.x", {"payload": "x" * MAX_EVENT}), Code.FRAME_TOO_LARGE, "bytes; at most 1,040,000"),
        (GetStored(""), Code.INVALID_INPUT, "the key must not be empty"),
        (SetStored("k" * (MAX_KEY + 1), 1), Code.INVALID_INPUT, "the key has 513 bytes"),
        (DeleteStored("\ud800"), Code.INVALID_INPUT, "the key is not Unicode text"),
        (ListStored("k" * (MAX_KEY + 1)), Code.INVALID_INPUT, "the prefix has 513 bytes"),
        (SetStored("k", "x" * MAX_VALUE), Code.INVALID_INPUT, "the value has 1,048,578 bytes"),
        (GetSnapshot("b"), Code.CAPABILITY_NOT_ALLOWED, "event_bus is not granted to p for the topic 'b'"),
        (SubscribeSnapshot("b"), Code.CAPABILITY_NOT_ALLOWED, "event_bus is not granted"),
        (SubscribeSnapshot(""), Code.INVALID_INPUT, "must not be empty"),
        (SubscribeSnapshot("a" * (MAX_TOPIC + 1)), Code.INVALID_INPUT, "at most 256 characters"),
        (SubscribeSnapshot("a\n"), Code.INVALID_INPUT, "printable characters only"),
        (PublishSnapshot("b", b""), Code.CAPABILITY_NOT_ALLOWED, "event_bus is not granted"),
        (PublishSnapshot("a\n", b""), Code.INVALID_INPUT, "printable characters only"),
        (PublishSnapshot("fleet.x", b""), Code.CAPABILITY_NOT_ALLOWED, "only the host publishes under fleet.x"),
        (PublishSnapshot("ui.state/q", b""), Code.CAPABILITY_NOT_ALLOWED, "belongs to another plugin"),
        (PublishSnapshot("ab", bytes(12_500_001)), Code.FRAME_TOO_LARGE, "at most 12,500,000 fit one message"),
        (ReadFile("notes"), Code.INVALID_INPUT, "the path must be absolute"),
        (ReadFile("/srv/notes/" + "x" * MAX_PATH), Code.INVALID_INPUT, "at most 4,096"),
        (ReadFile("/srv/secret"), Code.CAPABILITY_NOT_ALLOWED, "/srv/secret is outside the grants of p"),
        (ReadFile("/srv/notes/../secret"), Code.CAPABILITY_NOT_ALLOWED, "is outside the grants of p"),
        (ReadFolder("/proc/self"), Code.CAPABILITY_NOT_ALLOWED, "is outside the grants of p"),
        (FetchUrl("https://shop.example:8443/"), Code.CAPABILITY_NOT_ALLOWED, "shop.example, port 8443"),
        (FetchUrl("http://shop.example/"), Code.CAPABILITY_NOT_ALLOWED, "shop.example, port 80"),
        (FetchUrl("ftp://shop.example/"), Code.INVALID_INPUT, "must begin with http:// or https://"),
        (FetchUrl("https://u:p@shop.example/"), Code.INVALID_INPUT, "not contain a user or a password"),
        (FetchUrl("https://shop.example/", "BREW"), Code.INVALID_INPUT, "the method must be one of"),
        (FetchUrl("https://shop.example/", headers=[("Host", "x")]), Code.INVALID_INPUT, "set by the host"),
        (InvokeTool("t", {}), Code.NOT_FOUND, "this host does not offer InvokeTool to plugins"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "__slots__") else None,
)
def test_both_hosts_refuse_the_same_values_with_the_same_failure(
    op: Any, code: str, words: str, tmp_path: Path
) -> None:
    of_host, of_memory = verdicts(FULL, GRANTS, op, tmp_path)
    assert of_host is not None and of_host == of_memory
    assert of_host.code == code and words in of_host.message


@pytest.mark.parametrize(
    "op",
    [
        Publish("plugin.p.note", EVENT),
        GetStored("k"),
        SetStored("k" * MAX_KEY, "x" * (MAX_VALUE - 2)),
        DeleteStored("k"),
        ListStored(),
        GetSnapshot("ab"),
        SubscribeSnapshot("fleet.x"),
        PublishSnapshot("ui.state", b"1"),
        PublishSnapshot("ui.state/p", b"1"),
        WriteLog("info", "x"),
        ListRoots(),
    ],
    ids=lambda op: type(op).__name__,
)
def test_both_hosts_accept_the_same_values(op: Any, tmp_path: Path) -> None:
    assert verdicts(FULL, GRANTS, op, tmp_path) == (None, None)


def test_both_hosts_call_the_capability_for_models_as_the_contract_does(tmp_path: Path) -> None:
    chat = CompleteChat("", "m", [{"role": "user", "content": "hi"}])
    for granted, capability in (((), "sampling"), (("llm.complete",), "sampling")):
        of_host, of_memory = verdicts(MCP, granted, chat, tmp_path)
        assert of_host == of_memory
        assert of_host is not None and of_host.detail == {"capability": capability}
    assert Gate(MCP, ("sampling",)).refuse(chat) is None


def test_both_hosts_end_at_the_same_number_of_subscriptions() -> None:
    services, failures = HostServices(FULL, Gate(FULL, GRANTS)), []

    async def main() -> None:
        handler = InboundHandler(FULL, GRANTS, Services())
        handler._snapshots.open(lambda topic, data: None)
        for number in range(MAX_SUBSCRIPTIONS + 1):
            op = SubscribeSnapshot(f"a{number}")
            failures.append((await handler.handle_request(op, print), services.answer(op, print)))

    asyncio.run(main())
    assert set(failures[:-1]) == {(None, None)}
    assert failures[-1][0].code == Code.OVERLOADED and failures[-1][0] == failures[-1][1]


@pytest.mark.parametrize("schema", [{"type": "object", "required": ["name"]}, {"type": 7}])
def test_both_hosts_refuse_an_answer_that_does_not_fit_the_question(schema: Any) -> None:
    async def people(question: Question) -> dict[str, Any]:
        return {"action": "accept", "content": {"age": 3}}

    async def of_host() -> Any:
        services = Services(questions=people)
        return await InboundHandler(FULL, GRANTS, services).handle_request(AskUser("Who?", schema), print)

    services = HostServices(FULL, Gate(FULL, GRANTS))
    services.people.script([{"age": 3}])
    failure = asyncio.run(of_host())
    assert isinstance(failure, Failure) and "the answer does not match the schema of the question" in failure.message
    assert services.answer(AskUser("Who?", schema), print) == failure


def test_a_full_storage_names_its_quota() -> None:
    assert refuse_storage(1, 1) is None
    keys, used = refuse_storage(10_001, 1), refuse_storage(1, (64 << 20) + 1)
    assert keys is not None and (keys.code, keys.detail["quota"]) == (Code.UNAVAILABLE, "keys")
    assert used is not None and (used.code, used.detail["quota"]) == (Code.UNAVAILABLE, "bytes")


# Grants.


def test_access_is_what_the_granted_capabilities_stand_for() -> None:
    wanted = (Access("storage_read", capability="r"), Access("storage_write", capability="w"))
    spec = PluginSpec("p", "1", "kaged", Path("/"), ("x",), capabilities=("r", "w"), access=wanted)
    assert access(spec, ("r",)) == wanted[:1]
    assert access(spec, ()) == ()


@requirement("ainb:host-topics-gated")
def test_a_topic_is_covered_by_any_of_its_grants() -> None:
    access = [Access("topic", "a"), Access("topic", "b.*")]
    assert [covers_topic(access, topic) for topic in ("a", "b.c", "b", "fleet.x")] == [True, True, False, False]
    assert not covers_topic([], "a")


def test_other_access_covers_no_topic() -> None:
    assert not covers_topic([Access("network"), Access("run"), Access("read_path", "x")], "x")


def test_roots_are_the_paths_that_may_be_read() -> None:
    access = [Access("read_path", "~/a"), Access("write_path", "~/b"), Access("read_path", "/c"), Access("topic", "/d")]
    spec = replace(SPEC, access=tuple(replace(item, capability="c") for item in access))
    assert Gate(spec, ["c"]).read_roots() == ["~/a", "/c"]


@pytest.mark.parametrize(
    ("access", "may"),
    [([], False), ([Access("network")], False), ([Access("run")], True), ([Access("run", "git")], True)],
)
def test_only_the_run_access_starts_processes(access: list[Access], may: bool) -> None:
    assert may_spawn(access) is may


@requirement("ainb:host-files-denied")
@pytest.mark.parametrize(
    ("path", "capability"),
    [
        ("/home/u/.claude/projects/x/y.jsonl", "read_claude_logs"),
        ("/home/u/.claude/projects", "read_claude_logs"),
        ("/home/u/.claude/projectsx", "read_paths"),
        ("/home/u/.claude/projects/../../secret", "read_paths"),
        ("/notes/a", "read_paths"),
        ("/etc/passwd", "read_paths"),
    ],
)
def test_a_refused_path_names_the_capability_that_would_open_it(path: str, capability: str) -> None:
    requested = [
        Access("write_path", "/etc", capability="write_plugin_data"),
        Access("read_path", "~/.claude/projects", capability="read_claude_logs"),
        Access("read_path", "/notes", capability="read_paths=/notes"),
    ]
    assert capability_for_path(requested, path, "/home/u") == capability


def test_a_refusal_is_a_matter_of_policy_and_names_its_capability() -> None:
    failure = refuse_capability("event_bus", "no")
    assert (failure.code, failure.origin, failure.message) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY, "no")
    assert failure.detail == {"capability": "event_bus"}


READS, WRITES = (GetStored("k"), ListStored("")), (SetStored("k", 1), DeleteStored("k"))


@pytest.mark.parametrize(("granted", "allowed"), [("r", READS), ("w", WRITES)], ids=["reading", "writing"])
def test_a_grant_to_read_is_none_to_write_and_the_other_way_round(granted: str, allowed: tuple[Any, ...]) -> None:
    gate = Gate(FULL, (granted,))
    assert [op for op in (*READS, *WRITES) if gate.refuse(op) is None] == list(allowed)


WANTING = replace(SPEC, capabilities=("network=a", "network=b", "x"), optional_capabilities=("y", "x"))


@pytest.mark.parametrize(
    ("names", "granted"),
    [
        (None, ("network=a", "network=b", "x", "y")),
        ((), ()),
        (("x",), ("x",)),
        (("network=b",), ("network=b",)),
        (("network",), ("network=a", "network=b")),
        (("network=c", "z"), ()),
    ],
    ids=["everything", "nothing", "one", "one host", "all its hosts", "what it did not request"],
)
def test_a_plugin_has_what_it_requests_and_is_granted(names: tuple[str, ...] | None, granted: tuple[str, ...]) -> None:
    assert grant(WANTING, names) == granted


def test_a_plugin_that_requests_in_its_handshake_has_every_grant() -> None:
    assert grant(replace(WANTING, requests_at_run_time=True), ("z", "x", "a")) == ("x", "a", "z")


def test_what_a_plugin_renounces_needs_no_grant() -> None:
    modest = replace(
        SPEC,
        capabilities=("net:[]", "r"),
        access=(Access("no_network", capability="net:[]"), Access("run", capability="r")),
    )
    assert renounced(modest) == {"net:[]"} and grant(modest, ()) == ("net:[]",)


def test_a_capability_is_requested_by_every_name_that_grants_it() -> None:
    assert requested_capabilities([WANTING]) == {"network=a", "network=b", "network", "x", "y"}


@pytest.mark.parametrize(
    ("needs", "granted", "missing"),
    [(("x",), ("x",), ""), (("x",), (), "x"), (("x", "y"), ("y",), "x"), (("unrequested",), (), ""), ((), (), "")],
)
def test_an_export_that_needs_more_than_is_granted_is_refused(
    needs: tuple[str, ...], granted: tuple[str, ...], missing: str
) -> None:
    refusal = refuse_call(replace(SPEC, capabilities=("x", "y")), Export("tool", "t", capabilities=needs), granted)
    if not missing:
        assert refusal is None
        return
    assert refusal is not None
    assert (refusal.code, refusal.origin, refusal.plugin) == (Code.CAPABILITY_NOT_ALLOWED, Origin.POLICY, "p")
    assert refusal.message == f"t needs {missing}, which is not granted"
    assert refusal.detail["hint"].startswith(f"grant it for this run with --grant {missing}, or permanently")


def test_sizes_are_allowed_up_to_their_limits() -> None:
    assert refuse_event_size(MAX_EVENT) is None and refuse_event_size(MAX_EVENT + 1) is not None
    assert refuse_snapshot_size(5, 5) is None
    large = refuse_snapshot_size(6, 5)
    assert large is not None and large.detail == {"limit": "entry"}
    assert refuse_storage(3, 4, max_keys=3, max_total=4) is None
    full = refuse_storage(3, 5, max_keys=3, max_total=4)
    assert full is not None and full.detail == {"quota": "bytes", "limit": 4}
    assert path_problem("/" + "a" * (MAX_PATH - 1)) is None and path_problem("/" + "a" * MAX_PATH) is not None


@pytest.mark.parametrize("path", ["a", "~/a", "/a\0b", "/\ud800"])
def test_a_path_is_absolute_and_of_text(path: str) -> None:
    assert path_problem(path) is not None


@pytest.mark.parametrize(
    ("path", "readable"),
    [("/", True), ("/home/a", True), ("/proc/1/mem", False), ("/sys/power", False), ("/dev/mem", False)],
)
def test_folders_of_the_kernel_are_never_readable(path: str, readable: bool) -> None:
    assert is_readable(PurePosixPath(path), [PurePosixPath("/")]) is readable
    assert is_readable(PurePosixPath(path), []) is False


def test_refusals_name_what_is_missing() -> None:
    network = refuse_network((), "shop.example", 443)
    assert network is not None and network.detail == {"capability": "network"}
    event = Gate(SPEC, ()).refuse(Publish("plugin.q.x", {}))
    assert event is not None and "topics (nothing)" in event.message
    unknown = Gate(FULL, GRANTS).refuse(object())
    assert unknown is not None and (unknown.code, unknown.detail) == (Code.NOT_FOUND, {"absent": True})
