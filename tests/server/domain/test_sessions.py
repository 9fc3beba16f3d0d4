"""Sessions and chains: visibility, growth, forks, and blocks that never change."""

from __future__ import annotations

import itertools
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plugbay.host.invocations.compaction_result import KINDS
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.sessions import (
    EMPTY_DIGEST,
    MAX_BLOCK_BYTES,
    MAX_BLOCKS,
    check_blocks,
    clean_seed_block,
    copy_blocks,
    decode_block,
    estimate_tokens,
    first_broken_block,
    seal_blocks,
    text_block,
    text_of,
)
from plugbay.store import chains as rows
from plugbay.store.chains import StoredBlock
from plugbay.store.pages import Page
from tests.support.conversing import (
    CALLER,
    STRANGER,
    ScriptedWorkers,
    calls,
    conversing,
    delegated,
    result_of,
    says,
    stuck,
)
from tests.support.loops import Run
from tests.support.requirements import requirement


def test_a_session_belongs_where_its_caller_does(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url) as talk:
            sessions = talk.conversations.sessions
            made = await sessions.create(CALLER, external_session_id="chat-7", metadata={"a": [1]})
            assert (made.org_id, made.project_id) == ("org_1", "proj_1")
            assert (await sessions.get(CALLER, made.id)).metadata == {"a": [1]}
            of_all = await sessions.create(OPERATOR, org_id="org_2")
            assert (of_all.org_id, of_all.project_id) == ("org_2", None)
            changed = await sessions.change(CALLER, made.id, metadata={"b": 2})
            assert (changed.metadata, changed.external_session_id) == ({"b": 2}, "chat-7")
            found = await sessions.page(CALLER, Page(), external_session_id="chat-7")
            assert [item.id for item in found.items] == [made.id]
            assert (await sessions.page(CALLER, Page(), external_session_id="chat-8")).items == ()

    run(story)


