"""Subjects carry the name of the node, so that permissions of NATS decide who it is."""

from __future__ import annotations

import re

import pytest

from plugbay.cluster.subjects import LONGEST_WORD, Subjects, last_word, permissions, word

CELL = Subjects("main")
LIVE = CELL.live("acme", "run", "run_1")


def covers(pattern: str, subject: str) -> bool:
    words = [r"[^.]+" if word == "*" else r".+" if word == ">" else re.escape(word) for word in pattern.split(".")]
    return re.fullmatch(r"\.".join(words), subject) is not None


def test_a_node_may_only_speak_as_itself() -> None:
    own = permissions("main", "n1")
    assert any(covers(pattern, CELL.beat("n1")) for pattern in own["publish"])
    assert any(covers(pattern, CELL.reply("gw", "id")) for pattern in own["publish"])
    assert any(covers(pattern, CELL.ask("n1")) for pattern in own["publish"])
    others = (CELL.beat("n2"), CELL.ask("n2"), CELL.answer("n2", "id"))
    for subject in (*others, CELL.call("n1"), CELL.control("n2"), CELL.roll, "pb1.other.beat.n1", LIVE):
        assert not any(covers(pattern, subject) for pattern in own["publish"]), subject


def test_a_node_hears_its_own_calls_and_no_answers() -> None:
    own = permissions("main", "n1")
    for subject in (CELL.call("n1"), CELL.control("n1"), CELL.answer("n1", "id"), CELL.roll):
        assert any(covers(pattern, subject) for pattern in own["subscribe"]), subject
    others = (CELL.ask("n1"), CELL.ask("n2"), CELL.answer("n2", "id"))
    for subject in (*others, CELL.call("n2"), CELL.control("n2"), CELL.reply("gw", "id"), CELL.beat("n2"), LIVE):
        assert not any(covers(pattern, subject) for pattern in own["subscribe"]), subject


def test_a_gateway_reaches_every_node_and_hears_every_answer() -> None:
    own = permissions("main")
    for subject in (CELL.call("n1"), CELL.control("n2"), CELL.answer("n1", "id"), CELL.roll, LIVE):
        assert any(covers(pattern, subject) for pattern in own["publish"]), subject
    subscribe = [pattern.partition(" ")[0] for pattern in own["subscribe"]]
    for subject in (CELL.replies("gw"), CELL.beats, CELL.asks, LIVE):
        assert any(covers(pattern, subject.replace("*", "x")) for pattern in subscribe), subject


def test_the_last_word_of_a_subject_that_is_no_text_is_empty() -> None:
    assert last_word(b"pb1.main.beat.n1") == "n1"
    assert last_word(b"pb1.main.beat.\xff") == ""


@pytest.mark.parametrize(
    ("id", "expected"),
    [
        ("acme_Org-1", "acme_Org-1"),
        ("a.b", "a=2eb"),
        ("a=2eb", "a=3d2eb"),
        ("*", "=2a"),
        (">", "=3e"),
        ("a b\r\n", "a=20b=0d=0a"),
        ("é", "=c3=a9"),
        ("\ud800", "=ed=a0=80"),
    ],
)
def test_any_id_is_one_word_of_a_subject(id: str, expected: str) -> None:
    assert word(id) == expected


def test_long_ids_and_the_empty_one_are_words_too() -> None:
    words = {word(id) for id in ("", "a" * LONGEST_WORD, "a" * (LONGEST_WORD + 1), "." * 200, "." * 199)}
    assert len(words) == 5 and all(0 < len(each) <= LONGEST_WORD for each in words)


def test_an_org_is_heard_without_the_others() -> None:
    assert covers(CELL.lives("acme"), LIVE) and covers(CELL.lives(None), LIVE)
    assert not covers(CELL.lives("acm"), LIVE) and not covers(CELL.lives("a.b"), CELL.live("a", "b", "c"))
