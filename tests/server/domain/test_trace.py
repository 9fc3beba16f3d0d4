"""W3C trace context, in and out."""

from __future__ import annotations

import pytest

from plugbay.server.domain.trace import from_parent, new_trace, parent
from tests.support.requirements import requirement

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@requirement("vai:control-trace")
def test_a_trace_goes_on_under_its_own_id() -> None:
    assert from_parent(f"00-{TRACE}-{SPAN}-01") == f"tr_{TRACE}"
    assert from_parent(f"cc-{TRACE}-{SPAN}-01-what-comes-later") == f"tr_{TRACE}"
    after = parent(f"tr_{TRACE}", "inv_1")
    assert after is not None and from_parent(after) == f"tr_{TRACE}" and SPAN not in after
    assert parent(f"tr_{TRACE}", "inv_2") != after


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "tr_1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_what_is_no_trace_context_is_ignored(header: str | None) -> None:
    assert from_parent(header) is None


def test_a_new_trace_can_go_on_and_somebody_elses_id_cannot() -> None:
    assert parent(new_trace(), "inv_1") is not None and new_trace() != new_trace()
    assert parent("tr_mine", "inv_1") is None
