"""How an exit is read and told."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from plugbay.process.status import ExitStatus, signal_name


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ExitStatus(code=0), "exit code 0"),
        (ExitStatus(code=3), "exit code 3"),
        (ExitStatus(signal=signal.SIGSEGV), "killed by SIGSEGV"),
        (ExitStatus(signal=250), "killed by signal 250"),
        (ExitStatus(), "exit status unknown"),
    ],
)
def test_an_exit_is_described_in_words(status: ExitStatus, words: str) -> None:
    assert status.describe() == words


def test_only_exit_code_zero_is_clean() -> None:
    assert ExitStatus(code=0).clean
    assert not ExitStatus(code=1).clean
    assert not ExitStatus(signal=9).clean
    assert not ExitStatus().clean


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", ExitStatus(code=0)),
        ("exit 3", ExitStatus(code=3)),
        ("kill -9 $$", ExitStatus(signal=9)),
        ("kill -15 $$", ExitStatus(signal=15)),
    ],
)
def test_a_wait_status_is_read(script: str, status: ExitStatus) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", script])
    _, raw = os.waitpid(process.pid, 0)
    process.returncode = 0
    assert ExitStatus.from_wait(raw) == status


def test_a_signal_has_its_name() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM"
