"""Several real gateways on one PostgreSQL, with what an operator mounts for all of them.

with cluster(tmp_path) as gateways:
    with gateways.start() as one, gateways.start() as other: …
"""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from plugbay.packages.trust import TrustStore
from tests.server.test_server import Served, served
from tests.support.databases import database
from tests.support.packaged import Publisher

LEASE_SECONDS = 3.0
"""Short, so that a dead gateway is found soon; long enough that a busy machine renews it in time."""


def made(answer: httpx2.Response, status: int = 201) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


class Cluster:
    """The database and the files of several gateways."""

    def __init__(self, folder: Path, url: str, more: str = "") -> None:
        self.folder = folder
        self.url = url
        self._count = 0
        self.token = "pb_sk_" + secrets.token_urlsafe(32)
        (folder / "mounted").mkdir()
        self.environ = {
            "PLUGBAY_OPERATOR_TOKEN_FILE": self._mount("operator.token", self.token),
            "PLUGBAY_SECRET_KEY_FILE": self._mount("secret.key", base64.b64encode(secrets.token_bytes(32)).decode()),
            "PLUGBAY_TRUST_FILE": str(folder / "mounted" / "trust.json"),
        }
        (folder / "plugbay.toml").write_text(more)
        self.publisher = Publisher(folder / "mounted", folder)
        assert TrustStore(folder / "mounted" / "trust.json").keys()

    def _mount(self, name: str, text: str) -> str:
        path = self.folder / "mounted" / name
        path.touch(0o600)
        path.write_text(text + "\n")
        return str(path)

    @contextmanager
    def start(self, *arguments: str) -> Iterator[Served]:
        """One more gateway, with a data folder of its own."""
        self._count += 1
        before = {name: os.environ.get(name) for name in self.environ}
        os.environ.update(self.environ)
        try:
            words = ("--no-sandbox", "--database", self.url, "--data", str(self.folder / f"data-{self._count}"))
            starting = served(self.folder, *words, *arguments)
            gateway = starting.__enter__()
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name)
                else:
                    os.environ[name] = value
        try:
            yield gateway
        finally:
            starting.__exit__(None, None, None)

    def bring(self, client: httpx2.Client, body: str, exports: list[dict[str, Any]] | None = None) -> list[str]:
        """Upload a package, make the org `acme`, and bind all exports; the ids of the bindings."""
        packed = self.publisher.pack(body, exports)
        headers = {
            "content-type": "application/vnd.vai.plugin.package.v1.tar+gzip",
            **self.publisher.header(packed),
        }
        made(client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers))
        made(client.post("/v1/orgs", json={"id": "acme", "name": "Acme"}))
        draft = {"package_id": "acme/p", "package_version": "1.0.0", "scope": {"org_id": "acme"}}
        ids = [each["id"] for each in exports or [{"id": "t"}]]
        return [made(client.post("/v1/plugin-bindings", json={**draft, "export_id": id}))["binding_id"] for id in ids]


def config(more: str = "", lease_seconds: float = LEASE_SECONDS) -> str:
    """A plugbay.toml of a gateway."""
    return f"[cluster]\nlease_seconds = {lease_seconds}\n{more}"


@contextmanager
def cluster(folder: Path, more: str | None = None) -> Iterator[Cluster]:
    """A fresh, migrated PostgreSQL for several gateways; `more` replaces the plugbay.toml."""
    with database("postgresql", folder) as url:
        yield Cluster(folder, url, config() if more is None else more)
