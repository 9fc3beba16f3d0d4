"""Ids."""

from __future__ import annotations

import asyncio
import re

import pytest

from plugbay.server.domain.ids import (
    ID_PATTERN,
    REQUEST_ID,
    format_traceparent,
    new_id,
    new_trace_id,
    parse_traceparent,
)
from tests.support.loops import Run
from tests.support.requirements import requirement


def test_an_id_has_its_prefix_and_80_random_bits() -> None:
    made = {new_id("bind_") for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"bind_[0-9a-f]{20}", each) and re.fullmatch(ID_PATTERN, each) for each in made)


@pytest.mark.parametrize("text", ["", "a/b", "a:b", "a b", "é", "-a", "a" * 65, "a\n"])
def test_invalid_ids_do_not_match(text: str) -> None:
    assert re.fullmatch(ID_PATTERN, text) is None


def test_each_task_knows_its_own_request(run: Run) -> None:
    async def main() -> None:
        async def answer(id: str) -> str | None:
            REQUEST_ID.set(id)
            await asyncio.sleep(0)
            return REQUEST_ID.get()

        assert list(await asyncio.gather(answer("req_1"), answer("req_2"))) == ["req_1", "req_2"]
        assert REQUEST_ID.get() is None

    run(main)


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@requirement("vai:control-trace")
def test_a_trace_goes_on_under_its_own_id() -> None:
    assert parse_traceparent(f"00-{TRACE}-{SPAN}-01") == f"tr_{TRACE}"
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-what-comes-later") == f"tr_{TRACE}"
    after = format_traceparent(f"tr_{TRACE}", "inv_1")
    assert after is not None and parse_traceparent(after) == f"tr_{TRACE}" and SPAN not in after
    assert format_traceparent(f"tr_{TRACE}", "inv_2") != after


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
def test_an_invalid_trace_context_is_ignored(header: str | None) -> None:
    assert parse_traceparent(header) is None


def test_a_new_trace_id_can_be_continued_and_a_foreign_one_cannot() -> None:
    assert format_traceparent(new_trace_id(), "inv_1") is not None and new_trace_id() != new_trace_id()
    assert format_traceparent("tr_mine", "inv_1") is None
