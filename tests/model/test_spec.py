"""A spec finds its exports by name and shows them in the public shape."""

from __future__ import annotations

from pathlib import Path

from plugbay.model.spec import KINDS, Export, Lifetime, PluginSpec


def test_an_export_is_found_by_its_short_name() -> None:
    spec = PluginSpec("p", "1", "rune", Path("/p"), ("run",), exports=(Export("tool", "a"), Export("tool", "b")))
    assert spec.export("b") == Export("tool", "b")
    assert spec.export("c") is None


def test_an_export_has_the_public_json_shape() -> None:
    export = Export("tool", "a", "does a", {"type": "object"}, facts={"x": 1})
    assert export.to_json() == {
        "kind": "tool",
        "name": "a",
        "description": "does a",
        "input_schema": {"type": "object"},
    }


def test_the_kinds_of_all_contracts_are_known() -> None:
    assert len(KINDS) == 12
    assert {"tool", "screen", "vector_backend", "prompt"} <= KINDS


def test_a_lifetime_is_a_word_an_operator_reads() -> None:
    assert str(Lifetime.PER_CALL) == "per_call"
