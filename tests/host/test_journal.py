"""Notes about plugins: counted, and logged once loudly."""

from __future__ import annotations

import logging

import pytest

from plugbay.host.journal import MAX_TEXT, Journal


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


def test_text_of_a_plugin_cannot_forge_a_line_or_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "plugbay.host"):
        Journal().note("a", "noise", "one\nWARNING forged\x1b[2J" + "x" * 10_000)
    message = caplog.records[0].getMessage()
    assert "\n" not in message and "\x1b" not in message
    assert len(message) < MAX_TEXT + 100
