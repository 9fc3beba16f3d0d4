"""What is said before an answer becomes a number that grows, and a text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from plugbay.mcp_server.progress import LONGEST_MESSAGE, Steps
from tests.support.requirements import requirement


@requirement("mcp:serve-progress")
def test_an_mcp_servers_progress_passes_as_it_is() -> None:
    steps = Steps()
    assert steps.next({"progress": 0.5, "total": 2, "message": "half"}) == {
        "progress": 0.5,
        "total": 2,
        "message": "half",
    }
    assert steps.next(msgspec.Raw(b'{"progress": 1}')) == {"progress": 1}


@requirement("mcp:serve-progress")
@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("brewing", "brewing"),
        ({"type": "progress", "message": "brewing"}, "brewing"),
        ({"type": "output_delta", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"delta": "word"}, "word"),
        ({"step": 3}, '{"step":3}'),
        ([1], "[1]"),
    ],
)
def test_everything_else_is_counted_and_shown(item: Any, message: str) -> None:
    assert Steps().next(item) == {"progress": 1, "message": message}


def test_the_count_grows_and_nothing_to_say_is_left_out() -> None:
    steps = Steps()
    assert [steps.next("")["progress"], steps.next("")["progress"]] == [1, 2]
    assert steps.next("") == {"progress": 3}


def test_a_long_piece_is_cut() -> None:
    assert len(Steps().next("x" * 10_000)["message"]) == LONGEST_MESSAGE
