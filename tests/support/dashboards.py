"""A gateway with plugins of its own, and a browser without a screen: it keeps cookies and sends forms.

async with hosting_at(sqlite_url, tmp_path) as gateway, visitor_of(gateway) as visitor:
    page = await visitor.get("/plugins/p")
    done = await visitor.post("/plugins/p:stop")
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
from fastapi import FastAPI

from plugbay.host.host import Host
from plugbay.server.app import create_app
from plugbay.server.dashboard.authentication import Dashboard, Session
from plugbay.server.domain.clock import Clock
from plugbay.server.domain.credentials import operator_token
from plugbay.server.domain.gateway import Gateway
from plugbay.server.domain.meters import Meters
from plugbay.server.domain.operator_plugins import CallHistory
from plugbay.server.domain.settings import GatewaySettings
from plugbay.store.database import Database

ORIGIN = "http://127.0.0.1"

PATIENT = """\
[plugins.%s.timeouts]
launch = 20
handshake = 20
call = 20
teardown = 20
"""
"""On a busy machine, a plugin may take longer to leave than the 500 ms after which its answer does not count."""


@asynccontextmanager
async def hosting_at(url: str, folder: Path, *patient: str, clock: Clock | None = None) -> AsyncIterator[Gateway]:
    """A running gateway whose host has the plugins of `folder/plugins`; those that are named get all the time."""
    file = folder / "plugbay.toml"
    if patient:
        file.write_text("".join(PATIENT % f'"{plugin_id}"' for plugin_id in patient))
    (folder / "plugins").mkdir(exist_ok=True)
    database = await Database.open(url, migrate=False)
    calls = CallHistory(database, Meters())
    config = file if file.exists() else None
    try:
        async with Host.load(folder / "plugins", config=config, call_log=calls, log_dir=folder / "logs") as host:
            settings = GatewaySettings(folder, config_file=file, log_dir=folder / "logs")
            gateway = Gateway(database, host, settings, clock, calls=calls)
            try:
                await gateway.start()
                yield gateway
            finally:
                await gateway.stop()
    finally:
        await database.close()


class Visitor:
    """Somebody with a browser."""

    def __init__(self, app: FastAPI, client: httpx2.AsyncClient) -> None:
        self.app = app
        self.client = client

    @property
    def dashboard(self) -> Dashboard:
        dashboard = self.app.state.dashboard
        assert isinstance(dashboard, Dashboard)
        return dashboard

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.client.get(path, headers=headers)

    async def post(self, path: str, form: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        """Send a form as a page of the server does, with the key that is in every form of the session."""
        filled = {"form_key": self.form_key, **(form or {})}
        return await self.client.post(path, data=filled, headers={"origin": ORIGIN, **headers})

    @property
    def session(self) -> Session | None:
        """That of the browser, if there is one."""
        return self.dashboard.sessions.find(next(iter(self.client.cookies.values()), ""))

    @property
    def form_key(self) -> str:
        """That of the session, if there is one."""
        return "" if self.session is None else self.session.form_key

    async def log_in(self, token: str) -> httpx2.Response:
        return await self.get(await self.dashboard.link("", token))


@asynccontextmanager
async def stranger_to(gateway: Gateway) -> AsyncIterator[Visitor]:
    """Somebody who has not logged in."""
    app = create_app(gateway)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN) as client:
        yield Visitor(app, client)


@asynccontextmanager
async def visitor_of(gateway: Gateway, token: str | None = None) -> AsyncIterator[Visitor]:
    """Somebody who has logged in with this token, or with the operator's."""
    async with stranger_to(gateway) as visitor:
        done = await visitor.log_in(token or operator_token(gateway.settings.data)[0])
        assert done.status_code == 303, done.text
        yield visitor


def text_of(page: httpx2.Response) -> str:
    """What a person reads on a page: no tags, no entities, one space between words."""
    body = page.text.partition("<main")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body.partition(">")[2])).split())
