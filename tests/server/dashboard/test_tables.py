"""Lists as values: which page comes next, and what is asked again with it."""

from __future__ import annotations

from urllib.parse import parse_qs

from plugbay.server.dashboard import rendering
from plugbay.server.dashboard.tables import Cell, Filter, NextStep, Table, query_of, table_of
from plugbay.store.pages import Part

EMPTY = NextStep("Nothing yet", "Make one:", "plugbay make", "Make one", "/make")


def made(part: Part[str], cursor: str = "", search: str = "") -> Table:
    filters = (Filter("search", "Search", search),)
    return table_of(
        "Things", "/things", ("Thing",), part, lambda text: (Cell(text),), filters=filters, empty=EMPTY, cursor=cursor
    )


def test_the_next_page_asks_for_the_same_and_for_what_is_older() -> None:
    table = made(Part(("a", "b"), (7.0, "b")), search="x y")
    asked = parse_qs(table.older)
    assert asked["search"] == ["x y"] and asked["cursor"] and table.newest == ""
    later = made(Part(("c",)), cursor=asked["cursor"][0], search="x y")
    assert later.older == "" and later.newest == "search=x+y" and later.is_filtered
    assert made(Part(("c",)), cursor="abc").newest == "newest"


def test_a_query_has_no_empty_values() -> None:
    assert query_of({"a": "", "b": "1"}, c="", d="2") == "b=1&d=2"


def test_an_empty_list_names_the_next_step_and_a_filtered_one_the_way_back() -> None:
    empty = rendering.fragment("parts/table.html", table=made(Part(())), now=0.0)
    assert "Nothing yet" in empty and "plugbay make" in empty and 'href="/make"' in empty
    filtered = rendering.fragment("parts/table.html", table=made(Part(()), search="x"), now=0.0)
    assert "Nothing found" in filtered and 'href="/things"' in filtered and "Nothing yet" not in filtered


def test_every_cell_is_escaped_and_named() -> None:
    hostile = '"><script>x</script>'
    cells = (Cell(hostile, hostile, "/x"), Cell(hostile, tone="good"), Cell(at=1.0), Cell(hostile, number=True))
    table = Table("Things", "/things", ("A", "B", "C", "D"), (cells,), (), EMPTY)
    html = rendering.fragment("parts/table.html", table=table, now=5.0)
    assert "<script" not in html and html.count("&lt;script&gt;") == 4
    assert 'data-label="D" class="number"' in html and '<th scope="row">' in html


def test_the_empty_list_of_one_org_is_a_first_step_and_no_search_in_vain() -> None:
    def shown(*filters: Filter) -> str:
        part: Part[str] = Part(())
        table = table_of("Things", "/things", ("A",), part, lambda text: (Cell(text),), filters=filters, empty=EMPTY)
        return rendering.fragment("parts/table.html", table=table, now=0.0)

    of_org = Filter("org", "Org", "tea", scope=True)
    assert "Nothing yet" in shown(of_org) and 'href="/things">All' in shown(of_org)
    assert "Nothing found" in shown(of_org, Filter("search", "Search", "x"))
