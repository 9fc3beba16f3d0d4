"""Texts that say the same in other words share a tag; glue never becomes one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.services.concepts import MAX_TAGS, derive, significant, words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("user prefers concise answers", "keep replies short"),
        ("the client's favourite colour is teal", "likes: teal"),
        ("invoices are due in May", "how much does it cost?"),
        ("allergic to peanuts", "any health problems?"),
        ("prefiere respuestas breves", "user wants brief answers"),
        ("her wife is called Ana", "tell me about the family"),
        ("the deployment crashed", "software that failed"),
    ],
)
def test_texts_about_the_same_share_a_tag(one: str, other: str) -> None:
    assert set(derive(one)) & set(derive(other))


def test_texts_about_something_else_share_none() -> None:
    assert not set(derive("user prefers concise answers")) & set(derive("flights to Lima leave from gate 12"))


def test_known_concepts_come_first_and_then_the_words_the_text_repeats() -> None:
    assert derive("teal lamp, teal carpet, favourite teal carpet") == ("preference", "teal", "carpet", "lamp")


def test_glue_and_short_words_are_no_tags() -> None:
    assert derive("and so it is with the of") == ()
    assert derive("ox yak") == ()
    assert derive("") == ()


def test_names_in_code_give_their_parts() -> None:
    assert words("paymentGateway retry_count HTTP2") == [
        "paymentgateway",
        "payment",
        "gateway",
        "retry",
        "count",
        "http2",
    ]


def test_accents_and_case_do_not_matter() -> None:
    assert words("Contraseña CAFÉ") == ["contrasena", "cafe"]


@pytest.mark.parametrize("text", ["한국어", "カタカナ", "日本"])
def test_scripts_without_accents_keep_their_letters(text: str) -> None:
    assert words(text) == [text]


def test_only_telling_words_count_unless_there_are_no_others() -> None:
    assert significant(["what", "is", "the", "plan", "plan"]) == ["plan"]
    assert significant(["what", "is", "what"]) == ["what", "is"]


@given(st.text(), st.integers(0, 20))
def test_tags_are_distinct_words_within_the_limit(text: str, limit: int) -> None:
    tags = derive(text, limit)
    assert len(tags) == len(set(tags)) <= limit
    assert all(words(tag) for tag in tags)
    assert derive(text) == derive(text)[:MAX_TAGS]
