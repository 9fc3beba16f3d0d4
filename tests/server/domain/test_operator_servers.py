"""MCP servers of a running server: declared, looked at, approved, called and removed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from plugbay.host.admin.servers import ServerEntry, save_secrets
from plugbay.host.config import settings as settings_files
from plugbay.host.host import Host
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Principal
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.pages import Page
from tests.support.gateways import code_of, gateway_at, make_org
from tests.support.loops import Run
from tests.support.mcp_servers import write_child
from tests.support.openings import FLAG
from tests.support.plugins import write_plugin

ENV = "def tools_call(m):\n    import os\n    reply(m, **text(os.environ.get('API_TOKEN', '')))\n"


def host_at(tmp_path: Path) -> Host:
    (tmp_path / "plugins").mkdir(exist_ok=True)
    return Host.load(tmp_path / "plugins", state_dir=tmp_path / "state", unconfined=True)


def settings(tmp_path: Path) -> GatewaySettings:
    return GatewaySettings(tmp_path, config_file=tmp_path / "plugbay.toml")


def server(tmp_path: Path, name: str = "srv", body: str = "") -> ServerEntry:
    return ServerEntry(name, [sys.executable, FLAG, str(write_child(tmp_path, body, name))])


async def audited(gateway: Gateway) -> str:
    return json.dumps([[entry.action, entry.details] for entry in (await gateway.audit.page(OPERATOR, Page())).items])


def test_a_server_is_declared_approved_called_and_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = host_at(tmp_path)
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            servers, plugins = gateway.operator_servers, gateway.operator_plugins
            assert servers.servers() == []
            entry = server(tmp_path, body=ENV)
            entry.add_variable("API_TOKEN", "hidden-value")
            assert await servers.declare(OPERATOR, entry) == []
            (listed,) = servers.servers()
            assert (listed["name"], listed["state"], listed["declared"]) == ("srv", "pending", True)
            assert (await host.attempt("srv/echo", {})).failure is not None
            seen = await plugins.look(OPERATOR, "srv")
            await plugins.approve(OPERATOR, "srv", seen.digest)
            assert (await host.call("srv/echo", {}))["content"][0]["text"] == "hidden-value"
            (listed,) = servers.servers()
            assert (listed["state"], listed["offers"]) == ("approved", "1 tool")
            text = (tmp_path / "plugbay.toml").read_text()
            assert "[mcp.srv]" in text and "secret://API_TOKEN" in text and "hidden-value" not in text
            await servers.remove(OPERATOR, "srv")
            assert servers.servers() == [] and "[mcp.srv]" not in (tmp_path / "plugbay.toml").read_text()
            assert settings_files.load_secrets(tmp_path / "state", "srv") == {}
            assert await code_of(servers.remove(OPERATOR, "srv")) == "server.not_found"
            await servers.declare(OPERATOR, server(tmp_path))
            assert servers.servers()[0]["state"] == "pending", "a removed approval does not come back"
            told = await audited(gateway)
            assert "server.declare" in told and "server.remove" in told and "hidden-value" not in told

    run(main)


def test_a_server_that_refers_to_a_secret_says_which_is_missing(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host = host_at(tmp_path)
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            entry = ServerEntry("hub", url="https://hub.example/mcp", headers={"X-Key": "secret://key"})
            assert await gateway.operator_servers.declare(OPERATOR, entry) == ["key"]
            save_secrets(tmp_path / "state", "hub", {"key": "1"})
            assert gateway.operator_servers.servers()[0]["program"] == "https://hub.example/mcp"

    run(main)


def test_a_server_that_could_not_be_hosted_is_refused_and_nothing_is_written(
    sqlite_url: str, tmp_path: Path, run: Run
) -> None:
    write_plugin(tmp_path / "plugins", "p")
    refused = [
        (ServerEntry("a/b", ["/bin/true"]), "server.invalid"),
        (ServerEntry("p", ["/bin/true"]), "server.exists"),
        (ServerEntry("x"), "server.invalid"),
        (ServerEntry("x", ["/no/such/program"]), "server.invalid"),
        (ServerEntry("x", ["/bin/true"], cwd="/no/such/folder"), "server.invalid"),
        (ServerEntry("x", ["/bin/true"], headers={"A": "b"}), "server.invalid"),
        (ServerEntry("x", url="https://x.example", env={"A": "b"}), "server.invalid"),
        (ServerEntry("x", url="https://x.example", headers={"A": "b\nc: d"}), "server.invalid"),
        (ServerEntry("x", ["/bin/true"], env={"A=B": "c"}), "server.invalid"),
    ]

    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=host_at(tmp_path), settings=settings(tmp_path)) as gateway:
            servers = gateway.operator_servers
            for entry, code in refused:
                assert await code_of(servers.declare(OPERATOR, entry)) == code, entry
            assert not (tmp_path / "plugbay.toml").exists() and servers.servers() == []
            await servers.declare(OPERATOR, server(tmp_path, "x"))
            assert await code_of(servers.declare(OPERATOR, server(tmp_path, "x"))) == "server.exists"

    run(main)


def test_of_two_servers_with_one_name_the_second_is_refused(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        host, state = host_at(tmp_path), tmp_path / "state"
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            first, second = server(tmp_path), server(tmp_path)
            first.add_variable("API_TOKEN", "of the first")
            second.add_variable("API_TOKEN", "of the second")
            declare = gateway.operator_servers.declare
            done, refused = await asyncio.gather(
                declare(OPERATOR, first), declare(OPERATOR, second), return_exceptions=True
            )
            assert done == [] and isinstance(refused, GatewayError) and refused.code == "server.exists"
            assert settings_files.load_secrets(state, "srv") == {"API_TOKEN": "of the first"}
            by_command = server(tmp_path, "cmd")
            by_command.add_variable("API_TOKEN", "unused")
            file = tmp_path / "plugbay.toml"
            file.write_text(file.read_text() + '[mcp.cmd]\ncommand = ["true"]\n')
            assert await code_of(declare(OPERATOR, by_command)) == "server.exists"
            assert 'command = ["true"]' in file.read_text(), "not replaced"
            assert settings_files.load_secrets(state, "cmd") == {}

    run(main)


def test_a_declaration_that_cannot_be_written_leaves_no_secret(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=host_at(tmp_path), settings=settings(tmp_path)) as gateway:
            (tmp_path / "plugbay.toml").write_text("nonsense = 1\n")
            entry = server(tmp_path)
            entry.add_variable("API_TOKEN", "hidden-value")
            assert await code_of(gateway.operator_servers.declare(OPERATOR, entry)) == "plugin.config_invalid"
            assert settings_files.load_secrets(tmp_path / "state", "srv") == {}
            (tmp_path / "plugbay.toml").write_text("")
            assert await gateway.operator_servers.declare(OPERATOR, entry) == []
            assert settings_files.load_secrets(tmp_path / "state", "srv") == {"API_TOKEN": "hidden-value"}

    run(main)


def test_only_the_operator_of_all_orgs_changes_servers(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with gateway_at(sqlite_url, tmp_path, host=host_at(tmp_path), settings=settings(tmp_path)) as gateway:
            await make_org(gateway)
            admin = Principal("key", "org_1", None, role="admin", key_id="key_1")
            servers = gateway.operator_servers
            assert await code_of(servers.declare(admin, server(tmp_path))) == "auth.role_denied"
            assert await code_of(servers.remove(admin, "srv")) == "auth.role_denied"

    run(main)


@pytest.mark.parametrize("missing", ["state", "file"])
def test_without_a_place_to_keep_it_no_server_is_declared(
    sqlite_url: str, tmp_path: Path, run: Run, missing: str
) -> None:
    async def main() -> None:
        host = Host([]) if missing == "state" else host_at(tmp_path)
        kept = settings(tmp_path) if missing == "state" else GatewaySettings(tmp_path)
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=kept) as gateway:
            assert await code_of(gateway.operator_servers.declare(OPERATOR, server(tmp_path))) == "plugin.no_config"

    run(main)


def test_a_declaration_that_is_broken_is_listed_and_can_be_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    wrong = '[mcp.gone]\ncommand = ["/no/such/program"]\n[mcp.old]\nurl = "http://old.example"\n'
    (tmp_path / "plugbay.toml").write_text(wrong)

    async def main() -> None:
        host = host_at(tmp_path)
        async with gateway_at(sqlite_url, tmp_path, host=host, settings=settings(tmp_path)) as gateway:
            await gateway.operator_config.reload()
            gone, old = gateway.operator_servers.servers()
            assert gone["state"] == "pending" and "/no/such/program" in gone["problem"] and gone["declared"]
            assert old["state"] == "invalid" and "https://" in old["problem"] and old["declared"]
            for name in ("gone", "old"):
                await gateway.operator_servers.remove(OPERATOR, name)
            assert gateway.operator_servers.servers() == []

    run(main)
