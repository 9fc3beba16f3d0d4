"""What a page shows of plugins, as values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.admin.logs import LogLine
from plugbay.host.confinement.policy import Confinement
from plugbay.host.discovery.folders import Found
from plugbay.host.ports import CallRecord
from plugbay.host.request import CallResult
from plugbay.host.status import PluginStatus
from plugbay.model.errors import Code, Failure, Problem
from plugbay.model.spec import Export, Lifetime, PluginSpec
from plugbay.process.sandbox.policy import Network, Policy, Reach
from plugbay.server.dashboard import views
from plugbay.server.dashboard import views as approval
from plugbay.server.dashboard.loader import LifecycleEvent, PluginSnapshot
from plugbay.server.dashboard.views import (
    MAX_PAYLOAD,
    SHORT,
    Badge,
    Capability,
    FailureView,
    Operation,
    call_outcome,
    call_row,
    event_row,
    failure_view,
    lines_of_call,
    log_row,
)
from plugbay.server.domain.operator_plugins import NumberedEvent
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.calls import StoredCall
from plugbay.store.pages import Page
from plugbay.wire.fast_json import MsgspecCodec
from tests.support.dashboards import hosting_at, text_of, visitor_of
from tests.support.loops import Run
from tests.support.mcp_servers import write_server
from tests.support.plugins import write_plugin


def known(id: str = "p", state: str = "running", **changes: Any) -> PluginSnapshot:
    """A plugin of which is known what a test says; fields of its spec and status by their names."""
    spec = PluginSpec(id=id, version="1.0", contract="nexo", root=Path("/plugins/p"), command=("python3", "plugin.py"))
    for name in [name for name in changes if name in PluginSpec.__dataclass_fields__]:
        spec = replace(spec, **{name: changes.pop(name)})
    status = PluginStatus(spec, state, (), 0, 0)
    for name in [name for name in changes if name in PluginStatus.__dataclass_fields__]:
        status = replace(status, **{name: changes.pop(name)})
    return PluginSnapshot(status, 100.0, **changes)


PENDING = Failure(Code.CAPABILITY_NOT_ALLOWED, "pending: it requests x", detail={"hint": "grant x"})
DISABLED = Failure(Code.UNAVAILABLE, "the operator has disabled this plugin", detail={"hint": "enable it"})
BLOCKED = Confinement(refusal=Failure(Code.SANDBOX_UNAVAILABLE, "no sandbox here", detail={"hint": "install one"}))


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
    assert views.state_of(plugin) == badge


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
    assert views.sandbox_of(confinement, limits) == badge


def test_problems_come_first_and_transient_states_do_not_move_a_row() -> None:
    plugins = [known("d", "stopped"), known("c", "running"), known("b", "idle"), known("e", "quarantined")]
    plugins += [known("f", "idle", refusal=PENDING), known("a", "spawning")]
    assert [row.id for row in views.rows_of(plugins)] == ["e", "f", "a", "b", "c", "d"]


def test_a_row_has_the_last_failure_and_since_when() -> None:
    failed = CallRecord("call_1", "p", "1", "nexo", "t", 90.0, 1.0, Failure(Code.TIMEOUT, "late"))
    row = views.row_of(
        known(name="p", calls=3, failures=1, failed=failed, happened=LifecycleEvent("started", 120.0, ""))
    )
    assert (row.name, row.calls, row.failures, row.since) == ("", 3, 1, 120.0)
    assert row.failed == views.LastFailure("timeout", 90.0, "call_1")
    assert views.row_of(known(name="Pretty")).since == 100.0, "as long as the server knows it"


def test_two_plugins_have_two_keys_whatever_their_ids_are() -> None:
    keys = [views.key_of(id) for id in ("a/b", "a.b", "a b", "ä", "\ud800")]
    assert len(set(keys)) == 5 and all(key.isascii() and " " not in key for key in keys)


def test_the_summary_counts_every_state() -> None:
    rows = views.rows_of([known("a"), known("b", "quarantined"), known("c", refusal=PENDING), known("d")])
    assert views.summary(rows) == "4 plugins: 1 quarantined, 1 pending, 2 running"
    assert views.summary(rows[:1]) == "1 plugin: 1 quarantined"
    assert views.summary([]) == "0 plugins"


def test_broken_folders_are_listed_with_their_errors() -> None:
    bad = Problem("missing", "tools", "required", line=1)
    warning = Problem("odd", "", "hm", severity="warning")
    found = [Found(Path("/bad"), "rune", None, (bad, warning)), Found(Path("/good"), "rune", None, (warning,))]
    assert views.broken_of(found) == [views.Broken("/bad", ("line 1: tools: required",))]


def names(operations: tuple[Operation, ...]) -> list[str]:
    return [operation.name for operation in operations]


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
    assert names(views.overview_of(plugin).operations) == operations


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
    assert views.hint_of(plugin) == hint


def test_the_overview_shows_the_last_event() -> None:
    plugin = known(
        lifetime=Lifetime.PER_CALL, happened=LifecycleEvent("gave_up", 1.0, "attempts 3"), counters={"b": 1, "a": 2}
    )
    overview = views.overview_of(plugin)
    assert (overview.happened, overview.lifetime) == ("gave up: attempts 3", "one process per call")
    assert overview.counters == (("a", 2), ("b", 1))
    assert views.overview_of(known(happened=LifecycleEvent("stopped", 1.0, ""))).happened == "stopped"


def test_a_wish_knows_whether_it_is_granted_where_and_whether_it_is_new() -> None:
    plugin = known(
        capabilities=("a", "net=x", "c", "d"),
        optional_capabilities=("c", "o"),
        granted=("a", "net=x", "d"),
        kept=("a", "net"),
    )
    capabilities = views.capabilities_of(plugin)
    assert tuple(map(bare, capabilities.requested)) == (
        Capability("a", True, "a", False),
        Capability("net=x", True, "net", False),
        Capability("c", False, "", True),
        Capability("d", True, "", False),
    )
    assert tuple(map(bare, capabilities.optional)) == (Capability("o", False, "", True),)
    assert capabilities.open == ("c",) and not capabilities.undecided


def bare(capability: Capability) -> Capability:
    """Without the words of `explanations`."""
    return replace(capability, allows="", risk="", tone="", why="")


def test_before_anybody_decides_nothing_is_new() -> None:
    capabilities = views.capabilities_of(known(capabilities=("a",)))
    (only,) = capabilities.requested
    assert capabilities.undecided and bare(only) == Capability("a", False, "", False)
    assert only.allows.startswith("nothing in the host by itself") and (only.risk, only.tone) == ("medium", "warn")
    assert not views.capabilities_of(known()).undecided


def test_an_export_shows_its_input() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    exports = {
        "p/t": Export("tool", "t", "Does it.", schema, capabilities=("x",)),
        "p/v": Export("vector_backend", "v"),
    }
    tool, backend = views.export_rows(exports)
    assert (tool.full_name, tool.takes, tool.needs) == ("p/t", "n?: integer", ("x",)) and '"n"' in tool.schema
    assert (backend.kind, backend.takes, backend.schema) == ("vector backend", "JSON", "")


def test_the_limits_of_a_plugin_are_listed() -> None:
    policy = Policy(Path("/p"), read=(Path("/a"), Path("/b")), state=Path("/s"), network=Network(Reach.ANY))
    facts = views.facts_of(known(confinement=Confinement(policy, "", notes=("/gone",))))
    assert (
        ("may read", "/a\n/b") in facts and ("own folder", "/s") in facts and ("network", "any public address") in facts
    )
    assert ("command", "python3 plugin.py") in facts and ("not in effect", "/gone") in facts
    assert any(
        label == "limits" and "1 GiB memory · 1 core · 256 processes · 4,096 open files" in text
        for label, text in facts
    )
    assert "may write" not in dict(facts)
    assert [label for label, _ in views.facts_of(known())] == ["folder", "command", "timeouts"]


def test_equal_states_have_equal_views_so_nothing_is_sent() -> None:
    first, again = views.row_of(known(calls=1)), views.row_of(known(calls=1))
    assert first == again and first != views.row_of(known(calls=2))


HIDDEN = "TOOLS[0]['description'] = 'Says \\u200b it again.'"
MORE = "TOOLS.append({'name': 'more', 'inputSchema': {'type': 'object'}})"


def prepared(folder: Path, body: str = "") -> None:
    (folder / "plugbay.toml").write_text(f'[host]\nstate_dir = "{folder}/state"\n')
    write_server(folder / "plugins", "srv", body)


def digest_in(page: str) -> str:
    found = re.search(r'name="digest" value="(sha256:[0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def test_a_server_is_seen_approved_and_runs(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    prepared(tmp_path, HIDDEN)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            before = await visitor.get("/plugins/srv")
            assert "until you approve them" in text_of(before) and 'name="digest"' not in before.text
            assert (await visitor.post("/plugins/srv:look")).status_code == 303
            seen = await visitor.get("/plugins/srv")
            assert "Says \\u200b it again." in text_of(seen), "what is hidden is to be seen"
            done = await visitor.post("/plugins/srv:approve", {"digest": digest_in(seen.text)})
            assert done.status_code == 303
            after = await visitor.get("/plugins/srv")
            assert "Not approved" not in text_of(after)
            assert (await gateway.host.attempt("srv/echo", {})).failure is None
            entries = (await gateway.audit.page(OPERATOR, Page())).items
            assert [entry.action for entry in entries][:2] == ["plugin.approve", "plugin.look"]
            assert entries[0].details["digest"] == digest_in(seen.text)

    run(main)


def test_only_the_last_shown_definitions_can_be_approved(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    prepared(tmp_path)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            for digest in ("", f"sha256:{'0' * 64}"):
                refused = await visitor.post("/plugins/srv:approve", {"digest": digest})
                assert refused.status_code == 409 and "look again" in text_of(refused)
            await visitor.post("/plugins/srv:look")
            old = digest_in((await visitor.get("/plugins/srv")).text)
            write_server(tmp_path / "plugins", "srv", MORE)
            await visitor.post("/plugins/srv:look")
            assert (await visitor.post("/plugins/srv:approve", {"digest": old})).status_code == 409
            assert gateway.operator_plugins.plugin("srv")["refused"] is not None
            fresh = digest_in((await visitor.get("/plugins/srv")).text)
            assert (await visitor.post("/plugins/srv:approve", {"digest": fresh})).status_code == 303
            write_server(tmp_path / "plugins", "srv", "TOOLS[0]['description'] = 'Now something else.'")
            await visitor.post("/plugins/srv:restart")
            changed = text_of(await visitor.get("/plugins/srv"))
            assert "Exports without approval: echo" in changed
            await visitor.post("/plugins/srv:look")
            assert "echo tool changed" in text_of(await visitor.get("/plugins/srv"))

    run(main)


@pytest.mark.parametrize("limit", ["MAX_DEFINITIONS", "MAX_CHARACTERS", "MAX_DEFINITION"])
def test_what_is_too_much_for_a_page_is_not_approved_on_one(
    limit: str, sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(tmp_path, MORE)
    monkeypatch.setattr(approval, limit, 1)

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await visitor.post("/plugins/srv:look")
            page = await visitor.get("/plugins/srv")
            assert "plugbay mcp approve srv" in text_of(page) and 'name="digest"' not in page.text

    run(main)


def test_a_plugin_whose_manifest_tells_needs_no_approval(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            refused = await visitor.post("/plugins/p:look")
            assert refused.status_code == 422 and "they need no approval" in text_of(refused)

    run(main)


def stored(status: str = "succeeded", failure: dict[str, Any] | None = None) -> StoredCall:
    return StoredCall("call_1", "p", "1", "rune", "t", 1_770_000_000.0, 1_000.0, status, failure)


@pytest.mark.parametrize(
    ("status", "tone"),
    [("succeeded", "good"), ("failed", "bad"), ("retryable_failure", "warn"), ("cancelled", "off"), ("odd", "calm")],
)
def test_an_outcome_has_a_tone(status: str, tone: str) -> None:
    row = call_row(stored(status))
    assert (row.tone, row.status) == (tone, status.replace("_", " "))


def test_a_failure_that_was_written_down_is_shown_whole() -> None:
    row = call_row(stored("failed", {"code": "crashed", "origin": "plugin", "exit": "exit code 3"}))
    assert (row.code, row.origin, row.exit) == ("crashed", "plugin", "exit code 3")
    odd = call_row(stored("failed", {"code": "crashed", "exit": {"signal": 9}}))
    assert (odd.origin, odd.exit) == ("", '{"signal":9}')


def event(payload: Any) -> NumberedEvent:
    data = {"timestamp": "2026-02-02T02:40:00Z", "source": "shop", "payload": payload}
    return NumberedEvent("start-1", "shop.sold", data)


def test_a_small_event_is_one_line_and_a_large_one_can_be_opened() -> None:
    small = event_row(event({"n": 1}))
    assert (small.time, small.topic, small.short, small.whole) == ("02:40:00", "shop.sold", '{"n":1}', "")
    large = event_row(event(["x" * 100] * 200))
    assert len(large.short) == SHORT + 1 and large.short.endswith("…")
    assert large.whole.startswith("[\n") and len(large.whole) < MAX_PAYLOAD + 50


def test_a_line_has_the_tone_of_its_level() -> None:
    lines = [LogLine("2026-02-02T02:40:00Z", "stderr", level, "said") for level in ("info", "warn", "error")]
    assert [log_row(line).tone for line in lines] == ["calm", "warn", "bad"]


def test_a_call_is_shown_with_log_lines_of_its_time() -> None:
    moments = ("02:39:59", "02:40:00", "02:40:02", "02:40:04")
    lines = [LogLine(f"2026-02-02T{time}Z", "stderr", "info", time) for time in moments] + [
        LogLine("odd", "stderr", "", "")
    ]
    assert [row.text for row in lines_of_call(lines, stored())] == ["02:40:00", "02:40:02"]


def result(output: bytes | None, failure: Failure | None = None) -> CallResult:
    record = CallRecord("call_1", "p", "1", "rune", "t", 1.0, 2.5, failure)
    return CallResult(record, output, MsgspecCodec())


def test_an_answer_is_spread_out() -> None:
    shown = call_outcome(result(b'{"a":[1]}'))
    assert shown.output == '{\n  "a": [\n    1\n  ]\n}' and shown.failure is None and shown.tone == "good"


def test_the_hint_of_a_failure_is_separate() -> None:
    detail = {"hint": "try again", "stderr_tail": ["a", "b"], "exit": "1"}
    shown = call_outcome(result(None, Failure(Code.CRASHED, "gone", origin="plugin", detail=detail)))
    assert shown.failure == FailureView("crashed", "plugin", "gone", "try again", ("a", "b"), '{\n  "exit": "1"\n}')
    assert (shown.output, shown.status) == ("", "failed")
    assert failure_view(Failure(Code.TIMEOUT, "late")).detail == ""


def test_the_list_is_searched_filtered_and_paged_with_500_plugins() -> None:
    plugins = [
        known(f"p{at:03}", "idle", contract="rune" if at % 2 else "nexo", name=f"Name {at}") for at in range(499)
    ]
    rows = views.rows_of([*plugins, known("broken", "quarantined", trouble="crashed: no such TABLE")])
    first = views.list_page(rows, views.ListFilter())
    assert (len(first.rows), first.page, first.pages) == (views.ROWS_OF_A_PAGE, 1, 5) and first.rows[0].id == "broken"
    assert first.summary == "500 plugins: 1 quarantined, 499 idle"
    last = views.list_page(rows, views.ListFilter(page=99))
    assert (last.page, last.rows[-1].id) == (5, "p498")
    found = views.list_page(rows, views.ListFilter("NAME 12", contract="rune"))
    assert [row.id for row in found.rows] == ["p121", "p123", "p125", "p127", "p129"]
    assert found.summary.startswith("5 of 500 plugins")
    (one,) = views.list_page(rows, views.ListFilter("table such", "quarantined")).rows
    assert one.id == "broken"
    assert views.list_page(rows, views.ListFilter(state="pending")).rows == ()


def test_a_refused_call_names_the_grants_it_needs() -> None:
    plugin = known(capabilities=("a", "b", "network=x"), optional_capabilities=("memory.recall",), granted=("b",))
    denied = {"code": "capability_not_allowed"}

    def names(needs: tuple[str, ...], failure: dict[str, Any]) -> list[str]:
        return [each.name for each in views.grantable(plugin, needs, failure)]

    assert names(("a", "b"), denied) == ["a"]
    assert names((), denied | {"detail": {"capability": "memory.recall"}}) == ["memory.recall"]
    assert names((), denied | {"detail": {"capability": "network"}}) == ["network=x"]
    assert names((), denied | {"detail": {"capability": "root"}}) == [], "never what is not requested"
    assert names(("a",), {"code": "crashed"}) == []
    waits = known(capabilities=("a",), missing=("a",), refusal=PENDING)
    assert [each.name for each in views.grantable(waits, (), denied)] == ["a"]


def test_the_history_of_a_plugin_is_newest_first_and_short() -> None:
    def event(number: int, word: str) -> NumberedEvent:
        payload = {"plugin_id": "p", "exit": number}
        data = {"timestamp": f"2026-01-01T00:00:{number:02}Z", "payload": payload, "source": "x"}
        return NumberedEvent(str(number), f"plugin.lifecycle.p.{word}", data)

    rows = views.lifecycle_rows([event(number, "crashed" if number % 2 else "started") for number in range(30)])
    assert len(rows) == views.SHOWN_LIFECYCLE
    assert (rows[0].word, rows[0].tone, rows[0].facts) == ("crashed", "bad", "exit 29")
    assert (rows[1].word, rows[1].tone) == ("started", "calm") and views.lifecycle_rows([]) == ()


def test_log_lines_are_found_by_words_and_source() -> None:
    line = LogLine("2026-01-01T00:00:00Z", "stderr", "info", "No such table: tea")
    assert views.LogFilter().accepts(line) and views.LogFilter("TABLE no", "stderr").accepts(line)
    assert not views.LogFilter("coffee").accepts(line) and not views.LogFilter("tea", "host").accepts(line)
