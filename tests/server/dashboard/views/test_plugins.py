"""Plugins on pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.host.confinement.policy import Confinement
from plugbay.host.discovery.folders import Found
from plugbay.host.ports import CallRecord
from plugbay.host.status import PluginStatus
from plugbay.model.errors import Code, Failure, Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec
from plugbay.process.sandbox.policy import Network, Policy, Reach
from plugbay.server.dashboard.loader import LifecycleEvent, PluginSnapshot
from plugbay.server.dashboard.views.plugins import (
    ROWS_OF_A_PAGE,
    Broken,
    Capability,
    LastFailure,
    ListFilter,
    Operation,
    broken_of,
    capabilities_of,
    export_rows,
    facts_of,
    grantable,
    hint_of,
    key_of,
    list_page,
    overview_of,
    row_of,
    rows_of,
    sandbox_of,
    state_of,
    summary,
)
from plugbay.server.dashboard.views.tones import Badge


def known(id: str = "p", state: str = "running", **changes: Any) -> PluginSnapshot:
    """A plugin of which is known what a test says; fields of its spec and status by their names."""
    spec = PluginSpec(id=id, version="1.0", contract="nexo", root=Path("/plugins/p"), command=("python3", "plugin.py"))
    for name in [name for name in changes if name in PluginSpec.__struct_fields__]:
        spec = replace(spec, **{name: changes.pop(name)})
    status = PluginStatus(spec, state, (), 0, 0)
    for name in [name for name in changes if name in PluginStatus.__struct_fields__]:
        status = replace(status, **{name: changes.pop(name)})
    return PluginSnapshot(status, 100.0, **changes)


PENDING = Failure(Code.CAPABILITY_NOT_ALLOWED, "pending: it requests x", detail={"hint": "grant x"})


DISABLED = Failure(Code.UNAVAILABLE, "the operator has disabled this plugin", detail={"hint": "enable it"})


BLOCKED = Confinement(refusal=Failure(Code.SANDBOX_UNAVAILABLE, "no sandbox here", detail={"hint": "install one"}))


def names(operations: tuple[Operation, ...]) -> list[str]:
    return [operation.name for operation in operations]


def bare(capability: Capability) -> Capability:
    """Without the words of `explanations`."""
    return replace(capability, allows="", risk="", tone="", why="")


@pytest.mark.parametrize(
    ("plugin", "badge"),
    [
        (known(), Badge("running", "good")),
        (known(state="idle"), Badge("idle", "calm")),
        (known(state="shutting_down"), Badge("shutting down", "off")),
        (known(state="idle", trouble="crashed: exit code 1"), Badge("idle", "calm")),
        (known(state="backoff", trouble="crashed: exit code 1"), Badge("backoff", "bad", "crashed: exit code 1")),
        (known(state="quarantined", trouble="gave up"), Badge("quarantined", "bad", "gave up")),
        (known(refusal=PENDING), Badge("pending", "warn", "it requests x")),
        (known(state="pending", refusal=PENDING), Badge("pending", "warn", "it requests x")),
        (known(refusal=DISABLED), Badge("disabled", "off", "the operator has disabled this plugin")),
        (known(confinement=BLOCKED), Badge("blocked", "bad", "no sandbox here")),
        (known(state="dreaming"), Badge("dreaming", "calm")),
    ],
)
def test_a_state_says_how_it_stands_and_why(plugin: PluginSnapshot, badge: Badge) -> None:
    assert state_of(plugin) == badge


@pytest.mark.parametrize(
    ("confinement", "limits", "badge"),
    [
        (Confinement(Policy(Path("/p")), ""), "full", Badge("confined", "good")),
        (
            Confinement(Policy(Path("/p")), ""),
            "degraded",
            Badge("confined", "warn", "some of its limits are not enforced"),
        ),
        (Confinement(), "", Badge("unconfined", "off", "its manifest does not ask for it")),
        (Confinement(reason="because", downgrade=True), "", Badge("unconfined", "warn", "because")),
        (BLOCKED, "", Badge("refused", "bad", "no sandbox here")),
    ],
)
def test_a_sandbox_in_a_word(confinement: Confinement, limits: str, badge: Badge) -> None:
    assert sandbox_of(confinement, limits) == badge


def test_problems_come_first_and_transient_states_do_not_move_a_row() -> None:
    plugins = [known("d", "stopped"), known("c", "running"), known("b", "idle"), known("e", "quarantined")]
    plugins += [known("f", "idle", refusal=PENDING), known("a", "spawning")]
    assert [row.id for row in rows_of(plugins)] == ["e", "f", "a", "b", "c", "d"]


def test_a_row_has_the_last_failure_and_since_when() -> None:
    failed = CallRecord("call_1", "p", "1", "nexo", "t", 90.0, 1.0, Failure(Code.TIMEOUT, "late"))
    row = row_of(known(name="p", calls=3, failures=1, failed=failed, happened=LifecycleEvent("started", 120.0, "")))
    assert (row.name, row.calls, row.failures, row.since) == ("", 3, 1, 120.0)
    assert row.failed == LastFailure("timeout", 90.0, "call_1")
    assert row_of(known(name="Pretty")).since == 100.0, "as long as the server knows it"


def test_two_plugins_have_two_keys_whatever_their_ids_are() -> None:
    keys = [key_of(id) for id in ("a/b", "a.b", "a b", "ä", "\ud800")]
    assert len(set(keys)) == 5 and all(key.isascii() and " " not in key for key in keys)


def test_the_summary_counts_every_state() -> None:
    rows = rows_of([known("a"), known("b", "quarantined"), known("c", refusal=PENDING), known("d")])
    assert summary(rows) == "4 plugins: 1 quarantined, 1 pending, 2 running"
    assert summary(rows[:1]) == "1 plugin: 1 quarantined"
    assert summary([]) == "0 plugins"


def test_broken_folders_are_listed_with_their_errors() -> None:
    bad = Problem("missing", "tools", "required", line=1)
    warning = Problem("odd", "", "hm", severity="warning")
    found = [Found(Path("/bad"), "rune", None, (bad, warning)), Found(Path("/good"), "rune", None, (warning,))]
    assert broken_of(found) == [Broken("/bad", ("line 1: tools: required",))]


@pytest.mark.parametrize(
    ("plugin", "operations"),
    [
        (known(), ["restart", "reload", "stop"]),
        (known(state="idle"), ["restart", "reload", "stop"]),
        (known(state="stopped"), ["start"]),
        (known(state="quarantined"), ["start", "stop"]),
        (known(refusal=PENDING), []),
    ],
)
def test_what_can_be_done_follows_from_the_state(plugin: PluginSnapshot, operations: list[str]) -> None:
    assert names(overview_of(plugin).operations) == operations


@pytest.mark.parametrize(
    ("plugin", "hint"),
    [
        (known(), ""),
        (known(refusal=PENDING, capabilities=("x",)), ""),
        (known(refusal=PENDING), "grant x"),
        (known(refusal=DISABLED), "enable it"),
        (known(confinement=BLOCKED), "install one"),
        (known(state="quarantined"), "it failed too often; read its log, fix the problem, then start it"),
    ],
)
def test_a_hint_is_given_where_the_page_itself_offers_nothing(plugin: PluginSnapshot, hint: str) -> None:
    assert hint_of(plugin) == hint


def test_the_overview_shows_the_last_event() -> None:
    plugin = known(
        lifetime=Lifetime.PER_CALL, happened=LifecycleEvent("gave_up", 1.0, "attempts 3"), counters={"b": 1, "a": 2}
    )
    overview = overview_of(plugin)
    assert (overview.happened, overview.lifetime) == ("gave up: attempts 3", "one process per call")
    assert overview.counters == (("a", 2), ("b", 1))
    assert overview_of(known(happened=LifecycleEvent("stopped", 1.0, ""))).happened == "stopped"


def test_a_wish_knows_whether_it_is_granted_where_and_whether_it_is_new() -> None:
    plugin = known(
        capabilities=("a", "net=x", "c", "d"),
        optional_capabilities=("c", "o"),
        granted=("a", "net=x", "d"),
        kept=("a", "net"),
    )
    capabilities = capabilities_of(plugin)
    assert tuple(map(bare, capabilities.requested)) == (
        Capability("a", True, "a", False),
        Capability("net=x", True, "net", False),
        Capability("c", False, "", True),
        Capability("d", True, "", False),
    )
    assert tuple(map(bare, capabilities.optional)) == (Capability("o", False, "", True),)
    assert capabilities.open == ("c",) and not capabilities.undecided


def test_before_anybody_decides_nothing_is_new() -> None:
    capabilities = capabilities_of(known(capabilities=("a",)))
    (only,) = capabilities.requested
    assert capabilities.undecided and bare(only) == Capability("a", False, "", False)
    assert only.allows.startswith("the host does nothing with it") and (only.risk, only.tone) == ("medium", "warn")
    assert not capabilities_of(known()).undecided


def test_an_export_shows_its_input() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    exports = {
        "p/t": Export("tool", "t", "Does it.", schema, capabilities=("x",)),
        "p/v": Export("vector_backend", "v"),
    }
    tool, backend = export_rows(exports)
    assert (tool.full_name, tool.takes, tool.needs) == ("p/t", "n?: integer", ("x",)) and '"n"' in tool.schema
    assert (backend.kind, backend.takes, backend.schema) == ("vector backend", "JSON", "")


def test_the_limits_of_a_plugin_are_listed() -> None:
    policy = Policy(Path("/p"), read=(Path("/a"), Path("/b")), state=Path("/s"), network=Network(Reach.ANY))
    facts = facts_of(known(confinement=Confinement(policy, "", notes=("/gone",))))
    assert (
        ("may read", "/a\n/b") in facts and ("own folder", "/s") in facts and ("network", "any public address") in facts
    )
    assert ("command", "python3 plugin.py") in facts and ("not in effect", "/gone") in facts
    assert any(
        label == "limits" and "1 GiB memory · 1 core · 256 processes · 4,096 open files" in text
        for label, text in facts
    )
    assert "may write" not in dict(facts)
    assert [label for label, _ in facts_of(known())] == ["folder", "command", "timeouts"]


def test_equal_states_have_equal_views_so_nothing_is_sent() -> None:
    first, again = row_of(known(calls=1)), row_of(known(calls=1))
    assert first == again and first != row_of(known(calls=2))


def test_the_list_is_searched_filtered_and_paged_with_500_plugins() -> None:
    plugins = [
        known(f"p{at:03}", "idle", contract="rune" if at % 2 else "nexo", name=f"Name {at}") for at in range(499)
    ]
    rows = rows_of([*plugins, known("broken", "quarantined", trouble="crashed: no such TABLE")])
    first = list_page(rows, ListFilter())
    assert (len(first.rows), first.page, first.pages) == (ROWS_OF_A_PAGE, 1, 5) and first.rows[0].id == "broken"
    assert first.summary == "500 plugins: 1 quarantined, 499 idle"
    last = list_page(rows, ListFilter(page=99))
    assert (last.page, last.rows[-1].id) == (5, "p498")
    found = list_page(rows, ListFilter("NAME 12", contract="rune"))
    assert [row.id for row in found.rows] == ["p121", "p123", "p125", "p127", "p129"]
    assert found.summary.startswith("5 of 500 plugins")
    (one,) = list_page(rows, ListFilter("table such", "quarantined")).rows
    assert one.id == "broken"
    assert list_page(rows, ListFilter(state="pending")).rows == ()


def test_a_refused_call_names_the_grants_it_needs() -> None:
    plugin = known(capabilities=("a", "b", "network=x"), optional_capabilities=("memory.recall",), granted=("b",))
    denied = {"code": "capability_not_allowed"}

    def names(needs: tuple[str, ...], failure: dict[str, Any]) -> list[str]:
        return [each.name for each in grantable(plugin, needs, failure)]

    assert names(("a", "b"), denied) == ["a"]
    assert names((), denied | {"detail": {"capability": "memory.recall"}}) == ["memory.recall"]
    assert names((), denied | {"detail": {"capability": "network"}}) == ["network=x"]
    assert names((), denied | {"detail": {"capability": "root"}}) == [], "never what is not requested"
    assert names(("a",), {"code": "crashed"}) == []
    waits = known(capabilities=("a",), missing=("a",), refusal=PENDING)
    assert [each.name for each in grantable(waits, (), denied)] == ["a"]
