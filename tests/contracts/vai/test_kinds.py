"""Each kind has its table, its words and its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from plugbay.contracts.vai.kinds import CLASSES, EFFECTS, FIDELITIES, KINDS
from tests.contracts.vai.manifests import TABLES, export, good, manifest, parsed, problems, reported
from tests.support.requirements import requirement

BOTH = '[exports.permissions]\nnetwork = "egress"\ngateway_api_scopes = ["chains:write", "compactions:write"]'


@requirement("vai:manifest-kinds")
@pytest.mark.parametrize(
    ("kind", "usual", "timeout", "own"),
    [
        ("harness", "isolated", 1_800_000, {"mode": "composite", "fidelity": "checkpoint", "supports": []}),
        ("tool", "isolated", 20_000, {"effect_class": "unknown", "streaming": False}),
        ("hook", "worker", 15_000, {"subscribes_to": ["run.completed"]}),
        ("compactor", "worker", 120_000, {"target_context": "coding", "supports_pinned_items": False}),
    ],
)
def test_every_kind_has_its_own_class_time_and_facts(kind: str, usual: str, timeout: int, own: dict[str, Any]) -> None:
    (found,) = good(manifest(export(kind))).exports
    assert (found.kind, found.name) == (kind, "x")
    assert (found.facts["execution_class"], found.facts["timeout_ms"], found.facts["max_concurrency"]) == (
        usual,
        timeout,
        1,
    )
    assert {name: found.facts[name] for name in own} == own


@requirement("vai:manifest-execution-class")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CLASSES)
def test_every_kind_may_be_of_every_class(kind: str, name: str) -> None:
    (found,) = good(manifest(export(kind, execution_class=f'"{name}"'))).exports
    assert found.facts["execution_class"] == name


@requirement("vai:manifest-kinds")
@pytest.mark.parametrize("kind", ["", "Tool", "screen"])
def test_there_is_no_fifth_kind(kind: str) -> None:
    assert problems(manifest(export(kind))) == [("error", "unknown_kind", "exports[0].kind")]


@requirement("vai:manifest-kind-table")
@pytest.mark.parametrize("kind", KINDS)
def test_an_export_needs_the_table_of_its_kind(kind: str) -> None:
    text = manifest(f'[[exports]]\nid = "x"\nkind = "{kind}"\ndisplay_name = "X"')
    assert ("error", "missing_kind_table", "exports[0]") in problems(text)


@requirement("vai:manifest-kind-table")
@pytest.mark.parametrize("kind", KINDS)
def test_an_export_has_no_table_of_another_kind(kind: str) -> None:
    other = "hook" if kind != "hook" else "tool"
    text = manifest(
        export(kind, f"[exports.{other}]\n{TABLES[other]}", '[exports.permissions]\nfilesystem = "scratch"')
    )
    assert problems(text) == [("error", "unexpected_kind_table", f"exports[0].{other}")]


@requirement("vai:manifest-effect-class")
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_tool_says_what_it_does_to_the_world(effect: str) -> None:
    own = f'effect_class = "{effect}"\nstreaming = true\n{TABLES["tool"]}'
    (found,) = good(manifest(export(own=own))).exports
    assert (found.facts["effect_class"], found.facts["streaming"]) == (effect, True)


@requirement("vai:manifest-fidelity")
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_harness_says_what_of_it_survives(fidelity: str) -> None:
    (found,) = good(manifest(export("harness", own=f'fidelity = "{fidelity}"'))).exports
    assert found.facts["fidelity"] == fidelity


@pytest.mark.parametrize(
    ("kind", "own", "path"),
    [
        ("tool", f'effect_class = "pure"\n{TABLES["tool"]}', "tool.effect_class"),
        ("harness", 'fidelity = "exact"', "harness.fidelity"),
    ],
)
def test_a_word_that_is_in_no_list_is_refused(kind: str, own: str, path: str) -> None:
    assert problems(manifest(export(kind, own=own))) == [("error", "invalid_enum", f"exports[0].{path}")]


@requirement("vai:manifest-subscriptions")
def test_a_hook_that_hears_of_nothing_is_refused() -> None:
    text = manifest(export("hook", own="subscribes_to = []"))
    assert problems(text) == [("error", "no_subscriptions", "exports[0].hook.subscribes_to")]


@requirement("vai:manifest-subscriptions")
def test_an_event_that_never_happens_and_one_that_is_named_twice_are_warned_about() -> None:
    text = manifest(export("hook", own='subscribes_to = ["run.completed", "run.complete", "run.completed"]'))
    spec, found = parsed(text)
    assert [(item.severity, item.code, item.path) for item in found] == [
        ("warning", "unknown_event", "exports[0].hook.subscribes_to[1]"),
        ("warning", "duplicate", "exports[0].hook.subscribes_to[2]"),
    ]
    assert "did you mean 'run.completed'?" in found[0].message
    assert spec is not None
    assert spec.exports[0].facts["subscribes_to"] == ["run.completed", "run.complete"]


def test_words_of_a_harness_that_the_contract_does_not_show_are_warned_about() -> None:
    own = 'fidelity = "lossless"\nmode = "solo"\nsupports = ["continue", "tool", "tols"]'
    assert problems(manifest(export("harness", own=own))) == [
        ("warning", "unknown_mode", "exports[0].harness.mode"),
        ("warning", "unknown_support", "exports[0].harness.supports[2]"),
    ]


@requirement("vai:manifest-supports-scopes")
def test_a_harness_without_the_scope_for_what_it_supports_is_warned_about() -> None:
    own = 'fidelity = "lossless"\nsupports = ["compact", "branch_session"]'
    good(manifest(export("harness", BOTH, own=own)))
    text = manifest(export("harness", BOTH.replace('"chains:write", ', ""), own=own))
    (found,) = reported(text)
    assert (found.severity, found.code, found.path) == (
        "warning",
        "supports_without_scope",
        "exports[0].harness.supports[1]",
    )
    assert "chains:write" in found.message


@requirement("vai:manifest-compactor-scratch")
def test_a_compactor_without_scratch_is_warned_about() -> None:
    text = manifest(export("compactor", '[exports.permissions]\nfilesystem = "none"'))
    assert problems(text) == [("warning", "inline_projection_only", "exports[0].permissions")]
