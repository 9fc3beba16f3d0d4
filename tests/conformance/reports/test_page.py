"""The page of a report: everything is on it, nothing on it is anything but text, and it stands alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from plugbay.conformance.reports.page import FRAME_LINES, About, page, pretty, verdict
from plugbay.conformance.reports.report import GOT, SENT, AxisResult, Finding, Report, Status

HOSTILE = "<script>alert('x')</script>\"'&amp;\x00\x1b[31m\u202e\u2028"
"""What a plugin would write to get out of the text it is put into, in a page or on a screen."""

ABOUT = About("example.tea", "1.2.0", ("plugbay", "conform", "my plugins/tea"), (), "2026-11-15", "plugbay 9")

FOUND = Finding(
    "it stayed",
    rule="a plugin leaves",
    clause="The Text, 4.2 leaving",
    check="rune.leave.after_ok",
    step="2 of 3 (expect)",
    case="tool tea",
    frame=b'{"id":1,"tea":["green",true]}',
    talk=((SENT, b'{"id":1}\n'), (GOT, b'{"id":1,"tea":["green",true]}')),
    exit="exit code 3",
    stderr=("first", "second"),
    hint="let go",
)

REPORT = Report(
    "rune",
    (
        AxisResult("rune.handshake.answers", "answers", Status.PASSED),
        AxisResult("rune.leave.after_ok", "leaves", Status.FAILED, FOUND.words(), 1.0, (FOUND,)),
        AxisResult("rune.handshake.capabilities", "declares", Status.SKIPPED, "nothing to declare"),
    ),
)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    VOID = frozenset({"meta", "br", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        assert self._open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_says_what_was_tested_and_how_it_came_out() -> None:
    text = Elements(page(REPORT, ABOUT)).text
    for words in ("example.tea", "1.2.0", "2026-11-15", "plugbay 9", "breaks 1 of 2 rules of rune", "1 skipped"):
        assert words in text
    for words in ("answers", "leaves", "declares", "nothing to declare", "rune.handshake"):
        assert words in text


def test_a_failure_has_its_rule_its_clause_its_message_and_the_way_to_see_it_again() -> None:
    elements = Elements(page(REPORT, ABOUT))
    for words in (
        "it stayed",
        "A plugin leaves.",
        "The Text, 4.2 leaving",
        '"tea": [\n    "green",\n    true\n  ]',
        "2 of 3 (expect)",
        "tool tea",
        "exit code 3",
        "firstsecond",
        "let go",
        "plugbay conform 'my plugins/tea' --only rune.leave.after_ok",
    ):
        assert words in elements.text
    assert ("article", {"id": "rune.leave.after_ok"}) in elements.found
    assert ("a", {"href": "#rune.leave.after_ok"}) in elements.found


def test_the_rules_of_an_area_are_together_in_whatever_order_they_were_tried() -> None:
    text = page(REPORT, ABOUT)
    assert text.count("<code>rune.handshake</code>") == 1
    assert text.index(">declares<") < text.index("<code>rune.leave</code>")


def test_a_command_stands_behind_the_options_that_reproduce_a_failure() -> None:
    about = About("x", "1", ("plugbay", "conform", "--contract", "nexo"), ("node", "a b.mjs"), "", "")
    assert about.again("--only", "nexo.a.b") == "plugbay conform --contract nexo --only nexo.a.b -- node 'a b.mjs'"


def test_an_axis_that_only_has_words_is_shown_with_them() -> None:
    axis = AxisResult("rune.manifest.drift", "says the same", Status.FAILED, "the version is 2\nline: - 1")
    assert "the version is 2line: - 1" in Elements(page(Report("rune", (axis,)), ABOUT)).text


def hostile_report() -> Report:
    frame = b'{"' + HOSTILE.encode() + b'":"' + HOSTILE.encode() + b'"}'
    found = Finding(
        HOSTILE,
        rule=HOSTILE,
        clause=HOSTILE,
        check=HOSTILE,
        title=HOSTILE,
        step=HOSTILE,
        case=HOSTILE,
        frame=frame,
        talk=((GOT, frame), (SENT, HOSTILE.encode())),
        exit=HOSTILE,
        stderr=(HOSTILE,),
        hint=HOSTILE,
    )
    failed = AxisResult(HOSTILE, HOSTILE, Status.FAILED, HOSTILE, 0, (found,))
    return Report(HOSTILE, (failed, AxisResult(HOSTILE, HOSTILE, Status.SKIPPED, HOSTILE)))


def test_whatever_a_plugin_writes_stays_text() -> None:
    about = About(HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), HOSTILE, HOSTILE)
    hostile, plain = page(hostile_report(), about), page(REPORT, ABOUT)
    allowed = {tag for tag, _ in Elements(plain).found}
    elements = Elements(hostile)
    assert {tag for tag, _ in elements.found} <= allowed
    assert "script" not in allowed
    assert all(not name.startswith("on") for _, attributes in elements.found for name in attributes)
    assert "<script>alert('x')</script>" in elements.text, "it is there to be read"
    assert [char for char in hostile if char != "\n" and not char.isprintable()] == []


def test_text_that_is_not_escaped_would_be_noticed() -> None:
    elements = Elements(page(REPORT, ABOUT).replace("it stayed", "<script>alert(1)</script>"))
    assert "script" in {tag for tag, _ in elements.found}


def test_a_page_needs_no_other_file_and_runs_nothing() -> None:
    text = page(REPORT, ABOUT)
    elements = Elements(text)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in elements.found}
    targets = [value for _, attrs in elements.found for name, value in attrs.items() if name in ("href", "src")]
    assert all(target is not None and target.startswith("#") for target in targets)
    assert "url(" not in text and "@import" not in text
    policy = next(attrs["content"] for _, attrs in elements.found if "http-equiv" in attrs)
    assert policy is not None and policy.startswith("default-src 'none'")


def test_a_page_can_be_read_by_everybody() -> None:
    text = page(REPORT, ABOUT)
    elements = Elements(text)
    assert ("html", {"lang": "en"}) in elements.found
    assert any(attrs.get("name") == "viewport" for _, attrs in elements.found)
    assert "prefers-color-scheme: dark" in text
    assert all("aria-hidden" in attrs for tag, attrs in elements.found if tag == "svg")
    assert '<span class="off">skipped: </span>' in text, "a status is a word too, not only a colour"
    named = {attrs["aria-labelledby"] for _, attrs in elements.found if "aria-labelledby" in attrs}
    assert named <= {attrs.get("id") for _, attrs in elements.found}
    assert [int(tag[1]) for tag, _ in elements.found if re.fullmatch("h[1-6]", tag)][:3] == [1, 2, 3]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"tea < coffee", "tea &lt; coffee"),
        (b"\xff\x00", "\\xff\\x00"),
        (b"Content-Length: 2\r\n\r\n{}", "Content-Length: 2\\x0d\\x0a\\x0d\\x0a\n{}"),
        (b'{"a":"\xe2\x80\xae"}', '{\n  <span class="key">&quot;a&quot;</span>: '),
        (b"[" * 100_000, "[" * 100_000),
        (b'{"cut', "{&quot;cut"),
    ],
)
def test_a_message_is_laid_out_where_it_can_be(body: bytes, text: str) -> None:
    assert pretty(body).startswith(text)


def test_a_message_of_many_lines_is_bounded() -> None:
    shown = pretty(b"[" + b",".join(b"1" for _ in range(500)) + b"]")
    assert shown.count("\n") == FRAME_LINES
    assert shown.endswith(f"… and {502 - FRAME_LINES} more lines")


def test_a_verdict_counts_what_was_tried() -> None:
    assert verdict(Report("rune", (REPORT.axes[0],))) == "conforms to rune"
    assert verdict(Report("rune", ())) == "was not tested against rune"


def test_several_targets_that_broke_one_rule_have_a_card_each() -> None:
    other = replace(FOUND, what="it stayed, too", case="tool coffee")
    axis = AxisResult("rune.leave.after_ok", "leaves", Status.FAILED, FOUND.words(), 1.0, (FOUND, other))
    elements = Elements(page(Report("rune", (axis,)), ABOUT))
    cards = [attributes["id"] for tag, attributes in elements.found if tag == "article"]
    assert cards == ["rune.leave.after_ok", "rune.leave.after_ok-2"]
    links = [attributes["href"] for tag, attributes in elements.found if tag == "a"]
    assert links == [f"#{id}" for id in cards]
    assert "tool tea" in elements.text
    assert "tool coffee" in elements.text
