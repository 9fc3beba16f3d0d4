"""Exports have a known kind and the public shape."""

from __future__ import annotations

import pytest

from plugbay.model.spec import KINDS, Export, Lifetime


def test_an_export_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'spell' is not a kind of export"):
        Export("spell", "a")


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
