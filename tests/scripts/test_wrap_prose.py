"""Long prose is wrapped; code, tables, comments, headings and code spans stay as they are."""

from __future__ import annotations

from scripts.wrap_prose import WIDTH, pages, wrap


def test_a_paragraph_and_an_item_are_wrapped_with_their_indent() -> None:
    words = " ".join(["word"] * 60)
    paragraph, item, rest = wrap(f"{words}\n\n- {words}\n\n> {words}").split("\n\n")
    assert all(len(line) <= WIDTH for line in (paragraph + "\n" + item + "\n" + rest).split("\n"))
    assert paragraph.split() == words.split()
    assert item.startswith("- word") and all(line.startswith("  word") for line in item.split("\n")[1:])
    assert all(line.startswith("> word") for line in rest.split("\n"))


def test_what_markdown_reads_by_line_is_not_touched() -> None:
    wide = "x " * 90
    page = f"# {wide}\n\n| {wide}|\n\n```\n{wide}\n```\n\n<!-- {wide}\n-->\n\n![{wide}](a.png)\n\n    {wide}"
    assert wrap(page) == page


def test_short_lines_of_a_paragraph_are_joined_and_code_spans_are_kept_whole() -> None:
    assert wrap("one\ntwo `three four`") == "one two `three four`"
    line = "word " * 22 + "`plugbay call a b`"
    assert wrap(line).split("\n")[1] == "`plugbay call a b`"


def test_no_wrapped_line_begins_a_list_or_a_table() -> None:
    wrapped = wrap("word " * 23 + "and - not an item, 2. neither")
    assert not any(line.startswith(("- ", "2. ")) for line in wrapped.split("\n"))


def test_every_page_is_wrapped_and_wrapping_twice_changes_nothing() -> None:
    assert len(pages()) > 20
    for page in pages():
        text = page.read_text("utf-8")
        assert wrap(wrap(text)) == wrap(text), page
