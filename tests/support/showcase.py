"""A server whose pages all have something to show: plugins in every state, calls, failures, an org with bindings.

with showcase(folder) as shown:
    shown.server.client().get(shown.pages["plugin"])
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from plugbay.cli.gateway.commands import ARCHIVE
from plugbay.packages.archive import signature_path
from plugbay.packages.installer import Installer
from plugbay.packages.store import Store
from plugbay.packages.trust import TrustStore
from plugbay.server.domain.packages import TRUST_FILE
from tests.packages.builders import pack, sign
from tests.server.test_server import Served, served
from tests.support.mcp_servers import write_server
from tests.support.nexo import write_nexo_plugin
from tests.support.nodes import PASSWORD, cell
from tests.support.packaged import Publisher
from tests.support.patience import until_blocking
from tests.support.plugins import write_plugin
from tests.support.vai import export

EXAMPLES = Path(__file__).parents[2] / "examples"
COPIED = (
    "greeter",
    "tea-shop",
    "number-stats",
    "usage-burndown",
    "usage-publisher",
    "usage-report",
    "window-compactor",
)
"""Examples that the server has."""

FLAKY = """
import sys
print("cannot open /var/lib/flaky/index: no such file", file=sys.stderr, flush=True)
sys.exit(3)
"""

KETTLE = """
TOOLS[0] |= {"name": "boil", "description": "Boils water, and says how warm it is."}

def tools_call(m):
    token = m["params"]["_meta"]["progressToken"]
    for degrees in (20, 60, 80):
        notify("notifications/progress", progressToken=token, progress=degrees, total=100)
