"""Work of bound exports, with real plugins."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from plugbay.host.ports import CallRecord, InvocationRecord, ResumeState
from plugbay.host.request import CallRequest, CallResult
from plugbay.server.domain import invocations
from plugbay.server.domain.clock import Clock, moment
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.invocations import (
    BINDING_DISABLED,
    ENDED,
    EVENT,
    HOST_RESTARTED,
    KEPT_JOURNEYS,
    LOST,
    QUEUE_DEPTH,
    STARTED,
    InvocationEvent,
    InvocationEvents,
    SqlCheckpoints,
)
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.secrets import SecretScope
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store import leases
from plugbay.store.failures import StoreUnavailable
from plugbay.store.invocations import Wanted
from plugbay.store.leases import Lease
from plugbay.store.packages import PackageRow
from plugbay.store.pages import Page
from plugbay.store.rows import ANY_OWNER
from plugbay.store.statements import Outcome, Write
from plugbay.wire.fast_json import MsgspecCodec
from tests.examples.test_devkit import receiver
from tests.server.domain.test_credentials import claims, refused
from tests.store.test_invocations import ended, record
from tests.support.clocks import TurnedClock
from tests.support.gateways import gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import until
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive
from tests.support.vai import export

WAITS = """
def tool(body, m):
    event(m, message="here", token=body["context"]["gateway"]["delegation_token"])
    cancels[m["id"]].wait()
"""
SAYS = """
def tool(body, m):
    succeed(m, output({"config": body["config"], "secret": body["secrets"].get("key"),
                       "gateway": body["context"]["gateway"], "version": VERSION}))
