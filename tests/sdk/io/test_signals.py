"""Signals as calls; how a whole plugin leaves on one is told in test_resident.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import plugbay
from tests.support.patience import PATIENCE

PROLOGUE = f"""
import os, sys
sys.path.insert(0, {str(Path(plugbay.__file__).parents[1])!r})
from plugbay.sdk.io.signals import on_signals
from plugbay.sdk.io.stdio import claim
wire = claim()
"""


@contextmanager
def running(script: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process, and the descriptor of what it says."""
    command = [sys.executable, "-S", "-c", PROLOGUE + script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process, process.stdout.fileno()
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_a_call_while_the_main_thread_is_blocked_and_others_stay_the_authors(number: int) -> None:
    script = """
import signal
on_signals(lambda: (wire.write(b"called"), os._exit(5)))
own = []
signal.signal(signal.SIGUSR1, lambda *_: own.append(1))
wire.write(b"ready")
while not own:
    pass
wire.write(b"own")
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == b"ready"
        process.send_signal(signal.SIGUSR1)
        assert os.read(said, 9) == b"own"
        process.send_signal(number)
        assert os.read(said, 9) == b"called"
        assert process.wait(PATIENCE) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_for_a_copy_ends_the_copy_and_not_the_plugin(number: int) -> None:
    script = f"""
on_signals(lambda: os._exit(5))
hear, say = os.pipe()
copy = os.fork()
if copy == 0:
    try:
        os.write(say, b"x")
        while True:
            pass
    except KeyboardInterrupt:
        os._exit(7)
os.read(hear, 1)
os.kill(copy, {int(number)})
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == (b"-15" if number == signal.SIGTERM else b"7")
        process.terminate()
        assert process.wait(PATIENCE) == 5


def test_a_copy_keeps_what_its_author_does_about_signals() -> None:
    script = """
import signal
on_signals(lambda: os._exit(5))
signal.signal(signal.SIGTERM, lambda *_: os._exit(9))
copy = os.fork()
if copy == 0:
    os.kill(os.getpid(), signal.SIGTERM)
wire.write(b"%d" % os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]))
"""
    with running(script) as (_, said):
        assert os.read(said, 9) == b"9"


def test_away_from_the_main_thread_nothing_is_arranged_and_nothing_left_open() -> None:
    script = """
from _thread import start_new_thread
def attempt():
    before = os.listdir("/dev/fd")
    on_signals(lambda: None)
    wire.write(b"same" if os.listdir("/dev/fd") == before else b"more")
start_new_thread(attempt, ())
wire.read()
"""
    with running(script) as (process, said):
        assert os.read(said, 9) == b"same"
        process.terminate()
        assert process.wait(PATIENCE) == -signal.SIGTERM
