"""The index of many patterns finds the patterns that match one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plugbay.host.events.subjects import SubjectIndex
from plugbay.model.topics import matches

TEXTS = st.lists(st.sampled_from(["a", "b", "c", "*", ">", "a*", ""]), max_size=5).map(".".join)


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
