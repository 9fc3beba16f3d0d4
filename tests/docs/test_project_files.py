"""The files for the repository's host are sound: release workflow, issue templates, security policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.docs.test_snippets import ROOT

WORKFLOW = ROOT / ".github/workflows/release.yml"
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w.-]+@v\d+\.\d+\.\d+")


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for job in load(WORKFLOW)["jobs"].values() for step in job["steps"]]


def test_each_action_of_the_release_is_pinned_to_a_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert len(used) > 5
    assert [name for name in used if not PINNED.fullmatch(name)] == []


def test_each_target_that_the_release_makes_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    commands = [line for step in steps() for line in str(step.get("run", "")).splitlines()]
    made = {target for line in commands for target in line.partition("make ")[2].split()}
    assert "dist" in made
    assert made <= targets


def test_a_job_of_the_release_writes_only_what_it_needs() -> None:
    workflow = load(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    writes = {name: set(job.get("permissions", {})) for name, job in workflow["jobs"].items()}
    assert writes == {
        "test": set(),
        "build": set(),
        "attest": {"attestations", "id-token"},
        "publish": {"id-token"},
        "page": {"contents"},
    }
    assert "secrets." not in WORKFLOW.read_text("utf-8")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_each_field_of_an_issue_template_has_a_label_and_an_id_of_its_own(path: Path) -> None:
    fields = [field for field in load(path).get("body", ()) if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert fields or path.name == "config.yml"


def test_the_links_of_the_security_policy_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / "SECURITY.md").read_text("utf-8"))
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []
