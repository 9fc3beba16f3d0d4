"""The operator's plugins: operations, logs, events and calls."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plugbay.host.host import Host
from plugbay.host.ports import CallRecord
from plugbay.model.errors import Code, ConfigInvalid, Failure
from plugbay.server.domain import operator_plugins as module
from plugbay.server.domain.background import Tasks
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_plugins import (
    KEPT_EVENTS,
    CallHistory,
    HostEvents,
    OperatorPlugins,
)
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database
from plugbay.store.failures import StoreUnavailable
from plugbay.store.pages import Page
from tests.store.test_calls import record
from tests.support.gateways import code_of, gateway_at
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.patience import until
from tests.support.plugins import write_plugin


def settings(tmp_path: Path) -> GatewaySettings:
    return GatewaySettings(tmp_path, config_file=tmp_path / "plugbay.toml")


def test_a_plugin_waits_for_its_grant_has_it_at_once_and_loses_it_again(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"])
    write_nexo_plugin(tmp_path / "plugins", "n", tools=["t"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            hosted = gateway.operator_plugins
            assert (await host.attempt("p/t", {})).failure is not None
            assert "not granted yet" in hosted.plugin("p")["refused"]
            granted = await hosted.grant(OPERATOR, "p", ["tool.execute"])
            assert (granted["granted"], granted["refused"]) == (["tool.execute"], None)
            assert await host.call("p/t", {"a": 1}) == {"a": 1}
            assert 'grants = ["tool.execute"]' in (tmp_path / "plugbay.toml").read_text()
            revoked = await hosted.revoke(OPERATOR, "p", ["tool.execute"])
            assert revoked["granted"] == []
            assert (await host.attempt("p/t", {})).failure is not None
            assert await code_of(hosted.revoke(OPERATOR, "p", ["tool.execute"])) == "plugin.not_granted"
            assert await code_of(hosted.grant(OPERATOR, "n", ["root"])) == "plugin.not_requested"
            assert await code_of(hosted.grant(OPERATOR, "q", ["root"])) == "plugin.not_found"
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page())).items]
            assert actions == ["plugin.revoke", "plugin.grant"]

    run(main)


def test_a_channel_carries_messages_as_soon_as_its_plugin_is_granted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    body = "def channel_send_outbound(m):\n    reply(m, {'message_id': '1', 'sent_at_unix': 1})"
    wants = '[plugin.requires]\nnexo_capabilities = ["memory.recall"]\n'
    write_nexo_plugin(tmp_path / "plugins", "p", body, extends={"channels": ["post"]}, channels=["post"], more=wants)

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            assert host.channels.kinds() == []
            await gateway.operator_plugins.grant(OPERATOR, "p", ["memory.recall"])
            assert (await host.channels["post"].send({"kind": "text", "to": "a", "body": "b"}))["message_id"] == "1"
            (tmp_path / "plugbay.toml").write_text("[plugins.p]\nenabled = false\n")
            await gateway.operator_config.reload()
            assert host.channels.kinds() == []
            assert gateway.operator_plugins.plugin("p")["pid"] is None, "what may not run is not started by a reload"
            assert await code_of(gateway.operator_plugins.operate(OPERATOR, "p", "restart")) == "plugin.not_started"

    run(main)


def test_a_plugin_that_is_stopped_stays_so_until_it_is_started(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            assert (await gateway.operator_plugins.operate(OPERATOR, "p", "stop"))["state"] == "stopped"
            assert (await host.attempt("p/t", {})).failure is not None
            for operation in ("start", "restart", "reload"):
                assert (await gateway.operator_plugins.operate(OPERATOR, "p", operation))["state"] == "idle"
                assert await host.call("p/t", {}) == {}
            assert [export["name"] for export in gateway.operator_plugins.exports()] == ["p/t"]
            assert [export["name"] for export in gateway.operator_plugins.plugin("p")["exports"]] == ["t"]
            assert [plugin["id"] for plugin in gateway.operator_plugins.plugins()] == ["p"]
            assert await code_of(gateway.operator_plugins.grant(OPERATOR, "p", [])) == "plugin.no_config"

    run(main)


def test_another_plugbay_toml_reaches_the_plugins_it_is_about(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")
    write_plugin(tmp_path / "plugins", "q")
    config = tmp_path / "plugbay.toml"

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            hosted: OperatorPlugins = gateway.operator_plugins
            assert (await gateway.operator_config.reload()).plugins == ()
            config.write_text('[host]\nlog_level = "debug"\n[plugins.p]\nenabled = false\n')
            applied = await gateway.operator_config.reload()
            assert (applied.plugins, applied.restart) == (("p",), ("host", "project"))
            assert (await host.attempt("p/t", {})).failure is not None
            assert await host.call("q/t", {}) == {}
            config.write_text("[plugins.p]\nenabeld = false\n")
            try:
                await gateway.operator_config.reload()
            except ConfigInvalid:
                pass
            else:
                raise AssertionError("a typo must not pass")
            assert hosted.plugin("p")["refused"] == "the operator has disabled this plugin"
            assert await code_of(hosted.grant(OPERATOR, "p", [])) == "plugin.config_invalid"

    run(main)


def test_a_client_resumes_after_the_last_event_it_saw(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            following = events.follow("shop.>")
            first = asyncio.ensure_future(anext(following))
            await asyncio.sleep(0)
            for number in range(3):
                host.publish("other.topic", {"n": number})
                host.publish("shop.sold", {"n": number})
            seen = await first
            assert (seen.topic, seen.data["payload"]) == ("shop.sold", {"n": 0})
            assert (await anext(following)).data["payload"] == {"n": 1}
            later = events.follow("shop.>", after=seen.id)
            assert [(await anext(later)).data["payload"]["n"] for _ in range(2)] == [1, 2]
            for lost in ("another-start-1", "nonsense"):
                whole = events.follow("shop.>", after=lost)
                assert (await anext(whole)).data["payload"] == {"n": 0}
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_only_the_last_events_are_kept(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            for number in range(KEPT_EVENTS + 10):
                host.publish("a.b", number)
            await until(lambda: events._count == KEPT_EVENTS + 10)
            whole = events.follow(after="too-old")
            assert (await anext(whole)).data["payload"] == 10
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_kept_events_can_be_read_at_once(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            assert events.recent() == []
            for topic in ("shop.sold", "other.topic", "shop.lost"):
                host.publish(topic, {})
            await until(lambda: events._count == 3)
            first, last = events.recent("shop.>")
            assert (first.topic, last.topic) == ("shop.sold", "shop.lost")
            assert events.recent("shop.>", first.id) == [last] and events.recent(after=last.id) == []
            assert len(events.recent(after="another-start-1")) == 3
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_the_last_lifecycle_event_of_each_plugin_is_known_and_cannot_be_forged(run: Run) -> None:
    async def main() -> None:
        async with Host([]) as host:
            events = HostEvents(host)
            running = asyncio.ensure_future(events.run())
            await until(lambda: host._backends.services.bus._made > 0)
            for word in ("started", "crashed"):
                host.publish(f"plugin.lifecycle.a.b.{word}", {"plugin_id": "a.b"}, source="plugin.supervisor")
            host.publish("plugin.lifecycle.a.b.started", {"plugin_id": "a.b"}, source="a.b")
            await until(lambda: events._count == 3)
            assert {id: event.topic for id, event in events.lifecycle.items()} == {
                "a.b": "plugin.lifecycle.a.b.crashed"
            }
            running.cancel()
            await asyncio.wait({running})

    run(main)


def test_calls_are_written_in_the_background_and_survive_a_restart(database_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(database_url, migrate=False)
        history, tasks = CallHistory(database, Meters(), pause=0.001), Tasks()
        tasks.start("calls", history.run)
        for number in range(3):
            history.finished(record(number))
        while len((await history.page(Page())).items) < 3:
            pass  # `run` has a limit of its own
        await tasks.stop()
        await database.close()
        again = await Database.open(database_url, migrate=False)
        assert len((await CallHistory(again, Meters()).page(Page(), plugin="p")).items) == 3
        await again.close()

    run(main)


def test_calls_are_counted_by_plugin_export_and_outcome(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1))
        history.finished(record(2, Failure(Code.TIMEOUT, "late")))
        history.finished(CallRecord("call_3", "", "", "", "made up by a caller", 1.0, 1.0, Failure(Code.NOT_FOUND, "")))
        counted = {tuple(value for _, value in labels) for labels in history.meters.counters["calls"]}
        assert counted == {
            ("none", "t", "p", "succeeded"),
            ("timeout", "t", "p", "failed"),
            ("not_found", "none", "none", "failed"),
        }
        assert list(history.last_failures) == ["p"] and history.last_failures["p"].call_id == "call_2"
        assert sum(history.meters.histograms["call_seconds"][(("export", "t"), ("plugin", "p"))].counts) == 2
        await database.close()

    run(main)


def test_excess_records_are_dropped_and_counted_and_the_oldest_are_deleted(
    sqlite_url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters(), kept=3)
        for number in range(7):
            history.finished(record(number))
        assert history.lost == 2
        await history.flush()
        assert [call.id for call in (await history.page(Page())).items] == ["call_6", "call_5", "call_4"]
        await database.close()

    monkeypatch.setattr(module, "MAX_WAITING", 5)
    run(main)


def test_records_wait_while_the_database_is_unavailable(tmp_path: Path, sqlite_url: str, run: Run) -> None:
    class Closed(Database):
        def transaction(self) -> object:  # type: ignore[override]
            raise StoreUnavailable("locked")

    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1))
        history._database = Closed(database._engine)
        with pytest.raises(StoreUnavailable):
            await history.flush()
        history._database = database
        await history.flush()
        assert len((await history.page(Page())).items) == 1
        await database.close()

    run(main)


def test_one_call_can_be_had_by_its_id(sqlite_url: str, run: Run) -> None:
    async def main() -> None:
        database = await Database.open(sqlite_url, migrate=False)
        history = CallHistory(database, Meters())
        history.finished(record(1, Failure(Code.TIMEOUT, "late")))
        with pytest.raises(GatewayError, match=r"call\.not_found"):
            await history.get("call_2")
        waiting = await history.get("call_1")
        flushing = asyncio.ensure_future(history.flush())
        while not flushing.done():
            assert await history.get("call_1") == waiting, "wherever it is on its way"
            await asyncio.sleep(0)
        assert await history.get("call_1") == waiting and not history._writing
        await database.close()

    run(main)