"""
"""An MCP server whose calls go on until they are cancelled."""

EXPORTS = {"orders": "tool", "audit": "hook", "shrink": "compactor", "drafts": "harness"}

SLOTS = {"orders": {"secret_slots": ["shop_token"]}}
"""Permissions of exports that use a secret."""

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
    "settings": "/settings?plugin=window-compactor",
    "log": "/logs?plugin=example.greeter",
    "wire": "/wire?plugin=usage-publisher",
    "screen": "/screen?name=usage-burndown/burndown",
    "command": "/command?name=usage-report/usage",
    "export": "/export?export=tea-shop/quote",
    "calls": "/calls",
    "call": "/calls/{call}",
    "events": "/events",
    "nodes": "/nodes",
    "install": "/install",
    "install-card": "/install/thread-weave",
    "installed": "/installed",
    "installed-plugin": "/installed/acme.forecast",
    "installed-look": "/installing/{look}",
    "servers": "/servers",
    "publishers": "/publishers",
    "orgs": "/orgs",
    "org": "/orgs/acme",
    "keys": "/keys",
    "key": "/keys/{key}",
    "packages": "/packages",
    "package": "/packages/{package}",
    "bindings": "/bindings",
    "binding-exports": "/bindings/new",
    "binding-new": "/bindings/new?package={package}&export=orders&org=acme",
    "binding": "/bindings/{orders}",
    "secrets": "/secrets",
    "secret": "/secrets/shop_token?org=acme",
    "invocations": "/invocations",
    "invocation": "/invocations/{invocation}",
    "deliveries": "/deliveries",
    "delivery": "/deliveries/{delivery}",
    "sessions": "/sessions",
    "session": "/sessions/{session}",
    "chain": "/chains/{chain}",
    "runs": "/runs",
    "run": "/runs/{run}",
    "harnesses": "/harnesses",
    "harness": "/harnesses/{execution}",
    "compactions": "/compactions",
    "compaction": "/compactions/{compaction}",
    "audit": "/audit?verify=1",
}
"""Paths of the pages, by the names of their pictures; ids in braces are known at run time."""

CLUSTER_PAGES = ("nodes", "invocations", "invocation")
"""Pages that show nodes when there are some."""

MODEL = """\
[llm.providers.local]
kind = "openai"
base_url = "http://127.0.0.1:9"
max_retries = 0
"""
"""A model without a server: runs fail, and their pages show the failure."""

SERVER = """\
[mcp.hub]
url = "https://mcp.example.com/mcp"
"""
"""An MCP server that waits for its approval."""

CLUSTER = """\
[cluster]
nats = ["{}"]
user = "gateway"
password_env = "CELL_PASSWORD"
registry = "oci://{}/plugbay"
"""


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
    write_server(plugins, "kettle", KETTLE)
    (plugins / "half").mkdir()
    (plugins / "half/rterm-plugin.json").write_text('{"plugin_id": "half"}')
    store = Store(folder / "store")
    store.create()
    (folder / "plugbay.toml").write_text(MODEL + SERVER)
    with served(folder, "plugins", "store/plugins") as server, server.client() as client:
        publisher = Publisher(Path(server.facts["data"]), folder)
        yield Showcase(server, _fill(server, client, folder, publisher))


@contextmanager
def cluster_showcase(folder: Path) -> Iterator[Showcase]:
    """A gateway whose packages run on two nodes, of which one is drained."""
    with ExitStack() as stack:
        made = stack.enter_context(cell(folder / "cell"))
        (folder / "plugbay.toml").write_text(MODEL + CLUSTER.format(made.nats.url, made.registry))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("CELL_PASSWORD", PASSWORD)
        server = stack.enter_context(served(folder))
        client = stack.enter_context(server.client())
        publisher = Publisher(Path(server.facts["data"]), folder)
        shutil.copy(Path(server.facts["data"]) / TRUST_FILE, made.trust)
        for name in ("n1", "n2"):
            stack.enter_context(made.process(name, sandbox=True))
        until_blocking(lambda: len(client.get("/api/v1/nodes").json()["nodes"]) == 2)
        ids = _use_control_plane(client, publisher)
        _post(client, "/api/v1/nodes/n2:drain", None)
        yield Showcase(server, {name: PAGES[name].format(**ids) for name in CLUSTER_PAGES})


def _fill(server: Served, client: httpx2.Client, folder: Path, publisher: Publisher) -> dict[str, str]:
    """Make plugins and tenants do things; the paths of the pages that show them."""
    for plugin in client.get("/api/v1/plugins").json()["plugins"]:
        if plugin["id"] != "weather" and plugin["missing"]:
            _post(client, f"/api/v1/plugins/{plugin['id']}:grant", {"capabilities": plugin["missing"]})
    seen = _post(client, "/api/v1/plugins/kettle:look", {})
    _post(client, "/api/v1/plugins/kettle:approve", {"digest": seen["digest"]})
    for given in ({"name": "Ada"}, {"name": "Grace", "excited": True}, {"name": 7}):
        _post(client, "/api/v1/calls", {"export": "example.greeter/greet", "input": given})
    _post(client, "/api/v1/calls", {"export": "example.greeter/divide", "input": {"dividend": 1, "divisor": 0}})
    while client.get("/api/v1/plugins/flaky").json()["state"] != "quarantined":
        _post(client, "/api/v1/calls", {"export": "flaky/flaky_t"})
    look = _install(server, client, folder, publisher)
    ids = {**_use_control_plane(client, publisher), "look": look}
    until_blocking(lambda: len(client.get("/api/v1/calls").json()["items"]) >= 4)
    ids["call"] = client.get("/api/v1/calls").json()["items"][0]["call_id"]
    return {name: path.format(**ids) for name, path in PAGES.items()}


FORECAST = "acme.forecast"

RELEASES: dict[str, dict[str, Any]] = {
    "1.0.0": {"capabilities": ["net:api.weather.example"]},
    "1.1.0": {"capabilities": ["net:api.weather.example", "fs:read"], "tools": [{"name": "t"}, {"name": "hourly"}]},
    "2.0.0": {"capabilities": ["net:api.weather.example", "mail.send"], "tools": [{"name": "t"}, {"name": "alerts"}]},
}
"""Of an installed plugin: the last one waits for the consent."""


def _install(server: Served, client: httpx2.Client, folder: Path, publisher: Publisher) -> str:
    """Install two releases of a plugin, and upload the next one; returns the id of the look at it."""
    text = "The weather of the next days."
    packages = [
        sign(pack(folder / f"forecast-{version}", version, FORECAST, description=text, **manifest), publisher.key)
        for version, manifest in RELEASES.items()
    ]
    trust = TrustStore(Path(server.facts["data"]) / TRUST_FILE)
    installer = Installer(Store(folder / "store"), trust, lambda: datetime.now(UTC))
    for version, package in zip(RELEASES, packages[:2], strict=False):
        source = f"oci://registry.example:5000/acme/forecast:{version}@sha256:{'0' * 64}"
        with installer.candidate(package, source) as candidate:
            installer.install(candidate)
    until_blocking(lambda: client.get(f"/api/v1/plugins/{FORECAST}").is_success)
    _post(client, f"/api/v1/plugins/{FORECAST}:reload", None)
    with server.client() as browser:
        page = browser.get(_post(client, "/api/v1/dashboard-links", None)["url"], follow_redirects=True)
        (form_key,) = set(re.findall(r'name="form_key" value="([^"]+)"', page.text))
        files = {"archive": packages[2].read_bytes(), "signature": signature_path(packages[2]).read_bytes()}
        headers = {"origin": server.facts["url"]}
        shown = browser.post("/installed", data={"form_key": form_key}, files=files, headers=headers)
        assert shown.status_code == 303, shown.text
    return shown.headers["location"].rpartition("/")[2]


def _use_control_plane(client: httpx2.Client, publisher: Publisher) -> dict[str, str]:
    """An org that uses a package in all four ways; the ids of its records."""
    _post(client, "/v1/orgs", {"id": "acme", "name": "Acme Tea"})
    _post(client, "/v1/orgs/acme/projects", {"id": "shop", "name": "Web shop"})
    ids = {"key": _post(client, "/v1/api-keys", {"org_id": "acme", "name": "deploys", "role": "operator"})["id"]}
    exports = [export(id, kind, permissions=SLOTS.get(id, {})) for id, kind in EXPORTS.items()]
    packed = publisher.pack(TOOL, exports, version="1.2.0")
    headers = {"content-type": ARCHIVE, **publisher.header(packed)}
    added = client.post("/v1/plugin-packages", content=packed.path.read_bytes(), headers=headers)
    assert added.is_success, added.text
    ids["package"] = added.json()["id"]
    named = {"package_id": "acme/p", "package_version": "1.2.0"}
    scope = {"org_id": "acme", "project_id": "shop"}
    sealed = client.put("/v1/secrets/shop_token", json={"value": "correct horse battery", "org_id": "acme"})
    assert sealed.is_success, sealed.text
    for name in EXPORTS:
        secrets = {slot: f"secret://acme/{slot}" for slot in SLOTS.get(name, {}).get("secret_slots", ())}
        bound = _post(client, "/v1/plugin-bindings", {**named, "export_id": name, "scope": scope, "secrets": secrets})
        ids[name] = bound["binding_id"]
    for order in (17, 18, -1):
        called = _post(client, "/v1/plugin-invocations", {"binding_id": ids["orders"], "input": {"order": order}})
    ids["invocation"] = called["invocation"]["invocation_id"]
    ids["delivery"] = _post(client, f"/v1/plugin-bindings/{ids['audit']}:test-delivery", {})["id"]
    ids["session"] = _post(client, "/v1/sessions", {"org_id": "acme", "project_id": "shop"})["id"]
    blocks = [{"kind": "input", "content": [{"type": "text", "text": "Which tea is left?"}]}]
    chain = {"session_id": ids["session"], "defaults": {"model": "local/m"}, "blocks": blocks}
    ids["chain"] = _post(client, "/v1/chains", chain)["id"]
    ids["run"] = _post(client, f"/v1/chains/{ids['chain']}/runs", {"blocks": blocks})["id"]
    _await_end(client, f"/v1/runs/{ids['run']}")
    started = {"binding_id": ids["drafts"], "session_id": ids["session"], "policy": {"max_child_runs": 2}}
    ids["execution"] = _post(client, "/v1/harness-executions", started)["id"]
    _await_end(client, f"/v1/harness-executions/{ids['execution']}")
    shorter = {"chain_id": ids["chain"], "target": {"max_input_tokens": 1000}}
    ids["compaction"] = _post(client, "/v1/compactions", {**shorter, "compactor": {"binding_id": ids["shrink"]}})["id"]
    _await_end(client, f"/v1/compactions/{ids['compaction']}")
    return ids


def _await_end(client: httpx2.Client, path: str) -> None:
    until_blocking(lambda: client.get(path).json()["status"] not in ("queued", "running"))


def _post(client: httpx2.Client, path: str, body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.is_success, response.text
    return response.json()
