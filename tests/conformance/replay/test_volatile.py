"""What is new every time is put in the place of what it was, in questions and in answers that repeat it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from plugbay.conformance.replay.volatile import RENEWALS, PlayContext, apply_swaps, find_swaps, renew_frame

NOW = PlayContext(
    "/here/manifest.toml",
    "/tmp/here",
    42,
    began=datetime(2026, 1, 1, tzinfo=UTC),
    begins=datetime(2027, 1, 1, 12, tzinfo=UTC),
)


@pytest.mark.parametrize(
    ("frame", "again"),
    [
        (
            {"params": {"manifest_path": "/there/manifest.toml", "host": {"pid": 7}, "config": None}},
            {"params": {"manifest_path": "/here/manifest.toml", "host": {"pid": 42}, "config": None}},
        ),
        (
            {"body": {"context": {"scratch_dir": "/old/place", "deadline_at": "2026-01-01T00:00:30.000Z"}}},
            {"body": {"context": {"scratch_dir": "/tmp/here", "deadline_at": "2027-01-01T12:00:30.000Z"}}},
        ),
        ({"body": {"context": {"scratch_dir": None}}}, {"body": {"context": {"scratch_dir": None}}}),
        ({"body": "text"}, {"body": "text"}),
        ({"params": {"host": "me"}}, {"params": {"host": "me"}}),
    ],
)
def test_a_host_says_what_is_true_now(frame: Any, again: Any) -> None:
    assert renew_frame(frame, NOW) == again


def test_without_a_manifest_the_old_path_is_as_good_as_any() -> None:
    frame = {"params": {"manifest_path": "/there/manifest.toml"}}
    assert renew_frame(frame, PlayContext()) == frame


@pytest.mark.parametrize("moment", ["soon", "2026-01-01T00:00:30", ""])
def test_what_is_no_moment_stays_as_it_is(moment: str) -> None:
    assert NOW.later(moment) == moment


def test_an_answer_repeats_what_is_new() -> None:
    recorded = {"body": {"context": {"scratch_dir": "/old/place", "deadline_at": "never"}}}
    swaps = find_swaps(recorded, renew_frame(recorded, NOW), tuple(RENEWALS))
    assert swaps == {"/old/place": "/tmp/here"}
    assert apply_swaps({"files": ["/old/place/a.txt"], "n": 1}, swaps) == {"files": ["/tmp/here/a.txt"], "n": 1}
    assert apply_swaps("/old/place", {}) == "/old/place"


def test_what_is_short_is_not_replaced_everywhere() -> None:
    assert find_swaps({"id": "a"}, {"id": "b"}, ("/id",)) == {}
