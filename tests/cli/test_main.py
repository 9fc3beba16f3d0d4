"""The entry points."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.cli.conftest import Run
from tests.support.patience import PATIENCE


def test_a_page_of_help_that_nobody_reads_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "plugbay", "--help"]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    os.close(writing)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_page_of_help_on_a_full_disk_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "plugbay", "--help"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1 and "No space left on device" in done.stderr


def test_help_is_a_success(run: Run) -> None:
    assert run("--help").code == run("-h").code == 0
