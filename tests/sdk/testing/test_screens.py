"""Keys, the mouse, pictures and output, as a test says and sees them."""

from __future__ import annotations

import pytest

from plugbay.sdk.payloads import from_json
from plugbay.sdk.screens import inputs
from plugbay.sdk.screens.canvas import Canvas
from plugbay.sdk.testing.screens import CliOutput, Drawing, key_event, mouse_event


@pytest.mark.parametrize(
    "name", ["a", "A", "é", "space", "+", "ctrl++", "ctrl+a", "alt+enter", "shift+tab", "f12", "page_up", "super+x"]
)
def test_a_key_is_heard_under_the_name_it_was_pressed_with(name: str) -> None:
    assert inputs.key(key_event(name)).name == inputs.canonical(name)


def test_a_key_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no key is called 'hyper'"):
        key_event("hyper")


def test_the_mouse_is_heard_as_it_was_used() -> None:
    assert inputs.mouse(mouse_event("down", 3, 1, "left")) == inputs.Mouse("down", "left", 3, 1, 0)
    assert inputs.mouse(mouse_event("moved", 0, 0)) == inputs.Mouse("moved", None, 0, 0, 0)


def test_a_picture_reads_as_lines_of_text() -> None:
    canvas = Canvas(6, 2)
    canvas.text(0, 0, "日本 x", bold=True)
    drawing = Drawing(from_json(canvas.picture().json))
    assert drawing.lines() == ["日本 x", ""]
    assert drawing.text == "日本 x"
    assert (drawing.width, drawing.height, drawing.redraw, drawing.captures_text) == (6, 2, False, False)


def test_output_is_bytes() -> None:
    assert CliOutput.read({"stdout": "/w==", "stderr": "", "exit_code": 3}) == CliOutput(b"\xff", b"", 3)
