"""`plugbay logs`: how a line looks."""

from __future__ import annotations

import pytest

from plugbay.cli import logs as module
from plugbay.cli import output

LINE = {"at": "2026-01-01T00:00:00Z", "source": "host", "level": "warn", "text": "crashed: \x1b[31mexit 1"}


def test_a_line_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    output.out.cache_clear()
    module._show(LINE, as_json=False)
    shown = capsys.readouterr().out
    assert shown.startswith("2026-01-01T00:00:00Z host   crashed: ") and "\x1b" not in shown
    output.out.cache_clear()


def test_for_programs_each_line_is_an_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    module._show(LINE, as_json=True)
    assert capfdbinary.readouterr().out.startswith(b'{"at":"2026-01-01T00:00:00Z"')
