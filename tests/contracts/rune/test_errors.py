"""A plugin's own errors keep their code and never look like one of the nine verdicts."""

from __future__ import annotations

import pytest

from plugbay.contracts.rune import errors
from plugbay.model.errors import Code, Failure, Origin


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        ("invalid_input", Code.INVALID_INPUT),
        ("not_found", Code.NOT_FOUND),
        ("timeout", Code.PLUGIN_ERROR),
        ("", Code.PLUGIN_ERROR),
        ("quota", Code.PLUGIN_ERROR),
    ],
)
def test_a_wire_code_maps_to_ours_and_survives_in_the_detail(wire: str, code: str) -> None:
    failure = errors.from_wire(wire, "m")
    assert (failure.code, failure.origin, failure.detail) == (code, Origin.PLUGIN, {"plugin_code": wire})
    assert errors.to_wire(failure)[0] == (wire or Code.PLUGIN_ERROR)


def test_a_failure_without_words_still_gets_a_message_on_the_wire() -> None:
    assert errors.to_wire(Failure(Code.INTERNAL, "  ")) == ("internal", "the tool failed with internal")


def test_an_excerpt_is_short_and_printable() -> None:
    assert errors.excerpt(b"\x1b[31m\xff" + b"x" * 300).startswith("\\x1b[31m\\xff")
    assert len(errors.excerpt(b"\xff" * 300)) <= 1000
    assert "\n" not in errors.excerpt(b"a\nb")
