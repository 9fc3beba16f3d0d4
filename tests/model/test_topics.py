"""Which topics a grant covers, row by row."""

from __future__ import annotations

import pytest

from plugbay.model.topics import covers
from tests.support.requirements import requirement


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
