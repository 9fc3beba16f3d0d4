"""Bindings over their lives."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from plugbay.model.spec import Export
from plugbay.server.domain.bindings import (
    FULL_TRAFFIC,
    BindingContext,
    Draft,
    ResolvedBinding,
    Share,
    bucket,
    check_invariants,
    excess_percent,
    judge_binding,
    least_execution_class,
    pick_share,
    secret_references,
    select_share,
    stable_key,
)
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.policy import Policy
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.secrets import SecretRef, SecretScope
from plugbay.store import bindings as rows
from plugbay.store import deliveries, events, invocations
from plugbay.store import packages as package_rows
from plugbay.store.bindings import BindingRow
from plugbay.store.database import Tx
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page
from tests.store.conversing_rows import delivery, event
from tests.store.test_bindings import ROW
from tests.store.test_invocations import record
from tests.store.test_packages import ROW as PACKAGE
from tests.support.clocks import TurnedClock
from tests.support.databases import run_write
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.requirements import requirement
from tests.support.vai import export

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
EXPORTS = [
    export("t", config_schema="schemas/config.json"),
    export("s", permissions={"secret_slots": ["key"]}),
    export("h", "hook"),
]
DRAFT = Draft("acme/p", "1.0.0", "t", "org_1", "proj_1")


@asynccontextmanager
async def bound_gateway(url: str, tmp_path: Path, *versions: str) -> AsyncIterator[Gateway]:
    """A gateway with an org and a package in some versions."""
    async with gateway_at(url, tmp_path, clock=TurnedClock()) as gateway:
        await make_org(gateway)
        publisher = Publisher(tmp_path, tmp_path)
        for version in versions or ("1.0.0",):
            await publisher.bring(gateway, exports=EXPORTS, schemas={"config": SCHEMA}, version=version)
        yield gateway


async def code_of(work: Any) -> str:
    with pytest.raises(GatewayError) as caught:
        await work
    return caught.value.code


@requirement("vai:control-binding-lifecycle")
def test_a_binding_is_made_changed_upgraded_and_rolled_back(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with bound_gateway(database_url, tmp_path, "1.0.0", "1.1.0") as gateway:
            bindings = gateway.bindings
            row = await bindings.create(OPERATOR, replace(DRAFT, config={"n": 1}))
            assert (row.status, row.export_kind, row.revision) == ("active", "tool", 1)
            upgraded = await bindings.change(OPERATOR, row.id, {"package_version": "1.1.0", "config": {"n": 2}})
            assert upgraded.package_version == "1.1.0" and upgraded.package_row != row.package_row
            back = await bindings.change(OPERATOR, row.id, {"package_version": "1.0.0"})
            assert (back.package_row, back.config, back.revision) == (row.package_row, {"n": 2}, 3)
            assert await bindings.get(OPERATOR, row.id) == back
            for changes, code in (
                ({"package_version": "9.0.0"}, "binding.package_not_found"),
                ({"config": {"n": "x"}}, "binding.invalid_config"),
                ({"policy": {"timeout_ms": 999_999}}, "binding.policy_widens"),
                ({"policy": {"netwrok": "none"}}, "policy.invalid"),
                ({"secrets": {"key": "sk-live-123456"}}, "binding.raw_secret"),
            ):
                assert await code_of(bindings.change(OPERATOR, row.id, changes)) == code
            assert await bindings.get(OPERATOR, row.id) == back
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page(), subject_id=row.id)).items]
            assert sorted(actions) == ["binding.create", "binding.update", "binding.update"]

    run(main)


def test_a_draft_becomes_active_when_everything_is_there(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path) as gateway:
            draft = replace(DRAFT, export_id="s", status="draft")
            row = await gateway.bindings.create(OPERATOR, draft)
            verdict = await gateway.bindings.validate(OPERATOR, row.id)
            assert not verdict.valid and verdict.errors[0].code == "binding.unbound_slot"
            assert await code_of(gateway.bindings.change(OPERATOR, row.id, {"status": "active"})) == (
                "binding.unbound_slot"
            )
            wanted = {"secrets": {"key": "secret://org_1/key"}, "status": "active"}
            assert await code_of(gateway.bindings.change(OPERATOR, row.id, wanted)) == "binding.secret_not_found"
            await gateway.secrets.put(OPERATOR, SecretScope("org_1"), "key", "correct horse")
            assert (await gateway.bindings.change(OPERATOR, row.id, wanted)).status == "active"
            verdict = await gateway.bindings.validate(OPERATOR, row.id)
            assert verdict.valid and verdict.permissions.secret_slots == ("key",)

    run(main)


@requirement("vai:control-rollout")
def test_active_bindings_of_one_export_at_one_scope_never_have_more_than_all_traffic(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with bound_gateway(database_url, tmp_path) as gateway:
            wanted = replace(DRAFT, traffic_percent=60)
            made = await asyncio.gather(
                *(gateway.bindings.create(OPERATOR, wanted) for _ in range(3)), return_exceptions=True
            )
            rows = [item for item in made if isinstance(item, BindingRow)]
            refused = [item.code for item in made if isinstance(item, GatewayError)]
            assert len(rows) == 1 and refused == ["binding.rollout_exceeded"] * 2
            await gateway.bindings.create(OPERATOR, replace(wanted, traffic_percent=40))
            await gateway.bindings.create(OPERATOR, replace(wanted, project_id=None))  # another scope
            await gateway.bindings.create(OPERATOR, replace(wanted, status="draft"))
            changing = gateway.bindings.change(OPERATOR, rows[0].id, {"traffic_percent": 61})
            assert await code_of(changing) == "binding.rollout_exceeded"

    run(main)


@requirement("vai:control-binding-precedence")
def test_a_projects_binding_comes_before_its_orgs_and_what_it_leaves_falls_to_that(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path, "1.0.0", "1.1.0") as gateway:
            of_org = await gateway.bindings.create(OPERATOR, replace(DRAFT, project_id=None))
            of_project = await gateway.bindings.create(OPERATOR, replace(DRAFT, package_version="1.1.0"))

            async def chosen(export: str, key: str, project: str | None = "proj_1") -> str | None:
                found = await gateway.bindings.select("org_1", project, export, key)
                return None if found is None else found.id

            assert await chosen("t", "sess_1") == of_project.id == await chosen("acme/p/t", "sess_1")
            assert await chosen("t", "sess_1", None) == of_org.id == await chosen("t", "sess_1", "proj_2")
            assert await chosen("other/p/t", "sess_1") is None and await chosen("none", "sess_1") is None
            await gateway.bindings.change(OPERATOR, of_project.id, {"traffic_percent": 50})
            served = {await chosen("t", f"sess_{number}") for number in range(40)}
            assert served == {of_org.id, of_project.id}
            tools = await gateway.bindings.serving("org_1", "proj_1", "tool", "sess_1")
            assert [bound.row.id for bound in tools] == [await chosen("t", "sess_1")]
            assert tools[0].export.name == "t" and await gateway.bindings.serving("org_1", None, "hook", "s") == []

    run(main)


def test_whoever_cares_is_told_when_a_binding_is_active_no_more_and_only_once_that_is_so(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path) as gateway:
            told: list[str] = []
            gateway.bindings.on_disabled.append(told.append)
            row = await gateway.bindings.create(OPERATOR, DRAFT)
            await gateway.bindings.change(OPERATOR, row.id, {"config": {"n": 1}})
            with pytest.raises(ZeroDivisionError):
                async with gateway.database.transaction():
                    await gateway.bindings.change(OPERATOR, row.id, {"status": "disabled"})
                    raise ZeroDivisionError
            assert told == []
            await gateway.bindings.change(OPERATOR, row.id, {"status": "disabled"})
            await gateway.bindings.change(OPERATOR, row.id, {"status": "draft"})
            assert told == [row.id]

    run(main)


def test_another_tenants_bindings_are_not_there_and_a_project_key_binds_for_its_project(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path) as gateway:
            row = await gateway.bindings.create(OPERATOR, DRAFT)
            other, mine = Principal("key", "org_2", role="admin"), Principal("key", "org_1", "proj_1", "admin")
            for work in (
                gateway.bindings.get(other, row.id),
                gateway.bindings.change(other, row.id, {}),
                gateway.bindings.validate(other, row.id),
                gateway.bindings.get(OPERATOR, "bind_none"),
            ):
                assert await code_of(work) == "binding.not_found"
            assert await code_of(gateway.bindings.create(other, DRAFT)) == "project.not_found"
            assert await code_of(gateway.bindings.create(mine, replace(DRAFT, project_id=None))) == "auth.role_denied"
            assert (await gateway.bindings.page(other, Page())).items == ()
            assert (await gateway.bindings.page(mine, Page(), export_id="t")).items == (row,)
            assert (await gateway.bindings.page(mine, Page(), export_id="s", status=None)).items == ()

    run(main)


@requirement("vai:control-binding-delete")
def test_a_binding_is_deleted_once_its_work_is_finished(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with bound_gateway(database_url, tmp_path) as gateway:
            row = await gateway.bindings.create(OPERATOR, DRAFT)
            of_org = await gateway.bindings.create(OPERATOR, replace(DRAFT, project_id=None))
            async with gateway.database.transaction() as tx:
                await run_write(tx, invocations.opening(record(binding_id=row.id)))
                await events.insert(tx, event("evt_1"))
                await deliveries.insert(tx, delivery("del_1", binding_id=row.id))
            with pytest.raises(GatewayError) as caught:
                await gateway.bindings.delete(OPERATOR, row.id)
            assert (caught.value.status, caught.value.code) == (409, "binding.in_use")
            assert caught.value.details == {"invocations": ["inv_1"], "deliveries": ["del_1"]}
            assert caught.value.retryable and "disable the binding" in caught.value.message
            async with gateway.database.transaction() as tx:
                await invocations.close_all(tx, 9.0, "failed", "x", "x")
                await deliveries.drop(tx, row.id, "x", 1e12, 1.0)
            ended: list[str] = []
            gateway.bindings.on_disabled.append(ended.append)
            other = Principal("key", "org_2", role="admin")
            of_project = Principal("key", "org_1", "proj_1", role="operator")
            assert await code_of(gateway.bindings.delete(other, row.id)) == "binding.not_found"
            assert await code_of(gateway.bindings.delete(of_project, of_org.id)) == "auth.role_denied"
            assert await gateway.bindings.delete(of_project, row.id) == row and ended == [row.id]
            assert await code_of(gateway.bindings.get(OPERATOR, row.id)) == "binding.not_found"
            assert await gateway.bindings.bound(row.id) is None
            found = (await gateway.audit.page(OPERATOR, Page(), action="binding.delete")).items
            assert [(entry.subject_id, entry.org_id) for entry in found] == [(row.id, "org_1")]

    run(main)


@requirement("vai:control-package-quarantine-replaced")
def test_a_binding_keeps_its_package_unless_its_version_changes(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path, "1.0.0", "2.0.0") as gateway:
            row = await gateway.bindings.create(OPERATOR, DRAFT)
            publisher, org = Publisher(tmp_path, tmp_path), Principal("key", "org_1", role="admin")
            options: dict[str, Any] = {"exports": EXPORTS, "schemas": {"config": SCHEMA}, "caller": org}
            own = [
                await publisher.bring(gateway, "# own", version=version, **options) for version in ("1.0.0", "2.0.0")
            ]
            changed = await gateway.bindings.change(org, row.id, {"config": {"n": 1}})
            assert changed.package_row == row.package_row, "the org's new package of the same version is another one"
            changed = await gateway.bindings.change(org, row.id, {"package_version": "2.0.0"})
            assert changed.package_row == own[1].id
            await gateway.trusted_publishers.remove(OPERATOR, publisher.key_id)
            changed = await gateway.bindings.change(org, row.id, {"status": "active"})
            assert changed.package_row != own[1].id, "the shared package is available"

    run(main)


def test_an_upsert_makes_one_binding_and_then_changes_that_one(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path) as gateway:
            first = await gateway.bindings.upsert(OPERATOR, DRAFT)
            again = await gateway.bindings.upsert(OPERATOR, replace(DRAFT, config={"n": 3}))
            assert again.id == first.id and again.config == {"n": 3}
            assert (await gateway.bindings.upsert(OPERATOR, replace(DRAFT, project_id=None))).id != first.id
            package = (await gateway.packages.page(OPERATOR, Page())).items[0]
            assert (await bind(gateway, package, "h")).export_kind == "hook"

    run(main)


@requirement("vai:control-revocation-at-once")
def test_what_a_binding_is_bound_to_is_read_once_and_again_when_anything_of_it_has_changed(
    database_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    get = package_rows.get

    async def counted(tx: Tx, id: str, **options: Any) -> PackageRow | None:
        reads.append(id)
        return await get(tx, id, **options)

    monkeypatch.setattr(package_rows, "get", counted)

    async def main() -> None:
        async with bound_gateway(database_url, tmp_path) as gateway:
            bindings = gateway.bindings
            row = await bindings.create(OPERATOR, replace(DRAFT, policy={"timeout_ms": 900}))
            reads.clear()
            assert [await bindings.bound(row.id) for _ in range(2)] == [await bindings.bound(row.id)] * 2
            assert len(reads) == 1

            async def bound() -> ResolvedBinding:
                before = len(reads)
                found = await bindings.bound(row.id)
                assert found is not None and len(reads) == before + 1, "it was read again"
                assert await bindings.bound(row.id) is found and len(reads) == before + 1, "and only once"
                return found

            await gateway.orgs.change(OPERATOR, "org_1", policy={"timeout_ms": 500})
            assert (await bound()).policy.timeout_ms == 500
            await bindings.change(OPERATOR, row.id, {"config": {"n": 7}, "status": "disabled"})
            changed = (await bound()).row
            assert (changed.config, changed.status) == ({"n": 7}, "disabled")
            package = (await gateway.packages.page(OPERATOR, Page())).items[0]
            async with gateway.database.transaction() as tx:
                await package_rows.judge(tx, replace(package, signature_status="untrusted"))
            assert (await bound()).policy.execution_class == "isolated"
            assert await bindings.bound("bind_none") is None

    run(main)


@requirement("vai:control-revocation-at-once")
def test_what_serves_is_read_once_and_again_when_a_binding_has_changed(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    active = rows.active

    async def counted(tx: Tx, org_id: str, **wanted: Any) -> list[BindingRow]:
        reads.append(org_id)
        return await active(tx, org_id, **wanted)

    async def main() -> None:
        async with bound_gateway(sqlite_url, tmp_path) as gateway:
            row = await gateway.bindings.create(OPERATOR, DRAFT)
            monkeypatch.setattr(rows, "active", counted)

            async def serving(org_id: str = "org_1") -> list[str]:
                return [each.row.id for each in await gateway.bindings.serving(org_id, "proj_1", "tool", "sess_1")]

            assert [await serving() for _ in range(3)] == [[row.id]] * 3 and reads == ["org_1"]
            assert [await serving("org_2") for _ in range(3)] == [[]] * 3 and reads == ["org_1", "org_2"]
            await gateway.bindings.change(OPERATOR, row.id, {"status": "disabled"})
            reads.clear()  # to judge a change takes a look at the others, too
            assert [await serving() for _ in range(2)] == [[], []] and reads == ["org_1"]

    run(main)


RULES_SCHEMA = {
    "type": "object",
    "required": ["a"],
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": False,
}
ASKED = {"network": "egress", "filesystem": "none", "gateway_api_scopes": ["runs:read"], "secret_slots": ["key"]}
EXPORT = Export(
    "tool",
    "t",
    facts={
        "execution_class": "isolated",
        "timeout_ms": 20_000,
        "permissions": ASKED,
        "config_schema": RULES_SCHEMA,
        "unsupported": "",
    },
)
AROUND = BindingContext(PACKAGE, EXPORT)


def codes(row: BindingRow, around: BindingContext = AROUND) -> list[str]:
    return [finding.code for finding in judge_binding(row, around).errors]


def facts(**changed: Any) -> BindingContext:
    return replace(AROUND, export=replace(EXPORT, facts={**EXPORT.facts, **changed}))


@requirement("vai:control-binding-valid")
def test_a_binding_that_breaks_no_rule_is_valid_and_says_what_it_may() -> None:
    verdict = judge_binding(ROW, AROUND)
    assert verdict.valid and verdict.warnings == ()
    assert verdict.permissions.to_json() == ASKED


@requirement("vai:control-binding-valid")
@pytest.mark.parametrize(
    ("row", "around", "code"),
    [
        (ROW, BindingContext(None, None), "binding.package_not_found"),
        (ROW, BindingContext(PACKAGE, None), "binding.unknown_export"),
        (ROW, replace(AROUND, package=replace(PACKAGE, status="quarantined")), "binding.package_quarantined"),
        (ROW, facts(unsupported="it is for plan9"), "binding.unsupported_platform"),
        (replace(ROW, config={"a": "x"}), AROUND, "binding.invalid_config"),
        (ROW, facts(config_schema=None), "binding.invalid_config"),
        (replace(ROW, secrets={}), AROUND, "binding.unbound_slot"),
        (ROW, replace(AROUND, missing=frozenset({"key"})), "binding.secret_not_found"),
        (replace(ROW, secrets={**ROW.secrets, "other": "secret://org_1/x"}), AROUND, "binding.undeclared_slot"),
        (replace(ROW, secrets={"key": "secret://org_2/key"}), AROUND, "binding.secret_scope_denied"),
        (replace(ROW, policy={"gateway_api_scopes": ["runs:write"]}), AROUND, "binding.policy_widens"),
        (ROW, replace(AROUND, others=(Share("bind_2", 1),)), "binding.rollout_exceeded"),
    ],
)
def test_each_rule_has_a_code(row: BindingRow, around: BindingContext, code: str) -> None:
    assert codes(row, around) == [code]


@requirement("vai:control-no-raw-secrets")
def test_a_pasted_secret_is_refused_whatever_the_status_and_not_quoted() -> None:
    pasted = replace(ROW, secrets={"key": "sk-live-0123456789abcdef"}, status="draft")
    (finding,) = check_invariants(pasted, AROUND)
    assert (finding.code, finding.path) == ("binding.raw_secret", "secrets.key")
    assert "sk-live" not in finding.message


def test_a_draft_may_be_unfinished_but_never_somebody_elses() -> None:
    unfinished = replace(ROW, config={}, secrets={})
    assert check_invariants(unfinished, AROUND) == [] and codes(unfinished) == [
        "binding.invalid_config",
        "binding.unbound_slot",
    ]


def test_a_binding_of_a_project_uses_secrets_of_its_project_too() -> None:
    own = replace(ROW, project_id="proj_1", secrets={"key": "secret://proj_1/key"})
    assert codes(own) == [] and secret_references(own) == {"key": SecretRef("proj_1", "key")}
    assert secret_references(replace(ROW, secrets={"key": "pasted"})) == {}


def test_where_a_config_is_wrong_is_told_all_at_once() -> None:
    errors = judge_binding(replace(ROW, config={"b": 1, "a": "x"}), AROUND).errors
    assert sorted(error.path for error in errors) == ["config", "config.a"]


@pytest.mark.parametrize(
    ("around", "code"),
    [
        (replace(AROUND, org_policy=Policy(gateway_api_scopes=frozenset())), "binding.scope_not_granted"),
        (replace(AROUND, package=replace(PACKAGE, signature_status="missing")), None),
        (replace(AROUND, org_policy=Policy(secret_slots=frozenset())), "binding.secret_not_granted"),
        (
            replace(facts(permissions={**ASKED, "filesystem": "scratch"}), org_policy=Policy(filesystem="none")),
            "binding.filesystem_not_granted",
        ),
        (facts(execution_class="inline"), "binding.class_raised"),
        (facts(timeout_ms=3_600_000), "binding.timeout_clamped"),
    ],
)
def test_what_a_binding_does_not_get_is_a_warning(around: BindingContext, code: str | None) -> None:
    verdict = judge_binding(ROW, around)
    assert verdict.valid and [finding.code for finding in verdict.warnings] == ([] if code is None else [code])


@requirement("vai:host-harness-mode")
def test_a_harness_of_an_unknown_mode_cannot_be_active() -> None:
    export = replace(AROUND.export or Export("harness", "t"), kind="harness")
    known, other = (replace(export, facts={**export.facts, "mode": mode}) for mode in ("composite", "swarm"))
    assert codes(ROW, replace(AROUND, export=known)) == []
    (error,) = judge_binding(ROW, replace(AROUND, export=other)).errors
    assert error.code == "binding.unsupported_mode" and "'swarm'" in error.message and "composite" in error.message
    assert check_invariants(replace(ROW, status="draft"), replace(AROUND, export=other)) == []


def test_without_the_network_its_scopes_go_too() -> None:
    verdict = judge_binding(ROW, replace(AROUND, org_policy=Policy(network="none")))
    assert {finding.code for finding in verdict.warnings} == {
        "binding.scope_not_granted",
        "binding.network_not_granted",
    }
    assert verdict.permissions.gateway_api_scopes == ()


@requirement("vai:control-trust-floor")
def test_how_much_apart_a_package_runs_depends_on_whose_it_is() -> None:
    assert (
        least_execution_class(PACKAGE) == "worker"
        and least_execution_class(replace(PACKAGE, signature_status="untrusted")) == "isolated"
    )
    assert least_execution_class(replace(PACKAGE, package_id="plugbay/thread-weave")) == "inline"
    assert least_execution_class(replace(PACKAGE, package_id="plugbay/x", signature_status="missing")) == "isolated"


IDS = st.text("abcdef0123456789", min_size=1, max_size=12).map(lambda text: f"bind_{text}")
KEYS = st.text(max_size=30)


@st.composite
def shares(draw: st.DrawFn) -> list[Share]:
    """Bindings of one scope that together have the whole traffic at most."""
    names = draw(st.lists(IDS, unique=True, max_size=5))
    left, found = FULL_TRAFFIC, []
    for name in names:
        percent = draw(st.integers(0, left))
        left -= percent
        found.append(Share(name, percent))
    return found


@requirement("vai:control-rollout")
def test_the_bucket_is_the_hash_of_binding_and_key_in_hundredths() -> None:
    expected = int(hashlib.sha256(b"bind_1sess_1").hexdigest(), 16) % 100
    assert bucket("bind_1", "sess_1") == expected
    assert pick_share([Share("bind_1", expected)], "sess_1") is None
    assert pick_share([Share("bind_1", expected + 1)], "sess_1") == "bind_1"


@requirement("vai:control-rollout")
@given(shares(), shares(), KEYS)
def test_the_same_key_is_always_served_by_the_same_binding_and_the_projects_come_first(
    of_project: list[Share], of_org: list[Share], key: str
) -> None:
    first = select_share(of_project, of_org, key)
    assert select_share(of_project, of_org, key) == first
    assert first is None or first in {share.binding_id for share in (*of_project, *of_org)}
    own = pick_share(of_project, key)
    assert first == (own if own is not None else pick_share(of_org, key))


@given(shares(), KEYS)
def test_a_binding_without_traffic_serves_nobody_and_one_with_all_of_it_everybody(found: list[Share], key: str) -> None:
    idle = {share.binding_id for share in found if share.percent == 0}
    assert pick_share(found, key) not in idle
    assert pick_share([Share("bind_all", FULL_TRAFFIC)], key) == "bind_all"
    assert (pick_share(found, key) is None) <= (sum(share.percent for share in found) < FULL_TRAFFIC)


@given(shares(), KEYS, st.integers(0, 100))
def test_whoever_was_served_stays_when_the_last_share_grows(found: list[Share], key: str, more: int) -> None:
    if not found:
        return
    room = FULL_TRAFFIC - sum(share.percent for share in found)
    grown = [*found[:-1], Share(found[-1].binding_id, found[-1].percent + min(more, room))]
    before = pick_share(found, key)
    assert before is None or pick_share(grown, key) == before


def test_traffic_is_shared_about_as_it_says() -> None:
    found = [Share("bind_a", 30), Share("bind_b", 50)]
    served = [pick_share(found, f"sess_{number}") for number in range(4_000)]
    parts = {name: served.count(name) / len(served) for name in ("bind_a", "bind_b", None)}
    assert all(abs(parts[name] - wanted) < 0.04 for name, wanted in (("bind_a", 0.3), ("bind_b", 0.5), (None, 0.2)))


def test_more_than_all_of_the_traffic_is_too_much() -> None:
    assert excess_percent([Share("a", 60), Share("b", 40)]) == 0
    assert excess_percent([Share("a", 60), Share("b", 41)]) == 1


def test_selection_sticks_to_the_first_id_there_is() -> None:
    assert stable_key(None, "ch_1", "run_1") == "ch_1"
    assert stable_key(None, None) == ""
