"""Pages of MCP servers: one is added with the operator token, approved on its own page, and removed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from plugbay.host.config import settings as settings_files
from plugbay.host.host import Host
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.settings import GatewaySettings
from tests.support.dashboards import text_of, visitor_of
from tests.support.gateways import gateway_at, make_key, make_org
from tests.support.loops import Run
from tests.support.mcp_servers import write_child
from tests.support.openings import FLAG


@asynccontextmanager
async def serving(url: str, folder: Path) -> AsyncIterator[Gateway]:
    host = Host([], state_dir=folder / "state", unconfined=True)
    settings = GatewaySettings(folder, config_file=folder / "plugbay.toml")
    async with gateway_at(url, folder, host=host, settings=settings) as gateway:
        yield gateway


def form(gateway: Gateway, place: Path, /, **more: str) -> dict[str, str]:
    command = shlex.join([sys.executable, FLAG, str(write_child(place))])
    token = operator_token(gateway.settings.data)[0]
    return {"name": "srv", "program": command, "token": token, **more}


def test_a_server_is_added_looked_at_approved_and_removed(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with serving(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            assert "plugbay mcp add" in (await visitor.get("/servers")).text
            added = await visitor.post("/servers", form(gateway, tmp_path, variables="LANGUAGE=en\n\nA_TOKEN=hidden-1"))
            assert (added.status_code, added.headers["location"]) == (303, "/plugins/srv")
            page = await visitor.get("/plugins/srv")
            assert "srv is added, and waits for your approval" in text_of(page)
            assert (await visitor.post("/plugins/srv:look")).status_code == 303
            look = gateway.operator_plugins.last_look("srv")
            assert look is not None and "Says it again." in (await visitor.get("/plugins/srv")).text
            assert (await visitor.post("/plugins/srv:approve", {"digest": look.digest})).status_code == 303
            listed = text_of(await visitor.get("/servers?search=SRV"))
            assert "srv approved 1 tool" in listed
            assert "Nothing found" in text_of(await visitor.get("/servers?search=other"))
            assert settings_files.load_secrets(tmp_path / "state", "srv") == {"A_TOKEN": "hidden-1"}
            asked = await visitor.post("/servers/srv:remove")
            assert "Remove srv?" in text_of(asked) and "srv" in gateway.host.specs
            assert (await visitor.post("/servers/srv:remove", {"confirm": "yes"})).headers["location"] == "/servers"
            assert "srv" not in gateway.host.specs
            assert (await visitor.post("/servers/srv:remove", {"confirm": "yes"})).status_code == 404

    run(main)


def test_a_url_with_a_missing_secret_leads_to_the_form_of_the_secret(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with serving(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            sent = form(gateway, tmp_path, name="hub", program="https://hub.example/mcp", headers="X-Key: secret://key")
            added = await visitor.post("/servers", sent)
            assert added.headers["location"] == "/settings?plugin=hub"
            assert "First set its secrets: key." in text_of(await visitor.get("/settings?plugin=hub"))

    run(main)


def test_a_session_without_the_operator_token_adds_nothing(sqlite_url: str, tmp_path: Path, run: Run) -> None:
    async def main() -> None:
        async with serving(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            await make_org(gateway)
            key = await make_key(gateway, "org_1")
            for token in ("", "wrong", key, "x" * 10_000):
                refused = await visitor.post("/servers", form(gateway, tmp_path, token=token))
                assert refused.status_code == 422 and "not the operator token" in text_of(refused)
            assert gateway.operator_servers.servers() == []
            assert (await visitor.post("/servers", form(gateway, tmp_path))).status_code == 303, "the control"
        async with serving(sqlite_url, tmp_path) as gateway, visitor_of(gateway, key) as other:
            assert (await other.get("/servers")).status_code == 403
            assert (await other.post("/servers", form(gateway, tmp_path))).status_code == 403

    run(main)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "a/b"}, "cannot be the name"),
        ({"program": ""}, "the command or URL is missing"),
        ({"program": 'a "b'}, "closing quotation"),
        ({"program": "/no/such/program"}, "/no/such/program"),
        ({"program": "http://hub.example/mcp"}, "must begin with https://"),
        ({"variables": "hidden-2"}, "is not K=V"),
        ({"variables": "\n".join(f"A{number}=1" for number in range(101))}, "at most 100"),
        ({"headers": "Accept: x"}, "is written by plugbay"),
        ({"folder": "/no/such/folder"}, "/no/such/folder"),
        ({"headers": "X-Region: x"}, "headers and oauth are for a url"),
    ],
)
def test_a_form_that_is_wrong_comes_back_with_the_reason(
    sqlite_url: str, tmp_path: Path, run: Run, wrong: dict[str, str], told: str
) -> None:
    async def main() -> None:
        async with serving(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
            sent = form(gateway, tmp_path, **wrong)
            refused = await visitor.post("/servers", sent)
            assert refused.status_code in (400, 422) and told in text_of(refused), text_of(refused)
            assert sent["token"] not in refused.text and gateway.operator_servers.servers() == []

    run(main)