"""
ASKED = {
    "network": "egress",
    "filesystem": "none",
    "gateway_api_scopes": ["runs:read", "chains:read", "runs:write"],
    "secret_slots": ["key"],
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
PLUGIN = export("t", permissions=ASKED, config_schema="schemas/config.json")
KEY = {"key": "secret://org_1/key"}


@asynccontextmanager
async def plugged(
    url: str, tmp_path: Path, body: str, exports: Sequence[dict[str, Any]] = (PLUGIN,), clock: Clock | None = None
) -> AsyncIterator[tuple[Gateway, PackageRow, Publisher]]:
    """A gateway with an org, a secret and a package."""
    async with gateway_at(url, tmp_path, clock=clock) as gateway:
        await make_org(gateway)
        await gateway.secrets.put(OPERATOR, SecretScope("org_1"), "key", "hush-hush-1")
        publisher = Publisher(tmp_path, tmp_path)
        yield gateway, await publisher.bring(gateway, body, exports, schemas={"config": SCHEMA}), publisher


def work(**fields: Any) -> CallRequest:
    return CallRequest(**{"org_id": "org_1", "project_id": "proj_1", "input": {}, "name": "t", **fields})


async def the_record(gateway: Gateway) -> InvocationRecord:
    (record,) = (await gateway.invocations.page(OPERATOR, Page(), Wanted({}))).items
    return record


def test_records_and_tokens_are_by_the_clock_of_the_gateway(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    """Which several gateways share: the clock of the machine may be an hour wrong."""
    body = "def tool(body, m): succeed(m, output({}))"
    clock = TurnedClock()

    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, body, clock=clock) as (gateway, package, _):
            await bind(gateway, package, secrets=KEY)
            result = await gateway.invocations.invoke(work())
            assert result.invocation is not None and result.status == "succeeded", result.failure
            times = [result.invocation.started_at, str(result.invocation.ended_at)]
            assert [moment(each) for each in times] == [clock.wall] * 2
            async with gateway.database.reading() as tx:
                query = text("SELECT issued_at / 1e6, expires_at / 1e6 FROM plugin_tokens")
                issued, expires = (await tx.execute(query)).one()
            assert issued == clock.wall and clock.wall < expires < clock.wall + 3600

    run(main)


@requirement("vai:control-effective-permissions", "vai:control-invocation-record", "vai:control-trust-floor")
def test_an_invocation_is_done_with_what_all_sides_allow_and_recorded_with_it(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with plugged(database_url, tmp_path, SAYS) as (gateway, package, _):
            await gateway.orgs.change(OPERATOR, "org_1", policy={"gateway_api_scopes": ["runs:read", "chains:read"]})
            binding = await bind(
                gateway, package, secrets=KEY, policy={"gateway_api_scopes": ["runs:read", "runs:write"]}
            )
            asked = work(session_id="sess_1", chain_id="ch_1", run_id="run_1", trace_id="tr_1", execution_id="toolx_1")
            result = await gateway.invocations.invoke(asked)
            said = result.value_or_raise()["structured_output"]
            assert said["gateway"]["scopes"] == ["runs:read"] and said["secret"] == "***"
            assert said["gateway"]["base_url"] == gateway.settings.base_url
            found = await the_record(gateway)
            assert found == result.invocation and found.status == "succeeded" and found.narrowed
            assert found.permissions["gateway_api_scopes"] == ["runs:read"]
            expected = ("tool", "t", binding.id, "acme/p", "1.0.0", "isolated", "org_1", "proj_1")
            assert expected == (
                found.export_kind,
                found.export_id,
                found.binding_id,
                found.package_id,
                found.package_version,
                found.execution_class,
                found.org_id,
                found.project_id,
            )
            ids = (found.session_id, found.chain_id, found.run_id, found.trace_id, found.execution_id)
            assert ids == ("sess_1", "ch_1", "run_1", "tr_1", "toolx_1") and found.ended_at is not None
            narrower = await gateway.invocations.invoke(work(scopes=frozenset({"chains:read"})))
            assert narrower.value_or_raise()["structured_output"]["gateway"]["delegation_token"] is None

    run(main)


@requirement("vai:control-binding-snapshot", "vai:control-secret-rotation")
def test_what_is_changed_counts_for_the_next_invocation_and_not_for_the_one_that_runs(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    body = """
    def tool(body, m):
        event(m)
        if body["input"].get("wait"):
            cancels[m["id"]].wait()
        secret = body["secrets"]["key"]
        succeed(m, output({"config": body["config"], "secret": [len(secret), secret[-1:]], "version": VERSION}))

    def cancelled(m):
        pass
    """

    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, body) as (gateway, package, publisher):
            await publisher.bring(gateway, body, [PLUGIN], schemas={"config": SCHEMA}, version="2.0.0")
            binding = await bind(gateway, package, secrets=KEY, config={"n": 1})
            asked = asyncio.Event()
            running = asyncio.ensure_future(
                gateway.invocations.invoke(work(input={"wait": True}, on_progress=lambda event: asked.set()))
            )
            await asked.wait()
            await gateway.bindings.change(OPERATOR, binding.id, {"config": {"n": 2}, "package_version": "2.0.0"})
            await gateway.secrets.put(OPERATOR, SecretScope("org_1"), "key", "hush-hush-two")
            after = (await gateway.invocations.invoke(work())).value_or_raise()["structured_output"]
            assert after == {"config": {"n": 2}, "secret": [13, "o"], "version": "2.0.0"}
            await gateway.invocations.cancel(OPERATOR, (await _open_one(gateway)).invocation_id)
            before = (await running).value_or_raise()["structured_output"]
            assert before == {"config": {"n": 1}, "secret": [11, "1"], "version": "1.0.0"}

    run(main)


async def _open_one(gateway: Gateway) -> InvocationRecord:
    (record,) = (await gateway.invocations.page(OPERATOR, Page(), Wanted({}, "running"))).items
    return record


@requirement("vai:control-binding-disable")
def test_disabling_a_binding_cancels_what_runs_under_it_and_ends_its_tokens(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with plugged(database_url, tmp_path, WAITS) as (gateway, package, _):
            binding = await bind(gateway, package, secrets=KEY)
            heard: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            running = asyncio.ensure_future(gateway.invocations.invoke(work(on_progress=heard.set_result)))
            assert (await heard)["token"] == "***"  # nobody is told, not even who asked
            await gateway.bindings.change(OPERATOR, binding.id, {"status": "disabled"})
            result = await running
            assert result.invocation is not None
            assert (result.status, result.invocation.status_reason) == ("cancelled", BINDING_DISABLED)
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.invoke(work(binding_id=binding.id))
            assert (caught.value.status, caught.value.code) == (409, "binding.not_active")
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.invoke(work())
            assert caught.value.code == "binding.not_found"

    run(main)


def test_a_binding_that_is_disabled_before_the_first_attempt_calls_it_off_too(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, WAITS) as (gateway, package, _):
            binding = await bind(gateway, package, secrets=KEY)
            opened = gateway.invocation_log.opened

            async def disabled_first(record: InvocationRecord) -> None:
                await gateway.bindings.change(OPERATOR, binding.id, {"status": "disabled"})
                await opened(record)

            gateway.invocation_log.opened = disabled_first  # type: ignore[method-assign]
            result = await gateway.invocations.invoke(work())
            assert result.invocation is not None
            assert (result.status, result.invocation.status_reason) == ("cancelled", BINDING_DISABLED)
            assert result.invocation.event_count == 0

    run(main)


@requirement("vai:control-invocation-events")
def test_whoever_watches_sees_it_begin_hears_what_it_says_and_sees_it_end(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    body = "def tool(body, m):\n    event(m, message='working')\n    succeed(m, output(1))\n"

    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, body) as (gateway, package, _):
            await bind(gateway, package, secrets=KEY)
            watch = gateway.invocation_events.subscribe(lambda event: True)
            assert watch is not None
            begun = await gateway.invocations.begin(work())
            assert begun.status is None
            heard = [await anext(watch) for _ in range(3)]
            assert [event.type for event in heard] == [STARTED, EVENT, ENDED]
            assert {event.record and event.record.invocation_id for event in heard} == {begun.invocation_id}
            assert heard[1].data == {"type": "progress", "message": "working"}

    run(main)


COMES_BACK = """
import urllib.error, urllib.request

