"""A recording says who asked what, how often and for how long, and what is missing in it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from plugbay.conformance.replay.summary import Question, summarize
from plugbay.link.recording import Frame
from tests.conformance.recordings import call, error, items, joined, recording, result


def test_questions_are_counted_by_who_asks_and_what() -> None:
    held = summarize(
        recording(
            "kaged",
            (">", call(1, "a")),
            ("<", call(1, "storage.get")),
            (">", result(1, None)),
            ("<", result(1, "x")),
            (">", call(2, "a")),
            ("<", error(2, "no")),
            (">", call(3, "b")),
        )
    )
    assert [(each.asker, each.name, each.count, each.failed) for each in held.questions] == [
        ("host", "a", 2, 1),
        ("plugin", "storage.get", 1, 0),
        ("host", "b", 1, 0),
    ]
    assert [each.milliseconds for each in held.questions] == [pytest.approx(20), pytest.approx(10), None]
    assert (held.conversations, held.frames, held.finished) == (1, 7, False)
    assert held.seconds == pytest.approx(0.06)


def test_what_is_missing_is_named_with_its_line() -> None:
    whole, long = items([(">", call(1, "a", token="***")), ("<", result(1, "x"))], {2: ("/params/token",)})
    assert isinstance(long, Frame)
    held = summarize(joined("kaged", [whole, replace(long, value=None, raw=b"{", cut="sha256:0")]))
    assert held.missing == (
        "line 2: redacted at /params/token",
        "line 3: too long, so only its beginning is here",
    )


def test_an_empty_recording_holds_nothing() -> None:
    held = summarize(recording("rune"))
    assert (held.conversations, held.frames, held.seconds, held.questions) == (0, 0, 0.0, ())


def test_the_json_has_everything() -> None:
    held = summarize(recording("kaged", (">", call(1, "a"))))
    assert list(held.to_json()["questions"]) == [
        {"asker": "host", "name": "a", "count": 1, "failed": 0, "milliseconds": None}
    ]
    assert held.questions == (Question("host", "a", 1, 0, None),)
