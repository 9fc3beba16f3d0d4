"""Which subjects a pattern matches, and which topics a grant covers, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.model.topics import MAX_SUBJECT, covers, matches, pattern_problem, subject_problem
from tests.support.requirements import requirement

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "*", ">", "a*", ""]), max_size=5).map(".".join)


@requirement("ainb:host-topics-gated", "ainb:host-fleet-reserved")
@pytest.mark.parametrize(
    ("target", "topic", "covered"),
    [
        ("", "usage", True),
        ("", "fleet", True),
        ("", "fleet.x", False),
        ("*", "usage", True),
        ("*", "fleet.x", False),
        ("f*", "fleet.x", False),
        ("fleet.*", "fleet.x", False),
        ("fleet.*", "fleet.*", False),
        ("fleet.x", "fleet.x", True),
        ("fleet.x", "fleet.xy", False),
        ("usage", "usage", True),
        ("usage", "usage.data", False),
        ("usage.*", "usage.data", True),
        ("usage.*", "usage.", True),
        ("usage.*", "usage", False),
        ("us*ge", "usage", False),
        ("us*ge", "us*ge", True),
        ("usage", "", False),
        ("", "", True),
    ],
)
def test_a_topic_is_covered_by_its_name_by_its_beginning_or_by_all(target: str, topic: str, covered: bool) -> None:
    assert covers(target, topic) is covered


@pytest.mark.parametrize(
    ("pattern", "topic", "covered"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a", "a.b", False),
        ("a.b", "a", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.b*", "a.bc", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.>.z", "a.b", True),
        ("a.b", "A.b", False),
        ("a.*", "a.*", True),
        ("a.>", "a..b", False),
        ("", "", False),
        (">", ".a", False),
        ("a.", "a.", False),
    ],
)
def test_plugins_and_hosts_read_patterns_alike(pattern: str, topic: str, covered: bool) -> None:
    assert matches(pattern, topic) is covered


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


@pytest.mark.parametrize("pattern", [">", "*", "a.>", "a.*.b", "*.a"])
def test_a_pattern_may_have_wildcards(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize("pattern", ["", "a..b", ".a", "a.", "a\n", "a" * 1025])
def test_a_pattern_that_matches_nothing_has_a_problem(pattern: str) -> None:
    assert pattern_problem(pattern)
