"""Every field has its type and its default; what is not listed is refused."""

from __future__ import annotations

import pytest

from plugbay.contracts.document import Document
from plugbay.contracts.draft import Draft
from plugbay.contracts.vai.sections import Compactor, Entry, Harness, Manifest, Part, Permissions, Tool
from tests.contracts.vai.manifests import HEAD, RUNTIME, Found, export, good, manifest, permissions, problems
from tests.support.requirements import requirement

MISSING = "error", "missing_field"


@requirement("vai:manifest-fields")
@pytest.mark.parametrize("key", HEAD)
def test_a_package_says_who_it_is(key: str) -> None:
    assert problems(manifest(without=key)) == [(*MISSING, key)]


@requirement("vai:manifest-fields")
@pytest.mark.parametrize("key", RUNTIME)
def test_a_package_says_how_it_is_started(key: str) -> None:
    assert problems(manifest(without=key)) == [(*MISSING, f"runtime.{key}")]


@requirement("vai:manifest-fields")
@pytest.mark.parametrize("key", ["id", "kind", "display_name"])
def test_an_export_says_what_it_is(key: str) -> None:
    lines = [line for line in manifest().split("\n") if not line.startswith(f"{key} = ")]
    assert (*MISSING, f"exports[0].{key}") in problems("\n".join(lines))


@requirement("vai:manifest-fields")
@pytest.mark.parametrize(
    ("kind", "key"), [("tool", "input_schema"), ("hook", "subscribes_to"), ("harness", "fidelity")]
)
def test_a_kind_says_what_it_cannot_do_without(kind: str, key: str) -> None:
    assert problems(manifest(export(kind, own=""))) == [(*MISSING, f"exports[0].{kind}.{key}")]


@requirement("vai:manifest-fields")
def test_what_may_be_left_out_has_a_default() -> None:
    head = {"api_version": "a", "package_id": "b", "version": "c", "name": "d", "exports": []}
    runtime = {"protocol": "", "transport": "", "entrypoint": [], "os": [], "arch": []}
    whole = Manifest.model_validate({**head, "runtime": runtime})
    assert (whole.description, whole.license, whole.source) == ("", None, None)
    entry = Entry(id="x", kind="tool", display_name="X")
    assert (entry.description, entry.execution_class, entry.default_timeout_ms, entry.max_concurrency) == (
        "",
        None,
        None,
        1,
    )
    assert entry.permissions == Permissions(network="none", filesystem="none", gateway_api_scopes=[], secret_slots=[])
    assert Tool(input_schema="i") == Tool(input_schema="i", effect_class="unknown", streaming=False, output_schema=None)
    assert Compactor() == Compactor(target_context="", supports_pinned_items=False)
    assert Harness(fidelity="lossless") == Harness(fidelity="lossless", mode="composite", supports=[])


@requirement("vai:manifest-types")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        (manifest(version="1"), "version"),
        (manifest(api_version="true"), "api_version"),
        (manifest(runtime={"os": '"linux"'}), "runtime.os"),
        (manifest(runtime={"entrypoint": '"./bin/plugin"'}), "runtime.entrypoint"),
        (manifest(export(own='input_schema = "in.json"\nstreaming = 1')), "exports[0].tool.streaming"),
        (manifest(export("hook", own='subscribes_to = "run.completed"')), "exports[0].hook.subscribes_to"),
        (permissions("network = true"), "exports[0].permissions.network"),
        (permissions('secret_slots = "a"'), "exports[0].permissions.secret_slots"),
        (manifest("[exports]\nid = 'x'"), "exports"),
    ],
)
def test_a_value_of_another_type_is_refused(text: str, path: str) -> None:
    assert problems(text) == [("error", "invalid_type", path)]


@requirement("vai:manifest-unknown-keys")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        (manifest(colour="1"), "colour"),
        (manifest(runtime={"colour": "1"}), "runtime.colour"),
        (manifest(export(colour="1")), "exports[0].colour"),
        (permissions("colour = 1"), "exports[0].permissions.colour"),
        (manifest(export("hook", own="subscribes_to = ['run.completed']\ncolour = 1")), "exports[0].hook.colour"),
    ],
)
def test_a_key_that_is_not_in_the_contract_is_refused_at_every_level(text: str, path: str) -> None:
    found: list[Found] = problems(text)
    assert found == [("error", "unknown_field", path)]


@requirement("vai:manifest-unknown-keys")
def test_keys_that_begin_with_x_are_anybodys() -> None:
    good(
        manifest(
            export("tool", "[exports.permissions]\nx-a = 1", "[exports.x-b]\nc = 1", **{"x-d": "[1]"}),
            runtime={"x-e": "true"},
            **{"x-f": "1979-05-27"},
        )
    )


@pytest.mark.parametrize(("name", "fine"), [("a" * 128, True), ("a" * 129, False), ("", False)])
def test_a_name_is_short_enough_to_be_shown(name: str, fine: bool) -> None:
    assert problems(manifest(name=f'"{name}"')) == ([] if fine else [("error", "invalid_value", "name")])


def test_a_licence_that_says_nothing_is_refused() -> None:
    assert problems(manifest(license='""')) == [("error", "invalid_value", "license")]


TABLE = {"a": "x", "b": ["y", 1, "z"], "c": {"d": "e"}, "f": [{"g": "h"}, 2, {"g": "i"}], "n": 3}


def part() -> tuple[Part, Draft]:
    draft = Draft(Document(TABLE, {("f",): 7, ("f", 2): 9}))
    return Part(draft, (), TABLE), draft


def test_values_of_the_wanted_type_are_found_and_others_passed_over() -> None:
    whole, _ = part()
    assert (whole.text("a"), whole.text("n"), whole.text("gone")) == ("x", None, None)
    assert (whole.value("n"), whole.value("gone")) == (3, None)
    assert whole.texts("b") == [(0, "y"), (2, "z")]
    assert (whole.texts("a"), whole.parts("a"), whole.parts("c")) == ([], [], [])
    assert "a" in whole
    assert "gone" not in whole


def test_tables_within_tables_and_lists_are_parts() -> None:
    whole, _ = part()
    assert whole.part("c").text("d") == "e"
    assert whole.part("a").value("d") is None
    assert [each.text("g") for each in whole.parts("f")] == ["h", "i"]


def test_a_problem_has_the_place_of_its_part() -> None:
    whole, draft = part()
    whole.parts("f")[1].error("broken", "no", "g")
    whole.part("c").warn("odd", "hm")
    assert [(item.severity, item.code, item.path, item.line) for item in draft.problems] == [
        ("error", "broken", "f[2].g", 9),
        ("warning", "odd", "c", None),
    ]


def test_a_word_that_is_not_in_the_list_is_reported_with_the_list() -> None:
    whole, draft = part()
    whole.one_of("a", ("x", "y"))
    whole.one_of("n", ("x", "y"))
    assert draft.problems == []
    whole.one_of("a", ("y", "z"))
    (found,) = draft.problems
    assert (found.code, found.path, found.message) == ("invalid_enum", "a", "must be one of y, z, got 'x'")
