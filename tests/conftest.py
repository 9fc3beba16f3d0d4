"""Fixtures every test may use."""

from __future__ import annotations

import signal

from tests.support.loops import run

__all__ = ["run"]

# Started in the background by a shell, we would ignore SIGINT, and so would every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