def tool(body, m):
    gateway, said = body["context"]["gateway"], {}
    if body["input"]["plain"]:  # a client that does not know of proxy variables
        urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))
    for url in (gateway["base_url"], body["input"]["elsewhere"]):
        headers = {"Authorization": f"Bearer {gateway['delegation_token']}"}
        try:
            with urllib.request.urlopen(urllib.request.Request(url + "/v1/runs", b"{}", headers), timeout=60) as answer:
                said[url] = answer.status
        except OSError as error:
            said[url] = type(error).__name__
    succeed(m, output([said[gateway["base_url"]], said[body["input"]["elsewhere"]]]))
"""


@requirement("vai:control-token", "vai:control-policy-narrows", "vai:control-gateway-plain-client")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("policy", "reached"),
    [({}, True), ({"egress_domains": ["api.example"]}, True), ({"network": "none"}, False)],
)
def test_a_plugin_comes_back_to_the_gateway_and_gets_nowhere_else_on_this_machine(
    sqlite_url: str, tmp_path: Path, run: Run, policy: dict[str, Any], reached: bool, plain: bool
) -> None:
    async def main() -> None:
        settings = GatewaySettings(tmp_path, base_url=base_url)
        async with gateway_at(sqlite_url, tmp_path, settings=settings) as gateway:
            await make_org(gateway)
            asked = {"network": "egress", "gateway_api_scopes": ["runs:read"]}
            package = await Publisher(tmp_path, tmp_path).bring(gateway, COMES_BACK, [export(permissions=asked)])
            await bind(gateway, package, policy=policy)
            result = await gateway.invocations.invoke(work(input={"elsewhere": elsewhere, "plain": plain}))
            own, other = result.value_or_raise()["structured_output"]
            assert (own == 200) == reached and other != 200

    with receiver() as (base_url, heard), receiver() as (elsewhere, unheard):
        run(main)
    assert unheard == [] and len(heard) == reached
    assert all(headers["Authorization"].startswith("Bearer vai_dlg_") for _, _, headers, _ in heard)


LOOKS = """
def tool(body, m):
    folder, written = body["context"]["scratch_dir"], None
    if folder is not None:
        with open(os.path.join(folder, "note"), "w") as file:
            written = file.write("tea")
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split()[4] for line in file if "/scratch" in line.split()[4]]
    succeed(m, output({"written": written, "mounts": len(mounts), "secrets": sorted(body["secrets"]),
                       "permissions": body["context"]["permissions"]}))
