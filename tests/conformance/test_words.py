"""Every word of the pattern language says in words what it wants; what fits it is tried with the patterns."""

from __future__ import annotations

import pytest

from plugbay.conformance.words import WORDS


@pytest.mark.parametrize("word", WORDS)
def test_a_word_says_what_it_wants_and_is_sure_about_null(word: str) -> None:
    wants, test = WORDS[word]
    assert wants and word.startswith("$")
    if word not in ("$growing", "$answer_last"):  # which are asked about lists alone
        assert test(None) is (word == "$any")


@pytest.mark.parametrize(
    ("word", "value", "fits"),
    [
        ("$tool_name", "x" * 128, True),
        ("$tool_name", "x" * 129, False),
        ("$tool_name", "", False),
        ("$tool_name", "naïve", False),
        ("$uri", "urn:x", True),
        ("$uri", "1x:y", False),
        ("$uri", ":y", False),
        ("$uri", 7, False),
    ],
)
def test_the_names_of_mcp_have_their_letters(word: str, value: object, fits: bool) -> None:
    assert WORDS[word][1](value) is fits
