"""A terminal that goes away: what is written to it goes nowhere, and it is known to be gone."""

from __future__ import annotations

import os
import pty

from plugbay.tui.driver import _Forgiving, is_gone


def test_a_terminal_that_was_closed_is_known_to_be_gone_and_takes_whatever_is_written() -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", buffering=1) as file:
        forgiving = _Forgiving(file)
        forgiving.write("here\n")
        forgiving.flush()
        assert os.read(ours, 100) == b"here\r\n"
        assert not is_gone(theirs) and forgiving.isatty() and forgiving.fileno() == theirs
        os.close(ours)
        assert is_gone(theirs)
        assert forgiving.write("gone\n") == 5
        forgiving.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), theirs)  # so that the file itself can be closed
