"""Who reads which log of a package."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plugbay.host.admin.logs import LogLine
from plugbay.server.domain import package_logs
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.secrets import SecretScope
from tests.server.domain.test_invocations import work
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.packaged import Publisher, bind
from tests.support.patience import pauses
from tests.support.requirements import requirement
from tests.support.vai import export

SPEAKS = """
print("starting", file=sys.stderr, flush=True)

def tool(body, m):
    print("for", body["context"]["org_id"], "with", body["secrets"].get("key"), file=sys.stderr, flush=True)
    event(m, type="log", level="warn", message="low on " + body["secrets"].get("key", "tea"))
    succeed(m, output({}))
"""
EXPORTS = [export("t"), export("w", execution_class="worker")]


def key_of(org: str, project: str | None = None) -> Principal:
    return Principal("key", org, project, role="viewer", key_id="key_1")


async def lines(gateway: Gateway, caller: Principal, id: str, org: str | None = None, least: int = 1) -> list[LogLine]:
    log = await gateway.package_logs.open(caller, id, org)
    for pause in pauses():  # stderr is read beside the answer
        found = (await log.tail(100)).lines
        if len(found) >= least:
            break
        await asyncio.sleep(pause)
    return found


@requirement("vai:control-package-logs")
def test_an_org_reads_what_the_processes_of_a_package_wrote_for_it_and_nothing_else(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await make_org(gateway, "org_2", "proj_2")
            publisher = Publisher(tmp_path, tmp_path)
            package = await publisher.bring(gateway, SPEAKS, EXPORTS)
            own = await publisher.bring(
                gateway, SPEAKS, caller=Principal("key", "org_1", role="admin"), package="acme/o"
            )
            for org, project in (("org_1", "proj_1"), ("org_2", "proj_2")):
                for name in ("t", "w"):
                    await bind(gateway, package, name, org_id=org, project_id=project)
                    request = work(name=name, org_id=org, project_id=project)
                    (await gateway.invocations.invoke(request)).value_or_raise()
            for org, other in (("org_1", "org_2"), ("org_2", "org_1")):
                found = await lines(gateway, key_of(org), package.id, least=6)
                texts = [line.text for line in found]
                assert sum(text.endswith("starting") for text in texts) == 2, texts
                assert sum(f"for {org} " in text for text in texts) == 2 and other not in " ".join(texts)
                assert [line.text for line in found if (line.source, line.level) == ("plugin", "warn")] == [
                    "low on tea"
                ] * 2
                assert await lines(gateway, OPERATOR, package.id, org) == found
            everything = " ".join(line.text for line in await lines(gateway, OPERATOR, package.id))
            assert "for org_1" in everything and "for org_2" in everything
            opened = gateway.package_logs.open
            assert await code_of(opened(key_of("org_2"), package.id, "org_1")) == "org.not_found"
            assert await code_of(opened(key_of("org_2"), own.id)) == "package.not_found"
            assert await code_of(opened(key_of("org_1"), "pkg_nobodys")) == "package.not_found"
            assert await code_of(opened(key_of("org_1", "proj_1"), package.id)) == "auth.role_denied"

    run(main)


@requirement("vai:control-package-logs")
def test_secrets_are_not_in_a_log_and_a_package_that_does_not_start_leaves_its_last_lines(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            await gateway.secrets.put(OPERATOR, SecretScope("org_1"), "key", "hush-hush-1")
            publisher = Publisher(tmp_path, tmp_path)
            slots: dict[str, Any] = {"secret_slots": ["key"]}
            package = await publisher.bring(gateway, SPEAKS, [export(permissions=slots)])
            broken = await publisher.bring(gateway, "raise ValueError('no tea')", package="acme/broken")
            await bind(gateway, package, secrets={"key": "secret://org_1/key"})
            binding = await bind(gateway, broken)
            (await gateway.invocations.invoke(work(name="acme/p/t"))).value_or_raise()
            texts = [line.text for line in await lines(gateway, key_of("org_1"), package.id, least=3)]
            assert any(text.endswith("with ***") for text in texts) and "low on ***" in texts
            assert "hush" not in " ".join(texts)
            assert (await gateway.invocations.invoke(work(binding_id=binding.id))).failure is not None
            assert "no tea" in " ".join(line.text for line in await lines(gateway, key_of("org_1"), broken.id))

    run(main)


def test_only_so_many_logs_are_followed_at_once(
    sqlite_url: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_logs, "MAX_FOLLOWERS", 1)

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path) as gateway:
            await make_org(gateway)
            package = await Publisher(tmp_path, tmp_path).bring(gateway)
            logs = gateway.package_logs
            log = await logs.open(key_of("org_1"), package.id)
            past = await log.tail(0)
            first = logs.follow(log, past)
            reading = asyncio.ensure_future(anext(first))
            await asyncio.sleep(0)
            with pytest.raises(GatewayError) as refused:
                logs.follow(log, past)
            assert (refused.value.code, refused.value.status) == ("quota.too_many_watchers", 503)
            logs.written.write("org_1", package.package_id, ["tea"])
            assert (await reading).text == "[start] tea"
            await first.aclose()
            logs.follow(log, past)

    run(main)
