"""What a manifest of vai implies is said when its exports are asked."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugbay.conformance.engine.vai_facts import HELLO, ODD, SECRET, about, facts
from plugbay.host.discovery.folders import discover
from plugbay.model.spec import Export, PluginSpec
from tests.support.canaries import prepare_vai_canary

PERMISSIONS = {"network": "none", "filesystem": "none", "secret_slots": []}


def canary(tmp: Path) -> PluginSpec:
    (found,) = discover([prepare_vai_canary(tmp)])
    assert found.spec is not None and not found.problems
    return found.spec


def export(kind: str, spec: PluginSpec) -> Export:
    return next(each for each in spec.exports if each.kind == kind)


def test_a_manifest_says_which_secrets_and_which_scratch_there_are(tmp_path: Path) -> None:
    assert facts(canary(tmp_path)) == {
        "hello": HELLO,
        "secret": SECRET,
        "secret_slots": ["token"],
        "schemas": ["echo"],
        "scratch": ["shorten"],
    }


def test_an_export_is_told_what_it_may_have_and_nothing_else(tmp_path: Path) -> None:
    spec = canary(tmp_path)
    tool, compactor = (about(export(kind, spec), "/place")["beside"] for kind in ("tool", "compactor"))
    assert tool["secrets"] == {"token": f"{SECRET}-token"} and compactor["secrets"] == {}
    assert tool["context"]["scratch_dir"] is None and compactor["context"]["scratch_dir"] == "/place"
    assert tool["export_id"] == "echo" and tool["config"] == {}
    assert tool["context"]["invocation_id"] == "inv_conformance"
    assert tool["context"]["run_id"] == "run_conformance"
    assert tool["context"]["gateway"] == {"base_url": None, "delegation_token": None, "scopes": []}
    assert datetime.fromisoformat(tool["context"]["deadline_at"]) > datetime.now(UTC)


@pytest.mark.parametrize(
    ("kind", "other_op", "statuses"),
    [
        ("tool", "hook.handle", 4),
        ("hook", "tool.invoke", 5),
        ("compactor", "tool.invoke", 4),
        ("harness", "tool.invoke", 4),
    ],
)
def test_each_kind_has_statuses_and_an_odd_question(tmp_path: Path, kind: str, other_op: str, statuses: int) -> None:
    said = about(export(kind, canary(tmp_path)), "")
    assert (said["other_op"], len(said["statuses"]), said["odd"]) == (other_op, statuses, ODD[kind])
    assert ("ack" in said["statuses"]) is (kind == "hook")
    assert said["event_type"] == ("run.completed" if kind == "hook" else "")


def test_what_changes_things_is_asked_nothing_odd() -> None:
    given: dict[str, Any] = {
        "permissions": PERMISSIONS,
        "config_schema": {"required": ["a"]},
        "effect_class": "unknown",
    }
    said = about(Export("tool", "t", facts=given), "")
    assert said["odd"] == {}
    assert said["beside"]["config"] == {"a": {}}


def test_there_is_something_to_fill_in_where_there_is_no_export() -> None:
    nothing = about(None, "")
    assert not any(nothing.values())
    assert (
        nothing.keys()
        == about(Export("hook", "h", facts={"permissions": PERMISSIONS, "config_schema": None}), "").keys()
    )
