"""The manifests are valid, strictly, in each overlay; and what they say of plugbay is what plugbay has."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from plugbay.host.config.sections import ClusterConfig, NodeConfig
from tests.deploy.kustomize import merge, resolve
from tests.docs.test_snippets import ROOT
from tests.support.requirements import requirement
from tests.support.tiers import first_alone

FOLDER = ROOT / "deploy" / "kubernetes"
BASE, *OVERLAYS = [FOLDER / "base", *sorted((FOLDER / "overlays").iterdir())]
VERSION = "1.37"
BROUGHT = {"plugbay-gateway", "plugbay-nats-gateway", "plugbay-nats-nodes", "plugbay-ca", "plugbay-trust"}
"""Secrets and ConfigMaps that the operator makes: docs/how-to/deploy.md."""


def validate(item: dict[str, Any]) -> None:
    kubernetes_validate.validate(item, VERSION, strict=True)


def only(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The specs of all pods, by what makes them."""
    return {item["kind"]: item["spec"]["template"]["spec"] for item in objects if "template" in item.get("spec", {})}


@requirement("host:deploy-kubernetes")
@pytest.mark.parametrize("folder", first_alone([BASE, *OVERLAYS]), ids=lambda folder: folder.name)
def test_every_object_is_valid_and_a_misspelt_key_is_found(folder: Path) -> None:
    objects = resolve(folder)
    kinds = {item["kind"] for item in objects}
    assert kinds >= {"Deployment", "StatefulSet", "Job", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"}
    for item in objects:
        validate(item)
    wrong = copy.deepcopy(only(objects, "StatefulSet", "plugbay-node"))
    wrong["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 90
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriodSecond"):
        validate(wrong)


def test_nodes_have_time_to_drain_and_a_sandbox_without_privileges() -> None:
    node = pods(resolve(BASE))["StatefulSet"]
    (container,) = node["containers"]
    security = container["securityContext"]
    assert node["terminationGracePeriodSeconds"] == 90
    assert node["hostUsers"] is False and security["procMount"] == "Unmasked"
    assert security["capabilities"] == {"drop": ["ALL"]} and "privileged" not in security
    profile = FOLDER / "seccomp" / security["seccompProfile"]["localhostProfile"]
    refused = {name for rule in json.loads(profile.read_text("utf-8"))["syscalls"] for name in rule["names"]}
    assert refused.isdisjoint({"clone", "clone3", "mount", "pivot_root", "umount2", "unshare", "setns"})


def test_the_base_leaves_the_number_of_gateways_and_nodes_to_others() -> None:
    objects = resolve(BASE)
    for kind, name in (("Deployment", "plugbay-gateway"), ("StatefulSet", "plugbay-node")):
        assert "replicas" not in only(objects, kind, name)["spec"]


def test_nodes_reach_nats_registry_and_gateways_but_no_database() -> None:
    objects = resolve(BASE)
    egress = only(objects, "NetworkPolicy", "plugbay-node")["spec"]["egress"]
    assert {port["port"] for rule in egress for port in rule["ports"]} == {53, 4222, 5000, 8787}
    (rule,) = only(objects, "NetworkPolicy", "postgresql")["spec"]["ingress"]
    (_, component) = rule["from"][0]["podSelector"]["matchExpressions"]
    assert component["values"] == ["gateway", "migrate"]


@pytest.mark.parametrize("folder", first_alone([BASE, *OVERLAYS]), ids=lambda folder: folder.name)
def test_settings_commands_and_mounts_are_those_that_plugbay_has(folder: Path) -> None:
    objects = resolve(folder)
    for name in ("plugbay-gateway", "plugbay-node"):
        found = tomllib.loads(only(objects, "ConfigMap", name)["data"]["plugbay.toml"])
        assert ClusterConfig(**found["cluster"]).is_encrypted
        NodeConfig(**found.get("node", {}))
    commands = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    made = {item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"}
    for pod in pods(objects).values():
        (container,) = pod["containers"]
        usage = commands.partition(f"### plugbay {container['args'][0]}\n")[2].partition("\n### ")[0]
        options = re.findall(r"--[a-z-]+", " ".join(container["args"]))
        assert options and [option for option in options if f"  {option} " not in usage] == []
        sources = [volume.get("secret", {}).get("secretName") for volume in pod["volumes"]]
        sources += [volume.get("configMap", {}).get("name") for volume in pod["volumes"]]
        assert {source for source in sources if source} <= made | BROUGHT
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_lists_are_merged_by_the_key_that_kubernetes_names() -> None:
    old = {"containers": [{"name": "a", "image": "x", "args": ["1", "2"]}, {"name": "b"}]}
    new = {"containers": [{"name": "a", "args": ["3"]}]}
    assert merge(old, new) == {"containers": [{"name": "a", "image": "x", "args": ["3"]}, {"name": "b"}]}
