"""Sessions: where they belong, and who sees them."""

from __future__ import annotations

import pytest

from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.store.pages import Page
from tests.support.conversing import CALLER, STRANGER, conversing, delegated
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


def test_an_operator_of_all_orgs_says_for_which_one(run: Run, sqlite_url: str) -> None:
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
def test_a_plugin_sees_its_session_and_what_was_branched_from_it(run: Run, database_url: str) -> None:
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
