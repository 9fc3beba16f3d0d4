"""A server whose pages all have something to show: plugins in every state, calls, failures, an org with bindings.

with showcase(folder) as shown:
    shown.server.client().get(shown.pages["plugin"])
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from plugbay.cli.gateway.commands import ARCHIVE
from tests.server.test_server import Served, served
from tests.support.dashboards import PATIENT
from tests.support.nexo import write_nexo_plugin
from tests.support.packaged import Publisher
from tests.support.patience import until_blocking
from tests.support.plugins import write_plugin
from tests.support.vai import export

EXAMPLES = Path(__file__).parents[2] / "examples"
COPIED = ("greeter", "tea-shop", "number-stats", "usage-burndown", "usage-publisher", "window-compactor")
"""Examples that the server has."""

FLAKY = """
import sys
print("cannot open /var/lib/flaky/index: no such file", file=sys.stderr, flush=True)
sys.exit(3)
"""

TOOL = """
def tool(body, m):
    order = body["input"].get("order", 0)
    if order < 0:
        end(m, "failed", "shop.no_such_order", "there is no order %d" % order)
    else:
        succeed(m, output({"order": order, "status": "sent"}))
"""


PAGES = {
    "overview": "/",
    "plugins": "/plugins",
    "plugin": "/plugins/example.greeter",
    "quarantined-plugin": "/plugins/flaky",
    "pending-plugin": "/plugins/weather",
    "export": "/export?export=example.greeter/greet",
    "calls": "/calls",
    "call": "/calls/{call}",
    "events": "/events",
    "orgs": "/orgs",
    "org": "/orgs/acme",
    "keys": "/keys",
    "key": "/keys/{key}",
    "packages": "/packages",
    "package": "/packages/{package}",
    "bindings": "/bindings",
    "binding-exports": "/bindings/new",
    "binding-new": "/bindings/new?package={package}&export=orders&org=acme",
    "binding": "/bindings/{binding}",
}
"""Paths of the pages, by the names of their pictures; ids in braces are known at run time."""


@dataclass(frozen=True)
class Showcase:
    """The server, and the paths of its pages by name."""

    server: Served
    pages: dict[str, str]


@contextmanager
def showcase(folder: Path) -> Iterator[Showcase]:
    plugins = folder / "plugins"
    for name in COPIED:
        shutil.copytree(EXAMPLES / name, plugins / name)
    write_nexo_plugin(plugins, "flaky", FLAKY, tools=["t"])
    write_plugin(plugins, "weather", capabilities=["net:api.weather.example"], description="The weather of a place.")
    (plugins / "half").mkdir()
    (plugins / "half/rterm-plugin.json").write_text('{"plugin_id": "half"}')
    (folder / "plugbay.toml").write_text("".join(PATIENT % f'"{name}"' for name in ("weather",)))
    with served(folder, "plugins") as server, server.client() as client:
        yield Showcase(server, _fill(server, client, folder))


def _fill(server: Served, client: httpx2.Client, folder: Path) -> dict[str, str]:
    """Make plugins and tenants do things; the paths of the pages that show them."""
    for plugin in client.get("/api/v1/plugins").json()["plugins"]:
        if plugin["id"] != "weather" and plugin["missing"]:
            _post(client, f"/api/v1/plugins/{plugin['id']}:grant", {"capabilities": plugin["missing"]})
    for given in ({"name": "Ada"}, {"name": "Grace", "excited": True}, {"name": 7}):
        _post(client, "/api/v1/calls", {"export": "example.greeter/greet", "input": given})
    _post(client, "/api/v1/calls", {"export": "example.greeter/divide", "input": {"dividend": 1, "divisor": 0}})
    while client.get("/api/v1/plugins/flaky").json()["state"] != "quarantined":
        _post(client, "/api/v1/calls", {"export": "flaky/flaky_t"})
    _post(client, "/v1/orgs", {"id": "acme", "name": "Acme Tea"})
    _post(client, "/v1/orgs/acme/projects", {"id": "shop", "name": "Web shop"})
    key = _post(client, "/v1/api-keys", {"org_id": "acme", "name": "deploys", "role": "operator"})["id"]
    publisher = Publisher(Path(server.facts["data"]), folder)
    packed = publisher.pack(TOOL, [export("orders")], version="1.2.0")
    headers = {"content-type": ARCHIVE, **publisher.header(packed)}
    added = client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
    assert added.is_success, added.text
    named = {"package_id": "acme/p", "package_version": "1.2.0", "export_id": "orders"}
    scope = {"org_id": "acme", "project_id": "shop"}
    binding = _post(client, "/v1/plugin-bindings", {**named, "scope": scope})["binding_id"]
    for order in (17, 18, -1):
        _post(client, "/v1/plugin-invocations", {"binding_id": binding, "input": {"order": order}})
    until_blocking(lambda: len(client.get("/api/v1/calls").json()["items"]) >= 4)
    call = client.get("/api/v1/calls").json()["items"][0]["call_id"]
    ids = {"call": call, "key": key, "package": added.json()["id"], "binding": binding}
    return {name: path.format(**ids) for name, path in PAGES.items()}


def _post(client: httpx2.Client, path: str, body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.is_success, response.text
    return response.json()
