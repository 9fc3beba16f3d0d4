"""Runs: requested, started, cancelled, and closed exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.run_loop import Limits, RunRequest
from plugbay.server.domain.runs import NewRun, RunOptions, offer_tools, resolve_model, resolve_request, select_tools
from plugbay.server.domain.sessions import text_block
from plugbay.server.domain.workers import BoundExport
from plugbay.store import database as database_module
from plugbay.store import events as event_rows
from plugbay.store import runs as rows
from plugbay.store.database import Database
from plugbay.store.pages import Page
from plugbay.store.rows import ALL_TENANTS
from tests.support.conversing import (
    CALLER,
    STRANGER,
    ScriptedWorkers,
    Talk,
    calls,
    conversing,
    delegated,
    result_of,
    says,
    stuck,
)
from tests.support.loops import Run as RunLoop
from tests.support.patience import until
from tests.support.requirements import requirement


async def _never(work: Any) -> Any:
    raise AssertionError("it is not asked")


async def happened(talk: Talk) -> list[str]:
    async with talk.database.reading() as tx:
        return [event.type for event in (await event_rows.page(tx, Page(), ALL_TENANTS)).items]


@requirement("vai:control-run-completes")
def test_a_run_ends_with_the_models_answer_in_the_chain(run: RunLoop, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, says("Lima is sunny")) as talk:
            chain = await talk.chain()
            done = await talk.answered("how is Lima?", chain)
            assert (done.status, done.stop_reason, done.error) == ("completed", "end_turn", None)
            assert (done.input_tokens, done.output_tokens, done.turn_count) == (10, 5, 1)
            kinds = [block["kind"] for block in await talk.blocks(chain.id)]
            assert kinds == ["input", "response"]
            after = await talk.conversations.chains.get(CALLER, chain.id)
            assert (after.status, after.block_count) == ("idle", 2)
            assert after.chain_version > chain.chain_version
            assert await happened(talk) == ["run.completed"]

    run(story)


@requirement("vai:control-run-one-at-a-time")
def test_a_chain_has_one_run_at_a_time(run: RunLoop, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, stuck()) as talk:
            chain = await talk.chain()
            first = await talk.begun("one", chain)
            with pytest.raises(GatewayError) as refused:
                await talk.begun("two", chain)
            assert (refused.value.code, refused.value.status) == ("chain.attach_conflict", 409)
            assert len(await talk.blocks(chain.id)) == 1, "what the refused run brought is not in the chain"
            await talk.conversations.runs.cancel(CALLER, first.id)
            assert (await talk.ended(first)).status == "cancelled"

    run(story)


@pytest.fixture
def doubt(monkeypatch: pytest.MonkeyPatch) -> Callable[[Database], None]:
    """The outcome of the next commit that callbacks look at is unknown to a database."""
    monkeypatch.setattr(database_module, "STATEMENT_TIMEOUT", 0.05)

    def doubt(database: Database) -> None:
        known = database._ended

        def ended(unit: Any, committed: bool | None) -> None:
            if unit.in_doubt:
                monkeypatch.setattr(database, "_ended", known)
                committed = None
            known(unit, committed)

        monkeypatch.setattr(database, "_ended", ended)

    return doubt


def test_a_run_whose_commit_is_in_doubt_is_driven(
    run: RunLoop, database_url: str, doubt: Callable[[Database], None]
) -> None:
    """Otherwise its chain would have an unended run until the server is restarted."""

    async def story() -> None:
        async with conversing(database_url, says("Lima is sunny")) as talk:
            chain = await talk.chain()
            doubt(talk.database)
            begun = await talk.begun("how is Lima?", chain)
            assert (await talk.ended(begun)).status == "completed"

    run(story)


def test_a_run_whose_commit_did_not_take_place_leaves_its_chain_alone(
    run: RunLoop, database_url: str, doubt: Callable[[Database], None]
) -> None:
    async def story() -> None:
        async with conversing(database_url, says("Lima is sunny")) as talk:
            chain, jobs = await talk.chain(), talk.conversations.runs._jobs
            doubt(talk.database)
            with pytest.raises(LookupError):
                await undone(talk, chain)
            await until(lambda: bool(jobs.running))
            await until(lambda: not jobs.running)
            assert (await talk.conversations.chains.get(CALLER, chain.id)).status == "idle"
            assert await happened(talk) == []

    run(story)


async def undone(talk: Talk, chain: Any) -> None:
    async with talk.database.transaction():
        await talk.begun("how is Lima?", chain)
        raise LookupError


def test_of_two_that_come_at_the_same_moment_one_is_refused(run: RunLoop, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, stuck()) as talk:
            chain = await talk.chain()
            ends = await asyncio.gather(*(talk.begun("now", chain) for _ in range(4)), return_exceptions=True)
            refused = [end for end in ends if isinstance(end, GatewayError)]
            assert [error.code for error in refused] == ["chain.attach_conflict"] * 3

    run(story)


@requirement("vai:host-harness-supports")
def test_the_runs_of_a_harness_that_does_not_support_tools_have_none(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("ok")) as talk:
            talk.workers.bind("tool", "search", _never)
            chain = await talk.chain("hi")
            claims = {"session_id": chain.session_id, "export_kind": "harness"}
            runs, scopes = talk.conversations.runs, ["runs:write", "runs:read"]
            for listed, offered in (([], ["search"]), (["tool"], ["search"]), (["continue"], [])):
                plugin = delegated(scopes, **claims, policy={"supports": listed})
                begun = await runs.create(plugin, chain.id, NewRun([text_block("input", "again")]))
                assert [tool["name"] for tool in begun.request["tools"]] == offered
                await talk.ended(begun)
            with pytest.raises(GatewayError) as refused:
                await runs.create(plugin, chain.id, NewRun(wanted=RunOptions(tools=["search"])))
            assert (refused.value.code, refused.value.status) == ("policy.not_supported", 403)

    run(story)


@requirement("vai:control-run-cancel")
def test_a_cancelled_run_leaves_nothing_of_its_turn(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            begun = await talk.begun("go on")
            await until(lambda: bool(talk.server.seen))
            await talk.conversations.runs.cancel(CALLER, begun.id)
            done = await talk.ended(begun)
            assert (done.status, done.stop_reason) == ("cancelled", "cancelled")
            assert [block["kind"] for block in await talk.blocks(done.chain_id)] == ["input"]
            assert await happened(talk) == ["run.cancelled"]
            again = await talk.conversations.runs.cancel(CALLER, begun.id)
            assert again == done

    run(story)


@requirement("vai:control-run-timeout")
def test_a_run_that_takes_too_long_is_timed_out(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            done = await talk.answered("hurry", wanted=RunOptions(limits={"timeout_ms": 50}))
            assert (done.status, done.stop_reason) == ("timed_out", "timeout")
            assert await happened(talk) == ["run.failed"]

    run(story)


def test_a_model_that_fails_fails_the_run(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        from tests.support.openai_server import as_json

        async with conversing(sqlite_url, as_json({"error": {"message": "no"}}, 500)) as talk:
            done = await talk.answered("hello")
            assert (done.status, done.stop_reason) == ("failed", "error")
            assert done.error is not None and done.error["code"].startswith("model.")

    run(story)


@requirement("vai:control-run-restart")
def test_a_run_that_was_at_work_when_its_gateway_died_is_closed_by_the_next(run: RunLoop, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, stuck()) as talk:
            begun = await talk.begun("go on")
            await until(lambda: bool(talk.server.seen))
            async with conversing(database_url) as next_talk:
                done = await next_talk.conversations.runs.get(CALLER, begun.id)
                assert (done.status, done.stop_reason) == ("failed", "error")
                assert done.error is not None and done.error["code"] == "run.host_restarted"
                chain = await next_talk.conversations.chains.get(CALLER, begun.chain_id)
                assert chain.status == "idle"
                assert await happened(next_talk) == ["run.failed"]
            await talk.conversations.runs.cancel(CALLER, begun.id)
        async with conversing(database_url) as later:
            assert (await later.conversations.runs.get(CALLER, begun.id)).status == "failed", "it ends once"
            assert await happened(later) == ["run.failed"]

    run(story)


@requirement("vai:control-run-regenerate")
def test_regenerating_leaves_the_first_answer_where_it_is(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, says("one"), says("two")) as talk:
            first = await talk.answered("think")
            before = await talk.conversations.chains.get(CALLER, first.chain_id)
            again = await talk.ended(await talk.conversations.runs.regenerate(CALLER, first.id, NewRun()))
            assert (again.status, again.rerun_of_run_id) == ("completed", first.id)
            assert again.chain_id != first.chain_id
            assert [block["content"][0]["text"] for block in await talk.blocks(again.chain_id)] == ["think", "two"]
            after = await talk.conversations.chains.get(CALLER, first.chain_id)
            assert (after.digest, after.block_count) == (before.digest, before.block_count)

    run(story)


def test_a_run_that_has_not_ended_cannot_be_done_again(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            begun = await talk.begun("wait")
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.runs.regenerate(CALLER, begun.id, NewRun())
            assert refused.value.code == "run.not_ended"

    run(story)


def test_there_must_be_something_to_answer(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain()
            for blocks in ([], [text_block("system", "be kind")]):
                with pytest.raises(GatewayError) as refused:
                    await talk.conversations.runs.create(CALLER, chain.id, NewRun(blocks=blocks))
                assert refused.value.code == "run.nothing_to_answer"
            assert await talk.blocks(chain.id) == [], "a refused run brings nothing"
            seeded = await talk.chain("a question")
            done = await talk.ended(await talk.conversations.runs.create(CALLER, seeded.id, NewRun()))
            assert done.status == "completed"

    run(story)


def test_a_closed_chain_has_no_runs(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain()
            await talk.conversations.chains.change(CALLER, chain.id, status="closed")
            with pytest.raises(GatewayError) as refused:
                await talk.begun("hello", chain)
            assert refused.value.code == "chain.closed"

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_runs_are_not_there(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            done = await talk.answered("mine")
            runs = talk.conversations.runs
            for ask in (runs.get, runs.cancel, runs.timeline, runs.effective_request):
                with pytest.raises(GatewayError) as refused:
                    await ask(STRANGER, done.id)
                assert refused.value.status == 404
            assert (await runs.page(STRANGER, Page())).items == ()
            assert [item.id for item in (await runs.page(CALLER, Page())).items] == [done.id]

    run(story)


@requirement("vai:control-run-own")
def test_a_plugin_that_may_only_write_sees_the_runs_it_made(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            others = await talk.answered("theirs")
            chain = await talk.chain()
            plugin = delegated(["runs:write"], session_id=chain.session_id, export_kind="hook", execution_id="del_0")
            blocks = [text_block("input", "mine")]
            mine = await talk.conversations.runs.create(plugin, chain.id, NewRun(blocks=blocks))
            await talk.ended(mine)
            assert (await talk.conversations.runs.get(plugin, mine.id)).invocation_id == "inv_1"
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.runs.get(plugin, others.id)
            assert refused.value.status == 404, "another session is not there at all"
            theirs = await talk.answered("again", chain)
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.runs.get(plugin, theirs.id)
            assert (refused.value.status, refused.value.details) == (403, {"required": ["runs:read"]})
            with pytest.raises(GatewayError):
                await talk.conversations.runs.cancel(plugin, theirs.id)
            assert [item.id for item in (await talk.conversations.runs.page(plugin, Page())).items] == [mine.id]

    run(story)


def test_the_timeline_has_all_events_in_order(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def answer(job: object) -> dict[str, object]:
            return result_of("42")

        workers.bind("tool", "sums", answer)
        async with conversing(sqlite_url, calls(("sums", {"a": 1})), says("42"), workers=workers) as talk:
            done = await talk.answered("add")
            _, events, tools = await talk.conversations.runs.timeline(CALLER, done.id)
            assert [event.type for event in events] == [
                "run.queued",
                "run.started",
                "tool.finished",
                "turn.completed",
                "run.completed",
            ]
            assert [(tool.name, tool.status, tool.execution_outcome) for tool in tools] == [
                ("sums", "succeeded", "known")
            ]
            later = (await talk.conversations.runs.timeline(CALLER, done.id, after=4))[1]
            assert [event.type for event in later] == ["run.completed"]

    run(story)


def test_the_effective_request_is_the_request_to_the_model(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            done = await talk.answered("hello", wanted=RunOptions(temperature=0.1, limits={"max_tokens": 7}))
            said = await talk.conversations.runs.effective_request(CALLER, done.id)
            assert (said["provider"], said["model"], said["temperature"], said["max_tokens"]) == ("local", "m", 0.1, 7)
            assert said["messages"] == [{"role": "user", "content": "hello"}]
            assert talk.server.seen[0].body["messages"] == said["messages"]

    run(story)


def test_stopping_the_gateway_closes_its_runs(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            begun = await talk.begun("go on")
            await until(lambda: bool(talk.server.seen))
        async with conversing(sqlite_url) as talk:
            async with talk.database.reading() as tx:
                assert await rows.unfinished(tx) == []
            done = await talk.conversations.runs.get(CALLER, begun.id)
            assert done.error == {"code": "run.cancelled", "message": "host_shutdown"}

    run(story)


@requirement("vai:control-run-regenerate")
def test_a_plugin_that_has_a_run_done_again_lends_it_no_more_than_it_has(run: RunLoop, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            first = await talk.answered("think")
            assert first.request["scopes"] is None, "a person's run has no limits"
            plugin = delegated(["runs:write", "runs:read"], session_id=first.session_id)
            again = await talk.conversations.runs.regenerate(plugin, first.id, NewRun())
            assert list(again.request["scopes"]) == ["runs:read", "runs:write"]
            await talk.ended(again)
            less = delegated(["runs:read", "chains:read"], session_id=first.session_id)
            third = await talk.conversations.runs.regenerate(less, again.id, NewRun())
            assert list(third.request["scopes"]) == ["runs:read"]
            await talk.ended(third)

    run(story)


SEARCH = BoundExport(
    "bind_1", "acme/jira", "search", "tool", "finds", {"type": "object"}, {"effect_class": "read_only"}
)
OTHER = BoundExport("bind_2", "acme/wiki", "search", "tool")
PAY = BoundExport("bind_3", "acme/bank", "pay", "tool")


def understood(wanted: RunOptions, defaults: dict[str, Any] | None = None, *bound: BoundExport) -> RunRequest:
    return resolve_request(wanted, defaults or {}, ["big", "small"], bound)


@pytest.mark.parametrize(
    ("name", "providers", "chosen"),
    [
        ("big/m1", ["big", "small"], ("big", "m1")),
        ("big/org/m1", ["big", "small"], ("big", "org/m1")),
        ("m1", ["big"], ("big", "m1")),
        ("org/m1", ["big"], ("big", "org/m1")),
        ("big/m1", ["big"], ("big", "m1")),
    ],
)
def test_a_model_has_its_provider_before_it(name: str, providers: list[str], chosen: tuple[str, str]) -> None:
    assert resolve_model(name, providers) == chosen


@pytest.mark.parametrize(
    ("name", "code"),
    [(None, "run.model_missing"), ("", "run.model_missing"), ("m", "run.model_unknown"), ("x/m", "run.model_unknown")],
)
def test_an_unknown_model_is_refused(name: str | None, code: str) -> None:
    with pytest.raises(GatewayError) as refused:
        resolve_model(name, ["big", "small"])
    assert (refused.value.code, refused.value.status) == (code, 422)


def test_the_request_overrides_the_defaults_of_the_chain() -> None:
    defaults = {"model": "big/a", "limits": {"max_turns": 2, "max_tokens": 9}, "temperature": 0.0, "tools": ["pay"]}
    quiet = understood(RunOptions(), defaults, SEARCH, PAY)
    assert (quiet.provider, quiet.model, quiet.temperature) == ("big", "a", 0.0)
    assert quiet.limits == Limits(max_turns=2, max_tokens=9)
    assert [tool.name for tool in quiet.tools] == ["pay"]
    loud = understood(RunOptions("small/b", ["search"], {"max_turns": 5}, 1.0), defaults, SEARCH, PAY)
    assert (loud.provider, loud.model, loud.temperature) == ("small", "b", 1.0)
    assert loud.limits == Limits(max_turns=5, max_tokens=9)
    assert [tool.binding_id for tool in loud.tools] == ["bind_1"]


def test_every_bound_tool_is_offered_unless_some_are_named() -> None:
    assert [tool.name for tool in understood(RunOptions("big/m"), None, SEARCH, PAY).tools] == ["search", "pay"]
    assert understood(RunOptions("big/m", []), None, SEARCH, PAY).tools == ()


def test_tools_of_one_name_are_offered_with_their_packages() -> None:
    names = [tool.name for tool in offer_tools([SEARCH, OTHER, PAY])]
    assert names == ["acme_jira__search", "acme_wiki__search", "pay"]
    long = BoundExport("bind_4", "a" * 64 + "/" + "b" * 64, "search", "tool")
    assert all(len(tool.name) <= 64 for tool in offer_tools([SEARCH, long]))


@pytest.mark.parametrize("name", ["bind_1", "acme/jira/search"])
def test_a_tool_has_several_names(name: str) -> None:
    assert select_tools([name, name], [SEARCH, OTHER]) == [SEARCH]


@pytest.mark.parametrize(("name", "code"), [("search", "run.tool_ambiguous"), ("fly", "run.tool_unknown")])
def test_an_unknown_or_ambiguous_tool_is_refused(name: str, code: str) -> None:
    with pytest.raises(GatewayError) as refused:
        select_tools([name], [SEARCH, OTHER])
    assert refused.value.code == code


def test_a_request_comes_back_as_it_was_kept() -> None:
    request = resolve_request(RunOptions("big/m"), {}, ["big"], [SEARCH])
    request = replace(request, scopes=("runs:read",))
    assert RunRequest.from_json(request.to_json()) == request
