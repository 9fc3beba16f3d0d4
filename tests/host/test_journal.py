"""Notes about plugins: counted, and logged once loudly."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from plugbay.host.journal import KEPT, MAX_TEXT, NOTES_PER_SECOND, Journal, Note, describe_facts
from tests.support.requirements import requirement


def test_every_note_is_counted_by_plugin_and_kind() -> None:
    journal = Journal()
    journal.note("a", "noise", "x")
    journal.note("a", "noise", "y", 4)
    journal.note("b", "noise", "z")
    assert journal.counts("a") == {"noise": 5}
    assert journal.counts("b") == {"noise": 1}
    assert journal.counts("c") == {}


def test_the_first_of_a_kind_is_a_warning_and_a_flood_is_not(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    with caplog.at_level(logging.DEBUG, "plugbay.host"):
        for _ in range(3):
            journal.note("a", "noise", "x")
        journal.note("a", "other", "y")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "DEBUG", "DEBUG", "WARNING"]


def test_a_flood_of_notes_is_counted_and_a_few_a_second_are_logged() -> None:
    now, told = [0.0], []
    journal = Journal(lambda: now[0])
    journal.listen(lambda plugin_id, note: told.append((plugin_id, note.kind)))
    for _ in range(5 * KEPT):
        journal.note("a", "noise", "x")
    assert journal.counts("a") == {"noise": 5 * KEPT}
    assert told == [("a", "noise")] * (1 + KEPT), "the first, and as many as are kept"
    told.clear()
    journal.note("a", "noise", "x")
    assert told == []
    journal.note("a", "publish_refused", "the first of its kind")
    journal.note("a", "log.info", "what it says itself has a rate of its own")
    journal.note("b", "noise", "another plugin's")
    assert told == [("a", "publish_refused"), ("a", "log.info"), ("b", "noise")]
    told.clear()
    now[0] = 1.0
    for _ in range(KEPT):
        journal.note("a", "noise", "x")
    assert len(told) == NOTES_PER_SECOND


def test_text_of_a_plugin_cannot_forge_a_line_or_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "plugbay.host"):
        Journal().note("a", "noise", "one\nWARNING forged\x1b[2J" + "x" * 10_000)
    message = caplog.records[0].getMessage()
    assert "\n" not in message and "\x1b" not in message
    assert len(message) < MAX_TEXT + 100


@requirement("ainb:host-log-kept")
def test_the_last_notes_of_each_plugin_are_kept_with_their_time_and_level() -> None:
    moments = iter(range(1000))
    journal = Journal(lambda: float(next(moments)))
    journal.note("a", "log.info", "hello", level="info")
    journal.note("b", "noise", "x")
    journal.note("a", "noise", "one\ntwo")
    assert journal.recent("a") == [Note(0.0, "info", "log.info", "hello"), Note(2.0, "warn", "noise", "one\\x0atwo")]
    assert journal.recent("b") == [Note(1.0, "warn", "noise", "x")]
    assert journal.recent("c") == []


def test_no_more_is_kept_than_a_few_screens_of_it() -> None:
    journal = Journal()
    for number in range(KEPT + 10):
        journal.note("a", "log.info", f"{number} " + "x" * 10_000)
    kept = journal.recent("a")
    assert [note.text.split()[0] for note in kept] == [str(number) for number in range(10, KEPT + 10)]
    assert max(len(note.text) for note in kept) == MAX_TEXT


def test_a_remark_that_repeats_itself_is_kept_once_and_pushes_nothing_out() -> None:
    moments = iter(range(10_000))
    journal = Journal(lambda: float(next(moments)))
    journal.note("a", "crashed", "it ended")
    for _ in range(2 * KEPT):
        journal.note("a", "log_dropped", "too many")
    assert journal.recent("a") == [
        Note(0.0, "warn", "crashed", "it ended"),
        Note(2.0 * KEPT, "warn", "log_dropped", "too many"),
    ]
    assert journal.counts("a") == {"crashed": 1, "log_dropped": 2 * KEPT}
    journal.note("a", "noise", "too many")
    journal.note("a", "log_dropped", "too many")
    assert [note.kind for note in journal.recent("a")] == ["crashed", "log_dropped", "noise", "log_dropped"]


def test_log_lines_of_a_plugin_are_kept_line_by_line() -> None:
    journal = Journal()
    journal.note("a", "log.info", "tick", level="info")
    journal.note("a", "log.info", "tick", level="info")
    assert [note.text for note in journal.recent("a")] == ["tick", "tick"]


def test_a_listener_hears_every_note_as_it_is_kept() -> None:
    journal = Journal(lambda: 7.0)
    journal.note("a", "noise", "before")
    heard: list[tuple[str, Note]] = []
    journal.listen(lambda plugin_id, note: heard.append((plugin_id, note)))
    journal.note("a", "noise", "one\ntwo", level="error")
    assert heard == [("a", journal.recent("a")[-1])]
    assert heard[0][1].level == "error" and "\n" not in heard[0][1].text


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"code": "timeout", "message": "no answer"}, "code timeout: no answer"),
        ({"exit_code": 1, "stderr_tail": ["Traceback", "KeyError: 'x'"]}, "exit code 1: Traceback / KeyError: 'x'"),
        ({"attempts": 2, "last_exit_code": 1, "stderr_tail": []}, "attempts 2, last exit code 1"),
        ({"missed_probes": 3}, "missed probes 3"),
    ],
)
def test_the_facts_of_an_event_become_one_line(facts: dict[str, Any], line: str) -> None:
    assert describe_facts(facts) == line