"""
LOOKING = export(permissions={"filesystem": "scratch", "secret_slots": ["key", "other"]})
BOTH = {"key": "secret://org_1/key", "other": "secret://org_1/key"}


@requirement("vai:control-policy-files-and-secrets")
@pytest.mark.parametrize(
    ("org", "binding", "files", "slots"),
    [
        ({}, {}, "scratch", ["key", "other"]),
        ({}, {"filesystem": "none", "secret_slots": ["other"]}, "none", ["other"]),
        ({"filesystem": "assets_ro", "secret_slots": ["key"]}, {"filesystem": "scratch"}, "assets_ro", ["key"]),
        ({"secret_slots": ["key"]}, {"secret_slots": ["other"]}, "scratch", []),
    ],
    ids=["nothing", "binding", "org", "both"],
)
def test_a_process_has_the_files_and_the_secrets_that_the_policies_leave(
    sqlite_url: str, tmp_path: Path, run: Run, org: Any, binding: Any, files: str, slots: list[str]
) -> None:
    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, LOOKS, [LOOKING]) as (gateway, package, _):
            await gateway.orgs.change(OPERATOR, "org_1", policy=org)
            row = await bind(gateway, package, secrets=BOTH, policy=binding)
            result = await gateway.invocations.invoke(work())
            said = result.value_or_raise()["structured_output"]
            assert said["permissions"] == {"network": "none", "filesystem": files}
            assert (said["written"], said["mounts"] > 0) == ((3, True) if files == "scratch" else (None, False))
            assert said["secrets"] == slots
            assert result.invocation is not None
            assert result.invocation.permissions["filesystem"] == files
            assert result.invocation.permissions["secret_slots"] == slots
            verdict = await gateway.bindings.validate(OPERATOR, row.id)
            assert (verdict.permissions.filesystem, list(verdict.permissions.secret_slots)) == (files, slots)

    run(main)


@requirement("vai:control-policy-files-and-secrets")
def test_a_secret_that_a_policy_withholds_is_neither_needed_nor_read(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, LOOKS, [LOOKING]) as (gateway, package, _):
            with pytest.raises(GatewayError) as caught:
                await bind(gateway, package, secrets=KEY)
            assert caught.value.code == "binding.unbound_slot"
            gone = {**KEY, "other": "secret://org_1/nowhere"}
            await bind(gateway, package, secrets=gone, policy={"secret_slots": ["key"]})
            said = (await gateway.invocations.invoke(work())).value_or_raise()["structured_output"]
            assert said["secrets"] == ["key"]

    run(main)


def test_what_cannot_be_begun_says_why(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    schema = {"type": "object", "required": ["q"]}
    strict = export("strict", own={"input_schema": "schemas/strict.json"})

    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, "", [PLUGIN]) as (gateway, package, publisher):
            other = await publisher.bring(gateway, "", [strict], schemas={"strict": schema}, version="2.0.0")
            binding = await bind(gateway, package, secrets=KEY)
            await bind(gateway, other, "strict")
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.begin(work(name="strict"))
            assert (caught.value.status, caught.value.code) == (422, "invocation.invalid_input")
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.begin(work(name="none"))
            assert caught.value.code == "binding.not_found"
            for wrong in ({"org_id": "org_2"}, {"project_id": "proj_2"}):
                with pytest.raises(GatewayError) as caught:
                    await gateway.invocations.invoke(work(binding_id=binding.id, **wrong))
                assert caught.value.code == "binding.not_found"
            await gateway.secrets.delete(OPERATOR, SecretScope("org_1"), "key")
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.invoke(work())
            assert (caught.value.status, caught.value.code) == (409, "binding.secret_not_found")
            stranger = Principal("key", "org_2", role="admin")
            assert (await gateway.invocations.page(stranger, Page(), Wanted({}))).items == ()
            with pytest.raises(GatewayError) as caught:
                await gateway.invocations.page(stranger, Page(), Wanted({}), "org_1")
            assert caught.value.status == 404

    run(main)


def test_a_gateway_that_stops_calls_off_what_runs_and_writes_down_how_it_ended(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with plugged(sqlite_url, tmp_path, WAITS) as (gateway, package, _):
            await bind(gateway, package, secrets=KEY)
            begun = await gateway.invocations.begin(work())
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            found = await gateway.invocations.get(OPERATOR, begun.invocation_id)
            assert (found.status, found.status_reason) == ("cancelled", "host_shutdown")

    run(main)


ROOT = Path(__file__).parents[3]

OPENED = record(1, binding_id=None)


@requirement("vai:control-invocation-restart")
def test_what_a_killed_gateway_left_open_is_closed_by_the_next_one_and_its_tokens_are_dead(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            await gateway.invocation_log.opened(OPENED)
            token = await gateway.credentials.issue(claims(clock))
        async with gateway_at(database_url, tmp_path, clock=clock) as gateway:
            found = await gateway.invocations.get(OPERATOR, "inv_1")
            assert (found.status, found.status_reason, found.error_code) == ("failed", HOST_RESTARTED, HOST_RESTARTED)
            assert found.ended_at is not None and await refused(gateway, token) == "auth.token_revoked"
            _, outcome = await gateway.invocations.outcome(OPERATOR, "inv_1")
            assert outcome.result is None and outcome.failure is not None
            assert outcome.failure["code"] == HOST_RESTARTED
            assert outcome.failure["detail"] == {"plugin_code": HOST_RESTARTED, "execution_outcome": "unknown"}
            assert await gateway.invocation_log.close_left(ANY_OWNER) == 0

    run(main)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path

from tests.server.domain.test_invocations import WAITS, KEY, plugged, work
from tests.support.packaged import bind

async def main() -> None:
    data = Path(sys.argv[2])
    async with plugged(sys.argv[1], data, WAITS) as (gateway, package, _):
        issue = gateway.credentials.issue

        async def told(claims):
            token = await issue(claims)
            (data / "token").write_text(token)
            return token

        gateway.credentials.issue = told
        await bind(gateway, package, secrets=KEY)
        await gateway.invocations.invoke(work(on_progress=lambda event: os.kill(os.getpid(), signal.SIGKILL)))

asyncio.run(main())
"""


