"""Named values are filled into the scenarios of ainb, vai and MCP."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plugbay.conformance.engine.facts import (
    GREETINGS,
    HELLO,
    NO_OBJECT,
    ODD,
    SECRET,
    ainb_facts,
    apply_hello,
    mcp_about,
    mcp_facts,
    vai_about,
    vai_facts,
)
from plugbay.conformance.engine.inputs import may_be_called
from plugbay.conformance.engine.manifests import ainb_manifest
from plugbay.contracts.ainb.manifest import parse
from plugbay.contracts.ainb.spec import FILE_NAME
from plugbay.contracts.schemas import compile_schema
from plugbay.host.discovery.folders import discover
from plugbay.model.spec import Export, PluginSpec
from tests.support.canaries import prepare_vai_canary
from tests.support.requirements import requirement

# ainb


def known(root: Path, **sections: Any) -> dict[str, Any]:
    root = root / "p"
    root.mkdir()
    (root / FILE_NAME).write_text(ainb_manifest("p", sections), "utf-8")
    spec, problems = parse((root / FILE_NAME).read_text("utf-8"), root)
    assert spec is not None, problems
    return dict(ainb_facts(spec))


def test_a_manifest_that_asks_for_nothing_allows_nothing(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert found["manifest"] == {"plugin": {"name": "p", "version": "1.0.0", "abi_version": 2}}
    assert (found["publications"], found["bus"], found["read_roots"], found["gated_methods"]) == ([], [], [], [])
    assert found["init"]["params"]["granted_capabilities"] == []


def test_what_is_asked_for_is_granted_by_name_and_allows_its_methods(tmp_path: Path) -> None:
    capabilities = {"network": ["example.org"], "event_bus": ["usage.*"], "read_paths": ["~/notes"]}
    found = known(tmp_path, capabilities=capabilities, provides={"snapshots": ["usage.day"]})
    assert found["init"]["params"]["granted_capabilities"] == ["event_bus", "network", "read_paths"]
    assert found["init_ungranted"]["params"]["granted_capabilities"] == []
    assert found["bus"] == ["usage.*"]
    assert found["may_publish"] == ["usage.day", "ui.close_request", "ui.state"]
    assert found["read_roots"] == [os.path.expanduser("~/notes")]
    assert "host/network/fetch" in found["gated_methods"]
    assert "host/fs/read_file" in found["gated_methods"]


def test_the_whole_bus_is_every_topic(tmp_path: Path) -> None:
    found = known(tmp_path, capabilities={"event_bus": True})
    assert found["bus"] == ["*"]
    assert "host/network/fetch" not in found["gated_methods"]


def test_the_manifest_is_where_the_plugin_lies_or_nowhere(tmp_path: Path) -> None:
    found = known(tmp_path)
    assert Path(found["init"]["params"]["manifest_path"]).is_file()
    assert not Path(found["init_elsewhere"]["params"]["manifest_path"]).exists()


# vai

PERMISSIONS = {"network": "none", "filesystem": "none", "secret_slots": []}


def canary(tmp: Path) -> PluginSpec:
    (found,) = discover([prepare_vai_canary(tmp)])
    assert found.spec is not None and not found.problems
    return found.spec


def export(kind: str, spec: PluginSpec) -> Export:
    return next(each for each in spec.exports if each.kind == kind)


def test_a_manifest_says_which_secrets_and_which_scratch_there_are(tmp_path: Path) -> None:
    assert vai_facts(canary(tmp_path)) == {
        "hello": HELLO,
        "secret": SECRET,
        "secret_slots": ["token"],
        "schemas": ["echo"],
        "scratch": ["shorten"],
    }


def test_an_export_is_told_what_it_may_have_and_nothing_else(tmp_path: Path) -> None:
    spec = canary(tmp_path)
    tool, compactor = (vai_about(export(kind, spec), "/place")["beside"] for kind in ("tool", "compactor"))
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
    said = vai_about(export(kind, canary(tmp_path)), "")
    assert (said["other_op"], len(said["statuses"]), said["odd"]) == (other_op, statuses, ODD[kind])
    assert ("ack" in said["statuses"]) is (kind == "hook")
    assert said["event_type"] == ("run.completed" if kind == "hook" else "")


def test_what_changes_things_is_asked_nothing_odd() -> None:
    given: dict[str, Any] = {
        "permissions": PERMISSIONS,
        "config_schema": {"required": ["a"]},
        "effect_class": "unknown",
    }
    said = vai_about(Export("tool", "t", facts=given), "")
    assert said["odd"] == {}
    assert said["beside"]["config"] == {"a": {}}


def test_there_is_something_to_fill_in_where_there_is_no_export() -> None:
    nothing = vai_about(None, "")
    assert not any(nothing.values())
    assert (
        nothing.keys()
        == vai_about(Export("hook", "h", facts={"permissions": PERMISSIONS, "config_schema": None}), "").keys()
    )


# MCP

SPEC = PluginSpec("p", "0", "mcp", Path("/"), ("p",))
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def hello(era: str = "handshake", **offer: Any) -> dict[str, Any]:
    lists = {"tools": [], "resources": [], "resource_templates": [], "prompts": [], **offer}
    return {"era": era, "capabilities": {"logging": {}}, "offer": lists}


def tool(**more: Any) -> dict[str, Any]:
    return {"name": "t", "inputSchema": TEXT, **more}


def test_until_a_server_has_spoken_it_wants_to_be_greeted_and_offers_nothing() -> None:
    assert mcp_facts(SPEC) == {**GREETINGS, "handshake": ["handshake"], "stdio": ["stdio"], "schemas": []}
    assert mcp_facts(replace(SPEC, url="https://mcp.example.com/mcp"))["stdio"] == []


def test_a_server_says_its_era_its_exports_and_whether_it_logs() -> None:
    spec, known = apply_hello(SPEC, hello("modern", tools=[tool(outputSchema=TEXT)]))
    assert [(export.kind, export.name) for export in spec.exports] == [("tool", "t")]
    assert (known["handshake"], known["logging"], known["schemas"]) == ([], ["logging"], ["t"])


def test_a_template_is_no_resource_that_could_be_read() -> None:
    one, many = {"uri": "note://one", "name": "one"}, {"uriTemplate": "note://{name}", "name": "note"}
    spec, _ = apply_hello(SPEC, hello(resources=[one], resource_templates=[many]))
    assert [export.name for export in spec.exports] == ["one"]
    assert mcp_about(spec.exports[0], "")["address"] == "note://one"


@pytest.mark.parametrize(
    ("more", "may"),
    [
        ({}, False),
        ({"annotations": {"readOnlyHint": True}}, True),
        ({"annotations": {"readOnlyHint": "yes"}}, False),
        ({"annotations": {"destructiveHint": False}}, False),
        ({"inputSchema": {**TEXT, "examples": [{"text": "hi"}]}}, True),
    ],
)
@requirement("mcp:kit-harmless")
def test_only_a_tool_that_reads_or_has_an_example_is_called(more: dict[str, Any], may: bool) -> None:
    spec, _ = apply_hello(SPEC, hello(tools=[tool(**more)]))
    assert may_be_called(spec.exports[0]) is may


def test_a_prompt_is_filled_in_where_it_must_be() -> None:
    arguments = [{"name": "who", "required": True}, {"name": "how"}, 7]
    spec, _ = apply_hello(SPEC, hello(prompts=[{"name": "greet", "arguments": arguments}]))
    assert mcp_about(spec.exports[0], "")["filled_in"] == {"who": "text"}


@pytest.mark.parametrize(
    "schema",
    [
        TEXT,
        {"type": "object", "properties": {"n": {"type": "integer"}}},
        {"type": "object", "required": ["a"]},
        {"type": "object", "additionalProperties": False},
    ],
)
def test_a_misfit_is_something_that_the_schema_refuses(schema: dict[str, Any]) -> None:
    misfit = mcp_about(Export("tool", "t", input_schema=schema), "")["misfit"]
    assert not compile_schema(schema).is_valid(misfit)
    assert isinstance(misfit, dict)


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": "nonsense"}])
def test_where_a_schema_refuses_nothing_arguments_that_are_no_object_are_a_misfit(schema: dict[str, Any]) -> None:
    assert mcp_about(Export("tool", "t", input_schema=schema), "")["misfit"] == NO_OBJECT


def test_there_is_something_to_say_about_nothing() -> None:
    assert mcp_about(None, "") == {"address": "", "filled_in": {}, "misfit": NO_OBJECT, "output_schema": {}}
