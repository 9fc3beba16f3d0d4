"""A gateway for tests, and a client that asks it over HTTP without a socket.

async with gateway_at(sqlite_url, tmp_path) as gateway, client_of(gateway) as client:
    answer = await client.post("/v1/orgs", json={"name": "Acme"})
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.host.host import Host
from plugbay.server.app import create_app
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.errors import GatewayError
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.principal import OPERATOR, Role
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database
from tests.support.shared import shared


@asynccontextmanager
async def gateway_at(
    url: str,
    data: Path,
    *,
    clock: Clock | None = None,
    host: Host | None = None,
    settings: GatewaySettings | None = None,
) -> AsyncIterator[Gateway]:
    """A running gateway on a migrated database; its host has no plugins unless one is given."""
    database = await Database.open(url, migrate=False)
    try:
        host = host or Host([])
        gateway = Gateway(database, host, settings or GatewaySettings(data), clock)
        async with host:
            try:
                await gateway.start()
                yield gateway
            finally:
                await gateway.stop()
    finally:
        await database.close()


@asynccontextmanager
async def client_of(gateway: Gateway, token: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with this token, or with the operator's."""
    token = token or operator_token(gateway.settings.data)[0]
    transport = httpx2.ASGITransport(app=create_app(gateway))
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
        yield client


def openapi_of(gateway: Gateway) -> dict[str, Any]:
    """The OpenAPI document, which is the same for every gateway: to make it takes a second."""

    def make(path: Path) -> None:
        path.write_text(json.dumps(create_app(gateway).openapi()))

    document: dict[str, Any] = json.loads(shared("openapi.json", make).read_bytes())
    return document


async def make_org(gateway: Gateway, id: str = "org_1", project_id: str = "proj_1") -> None:
    """An org with one project."""
    await gateway.orgs.create(OPERATOR, "An org", {}, id)
    await gateway.orgs.create_project(OPERATOR, id, "A project", project_id)


async def make_key(gateway: Gateway, org_id: str, role: Role = "admin", project_id: str | None = None) -> str:
    """A key of an org."""
    _, key = await gateway.keys.create(OPERATOR, org_id, "a key", role, project_id)
    return key


async def code_of(work: Awaitable[object]) -> str:
    """The code of the error with which the gateway refuses this."""
    with pytest.raises(GatewayError) as raised:
        await work
    return raised.value.code
