"""Every export has a row, names stay within each alphabet, and schemas are reduced to what a target accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.adapters.mapping import (
    CONTRACTS,
    FORMS,
    NAMES,
    adapter_id,
    adapter_version,
    call_seconds,
    map_exports,
    trim_schema,
)
from plugbay.contracts.schemas import schema_problem
from plugbay.host.catalog.catalog import Entry, InputCheck
from plugbay.mcp_server.listing import NamesCollide
from plugbay.model.spec import KINDS, Export, PluginSpec, SettingsSpec, Timeouts

targets = st.sampled_from(CONTRACTS)


def entries(*exports: Export, id: str = "example.source", contract: str = "kaged", **fields: Any) -> list[Entry]:
    spec = PluginSpec(id, "1.0.0", contract, Path("/plugins"), ("run",), exports=exports, **fields)
    return [Entry(spec, export, InputCheck(export.input_schema)) for export in exports]


@pytest.mark.parametrize("target", CONTRACTS)
def test_every_export_has_a_row_with_a_form_or_a_reason(target: str) -> None:
    exports = [Export(kind, f"some_{kind}") for kind in sorted(KINDS) if kind not in ("resource", "prompt")]
    facts = {"mcp": {"name": "some", "uri": "memo://1"}}
    exports += [Export("resource", "some_resource", facts=facts), Export("prompt", "some_prompt", facts=facts)]
    mapped = map_exports(target, "id", entries(*exports))
    assert {(row.kind, row.name) for row in mapped.rows} == {(export.kind, export.name) for export in exports}
    assert all(row.form or row.note for row in mapped.rows)
    assert [(e.kind, e.name) for e in mapped.exports] == [(r.kind, r.name) for r in mapped.rows if r.form]
    assert "tool" in FORMS[target]


def test_other_declarations_have_rows_too() -> None:
    more: dict[str, Any] = {
        "subscribes": ("a.>",),
        "publishes": ("b.>",),
        "commands": ("go",),
        "capabilities": ("network",),
        "settings": SettingsSpec({"type": "object"}),
    }
    rows = map_exports("nexo", "id", entries(Export("tool", "t"), **more)).rows
    assert [row.kind for row in rows] == ["tool", "subscription", "publication", "command", "settings", "capabilities"]
    assert all(row.note for row in rows[1:])


@pytest.mark.parametrize(
    ("target", "contract", "kind", "name", "form"),
    [
        ("nexo", "nexo", "hook", "before_message", "hook"),
        ("kaged", "nexo", "hook", "before_message", ""),
        ("kaged", "kaged", "hook", "on_session_start", "hook"),
        ("vai", "kaged", "hook", "on_session_start", ""),
        ("kaged", "kaged", "compactor", "c", "compactor"),
        ("vai", "kaged", "compactor", "c", ""),
        ("kaged", "kaged", "method", "a.b", "method"),
        ("nexo", "kaged", "method", "a.b", "tool"),
        ("ainb", "ainb", "cli_namespace", "notes", "command line"),
        ("rune", "ainb", "cli_namespace", "notes", "tool"),
        ("nexo", "nexo", "channel", "mail", "channel"),
        ("kaged", "nexo", "channel", "mail", ""),
        ("ainb", "ainb", "screen", "main", ""),
        ("vai", "vai", "harness", "h", ""),
    ],
)
def test_what_an_export_becomes(target: str, contract: str, kind: str, name: str, form: str) -> None:
    (row,) = map_exports(target, "id", entries(Export(kind, name), contract=contract)).rows
    assert row.form == form


def test_a_hook_of_vai_is_carried_for_the_events_that_the_target_has() -> None:
    hook = Export("hook", "on_run", facts={"subscribes_to": ["run.started", "run.ended"]})
    (export,) = map_exports("vai", "id", entries(hook, contract="vai")).exports
    assert export.events == ("run.started", "run.ended")


@given(targets, st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=5, unique=True), st.booleans())
def test_names_are_in_the_alphabet_and_stable(target: str, names: list[str], several: bool) -> None:
    given = entries(*(Export("tool", name) for name in names))
    if several:
        given += entries(Export("tool", "other"), id="second")
    try:
        mapped = map_exports(target, "adapter", given)
    except NamesCollide:
        return
    served = [export.served for export in mapped.exports]
    alphabet = NAMES[target]
    assert len(set(served)) == len(served)
    assert not any(alphabet.forbidden.search(name) or len(name) > alphabet.longest for name in served)
    assert all(len(row.served) <= alphabet.longest for row in mapped.rows)
    if alphabet.lower:
        assert all("a" <= name[0] <= "z" for name in served)
    assert [export.served for export in map_exports(target, "adapter", given).exports] == served


def test_names_that_are_one_in_the_target_are_refused() -> None:
    with pytest.raises(NamesCollide, match="--only"):
        map_exports("nexo", "id", entries(Export("tool", "Read"), Export("tool", "read")))
    rune = map_exports("rune", "id", entries(Export("tool", "Read"), Export("tool", "read")))
    assert [export.served for export in rune.exports] == ["Read", "read"]


def test_only_leaves_out_the_others_and_says_so() -> None:
    mapped = map_exports("rune", "id", entries(Export("tool", "a"), Export("tool", "b")), ["*/a"])
    assert [export.name for export in mapped.exports] == ["a"]
    assert [row.note for row in mapped.rows] == ["", "left out by --only"]


def test_several_sources_have_the_plugin_in_their_names() -> None:
    given = [*entries(Export("tool", "read"), id="one"), *entries(Export("tool", "read"), id="two")]
    assert [export.served for export in map_exports("vai", "id", given).exports] == ["one__read", "two__read"]


def test_the_prefix_of_nexo_is_not_doubled() -> None:
    mapped = map_exports("nexo", "example_source", entries(Export("tool", "example_source_echo"), contract="nexo"))
    assert [row.served for row in mapped.rows] == ["example_source_echo"]


OBJECT = {"type": "object", "properties": {"a": {"type": "string", "description": "A."}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "trimmed"),
    [
        (None, {"type": "object"}),
        (True, {"type": "object"}),
        (OBJECT, OBJECT),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:i", **OBJECT}, OBJECT),
        ({"properties": {}}, {"type": "object", "properties": {}}),
        (
            {"type": "string"},
            {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
        ),
        ({**OBJECT, "$ref": "http://elsewhere/"}, OBJECT),
        ({**OBJECT, "properties": {"a": {"type": "string", "description": "A.", "pattern": "(?=x)"}}}, OBJECT),
    ],
)
def test_a_schema_is_reduced_to_what_targets_accept(schema: Any, trimmed: Any) -> None:
    reduced, note = trim_schema("vai", schema)
    assert reduced == trimmed
    assert bool(note) == (isinstance(schema, dict) and schema_problem(schema) is not None)


def test_a_huge_schema_is_reduced() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"enum": ["x" * 1000]} for n in range(200)}}
    reduced, note = trim_schema("vai", wide)
    assert reduced == {"type": "object", "properties": {name: {} for name in wide["properties"]}}
    assert "bytes" in note


def test_a_tool_that_its_server_runs_only_as_a_task_is_left_out() -> None:
    needs = {"mcp": {"name": "long", "execution": {"taskSupport": "required"}}}
    can = {"mcp": {"name": "short", "execution": {"taskSupport": "optional"}}}
    tools = entries(Export("tool", "long", facts=needs), Export("tool", "short", facts=can), contract="mcp")
    for target in CONTRACTS:
        mapped = map_exports(target, "id", tools)
        assert [export.name for export in mapped.exports] == ["short"]
        assert "only as a task" in mapped.rows[0].note


def test_requests_to_the_host_have_a_row() -> None:
    given = entries(
        Export("tool", "t"), contract="nexo", capabilities=("network", "memory.recall", "scope=chains:read")
    )
    (row,) = [row for row in map_exports("rune", "id", given).rows if row.kind == "requests"]
    assert row.name == "memory.recall, scope=chains:read"
    assert "not the host of rune" in row.note


def test_a_parameter_that_the_target_reserves_leaves_the_tool_out() -> None:
    tool = Export("tool", "t", input_schema={"type": "object", "properties": {"_context": {}}})
    (row,) = map_exports("kaged", "id", entries(tool)).rows
    assert not row.form
    assert "_context" in row.note
    assert map_exports("nexo", "id", entries(tool)).exports


@pytest.mark.parametrize(
    ("target", "id", "expected"),
    [
        ("nexo", "Example.Weather", "example_weather"),
        ("nexo", "9lives", "x9lives"),
        ("kaged", "example.weather", "example_weather"),
        ("vai", "acme/dev kit", "acme/dev_kit"),
        ("vai", "example.weather", "example.weather"),
        ("ainb", "a b", "a_b"),
    ],
)
def test_ids_are_in_the_alphabet_of_the_target(target: str, id: str, expected: str) -> None:
    assert adapter_id(target, id) == expected


def test_versions_and_times() -> None:
    spec = PluginSpec("x", "1.2.3-beta.1", "mcp", Path(), (), timeouts=Timeouts(call=9_000))
    assert adapter_version([spec]) == "1.2.3-beta.1"
    assert adapter_version([PluginSpec("x", "v7", "mcp", Path(), ())]) == "1.0.0"
    assert adapter_version([spec, spec]) == "1.0.0"
    assert call_seconds(spec, {}) == 3_600.0
    assert call_seconds(spec, {"timeout_ms": 20_000}) == 20.0
    assert call_seconds(spec, {"timeout_ms": 20_000}, 90.0) == 20.0
    assert call_seconds(spec, {}, 90.0) == 90.0
    nexo = PluginSpec("x", "1.0.0", "nexo", Path(), (), patience={"InvokeTool": 7.0})
    assert call_seconds(nexo, {}) == 7.0


def test_only_a_target_with_deadlines_gets_the_timeout() -> None:
    for target in CONTRACTS:
        (export,) = map_exports(target, "id", entries(Export("tool", "t")), timeouts={"example.source": 5.0}).exports
        assert export.timeout == (5.0 if target == "vai" else None)