@requirement("vai:control-invocation-restart")
def test_a_gateway_that_is_killed_in_the_middle_of_an_invocation_leaves_neither_a_row_open_nor_a_token_alive(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, database_url, str(tmp_path)], cwd=ROOT, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            (left,) = (await gateway.invocations.page(OPERATOR, Page(), Wanted({}))).items
            assert (left.status, left.error_code) == ("failed", HOST_RESTARTED)
            token = (tmp_path / "token").read_text()
            assert await refused(gateway, token) == "auth.token_revoked"

    run(main)


@requirement("vai:control-invocation-record")
def test_an_end_that_cannot_be_written_down_is_written_down_later_and_told_once(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocations, "CLOSE_PAUSE", 0.001)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            watch = gateway.invocation_events.subscribe(lambda event: True)
            assert watch is not None
            await gateway.invocation_log.opened(OPENED)
            write, away = gateway.database.write, True

            async def write_later(*writes: Write) -> list[Outcome]:
                if away:
                    raise StoreUnavailable("it is away")
                return await write(*writes)

            monkeypatch.setattr(gateway.database, "write", write_later)
            await gateway.invocation_log.closed(ended(OPENED))
            assert (await gateway.invocations.get(OPERATOR, "inv_1")).status is None
            away = False
            await until(lambda: not gateway.invocation_log._pending)
            assert await gateway.invocations.get(OPERATOR, "inv_1") == ended(OPENED)
            await gateway.invocation_log.closed(ended(OPENED, "failed"))
            assert await gateway.invocations.get(OPERATOR, "inv_1") == ended(OPENED)
            assert [(await anext(watch)).type for _ in range(2)] == [STARTED, ENDED]
            assert sum(gateway.meters.counters["invocations"].values()) == 1

    run(main)


async def shared(gateway: Gateway) -> Lease:
    """Make it one of several gateways."""
    async with gateway.database.transaction() as tx:
        lease = await leases.take(tx, "gateway/gw_1", "gw_1", 30.0)
    assert lease is not None
    gateway.database.share(lease.fence)
    return lease


def result_of(record: InvocationRecord) -> CallResult:
    codec = MsgspecCodec()
    call = CallRecord("call_1", "acme/p", "1.0.0", "vai", "t", 0.0, 1.0)
    return CallResult(call, codec.dump({"n": 1}), codec, (record,))


