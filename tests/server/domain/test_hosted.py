"""The host's own plugins, as their operator handles them."""

from __future__ import annotations

from pathlib import Path

from plugbay.host.host import Host
from plugbay.model.errors import ConfigInvalid
from plugbay.server.domain.hosted import Hosted
from plugbay.server.domain.principal import OPERATOR
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.pages import Page
from tests.server.domain.test_orgs import code_of
from tests.support.gateways import gateway_at
from tests.support.loops import Run
from tests.support.nexo import write_nexo_plugin
from tests.support.plugins import write_plugin


def settings(tmp_path: Path) -> GatewaySettings:
    return GatewaySettings(tmp_path, config_file=tmp_path / "plugbay.toml")


def test_a_plugin_waits_for_its_grant_has_it_at_once_and_loses_it_again(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_plugin(tmp_path / "plugins", "p", capabilities=["tool.execute"])

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            hosted = gateway.hosted
            assert (await host.attempt("p/t", {})).failure is not None
            assert "nobody has granted" in hosted.plugin("p")["refused"]
            granted = await hosted.grant(OPERATOR, "p", ["tool.execute"])
            assert (granted["granted"], granted["refused"]) == (["tool.execute"], None)
            assert await host.call("p/t", {"a": 1}) == {"a": 1}
            assert 'grants = ["tool.execute"]' in (tmp_path / "plugbay.toml").read_text()
            revoked = await hosted.revoke(OPERATOR, "p", ["tool.execute"])
            assert revoked["granted"] == []
            assert (await host.attempt("p/t", {})).failure is not None
            assert await code_of(hosted.revoke(OPERATOR, "p", ["tool.execute"])) == "plugin.not_granted"
            assert await code_of(hosted.grant(OPERATOR, "p", ["root"])) == "plugin.not_requested"
            assert await code_of(hosted.grant(OPERATOR, "q", ["root"])) == "plugin.not_found"
            actions = [entry.action for entry in (await gateway.audit.page(OPERATOR, Page())).items]
            assert actions == ["plugin.revoke", "plugin.grant"]

    run(main)


def test_a_channel_carries_messages_as_soon_as_its_plugin_is_granted(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    body = "def channel_send_outbound(m):\n    reply(m, {'message_id': '1', 'sent_at_unix': 1})"
    wants = '[plugin.requires]\nnexo_capabilities = ["mail"]\n'
    write_nexo_plugin(tmp_path / "plugins", "p", body, extends={"channels": ["post"]}, channels=["post"], more=wants)

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            assert host.channels.kinds() == []
            await gateway.hosted.grant(OPERATOR, "p", ["mail"])
            assert (await host.channels["post"].send({"kind": "text", "to": "a", "body": "b"}))["message_id"] == "1"
            (tmp_path / "plugbay.toml").write_text("[plugins.p]\nenabled = false\n")
            await gateway.hosted.reload_config()
            assert host.channels.kinds() == []
            assert gateway.hosted.plugin("p")["pid"] is None, "what may not run is not started by a reload"
            assert await code_of(gateway.hosted.operate(OPERATOR, "p", "restart")) == "plugin.not_started"

    run(main)


def test_a_plugin_that_is_stopped_stays_so_until_it_is_started(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host) as gateway:
            assert (await gateway.hosted.operate(OPERATOR, "p", "stop"))["state"] == "stopped"
            assert (await host.attempt("p/t", {})).failure is not None
            for operation in ("start", "restart", "reload"):
                assert (await gateway.hosted.operate(OPERATOR, "p", operation))["state"] == "idle"
                assert await host.call("p/t", {}) == {}
            assert [export["name"] for export in gateway.hosted.exports()] == ["p/t"]
            assert [export["name"] for export in gateway.hosted.plugin("p")["exports"]] == ["t"]
            assert [plugin["id"] for plugin in gateway.hosted.plugins()] == ["p"]
            assert await code_of(gateway.hosted.grant(OPERATOR, "p", [])) == "plugin.no_config"

    run(main)


def test_another_plugbay_toml_reaches_the_plugins_it_is_about(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    write_plugin(tmp_path / "plugins", "p")
    write_plugin(tmp_path / "plugins", "q")
    config = tmp_path / "plugbay.toml"

    async def main() -> None:
        host = Host.load(tmp_path / "plugins")
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            hosted: Hosted = gateway.hosted
            assert (await hosted.reload_config()).plugins == ()
            config.write_text('[host]\nlog_level = "debug"\n[plugins.p]\nenabled = false\n')
            applied = await hosted.reload_config()
            assert (applied.plugins, applied.restart) == (("p",), ("host", "project"))
            assert (await host.attempt("p/t", {})).failure is not None
            assert await host.call("q/t", {}) == {}
            config.write_text("[plugins.p]\nenabeld = false\n")
            try:
                await hosted.reload_config()
            except ConfigInvalid:
                pass
            else:
                raise AssertionError("a typo must not pass")
            assert hosted.plugin("p")["refused"] == "the operator has disabled this plugin"
            assert await code_of(hosted.grant(OPERATOR, "p", [])) == "plugin.config_invalid"

    run(main)
