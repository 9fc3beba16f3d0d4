"""Our own lists in pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp import pages
from plugbay.contracts.mcp.pages import page_of
from tests.support.requirements import requirement


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def entries(count: int, size: int = 10) -> list[dict[str, Any]]:
    return [{"name": f"{number:0{size}d}"} for number in range(count)]


def test_a_list_that_fits_is_one_page() -> None:
    assert page_of(entries(100), None, 0, encode) == (entries(100), None)
    assert page_of([], None, 0, encode) == ([], None)


@requirement("mcp:wire-paging")
@given(st.lists(st.integers(1, 60), max_size=12))
def test_pages_put_together_are_the_list(sizes: list[int]) -> None:
    every = [{"name": "x" * size} for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_BYTES", 100)
        read: list[Any] = []
        cursor: str | None = None
        for _ in range(len(every) + 1):
            page = page_of(every, cursor, 7, encode)
            assert page is not None
            read += page[0]
            cursor = page[1]
            if cursor is None:
                break
    assert read == every and cursor is None


def test_an_entry_larger_than_a_page_is_a_page() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "PAGE_BYTES", 5)
        assert page_of(entries(2), None, 0, encode) == (entries(2)[:1], "0.1")


@requirement("mcp:wire-paging")
@pytest.mark.parametrize("cursor", ["", "x", "0", "1.0", "0.-1", "0.3", "0.٣", "0.99999999999", 5, [], {}, True])
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: Any) -> None:
    assert page_of(entries(2), cursor, 0, encode) is None
