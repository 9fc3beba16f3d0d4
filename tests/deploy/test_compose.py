"""The compose file is whole, has exactly the permissions of docs/nodes.md, and its services serve a call on a node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugbay.cluster.subjects import permissions
from plugbay.host.config.sections import ClusterConfig, NodeConfig
from tests.deploy.composed import PLUGBAY, Composed, composed
from tests.docs.test_snippets import ROOT
from tests.support.machine import needs_root
from tests.support.patience import until_blocking
from tests.support.requirements import requirement
from tests.support.tiers import exhaustive

FOLDER = ROOT / "deploy" / "compose"
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))


def test_each_service_has_what_it_names_and_nothing_is_left_over() -> None:
    used: dict[str, set[str]] = {"configs": set(), "secrets": set(), "networks": set(), "volumes": set()}
    for service in FILE["services"].values():
        used["configs"] |= {each["source"] for each in service.get("configs", ())}
        used["volumes"] |= {each.partition(":")[0] for each in service.get("volumes", ())}
        for kind in ("secrets", "networks"):
            used[kind] |= set(service.get(kind, ()))
        assert set(re.findall(r"/run/secrets/(\w+)", str(service))) <= set(service.get("secrets", ()))
        assert set(service.get("depends_on", {})) <= set(FILE["services"])
    assert {kind: set(FILE[kind]) for kind in used} == used
    for name in ("gateway", "node-1", "node-2"):
        found = tomllib.loads((FOLDER / FILE["configs"][name]["file"]).read_text("utf-8"))
        assert ClusterConfig(**found["cluster"]).is_encrypted
        NodeConfig(**found.get("node", {}))


def test_nats_permits_what_gateways_and_nodes_do_and_nothing_else() -> None:
    text = (FOLDER / "nats.conf").read_text("utf-8")
    pattern = r"user: ([\w-]+), .*?publish:\s*(\[.*?\]),\s*subscribe:\s*(\[.*?\]) \}"
    found = {
        user: {"publish": json.loads(publish), "subscribe": json.loads(subscribe)}
        for user, publish, subscribe in re.findall(pattern, text, re.DOTALL)
    }
    nodes = {name: permissions("main", name) for name in ("node-1", "node-2")}
    assert found == {"gateway": permissions("main"), **nodes}


def test_nodes_share_no_network_with_the_database() -> None:
    services = FILE["services"]
    assert set(services["postgres"]["networks"]).isdisjoint(services["node-1"]["networks"])


def plugbay(*words: str, folder: Path) -> str:
    command = [sys.executable, "-m", "plugbay", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@exhaustive
@needs_root
@requirement("host:deploy-compose")
def test_the_services_start_as_the_file_says_and_a_package_runs_on_a_node(tmp_path: Path) -> None:
    place = tmp_path / "compose"
    shutil.copytree(FOLDER, place, ignore=shutil.ignore_patterns("secrets"))
    subprocess.run(["sh", "make-secrets"], cwd=place, check=True)
    plugbay("keygen", "local", folder=place)
    plugbay("trust", "add", "local.pub", "--publisher", "local", "--trust", "secrets/trust.json", folder=place)
    plugbay("pack", str(ROOT / "deploy" / "where"), "--out", "where.tar.gz", folder=place)
    plugbay("sign", "where.tar.gz", "--key", "local.key", folder=place)
    with composed(place, tmp_path) as services:

        def ask(*words: str) -> str:
            options = ("--server", "http://127.0.0.1:8787", "--token-file", str(place / "secrets" / "operator_token"))
            done = services.run("haproxy", str(PLUGBAY), *words, *options, XDG_STATE_HOME=str(tmp_path))
            assert done.returncode == 0, done.stderr + done.stdout + services.log("gateway-1") + services.log("node-1")
            return done.stdout

        until_blocking(lambda: ready(services))
        ask("package", "add", str(place / "where.tar.gz"))
        ask("org", "create", "Acme", "--id", "acme")
        binding = ("--package", "local/where", "--package-version", "1.0.0", "--export", "node", "--org", "acme")
        ask("binding", "create", *binding)
        until_blocking(lambda: '"node":' in services.log("node-1") and '"node":' in services.log("node-2"))
        answer = json.loads(ask("invocation", "create", "--org", "acme", "--export", "node", "--input", "{}", "--json"))
        assert answer["status"] == "succeeded", answer
        reach = "import socket; socket.create_connection(('10.78.0.2', 5432), 5)"
        assert services.run("gateway-1", sys.executable, "-c", reach).returncode == 0, "postgres is the first service"
        assert services.run("node-1", sys.executable, "-c", reach).returncode != 0


def ready(services: Composed) -> bool:
    return services.run("haproxy", "curl", "-fsS", "http://127.0.0.1:8787/readyz").returncode == 0


@pytest.mark.parametrize("name", ["gateway-1", "node-1"])
def test_what_has_secrets_gets_them_as_files(name: str) -> None:
    for variable, value in FILE["services"][name]["environment"].items():
        assert variable.endswith("_FILE") and value.startswith(("/run/secrets/", "/etc/plugbay/"))
