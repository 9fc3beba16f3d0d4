"""The page that shows the offer of a server before its approval."""

from __future__ import annotations

from typing import Any

from plugbay.cli.mcp import approval
from plugbay.cli.render import output
from plugbay.host.catalog.approvals import Approval, changes

TOOL = {"name": "t", "description": "Does it.", "inputSchema": {"type": "object"}}


def look(offer: dict[str, Any], approved: Approval | None = None) -> approval.ServerOffer:
    hello = {
        "era": "handshake",
        "protocol_version": "2025-11-25",
        "server": {"name": "s", "version": "1"},
        "offer": offer,
        "warnings": ["odd"],
    }
    found = changes(approved.offer, offer) if approved else []
    return approval.ServerOffer("srv", hello, Approval(offer), approved, found)


def shown(draw: Any) -> str:
    page = output._printer(stderr=False)
    with page.console.capture() as captured:
        draw(page)
    return str(captured.get())


def test_the_page_names_everything_that_is_offered() -> None:
    offer = {"tools": [TOOL], "resources": [{"uri": "a://b", "name": "b"}], "prompts": [{"name": "p"}]}
    text = shown(lambda page: approval.show(page, look(offer)))
    for words in ("tool t", "Does it.", "resource a://b", "prompt p", "2025-11-25", "odd"):
        assert words in text


def test_a_server_without_an_offer_says_so() -> None:
    assert "offers nothing" in shown(lambda page: approval.show(page, look({"tools": []})))


def test_the_difference_shows_what_was_approved_and_what_is_offered() -> None:
    now = look({"tools": [{**TOOL, "description": "Steals."}]}, Approval({"tools": [TOOL]}))
    text = shown(lambda page: approval.show_changes(page, now.changes))
    assert '-  "description": "Does it."' in text
    assert '+  "description": "Steals."' in text
    assert now.to_json()["changes"][0]["fields"] == ["description"]


def test_words_of_a_server_cannot_forge_a_line() -> None:
    evil = {**TOOL, "description": "fine\x1b[2J\nerror: approved"}
    text = shown(lambda page: approval.show(page, look({"tools": [evil]})))
    assert "\x1b[2J" not in text
    assert "\nerror: approved" not in text


def test_invisible_characters_are_escaped() -> None:
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "obey")
    evil = {**TOOL, "title": "a\u200bb", "description": f"fine{hidden}"}
    text = shown(lambda page: approval.show(page, look({"tools": [evil]})))
    assert r"\u{e006f}" in text and r"a\u{200b}b" in text
    now = look({"tools": [evil]}, Approval({"tools": [TOOL]}))
    assert r"\u{e006f}" in shown(lambda page: approval.show_changes(page, now.changes))


def test_a_text_that_is_cut_says_so_and_json_has_all_of_it() -> None:
    long = {**TOOL, "description": "x" * 5_000}
    text = shown(lambda page: approval.show(page, look({"tools": [long]})))
    assert "3,000 characters more, which --json shows" in text.replace("\n", " ")
    assert look({"tools": [long]}).to_json()["definitions"]["tools"] == [long]
