"""The gateway starts, reports its state, and stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plugbay.host.confinement.reach import Reach
from plugbay.host.host import Host
from plugbay.host.request import CallRequest
from plugbay.model.errors import Code, Failure, Origin
from plugbay.server.domain import deliveries
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.principal import OPERATOR
from plugbay.store.pages import Page
from tests.support.conversing import CALLER, ScriptedWorkers, conversing, settled, stuck
from tests.support.gateways import code_of, gateway_at
from tests.support.loops import Run
from tests.support.patience import until


def test_a_gateway_starts_again_where_it_was(database_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(database_url, tmp_path) as gateway:
            token = gateway.made_operator_token
            assert token is not None
            await gateway.orgs.create(OPERATOR, "Acme", {}, "org_1")
            assert set((await gateway.checks()).values()) == {"ok"}
            assert "calls" in gateway.tasks.names
        async with gateway_at(database_url, tmp_path) as again:
            assert again.made_operator_token is None, "it is told once"
            assert await again.authenticate(token) == OPERATOR
            assert (await again.orgs.get(OPERATOR, "org_1")).name == "Acme"
            assert await code_of(again.authenticate("vai_dlg_made_up")) == "auth.key_unknown"
        assert again.tasks.names == ()

    run(main)


def test_failed_checks_are_named(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = Host([])
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            await host.stop()
            assert (await gateway.checks())["host"] == "not running"

    run(main)


def test_all_of_a_gateway_is_stopped_though_a_part_of_it_fails(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        stopped = []

        class Part:
            def __init__(self, name: str) -> None:
                self.name = name

            async def start(self) -> None: ...

            async def stop(self) -> None:
                stopped.append(self.name)
                if self.name == "second":
                    raise KeyError("a bug")

        with pytest.raises(KeyError):
            async with gateway_at(sqlite_url, tmp_path) as gateway:
                gateway._areas[:] = [Part("first"), *gateway._areas, Part("second"), Part("third")]
        assert stopped == ["third", "second", "first"]
        with pytest.raises(GatewayError, match="is stopping"):
            async with gateway.runner.host(None, Reach()):  # type: ignore[arg-type]
                raise AssertionError("the runner was not stopped")

    run(main)


def test_a_stopped_area_can_be_followed_by_another_at_once(run: Run, sqlite_url: str) -> None:
    async def story() -> None:
        async with conversing(sqlite_url, stuck()) as talk:
            begun = await talk.begun("go")
            await until(lambda: bool(talk.server.seen))
        async with conversing(sqlite_url) as after:
            chain = await after.conversations.chains.get(CALLER, begun.chain_id)
            assert chain.status == "idle"
            assert (await after.answered("again", chain)).status == "completed"

    run(story)


def test_new_and_replayed_deliveries_wake_the_dispatcher(
    run: Run, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "LONGEST_WAIT", 3600.0)
    answers: list[Any] = [Failure(Code.PLUGIN_ERROR, "no", origin=Origin.PLUGIN), {"status": "ack"}]

    async def hook(work: CallRequest) -> Any:
        return answers.pop(0)

    async def story() -> None:
        workers = ScriptedWorkers()
        workers.bind("hook", "h", hook, subscribes_to=["run.completed"])
        async with conversing(sqlite_url, workers=workers) as talk:
            page = talk.conversations.deliveries.page
            await talk.answered("go")
            failed = await settled(lambda: page(CALLER, Page(), status="failed"), lambda part: bool(part.items))
            await talk.conversations.deliveries.replay(CALLER, failed.items[0].id)
            await settled(lambda: page(CALLER, Page(), status="delivered"), lambda part: bool(part.items))

    run(story)
