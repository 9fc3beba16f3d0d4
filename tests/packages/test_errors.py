"""A refusal has a text and hint for people, and a reason for programs."""

from __future__ import annotations

from plugbay.model.errors import PlugbayError
from plugbay.packages.errors import PackageRefused, Reason


def test_a_refusal_is_text_for_people_and_json_for_programs() -> None:
    error = PackageRefused(Reason.TAMPERED, "'a' was changed", hint="get it again", file="a")
    assert isinstance(error, PlugbayError)
    assert str(error) == "'a' was changed\n  hint: get it again"
    assert error.to_json() == {
        "reason": "tampered",
        "message": "'a' was changed",
        "hint": "get it again",
        "file": "a",
    }


def test_a_refusal_without_a_hint_is_its_message() -> None:
    assert str(PackageRefused(Reason.BOMB, "too much")) == "too much"
