"""Fixtures every test may use."""

from __future__ import annotations

import os
import signal
import sys

from tests.support.loops import run

__all__ = ["run"]

# Started in the background by a shell, we would ignore SIGINT, and so would every process a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling everything takes each worker 20 s, and each program that a test starts 2 s. So it is done once, even for
# those who asked for no bytecode, as images of containers do; git ignores it.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
