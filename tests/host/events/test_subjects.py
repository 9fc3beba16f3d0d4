"""Patterns cover subjects by whole segments, and the index of many patterns agrees with the single question."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.events.subjects import MAX_SUBJECT, SubjectIndex, matches, subject_problem
from tests.support.requirements import requirement

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "*", ">", "a*", ""]), max_size=5).map(".".join)


@requirement("nexo:host-topic-wildcards")
@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("a", "a"),
        ("plugin.outbound.slack", "plugin.outbound.slack"),
        ("plugin.outbound.slack.>", "plugin.outbound.slack.team_a"),
        ("plugin.outbound.slack.>", "plugin.outbound.slack.team_a.room"),
        ("a.*.c", "a.b.c"),
        ("*", "a"),
        (">", "a"),
        (">", "a.b.c"),
        ("a.>.b", "a.x"),
        ("a.>.b", "a.x.y"),
        ("a.*b", "a.*b"),
        ("a.*", "a.*"),
        ("a.>", "a.>"),
    ],
)
def test_a_pattern_covers_a_subject(pattern: str, subject: str) -> None:
    assert matches(pattern, subject)


@requirement("nexo:host-topic-wildcards")
@pytest.mark.parametrize(
    ("pattern", "subject"),
    [
        ("a", "b"),
        ("a", "A"),
        ("a", "a.b"),
        ("a.b", "a"),
        ("a.>", "a"),
        ("*", "a.b"),
        ("a.*", "a"),
        ("a.*", "a.b.c"),
        ("sl*", "slack"),
        ("", ""),
        ("", "a"),
        (">", ""),
        (">", "a..b"),
        (">", ".a"),
        (">", "a."),
        ("a..b", "a..b"),
        (".a", ".a"),
        ("a.>.", "a.b"),
        ("a.", "a."),
    ],
)
def test_a_pattern_does_not_cover_a_subject(pattern: str, subject: str) -> None:
    assert not matches(pattern, subject)


@requirement("nexo:host-topic-plain")
@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", "*", "a.*", "a.>", ">.a", "a" * (MAX_SUBJECT + 1)])
def test_nothing_is_published_under_a_subject_with_wildcards_or_holes(subject: str) -> None:
    assert subject_problem(subject) is not None


@pytest.mark.parametrize("subject", ["a.\0", "a.\n", "a.\x1b[31m", "a.b\u200b"])
def test_a_subject_can_be_printed(subject: str) -> None:
    assert "cannot be printed" in (subject_problem(subject) or "")


@requirement("nexo:host-topic-plain")
@pytest.mark.parametrize("subject", ["a", "a.größe", "plugin.inbound.slack.team_a", "a.b*", "a>.b", "a" * MAX_SUBJECT])
def test_a_plain_subject_has_no_problem(subject: str) -> None:
    assert subject_problem(subject) is None


@given(TEXTS)
def test_the_bare_wildcard_covers_every_subject_that_may_be_published(subject: str) -> None:
    assert matches(">", subject) or subject_problem(subject) is not None


@given(st.lists(TEXTS, max_size=8), TEXTS)
def test_the_index_finds_exactly_what_matches(patterns: list[str], subject: str) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for pattern in patterns:
        index.add(pattern, pattern)
    assert index.find(subject) == {pattern for pattern in patterns if matches(pattern, subject)}


@given(st.lists(TEXTS, max_size=8), st.lists(TEXTS, max_size=8), TEXTS)
def test_what_is_removed_is_found_no_more_and_leaves_nothing_behind(
    kept: list[str], removed: list[str], subject: str
) -> None:
    index: SubjectIndex[str] = SubjectIndex()
    for pattern in [*kept, *removed]:
        index.add(pattern, pattern)
    for pattern in removed:
        index.remove(pattern, pattern)
    gone = set(removed)
    assert index.find(subject) == {pattern for pattern in kept if matches(pattern, subject) and pattern not in gone}
    for pattern in kept:
        index.remove(pattern, pattern)
    assert index.is_empty()


def test_removing_what_was_never_filed_changes_nothing() -> None:
    index: SubjectIndex[int] = SubjectIndex()
    index.add("a.b", 1)
    for pattern in ("a.b.c", "x", "a.>", "a", ""):
        index.remove(pattern, 1)
    assert index.find("a.b") == {1}