def test_a_client_is_told_what_another_gateway_has_recorded(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    """A gateway that slept wakes with an answer, and its work was taken over."""

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            log, lease = gateway.invocation_log, await shared(gateway)
            await log.opened(OPENED)
            assert await log.close_left(lease.holder) == 1
            await log.closed(ended(OPENED))
            told = log.as_recorded(result_of(ended(OPENED)))
            assert told.output is None and told.failure is not None
            assert told.failure.detail["execution_outcome"] == "unknown"
            recorded = await gateway.invocations.get(OPERATOR, "inv_1")
            assert told.invocation is not None
            assert (told.status, told.invocation.error_code) == (recorded.status, recorded.error_code)

    run(main)


def test_an_end_that_is_recorded_twice_by_one_gateway_is_its_own(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    """The commit came through, and its confirmation was lost."""

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            log, _ = gateway.invocation_log, await shared(gateway)
            await log.opened(OPENED)
            for _ in range(2):
                await log.closed(ended(OPENED))
            result = result_of(ended(OPENED))
            assert log.as_recorded(result) is result

    run(main)


def test_a_gateway_that_cannot_record_an_end_says_that_the_outcome_is_unknown(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocations, "CLOSE_PAUSE", 0.001)
    monkeypatch.setattr(invocations, "SHARED_CLOSE_SECONDS", 0.01)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            log, _ = gateway.invocation_log, await shared(gateway)
            await log.opened(OPENED)
            write = gateway.database.write

            async def away(*writes: Write) -> list[Outcome]:
                raise StoreUnavailable("it is away")

            monkeypatch.setattr(gateway.database, "write", away)
            await log.closed(ended(OPENED))
            failure = log.as_recorded(result_of(ended(OPENED))).failure
            assert failure is not None and failure.detail["execution_outcome"] == "unknown"
            monkeypatch.setattr(gateway.database, "write", write)
            await until(lambda: not log._pending)

    run(main)


def test_journeys_are_kept_for_a_month(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    clock = TurnedClock()

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, clock=clock) as gateway:
            kept = SqlCheckpoints(gateway.database, clock)
            await kept.save("exec_1", ResumeState(summary="so far"))
            clock.turn(KEPT_JOURNEYS)
            await gateway.retention.remove()
            assert await kept.load("exec_1") == ResumeState(summary="so far")
            clock.turn(1)
            await gateway.retention.remove()
            assert await kept.load("exec_1") is None

    run(main)


@exhaustive
@requirement("vai:control-group-commit", "vai:control-invocation-restart")
def test_a_gateway_that_is_killed_among_many_has_written_all_that_were_answered(
    database_url: str, tmp_path: Path, run: Run
) -> None:
    command = [sys.executable, "-m", "tests.server.domain.acknowledging", database_url, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as gateway_process:
        assert gateway_process.stdout is not None
        told = [gateway_process.stdout.readline() for _ in range(200)]
        gateway_process.send_signal(signal.SIGKILL)
        told += gateway_process.stdout.readlines()
    answered = dict(line.decode().split() for line in told if line.endswith(b"\n"))
    assert len(answered) >= 200 and set(answered.values()) == {"succeeded"}

    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            found: list[InvocationRecord] = []
            page: Page | None = Page(limit=200)
            while page is not None:
                part = await gateway.invocations.page(OPERATOR, page, Wanted({}))
                found += part.items
                page = None if part.after is None else Page(200, part.after)
            statuses = {each.invocation_id: each.status for each in found}
            assert {id: statuses.get(id) for id in answered} == answered
            rest = [each for each in found if each.invocation_id not in answered]
            assert {(each.status, each.error_code) for each in rest} <= {
                ("succeeded", None),
                ("failed", HOST_RESTARTED),
            }

    run(main)


def test_a_watcher_hears_what_it_wants_in_order_until_nothing_happens_any_more(run: Run) -> None:
    async def main() -> None:
        events = InvocationEvents()
        watch = events.subscribe(lambda event: event.type == EVENT)
        assert watch is not None
        for number in range(3):
            events.publish(InvocationEvent(EVENT, record(), number))
            events.publish(InvocationEvent(ENDED, record()))
        heard = [await anext(watch) for _ in range(3)]
        assert [event.data for event in heard] == [0, 1, 2]
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
        events.close()
        assert await waiting is None
        events.publish(InvocationEvent(EVENT, record(), "to nobody"))

    run(main)


def test_who_is_too_slow_loses_the_oldest_and_is_told_how_many(run: Run) -> None:
    async def main() -> None:
        events = InvocationEvents()
        watch = events.subscribe(lambda event: True)
        assert watch is not None
        for number in range(QUEUE_DEPTH + 2):
            events.publish(InvocationEvent(EVENT, record(), number))
        assert await anext(watch) == InvocationEvent(LOST, None, 2)
        assert (await anext(watch)).data == 2
        watch.close()

    run(main)


def test_there_are_only_so_many_watchers_and_one_that_leaves_makes_room(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocations, "MAX_SUBSCRIBERS", 1)

    async def main() -> None:
        events = InvocationEvents()
        first = events.subscribe(lambda event: True)
        assert first is not None and events.subscribe(lambda event: True) is None
        first.close()
        assert events.subscribe(lambda event: True) is not None

    run(main)
