"""Listing: pages, bounds, and entries that are odd or of no use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugbay.contracts.mcp import listing as listing_module
from plugbay.contracts.mcp.listing import MAX_ENTRIES, MAX_LIST_BYTES, MAX_PAGES, MAX_WARNINGS, Listing, build_page
from plugbay.contracts.mcp.messages import LISTS, empty_offer
from plugbay.model.errors import Code, Failure
from tests.support.requirements import requirement

TOOLS, RESOURCES, TEMPLATES, PROMPTS = LISTS
SCHEMA = {"inputSchema": {"type": "object"}}


def tool(name: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, **SCHEMA, **more}


def listing(*lists: Any) -> Listing:
    return Listing(lists or (TOOLS,), empty_offer())


@requirement("mcp:wire-paging")
def test_a_list_is_read_page_by_page() -> None:
    each = listing()
    for cursor, names in ((None, "ab"), ("", "c"), ("next", "d")):
        assert each.build_params() == ({} if cursor is None else {"cursor": cursor})
        more = {"": "next", None: ""}.get(cursor)
        each.take_page({"tools": [tool(name) for name in names], **({} if more is None else {"nextCursor": more})}, 10)
    assert each.current is None
    assert [entry["name"] for entry in each.offer["tools"]] == list("abcd")
    assert each.warnings == []


@requirement("mcp:wire-paging")
def test_a_null_cursor_is_the_end() -> None:
    each = listing()
    each.take_page({"tools": [], "nextCursor": None}, 1)
    assert each.current is None and each.warnings == []


@requirement("mcp:wire-paging")
@pytest.mark.parametrize("cursor", ["a", 5, {}, True])
def test_a_cursor_that_leads_nowhere_ends_the_list(cursor: Any) -> None:
    each = listing()
    each.take_page({"tools": [tool("x")], "nextCursor": cursor}, 1)
    if cursor == "a":
        each.take_page({"tools": [tool("y")], "nextCursor": "a"}, 1)
    assert each.current is None
    assert each.offer["tools"][0] == tool("x")
    (warning,) = each.warnings
    assert "the rest of the list is not read" in warning


@requirement("mcp:wire-paging-bounds")
def test_a_list_that_never_ends_is_cut_after_so_many_pages() -> None:
    each = listing()
    for page in range(MAX_PAGES):
        assert each.current is TOOLS
        each.take_page({"tools": [], "nextCursor": str(page)}, 1)
    assert each.current is None and len(each.warnings) == 1


@requirement("mcp:wire-paging-bounds")
def test_a_list_that_is_too_long_is_cut() -> None:
    each = listing()
    each.take_page({"tools": [tool(str(n)) for n in range(MAX_ENTRIES + 5)]}, 1)
    assert each.current is None and len(each.warnings) == 1
    assert len(each.offer["tools"]) == MAX_ENTRIES
    each = listing()
    each.take_page({"tools": [tool("a")], "nextCursor": "x"}, MAX_LIST_BYTES - 1)
    each.take_page({"tools": [tool("b")], "nextCursor": "y"}, 1)
    assert each.current is None and len(each.warnings) == 1
    assert [entry["name"] for entry in each.offer["tools"]] == ["a", "b"]


@requirement("mcp:wire-paging-bounds")
def test_a_page_that_makes_a_list_too_large_is_not_looked_at() -> None:
    each = listing()
    each.take_page({"tools": [tool("a")], "nextCursor": "x"}, 1)
    each.take_page({"tools": [tool("b")]}, MAX_LIST_BYTES)
    assert each.current is None and len(each.warnings) == 1
    assert [entry["name"] for entry in each.offer["tools"]] == ["a"]


@requirement("mcp:wire-paging-bounds")
def test_a_list_of_exactly_as_many_entries_as_there_may_be_is_whole() -> None:
    each = listing()
    each.take_page({"tools": [tool(str(n)) for n in range(MAX_ENTRIES)], "nextCursor": "x"}, 1)
    each.take_page({"tools": []}, 1)
    assert each.current is None and each.warnings == []


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("entry", [None, 5, "x", [], {}, {"name": ""}, {"name": None}, {"name": 5}, {"title": "t"}])
def test_an_entry_that_nobody_can_use_is_left_out(entry: Any) -> None:
    each = listing()
    each.take_page({"tools": [entry, tool("good")]}, 1)
    assert each.offer["tools"] == [tool("good")]
    assert len(each.warnings) == 1


@requirement("mcp:wire-tolerance")
def test_of_two_tools_with_one_name_the_first_counts() -> None:
    each = listing()
    each.take_page({"tools": [tool("a", description="1"), tool("a", description="2")]}, 1)
    assert each.offer["tools"] == [tool("a", description="1")]
    assert each.warnings == ["tools/list lists 'a' twice; the first one counts"]


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("name", ["with space", "a,b", "ä", "x" * 129, "a/b"])
def test_a_name_that_not_every_client_takes_is_warned_about(name: str) -> None:
    each = listing()
    each.take_page({"tools": [tool(name)]}, 1)
    assert each.offer["tools"] == [tool(name)]
    assert len(each.warnings) == 1


def test_a_good_name_is_not() -> None:
    each = listing()
    each.take_page({"tools": [tool("Get_User-v2.x"), tool("x" * 128)]}, 1)
    assert each.warnings == []


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("schema", [{}, {"inputSchema": None}, {"inputSchema": "x"}])
def test_a_tool_without_a_schema_stays_as_it_is(schema: dict[str, Any]) -> None:
    each = listing()
    entry = {"name": "t", "description": None, **schema}
    each.take_page({"tools": [entry]}, 1)
    assert each.offer["tools"] == [entry]
    assert each.warnings == ["the tool 't' has no inputSchema, so its input is not checked"]


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize("result", [None, [], 5, {}, {"tools": None}, {"tools": {}}])
def test_an_answer_without_the_list_is_an_empty_one(result: Any) -> None:
    each = listing()
    each.take_page(result, 1)
    assert each.current is None and each.offer["tools"] == []
    assert each.warnings == ["tools/list was answered without tools (an array)"]


def test_a_list_that_cannot_be_had_stays_what_it_was() -> None:
    each = Listing((TOOLS, PROMPTS), {**empty_offer(), "tools": [tool("old")]})
    each.skip_list(Failure(Code.PLUGIN_ERROR, "broken"), expected=False)
    each.skip_list(Failure(Code.NOT_FOUND, "no"), expected=True)
    assert each.current is None
    assert each.offer["tools"] == [tool("old")]
    assert each.warnings == ["tools/list failed: broken"]


def test_each_list_is_told_apart_by_its_own_key() -> None:
    each = listing(RESOURCES, TEMPLATES, PROMPTS)
    each.take_page({"resources": [{"uri": "a:b"}, {"name": "no uri"}]}, 1)
    each.take_page({"resourceTemplates": [{"uriTemplate": "a:{b}"}]}, 1)
    each.take_page({"prompts": [{"name": "p"}]}, 1)
    assert [len(entries) for entries in each.offer.values()] == [0, 1, 1, 1]


def test_warnings_are_said_once_and_not_without_end() -> None:
    each = listing()
    for number in range(3 * MAX_WARNINGS):
        each.warn(f"odd {number // 2}")
    assert len(each.warnings) == MAX_WARNINGS
    each = listing()
    each.warn("bad \x1b[2J")
    assert each.warnings == ["bad \\x1b[2J"]


@requirement("mcp:wire-tolerance")
@pytest.mark.parametrize(
    ("capabilities", "methods"),
    [
        ({}, ["tools/list"]),
        ({"logging": {}}, ["tools/list"]),
        ({"tools": None}, ["tools/list"]),
        ({"prompts": {}}, ["prompts/list"]),
        ({"tools": {}, "resources": {}}, ["tools/list", "resources/list", "resources/templates/list"]),
    ],
)
def test_a_server_is_asked_for_what_it_announces_and_else_for_tools(
    capabilities: dict[str, Any], methods: list[str]
) -> None:
    assert [listed.method for listed in listing_module.announced_lists(capabilities)] == methods


def test_a_name_without_end_is_not_repeated_in_a_warning() -> None:
    listing = Listing([LISTS[0]], {})
    tool = {"name": "x" * 100_000, "inputSchema": {}}
    listing.take_page({"tools": [tool, tool]}, 1)
    assert max(map(len, listing.warnings)) < 300


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


def entries(count: int, size: int = 10) -> list[dict[str, Any]]:
    return [{"name": f"{number:0{size}d}"} for number in range(count)]


def test_a_list_that_fits_is_one_page() -> None:
    assert build_page(entries(100), None, 0, encode) == (entries(100), None)
    assert build_page([], None, 0, encode) == ([], None)


@requirement("mcp:wire-paging")
@given(st.lists(st.integers(1, 60), max_size=12))
def test_pages_put_together_are_the_list(sizes: list[int]) -> None:
    every = [{"name": "x" * size} for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_module, "PAGE_BYTES", 100)
        read: list[Any] = []
        cursor: str | None = None
        for _ in range(len(every) + 1):
            page = build_page(every, cursor, 7, encode)
            assert page is not None
            read += page[0]
            cursor = page[1]
            if cursor is None:
                break
    assert read == every and cursor is None


def test_an_entry_larger_than_a_page_is_a_page() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing_module, "PAGE_BYTES", 5)
        assert build_page(entries(2), None, 0, encode) == (entries(2)[:1], "0.1")


@requirement("mcp:wire-paging")
@pytest.mark.parametrize("cursor", ["", "x", "0", "1.0", "0.-1", "0.3", "0.٣", "0.99999999999", 5, [], {}, True])
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: Any) -> None:
    assert build_page(entries(2), cursor, 0, encode) is None