def test_an_operator_of_all_orgs_names_the_org(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.sessions.create(OPERATOR)
            assert (refused.value.code, refused.value.param) == ("session.org_missing", "org_id")
            for org, project in (("org_9", None), ("org_2", "proj_1")):
                with pytest.raises(GatewayError) as refused:
                    await talk.conversations.sessions.create(OPERATOR, org_id=org, project_id=project)
                assert refused.value.status == 404

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_and_another_projects_sessions_are_not_there(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url) as talk:
            sessions = talk.conversations.sessions
            made = await sessions.create(CALLER)
            other_project = Principal("key", "org_1", "proj_9", role="admin", key_id="key_9")
            for nosy in (STRANGER, other_project):
                with pytest.raises(GatewayError) as refused:
                    await sessions.get(nosy, made.id)
                assert (refused.value.status, refused.value.code) == (404, "session.not_found")
                with pytest.raises(GatewayError):
                    await sessions.change(nosy, made.id, metadata={})
                assert (await sessions.page(nosy, Page())).items == ()
            of_org = Principal("key", "org_1", role="viewer", key_id="key_8")
            assert [item.id for item in (await sessions.page(of_org, Page())).items] == [made.id]

    run(story)


@requirement("vai:control-token-lineage")
def test_a_plugin_sees_its_session_and_sessions_branched_from_it(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url) as talk:
            sessions, chains = talk.conversations.sessions, talk.conversations.chains
            chain, other = await talk.chain("hello"), await talk.chain("hello")
            plugin = delegated(["sessions:read", "chains:write"], session_id=chain.session_id)
            branch, _ = await chains.branch(plugin, chain.session_id)
            twig, _ = await chains.branch(plugin, branch.id)
            seen = {item.id for item in (await sessions.page(plugin, Page())).items}
            assert seen == {chain.session_id, branch.id, twig.id}
            assert (await sessions.get(plugin, twig.id)).parent_session_id == branch.id
            with pytest.raises(GatewayError) as refused:
                await sessions.get(plugin, other.session_id)
            assert refused.value.status == 404
            with pytest.raises(GatewayError) as refused:
                await sessions.create(plugin)
            assert refused.value.code == "session.not_in_lineage"
            lost = delegated(["sessions:read", "sessions:write", "chains:read"], session_id=None)
            assert (await sessions.page(lost, Page())).items == (), "one that was called for no session sees none"
            assert (await chains.page(lost, Page())).items == ()
            for ask in (sessions.get(lost, chain.session_id), chains.get(lost, chain.id)):
                with pytest.raises(GatewayError) as refused:
                    await ask
                assert refused.value.status == 404
            with pytest.raises(GatewayError) as refused:
                await sessions.create(lost)
            assert refused.value.code == "session.not_in_lineage"

    run(story)


@requirement("vai:control-chain-append-only")
def test_a_chain_grows_by_versions_and_keeps_every_byte(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, says("a"), says("b")) as talk:
            chain = await talk.chain("begin")
            versions, digests, before = [chain.chain_version], [chain.digest], list[bytes]()
            for text in ("one", "two"):
                await talk.answered(text, chain)
                now = await talk.conversations.chains.get(CALLER, chain.id)
                versions.append(now.chain_version)
                digests.append(now.digest)
                async with talk.database.reading() as tx:
                    stored = await rows.blocks(tx, chain.id)
                assert [block.body for block in stored][: len(before)] == before
                before = [block.body for block in stored]
                assert first_broken_block(stored) is None
                assert (now.digest, now.block_count) == (stored[-1].digest, len(stored))
            assert versions == sorted(set(versions))
            assert len(set(digests)) == 3

    run(story)


@requirement("vai:control-chain-fork")
def test_a_fork_has_the_same_bytes_up_to_where_it_was_made(run: Run, database_url: str) -> None:
    async def story() -> None:
        async with conversing(database_url, says("a"), says("b")) as talk:
            chains = talk.conversations.chains
            chain = await talk.chain()
            first = await talk.answered("one", chain)
            after_first = await chains.get(CALLER, chain.id)
            await talk.answered("two", chain)
            by_run = await chains.fork(CALLER, chain.id, run_id=first.id)
            by_sequence = await chains.fork(CALLER, chain.id, through=2, metadata={"why": "to see"})
            whole = await chains.fork(CALLER, chain.id)
            assert by_run.digest == by_sequence.digest == after_first.digest
            assert (by_run.forked_from_run_id, by_run.parent_chain_id) == (first.id, chain.id)
            assert (by_sequence.metadata, by_run.metadata) == ({"why": "to see"}, {})
            assert whole.digest == (await chains.get(CALLER, chain.id)).digest
            assert [block["id"] for block in await talk.blocks(by_run.id)] == [
                block["id"] for block in (await talk.blocks(chain.id))[:2]
            ]
            empty = await chains.fork(CALLER, chain.id, through=0)
            assert (empty.block_count, empty.digest) == (0, EMPTY_DIGEST)

    run(story)


def test_a_fork_cuts_no_call_from_its_result(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        workers = ScriptedWorkers()

        async def tool(job: object) -> dict[str, object]:
            return result_of("42")

        workers.bind("tool", "t", tool)
        async with conversing(sqlite_url, calls(("t", {})), says("ok"), workers=workers) as talk:
            done = await talk.answered("go")
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.chains.fork(CALLER, done.chain_id, through=2)
            assert refused.value.code == "chain.cuts_a_call"
            assert (await talk.conversations.chains.fork(CALLER, done.chain_id, through=3)).block_count == 3

    run(story)


@pytest.mark.parametrize(
    ("where", "code"), [({"through": 9}, "chain.no_such_block"), ({"run_id": "run_9"}, "run.not_found")]
)
def test_a_fork_begins_somewhere(run: Run, sqlite_url: str, where: dict[str, object], code: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain("hello")
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.chains.fork(CALLER, chain.id, **where)  # type: ignore[arg-type]
            assert refused.value.code == code

    run(story)


@requirement("vai:host-harness-supports")
def test_a_harness_that_does_not_support_branches_makes_none(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain("a")
            for listed in (["branch_session"], []):
                free = delegated(["chains:write"], session_id=chain.session_id, policy={"supports": listed})
                assert (await talk.conversations.chains.branch(free, chain.session_id))[0].parent_session_id
            bound = delegated(["chains:write"], session_id=chain.session_id, policy={"supports": ["tool"]})
            with pytest.raises(GatewayError) as refused:
                await talk.conversations.chains.branch(bound, chain.session_id)
            assert (refused.value.code, refused.value.status) == ("policy.not_supported", 403)
            assert refused.value.details == {"required": "branch_session", "supports": ["tool"]}

    run(story)


@requirement("vai:control-session-branch")
def test_a_branch_is_another_session_with_the_same_bytes(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chains = talk.conversations.chains
            chain = await talk.chain("hello")
            session, copy = await chains.branch(CALLER, chain.session_id, metadata={"n": 1})
            assert (session.parent_session_id, session.latest_chain_id) == (chain.session_id, copy.id)
            assert (copy.session_id, copy.digest) == (session.id, chain.digest)
            other = await talk.chain("other")
            with pytest.raises(GatewayError) as refused:
                await chains.branch(CALLER, chain.session_id, chain_id=other.id)
            assert refused.value.code == "session.nothing_to_branch"
            bare = await talk.conversations.sessions.create(CALLER)
            with pytest.raises(GatewayError):
                await chains.branch(CALLER, bare.id)

    run(story)


def test_closing_and_opening_and_changing_a_chain(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            chains = talk.conversations.chains
            chain = await talk.chain("hello")
            changed = await chains.change(CALLER, chain.id, metadata={"a": 1}, defaults={"model": "n"})
            assert (changed.metadata, changed.defaults, changed.chain_version) == ({"a": 1}, {"model": "n"}, 2)
            assert changed.digest == chain.digest
            shut = await chains.change(CALLER, chain.id, status="closed")
            assert shut.status == "closed"
            with pytest.raises(GatewayError) as refused:
                await chains.change(CALLER, chain.id, metadata={})
            assert refused.value.code == "chain.closed"
            assert (await chains.change(CALLER, chain.id, status="idle")).status == "idle"
            await talk.begun("more", chain)
            with pytest.raises(GatewayError) as refused:
                await chains.change(CALLER, chain.id, status="closed")
            assert refused.value.code == "chain.attach_conflict"
            assert (await chains.change(CALLER, chain.id, metadata={"b": 2}, status="idle")).status == "running"

    run(story)


@requirement("vai:control-cross-tenant")
def test_another_orgs_chains_are_not_there(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chains = talk.conversations.chains
            chain = await talk.chain("mine")
            outside = delegated(["chains:read"], session_id="sess_other")
            asks = (chains.get, chains.context, chains.change, chains.fork)
            for nosy, ask in itertools.product((STRANGER, outside), asks):
                with pytest.raises(GatewayError) as refused:
                    await ask(nosy, chain.id)
                assert refused.value.status == 404
                assert (await chains.page(nosy, Page())).items == ()
            with pytest.raises(GatewayError):
                await chains.create(STRANGER, chain.session_id)
            assert [item.id for item in (await chains.page(CALLER, Page(), status="idle")).items] == [chain.id]

    run(story)


def test_the_context_comes_in_parts(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain(*map(str, range(5)))
            _, part = await talk.conversations.chains.context(CALLER, chain.id, after=1, limit=2)
            assert [block["content"][0]["text"] for block in part] == ["1", "2"]

    run(story)


def test_a_chain_is_not_endless(run: Run, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugbay.server.domain.sessions.MAX_CHAIN", 2)

    async def story() -> None:
        async with conversing(sqlite_url) as talk:
            chain = await talk.chain("a", "b")
            with pytest.raises(GatewayError) as refused:
                await talk.begun("c", chain)
            assert refused.value.code == "chain.full"
            assert (await talk.conversations.chains.get(CALLER, chain.id)).status == "idle"

    run(story)


TEXT = {"type": "text", "text": "hello"}
CALL = {"kind": "tool_call", "content": [], "tool_call_id": "c1", "name": "t", "input": {"a": 1}}
RESULT = {"kind": "tool_result", "content": [TEXT], "tool_call_id": "c1", "is_error": False}


def sealed(*given: dict[str, Any], after: int = 0, digest: str = EMPTY_DIGEST) -> list[StoredBlock]:
    numbers = count(1)
    return seal_blocks(
        given,
        chain_id="ch_1",
        after=after,
        digest=digest,
        run_id="run_1",
        now=1_770_000_000.0,
        ids=lambda prefix: f"{prefix}{next(numbers)}",
    )


def test_a_block_comes_back_as_it_was_written() -> None:
    [stored] = sealed(text_block("input", "été \0"))
    assert decode_block(stored) == {
        "kind": "input",
        "content": [{"type": "text", "text": "été \0"}],
        "id": "blk_1",
        "run_id": "run_1",
        "sequence": 1,
        "created_at": "2026-02-02T02:40:00.000000Z",
    }


@requirement("vai:control-chain-digest")
@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=6), data=st.data())
def test_any_change_in_a_chain_is_found(texts: list[str], data: st.DataObject) -> None:
    stored = sealed(*(text_block("input", text) for text in texts))
    assert first_broken_block(stored) is None
    at = data.draw(st.integers(0, len(stored) - 1))
    place = data.draw(st.integers(0, len(stored[at].body) - 1))
    body = bytearray(stored[at].body)
    body[place] ^= 1
    touched = [*stored[:at], replace(stored[at], body=bytes(body)), *stored[at + 1 :]]
    assert first_broken_block(touched) == at + 1
    missing = [*stored[:at], *stored[at + 1 :]]
    assert first_broken_block(missing) == (None if at == len(stored) - 1 else at + 1)


def test_appending_in_two_steps_is_appending_in_one() -> None:
    first = sealed(text_block("input", "a"))
    more = seal_blocks(
        [text_block("response", "b")],
        chain_id="ch_1",
        after=1,
        digest=first[-1].digest,
        run_id="run_1",
        now=1_770_000_000.0,
        ids=lambda prefix: f"{prefix}2",
    )
    both = sealed(text_block("input", "a"), text_block("response", "b"))
    assert [*first, *more] == both


def test_a_copy_has_the_same_bytes_and_the_same_digest() -> None:
    stored = sealed(CALL, RESULT)
    copied = copy_blocks(stored, "ch_2")
    assert [block.chain_id for block in copied] == ["ch_2", "ch_2"]
    assert [(block.body, block.digest) for block in copied] == [(block.body, block.digest) for block in stored]


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ([{"kind": "rumour", "content": [TEXT]}], "blocks[0]"),
        ([{"content": [TEXT]}], "blocks[0]"),
        ([{"kind": "input", "content": "hello"}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "smell"}]}], "blocks[0]"),
        ([{"kind": "input", "content": ["hello"]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "text", "text": 7}]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "image"}]}], "blocks[0]"),
        ([{"kind": "input", "content": [{"type": "image", "source": {"type": "path"}}]}], "blocks[0]"),
        ([{"kind": "input"}], "blocks"),
        ([CALL], "blocks"),
        ([RESULT], "blocks"),
        ([CALL, CALL, RESULT], "blocks"),
        ([text_block("input", "x" * (MAX_BLOCK_BYTES + 1))], "blocks[0]"),
        ([text_block("input", "x")] * (MAX_BLOCKS + 1), "blocks"),
    ],
)
def test_an_invalid_block_is_refused_with_its_position(given: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(GatewayError) as refused:
        check_blocks(given, KINDS)
    assert (refused.value.code, refused.value.status, refused.value.param) == ("chain.invalid_blocks", 422, param)


def test_ids_and_times_from_a_client_are_ignored() -> None:
    brought = {"kind": "input", "content": [TEXT], "id": "blk_9", "run_id": "run_9", "created_at": "never", "x": 1}
    assert check_blocks([brought], KINDS) == [{"kind": "input", "content": [TEXT]}]
    assert check_blocks([CALL, RESULT], KINDS) == [CALL, RESULT]
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    assert check_blocks([{"kind": "input", "content": [image]}], KINDS)[0]["content"] == [image]


def test_a_seed_block_keeps_its_own_fields() -> None:
    seed = {"kind": "input", "content": [TEXT], "lineage": ["blk_1"], "id": "blk_1", "sequence": 4}
    assert clean_seed_block(seed) == {"kind": "input", "content": [TEXT], "lineage": ["blk_1"]}


def test_the_words_of_blocks() -> None:
    both = [text_block("input", "a"), {"kind": "input", "content": [{"type": "image"}, TEXT]}]
    assert text_of(both) == "a\nhello"
    assert estimate_tokens(both) > 0
