"""Output is readable without colour, cannot harm a terminal, and is JSON where JSON was asked for."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from plugbay.cli.render import output
from plugbay.cli.render.output import Printer
from plugbay.contracts.mcp.spec import UNKNOWN_VERSION
from tests.cli.conftest import Run


def printer(*, terminal: bool = False, width: int = 40, encoding: str = "utf-8") -> tuple[Printer, io.StringIO]:
    class Stream(io.StringIO):
        @property
        def encoding(self) -> str:  # type: ignore[override]
            return encoding

    stream = Stream()
    console = Console(
        file=stream,
        force_terminal=terminal,
        width=width,
        color_system=None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    return Printer(console=console), stream


def test_a_line_in_a_pipe_is_never_wrapped() -> None:
    page, stream = printer(width=20)
    page.line("word " * 30 + "end", indent=2)
    assert stream.getvalue() == "  " + "word " * 30 + "end\n"


def test_a_line_on_a_terminal_is_wrapped_and_stays_indented() -> None:
    page, stream = printer(terminal=True, width=30)
    page.line("word " * 10, indent=4)
    lines = stream.getvalue().splitlines()
    assert len(lines) > 1
    assert all(line.startswith("    word") and len(line) <= 30 and not line.endswith(" ") for line in lines)


def test_verbatim_lines_are_not_wrapped() -> None:
    page, stream = printer(terminal=True, width=30)
    page.verbatim("curl " * 10 + "end", indent=4)
    assert stream.getvalue() == "    " + "curl " * 10 + "end\n"


def test_the_last_column_of_a_table_wraps_in_its_column() -> None:
    page, stream = printer(terminal=True, width=40)
    page.table(("A", "STATE", "LAST"), [(("name", "idle"), ["word " * 8])])
    head, first, *others = stream.getvalue().splitlines()
    assert head == "A     STATE  LAST"
    assert first.startswith("name  idle   word") and others
    assert all(line.startswith(" " * 13 + "word") for line in others)


def test_a_single_line_stays_one_and_is_cut_to_the_width() -> None:
    page, stream = printer(terminal=True, width=20)
    page.single("one\ntwo ", ("three " * 10, output.DIM), most=50)
    assert stream.getvalue() == "one two three three…\n"
    page, stream = printer(width=20)
    page.single("word " * 30, most=50)
    assert len(stream.getvalue()) == 51


def test_a_field_keeps_its_text_in_its_own_column() -> None:
    page, stream = printer(terminal=True, width=40)
    page.field("hint", "one two three four five six seven eight nine", indent=2, width=8)
    assert stream.getvalue().splitlines() == [
        "  hint    one two three four five six",
        "          seven eight nine",
    ]


def test_a_field_of_several_lines_keeps_them() -> None:
    page, stream = printer()
    page.field("stderr", "first\n\nthird", indent=0, width=8)
    assert stream.getvalue() == "stderr  first\n\n        third\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("grüße 😀", "grüße 😀"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\rb", "a\\x0db"),
        ("bell\x07", "bell\\x07"),
        ("c1\x9b31m", "c1\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("tab\tbed", "tab\tbed"),
    ],
)
def test_nothing_that_is_printed_can_move_the_cursor(text: str, shown: str) -> None:
    assert output.safe(text) == shown
    page, stream = printer()
    page.line(text)
    assert "\x1b" not in stream.getvalue()


def test_square_brackets_are_no_markup() -> None:
    page, stream = printer()
    page.line("[red]tools[0].name[/red] :smile:")
    assert stream.getvalue() == "[red]tools[0].name[/red] :smile:\n"


def test_symbols_become_words_where_the_stream_is_not_utf_8() -> None:
    page, stream = printer(encoding="ascii")
    page.line(output.OK, " ", output.BAD, " ", output.SKIP, output.DOT, "…")
    assert stream.getvalue() == "ok x - - ...\n"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.0 ms"), (9.94, "9.9 ms"), (38.4, "38 ms"), (999, "999 ms"), (1240, "1.24 s")],
)
def test_a_duration_has_as_many_digits_as_help(milliseconds: float, text: str) -> None:
    assert output.duration(milliseconds) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert output.count(1, "error") == "1 error"
    assert output.count(2, "error") == "2 errors"
    assert output.count(0, "process", "processes") == "0 processes"


@pytest.mark.parametrize(
    ("value", "document"),
    [
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ({"path": "odd\udcff"}, '{"path":"odd\\\\udcff"}'),
        (["\ud800", {"\udc80": None}, ("x",)], '["\\\\ud800",{"\\\\udc80":null},["x"]]'),
    ],
)
def test_text_that_is_not_unicode_is_encoded_as_json(value: Any, document: str) -> None:
    assert output.json_bytes(value).decode() == document


def test_a_document_keeps_every_digit(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output.print_document(b'{"big":18446744073709551615,"fine":0.1000000000000000055}')
    assert capfdbinary.readouterr().out == b'{\n  "big": 18446744073709551615,\n  "fine": 0.1000000000000000055\n}\n'


def test_a_document_has_no_raw_control_characters_and_still_means_the_same(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    value = {"c1": "a\x9bb", "del": "\x7f", "bidi": "\u202e"}
    output.print_document(json.dumps(value, ensure_ascii=False).encode())
    printed = capfdbinary.readouterr().out.decode()
    assert json.loads(printed) == value
    assert not any(char in printed for char in "\x9b\x7f\u202e")


def test_json_in_a_pipe_is_one_line(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output.print_json({"a": {"b": [1, 2]}})
    assert capfdbinary.readouterr().out == b'{"a":{"b":[1,2]}}\n'


def test_an_unknown_version_is_left_out() -> None:
    assert (output.known_version("1.0.0"), output.name_with_version("weather", "1.0.0")) == ("1.0.0", "weather 1.0.0")
    assert (output.known_version(UNKNOWN_VERSION), output.name_with_version("weather", UNKNOWN_VERSION)) == (
        "",
        "weather",
    )


def test_a_server_that_has_not_been_greeted_is_shown_without_one(run: Run, cwd: Path) -> None:
    (cwd / "plugbay.toml").write_text('[mcp.notes]\ncommand = ["true"]\n')
    assert run("inspect", "notes").out.startswith("notes\n")
    (cwd / "there").mkdir()
    (cwd / "there" / ".mcp.json").write_text('{"mcpServers": {"notes": {"command": "true"}}}')
    assert run("dev", "there", "--once").err.startswith("notes · mcp · ")
